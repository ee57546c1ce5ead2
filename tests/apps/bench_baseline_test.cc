// volta bench infer --baseline: times over the limit end with exit code 6; what cannot be compared
// is refused. And volta bench history: its table, its JSON and its picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "apps/volta_fixture.h"
#include "base/file.h"
#include "base/json.h"

namespace volta {
namespace {

using test::CommandResult;
using ::testing::HasSubstr;
using ::testing::Not;

class BaselineTest : public test::VoltaTest {
 protected:
  std::vector<std::string> bench(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench",     "infer", "--runs",    "1",
                                          "--tokens",  "4",     "--warmup",  "0",
                                          "--threads", "1",     "--lengths", "4,8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // A report of this machine, in which every time is replaced by `seconds`.
  void store(const std::string& name, const std::string& seconds) const {
    const CommandResult measured = volta(bench({"--output", "json"}));
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    std::string text = measured.out;
    for (const std::string key : {"\"first_token_s\":", "\"token_s\":"}) {
      for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
        const auto begin = at + key.size();
        text.replace(begin, text.find_first_of(",}", begin) - begin, seconds);
      }
    }
    write(name, text);
  }
  // The stored report with one text replaced by another.
  void change(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = *read_text_file(path("slow.json"));
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(name, text.replace(at, from.size(), to));
  }
};

TEST_F(BaselineTest, TimesBelowTheStoredOnesPassAndOthersEndWithSix) {
  store("slow.json", "1000");
  store("fast.json", "1e-9");
  const CommandResult passed = volta(bench({"--baseline", "slow.json"}));
  EXPECT_EQ(passed.exit_code, 0) << passed.err;
  const CommandResult failed = volta(bench({"--baseline", "fast.json"}));
  EXPECT_EQ(failed.exit_code, 6);
  EXPECT_THAT(failed.out, HasSubstr("first token"));  // The report comes all the same.
  EXPECT_THAT(failed.err, HasSubstr("slower than fast.json by more than 10%"));
  EXPECT_THAT(failed.err, HasSubstr("the first token after 4"));
  EXPECT_THAT(failed.err, HasSubstr("a token after 8"));
  const CommandResult alias = volta({"--bench-infer", "--runs", "1", "--tokens", "4", "--threads",
                                     "1", "--lengths", "4", "--baseline", "fast.json"});
  EXPECT_EQ(alias.exit_code, 6);
}

TEST_F(BaselineTest, WhatSaysNothingIsRefusedBeforeItIsMeasured) {
  store("slow.json", "1000");
  change("threads.json", "\"threads\":1", "\"threads\":64");
  expect_error(bench({"--baseline", "threads.json"}), 2, "the number of threads '64'");
  change("isa.json", "\"isa\":\"", "\"isa\":\"old-");
  expect_error(bench({"--baseline", "isa.json"}), 2, "the instruction set 'old-");
  change("token.json", "\"token_s\":1000", "\"token_s\":-1");
  expect_error(bench({"--baseline", "token.json"}), 3, "token_s");
  write("text.json", "fast\n");
  expect_error(bench({"--baseline", "text.json"}), 3, "text.json");
  expect_error(bench({"--baseline", "nothing.json"}), 3, "nothing.json");
  expect_error(bench({"--limit", "5"}), 2, "--limit requires --baseline");
}

TEST_F(BaselineTest, AnotherModelOrOtherLengthsCannotBeCompared) {
  store("slow.json", "1000");
  change("model.json", "\"parameters\":", "\"parameters\":1");
  change("tokens.json", "\"tokens\":", "\"tokens\":1");
  expect_error(bench({"--baseline", "tokens.json"}), 2, "with --tokens '14'");
  EXPECT_THAT(volta(bench({"--baseline", "slow.json", "--dtype", "bf16"})).err,
              HasSubstr("--dtype 'f32'"));
  const CommandResult weights = volta(bench({"--baseline", "slow.json", "--weights", "q8"}));
  EXPECT_EQ(weights.exit_code, 2);
  EXPECT_THAT(weights.err, HasSubstr("weights of '"));
  const CommandResult model = volta(bench({"--baseline", "model.json"}));
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, HasSubstr("a model of '1"));
  const CommandResult lengths =
      volta({"bench", "infer", "--runs", "1", "--tokens", "4", "--threads", "1", "--lengths", "5",
             "--baseline", "slow.json"});
  EXPECT_EQ(lengths.exit_code, 2);
  EXPECT_THAT(lengths.err, HasSubstr("none of the prompt lengths"));
}

class HistoryTest : public test::VoltaTest {
 protected:
  static std::string line(const std::string& commit, const std::string& figures) {
    return R"({"date": "2026-01-02T03:04:05Z", "commit": ")" + commit +
           R"(", "machine": "cpu-2-cores", "isa": "avx2", "figures": {)" + figures + "}}\n";
  }
};

