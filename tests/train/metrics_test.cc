#include "train/metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/log.h"
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
  expect_error(MetricsFile::open(path(), 1), ErrorCode::kInvalidFile, "rename it, and the run");
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

TEST_F(Metrics, ALinkIsNotFollowed) {
  test::put_file(dir_.file("thesis.tex"), "years of work");
  ASSERT_EQ(::symlink(dir_.file("thesis.tex").c_str(), path().c_str()), 0);
  for (const std::int64_t step : {0, 5}) {
    expect_error(MetricsFile::open(path(), step), ErrorCode::kInvalidFile, "is a symbolic link");
  }
  EXPECT_EQ(test::get_file(dir_.file("thesis.tex")), "years of work");
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::symlink(dir_.file("new").c_str(), path().c_str()), 0);
  expect_error(MetricsFile::open(path(), 0), ErrorCode::kInvalidFile, "is a symbolic link");
  EXPECT_FALSE(path_exists(dir_.file("new")));
}

TEST_F(Metrics, EveryLineIsInTheFileAtOnce) {
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 0));
  ASSERT_TRUE(file.write(record(1)));
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1}));
}

std::string line(std::int64_t step) { return to_json(record(step)) + "\n"; }

// Collects what the library logs.
class LogCapture {
 public:
  LogCapture() {
    set_log_callback([this](LogLevel, std::string_view message) { text_ += message; });
  }
  ~LogCapture() { set_log_callback({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

TEST_F(Metrics, LinesOfLaterStepsAreKeptInASideFile) {
  test::put_file(path(), line(1) + line(2) + line(3) + line(4));
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 2));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2));
  EXPECT_EQ(test::get_file(path() + ".cut"), line(3) + line(4));
  ASSERT_TRUE(file.write(record(3)));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2) + line(3));
  VOLTA_ASSERT_OK(MetricsFile empty, MetricsFile::open(path(), 0));
  EXPECT_EQ(test::get_file(path()), "");
  EXPECT_EQ(test::get_file(path() + ".cut"), line(3) + line(4) + line(1) + line(2) + line(3));
}

TEST_F(Metrics, AWholeFileStaysAsItIs) {
  test::put_file(path(), line(1) + line(2));
  VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 2));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2));
  EXPECT_FALSE(path_exists(path() + ".cut"));
}

// A line that somebody wrote into the file, or a damaged block of the disk, costs no other line.
TEST_F(Metrics, DamagedLinesCostNoOthers) {
  const std::vector<std::string> bad = {
      "# note",
      "",
      std::string(3, '\0'),
      to_json(record(1)),  // Not in order.
      R"({"step":"2"})",   // A step that is no number.
      R"({"step":2,"lo)",  //
      R"({"step":2,"loss":1,"lr":1,"grad_norm":1,"tokens_per_s":1,"val_loss":"x"})"};
  for (const std::string& damaged : bad) {
    std::filesystem::remove(path() + ".cut");
    test::put_file(path(), line(1) + line(2) + damaged + "\n" + line(3) + line(4));
    EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
    const LogCapture log;
    VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 4));
    EXPECT_EQ(test::get_file(path()), line(1) + line(2) + line(3) + line(4)) << damaged;
    EXPECT_EQ(test::get_file(path() + ".cut"), damaged + "\n");
    EXPECT_THAT(log.text(), testing::HasSubstr("line 3."));
    EXPECT_THAT(log.text(), testing::HasSubstr("metrics.jsonl.cut"));
  }
}

TEST_F(Metrics, TheWarningNamesTheFirstDamagedLines) {
  std::string text;
  for (int i = 0; i < 11; ++i) text += "x\n";
  test::put_file(path(), text + line(1));
  const LogCapture log;
  ASSERT_TRUE(MetricsFile::open(path(), 1));
  EXPECT_THAT(log.text(), testing::HasSubstr("lines 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"));
}

TEST_F(Metrics, ATornLastLineGoesAndAWholeOneGetsItsEnd) {
  test::put_file(path(), line(1) + R"({"step":2,"lo)");
  const LogCapture log;
  ASSERT_TRUE(MetricsFile::open(path(), 10));
  EXPECT_EQ(test::get_file(path()), line(1));
  EXPECT_THAT(log.text(), testing::Not(testing::HasSubstr("damaged")));
  test::put_file(path(), line(1) + to_json(record(2)));
  ASSERT_TRUE(MetricsFile::open(path(), 10));
  EXPECT_EQ(test::get_file(path()), line(1) + line(2));
}

TEST_F(Metrics, TheLastLineCanBeReplaced) {
  for (const std::string& before : {std::string(), line(1)}) {
    test::put_file(path(), before + line(2));
    VOLTA_ASSERT_OK(MetricsFile file, MetricsFile::open(path(), 2));
    MetricsRecord last = record(2);
    last.val_loss = 1.5;
    VOLTA_ASSERT_STATUS(file.replace_last(last));
    ASSERT_TRUE(file.write(record(3)));
    EXPECT_EQ(test::get_file(path()), before + to_json(last) + "\n" + line(3));
    EXPECT_FALSE(path_exists(path() + ".cut"));
  }
}

// Nothing is taken out before its copy is on the disk.
TEST_F(Metrics, ACopyThatCannotBeWrittenLeavesTheFile) {
  const std::string text = line(1) + "x\n" + line(2);
  for (const FileCall call : {FileCall::kWrite, FileCall::kFsync, FileCall::kRename}) {
    test::put_file(path(), text);
    test::FaultyFileOps faults;
    faults.fail(call, 1, ENOSPC);
    const ScopedFileOps scope(faults);
    const LogCapture log;
    EXPECT_FALSE(MetricsFile::open(path(), 2));
    EXPECT_EQ(test::get_file(path()), text);
  }
  std::filesystem::remove(path() + ".cut");
}

// No option names the file of cut lines, so the message does not ask for another path.
TEST_F(Metrics, CutLinesNeedAFile) {
  const std::string cut = path() + ".cut";
  const auto refused = [&] {
    test::put_file(path(), line(1) + line(2) + line(3));
    const auto opened = MetricsFile::open(path(), 2);
    expect_error(opened, ErrorCode::kInvalidFile,
                 cut + "', which is not a regular file: remove it, or move it away");
    EXPECT_EQ(test::get_file(path()), line(1) + line(2) + line(3));
  };
  std::filesystem::create_symlink(dir_.file("elsewhere"), cut);
  refused();
  EXPECT_FALSE(path_exists(dir_.file("elsewhere")));
  std::filesystem::remove(cut);
  std::filesystem::create_directory(cut);
  refused();
  std::filesystem::remove(cut);
  ASSERT_EQ(::mkfifo(cut.c_str(), 0600), 0);
  refused();
}

TEST_F(Metrics, AFileOfAbsurdSizeIsRefused) {
  test::put_file(path(), line(1));
  std::filesystem::resize_file(path(), static_cast<std::uintmax_t>(kMaxMetricsBytes) + 1);
  expect_error(MetricsFile::open(path(), 1), ErrorCode::kInvalidFile, "rename it, and the run");
  expect_error(read_metrics(path()), ErrorCode::kInvalidFile, "more than the");
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
