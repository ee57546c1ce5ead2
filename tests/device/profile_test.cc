// Profile: every format from known numbers.
#include "device/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace volta {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Profile sample() {
  Profile profile;
  profile.device = "cpu (\"Big\" CPU, avx2, 2 threads)";
  profile.executions = 3;
  profile.total_ns = 4'000'000;
  profile.dropped_events = 5;
  profile.ops = {{.op = "MatMul{transpose_b, bias}",
                  .shapes = "f32[1, 4], f32[8, 4]",
                  .label = "",
                  .calls = 2,
                  .total_ns = 3'000'000,
                  .min_ns = 1'000'000,
                  .max_ns = 2'000'000,
                  .bytes = 6'000'000,
                  .flops = 30'000'000},
                 {.op = "Fill", .shapes = "", .label = "", .calls = 1, .total_ns = 1'000'000}};
  profile.labels = {{.op = "", .shapes = "", .label = "h.0", .calls = 2, .total_ns = 3'000'000},
                    {.op = "", .shapes = "", .label = "", .calls = 1, .total_ns = 1'000'000}};
  profile.sources = {{.op = "MatMul{transpose_b, bias}",
                      .op_name = "MatMul",
                      .shapes = "f32[1, 4], f32[8, 4]",
                      .label = "h.0",
                      .bytes = 3'000'000,
                      .flops = 15'000'000},
                     {.op = "Fill", .op_name = "Fill", .shapes = "", .label = ""}};
  profile.events = {{0, 0, 1'500, 2'000'007}, {1, 1, 2'001'507, 20}, {-1, 0, 1'500, 2'000'100}};
  return profile;
}

TEST(Profile, RowsDivide) {
  const ProfileRow row = sample().ops[0];
  EXPECT_DOUBLE_EQ(row.gigabytes_per_second(), 2.0);
  EXPECT_DOUBLE_EQ(row.gigaflops_per_second(), 10.0);
  EXPECT_DOUBLE_EQ(row.mean_ns(), 1'500'000.0);
  EXPECT_EQ(ProfileRow().mean_ns(), 0.0);
  EXPECT_EQ(ProfileRow().gigabytes_per_second(), 0.0);
}

TEST(Profile, TheNameOfAFilePicksTheFormat) {
  EXPECT_EQ(profile_format_for("a.csv"), ProfileFormat::kCsv);
  EXPECT_EQ(profile_format_for("a.trace.json"), ProfileFormat::kTrace);
  EXPECT_EQ(profile_format_for("a.trace"), ProfileFormat::kTrace);
  EXPECT_EQ(profile_format_for("a.json"), ProfileFormat::kJson);
  EXPECT_EQ(profile_format_for("a.txt"), ProfileFormat::kTable);
  const Profile profile = sample();
  EXPECT_EQ(to_text(profile, ProfileFormat::kCsv), profile_csv(profile));
  EXPECT_EQ(to_text(profile, ProfileFormat::kJson), profile_json(profile));
  EXPECT_EQ(to_text(profile, ProfileFormat::kTrace), profile_trace(profile));
  EXPECT_EQ(to_text(profile, ProfileFormat::kTable), profile_table(profile));
}

TEST(Profile, TableIsForPeople) {
  const std::string table = profile_table(sample());
  EXPECT_THAT(table, HasSubstr("4.00 ms in ops, 3 plan executions"));
  EXPECT_THAT(table,
              HasSubstr(" 75.0%          2      3.000    1500.00    1000.00    2000.00       "
                        "2.00      10.00  MatMul{transpose_b, bias} (f32[1, 4], f32[8, 4])"));
  EXPECT_THAT(table, HasSubstr("h.0\n"));
  EXPECT_THAT(table, HasSubstr("0.00  -\n"));  // No label.
}

TEST(Profile, CsvQuotes) {
  Profile profile = sample();
  profile.labels[0].label = "a \"b\"";
  EXPECT_EQ(profile_csv(profile),
            "kind,op,shapes,label,calls,total_ns,mean_ns,min_ns,max_ns,bytes,flops,gb_per_s,"
            "gflop_per_s\n"
            "op,\"MatMul{transpose_b, bias}\",\"f32[1, 4], f32[8, 4]\",,2,3000000,1500000.0,"
            "1000000,2000000,6000000,30000000,2.0000,10.0000\n"
            "op,Fill,,,1,1000000,1000000.0,0,0,0,0,0.0000,0.0000\n"
            "label,,,\"a \"\"b\"\"\",2,3000000,1500000.0,0,0,0,0,0.0000,0.0000\n"
            "label,,,,1,1000000,1000000.0,0,0,0,0,0.0000,0.0000\n");
}

TEST(Profile, JsonParses) {
  const json parsed = json::parse(profile_json(sample()));
  EXPECT_EQ(parsed["device"], "cpu (\"Big\" CPU, avx2, 2 threads)");
  EXPECT_EQ(parsed["executions"], 3);
  EXPECT_EQ(parsed["total_ns"], 4'000'000);
  EXPECT_EQ(parsed["dropped_events"], 5);
  ASSERT_EQ(parsed["ops"].size(), 2u);
  const json& op = parsed["ops"][0];
  EXPECT_EQ(op["op"], "MatMul{transpose_b, bias}");
  EXPECT_EQ(op["shapes"], "f32[1, 4], f32[8, 4]");
  EXPECT_EQ(op["calls"], 2);
  EXPECT_EQ(op["bytes"], 6'000'000);
  EXPECT_EQ(op["flops"], 30'000'000);
  EXPECT_DOUBLE_EQ(op["gb_per_s"], 2.0);
  EXPECT_DOUBLE_EQ(op["gflop_per_s"], 10.0);
  EXPECT_EQ(parsed["labels"][0]["label"], "h.0");
  EXPECT_EQ(parsed["labels"][1]["label"], "");
}

TEST(Profile, TraceHasCompleteEventsInMicroseconds) {
  const json parsed = json::parse(profile_trace(sample()));
  EXPECT_EQ(parsed["otherData"]["dropped_events"], 5);
  const json& events = parsed["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_THAT(events[0]["args"]["name"].get<std::string>(), HasSubstr("volta cpu"));
  EXPECT_EQ(events[1]["name"], "MatMul h.0");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_DOUBLE_EQ(events[1]["ts"], 1.5);
  EXPECT_DOUBLE_EQ(events[1]["dur"], 2000.007);
  EXPECT_EQ(events[1]["tid"], 0);
  EXPECT_EQ(events[1]["args"]["op"], "MatMul{transpose_b, bias}");
  EXPECT_EQ(events[1]["args"]["label"], "h.0");
  EXPECT_EQ(events[1]["args"]["shapes"], "f32[1, 4], f32[8, 4]");
  EXPECT_EQ(events[1]["args"]["flops"], 15'000'000);
  EXPECT_EQ(events[2]["name"], "Fill");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_EQ(events[3]["name"], "execute");
  EXPECT_EQ(events[3]["cat"], "plan");
}

TEST(Profile, EmptyProfilesAreWritten) {
  const Profile empty;
  EXPECT_TRUE(json::parse(profile_json(empty))["ops"].empty());
  EXPECT_EQ(json::parse(profile_trace(empty))["traceEvents"].size(), 1u);
  EXPECT_FALSE(profile_table(empty).empty());
}

}  // namespace
}  // namespace volta