TEST_F(HistoryTest, EachFigureHasItsRowsWithTheirChange) {
  write("history.jsonl", line("aaaaaaaaaaaabbbb", R"("train": 200, "infer": 50.5)") + "\n" +
                             line("cccccccccccc", R"("train": 190)"));
  const CommandResult text = volta({"bench", "history", "history.jsonl"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("cpu-2-cores, avx2\n"));
  EXPECT_THAT(text.out, HasSubstr(" aaaaaaaaaaaa "));
  EXPECT_THAT(text.out, HasSubstr("  50.5 "));
  EXPECT_THAT(text.out, HasSubstr("  190    -5.0%\n"));
  const CommandResult json =
      volta({"bench", "history", "history.jsonl", "--output", "json", "--svg", "new/h.svg"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto parsed = parse_json(json.out, "history");
  ASSERT_TRUE(parsed) << json.out;
  const auto series = JsonRef(*parsed, "history").member("series")->elements();
  ASSERT_TRUE(series);
  ASSERT_EQ(series->size(), 2u);
  EXPECT_EQ(*(*series)[1].get_string("figure"), "train");
  EXPECT_EQ((*series)[1].member("points")->elements()->size(), 2u);
  const auto svg = read_text_file(path("new/h.svg"));
  ASSERT_TRUE(svg);
  EXPECT_THAT(*svg, HasSubstr("train: 190 (cpu-2-cores, avx2)"));
  EXPECT_THAT(*svg, Not(HasSubstr("nan")));
  expect_error({"bench", "history", "history.jsonl", "--svg", "new/h.svg"}, 2, "there already");
  EXPECT_EQ(volta({"bench", "history", "history.jsonl", "--svg", "new/h.svg", "--force"}).exit_code,
            0);
  expect_error({"bench", "history", "history.jsonl", "--svg", "history.jsonl", "--force"}, 2,
               "history.jsonl");
  expect_error({"bench", "history", "history.jsonl", "--force"}, 2, "--force goes with --svg");
}

TEST_F(HistoryTest, AnEmptyHistoryIsNoError) {
  write("history.jsonl", "");
  const CommandResult text = volta({"bench", "history", "history.jsonl", "--svg", "h.svg"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("no figures yet"));
  EXPECT_TRUE(std::filesystem::exists(path("h.svg")));
}

TEST_F(HistoryTest, AWrongLineIsNamed) {
  expect_error({"bench", "history"}, 3, "bench/history.jsonl");
  for (const std::string wrong : {"fast", "{}", "[]"}) {
    write("history.jsonl", line("aaaaaaaaaaaa", R"("train": 200)") + wrong + "\n");
    expect_error({"bench", "history", "history.jsonl"}, 3, "history.jsonl: line 2");
  }
  for (const std::string figures : {R"("train": 0)", R"("train": "fast")", R"("train": -1)"}) {
    write("history.jsonl", line("aaaaaaaaaaaa", figures));
    expect_error({"bench", "history", "history.jsonl"}, 3, "figures.train");
  }
}

}  // namespace
}  // namespace volta
