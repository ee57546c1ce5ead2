#include "train/metrics.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "support/file_faults.h"
#include "support/temp_dir.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;
using test::FileCall;

MetricsRecord record(std::int64_t step) {
  return {.step = step,
          .loss = 1.0 / static_cast<double>(step),
          .lr = 1e-3,
          .grad_norm = 0.5,
          .tokens_per_s = 1000.0,
          .val_loss = {}};
}

class Metrics : public testing::Test {
 protected:
  std::string path() const { return dir_.file("metrics.jsonl"); }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> out;
    const auto records = read_metrics(path());
    if (!records) return {-1};
    for (const MetricsRecord& r : *records) out.push_back(r.step);
    return out;
  }
  test::TempDir dir_;
};

TEST_F(Metrics, AreOneObjectALine) {
  MetricsRecord r = record(2);
  EXPECT_EQ(to_json(r), R"({"step":2,"loss":0.5,"lr":0.001,"grad_norm":0.5,"tokens_per_s":1000})");
  r.val_loss = 4.25;
  EXPECT_THAT(to_json(r), testing::EndsWith(R"(,"val_loss":4.25})"));
}

// An archive makes such a file from nothing.
TEST_F(Metrics, EndlessOnesAreNotRead) {
  test::put_file(path(), "");
  std::filesystem::resize_file(path(), std::uintmax_t{12} << 30);
  expect_error(read_metrics(path()), ErrorCode::kInvalidFile, "12884901888 bytes, more than the");
  expect_error(MetricsFile::open(path(), 1), ErrorCode::kInvalidFile, "more than the");
}

TEST_F(Metrics, AreReadBack) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  MetricsRecord second = record(2);
  second.val_loss = 0.1 + 0.2;
  ASSERT_TRUE(file.write(record(1)));
  ASSERT_TRUE(file.write(second));
  ASSERT_TRUE(file.sync());
  VOLTA_ASSERT_OK(const auto records, read_metrics(path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].loss, 1.0);
  EXPECT_FALSE(records[0].val_loss);
  EXPECT_EQ(records[1].val_loss, second.val_loss);
  expect_error(read_metrics(dir_.file("none")), ErrorCode::kNotFound, "none");
}

TEST_F(Metrics, EveryLineIsInTheFileAtOnce) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  ASSERT_TRUE(file.write(record(1)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1}));
}

TEST_F(Metrics, AreCutToTheStep) {
  const auto line = [](std::int64_t step) { return to_json(record(step)) + "\n"; };
  test::put_file(path(), line(1) + line(2) + line(3) + line(4));
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 2));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2));
  ASSERT_TRUE(file.write(record(3)));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2) + line(3));
  VOLTA_ASSERT_OK(MetricsFile empty, MetricsFile::open(path(), 0));
  EXPECT_EQ(test::get_file(path()), "");
}

TEST_F(Metrics, TornAndDamagedLinesAreCutWithAllBehindThem) {
  const auto line = [](std::int64_t step) { return to_json(record(step)) + "\n"; };
  const std::vector<std::string> bad = {
      R"({"step":2,"lo)",      // Torn.
      to_json(record(2)),      // Whole, but without its end of line.
      line(1),                 // Not in order.
      "not json\n" + line(2),  //
      R"({"step":"2"})"        //
      "\n" +
          line(3),  // A step that is no number.
      R"({"step":2,"loss":1,"lr":1,"grad_norm":1,"tokens_per_s":1,"val_loss":"x"})"
      "\n",
  };
  for (const std::string& tail : bad) {
    test::put_file(path(), line(1) + tail);
    VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 10));
    EXPECT_EQ(test::get_file(path()), line(1)) << tail;
  }
}

TEST_F(Metrics, AnOutageIsToldOnceAndNothingIsLost) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  ASSERT_TRUE(file.write(record(1)));
  {
    test::FaultyFileOps faults;
    faults.fail(FileCall::kWrite, 1, ENOSPC);
    const ScopedFileOps scope(faults);
    expect_error(file.write(record(2)), ErrorCode::kIo, "No space left");
    EXPECT_TRUE(file.write(record(3)));
    EXPECT_TRUE(file.sync());
  }
  EXPECT_TRUE(file.write(record(4)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
  {
    test::FaultyFileOps faults;
    faults.fail(FileCall::kFsync, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_TRUE(file.write(record(5)));
    expect_error(file.sync(), ErrorCode::kIo, "");
  }
  EXPECT_TRUE(file.write(record(6)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Metrics, AHalfWrittenLineIsRepaired) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  ASSERT_TRUE(file.write(record(1)));
  {
    test::FaultyFileOps faults;
    faults.limit_transfers(10);
    faults.fail(FileCall::kWrite, 2, ENOSPC);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(file.write(record(2)));
  }
  EXPECT_TRUE(file.write(record(3)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(Metrics, AFileThatVanishesIsMadeAgain) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  ASSERT_TRUE(file.write(record(1)));
  {
    test::FaultyFileOps faults;
    faults.fail(FileCall::kWrite, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(file.write(record(2)));
  }
  ASSERT_EQ(std::remove(path().c_str()), 0);
  EXPECT_TRUE(file.write(record(3)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(Metrics, OpeningFailsWithAReason) {
  expect_error(MetricsFile::open(dir_.file("no/such/folder"), 0), ErrorCode::kIo, "");
  test::put_file(path(), "x\n");
  for (const FileCall call : {FileCall::kOpen, FileCall::kRead, FileCall::kFtruncate}) {
    test::FaultyFileOps faults;
    faults.fail(call, 1, EIO);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(MetricsFile::open(path(), 0));
  }
}

}  // namespace
}  // namespace volta
