// metrics.jsonl: one JSON object per step, for people, plots and other tools. A kill or a full disk
// loses no more than the lines that could not be written. A line that is removed from the file is
// not lost: it is appended to metrics.jsonl.cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/result.h"

namespace volta {

/// One line: {"step":1,"loss":4.2,"lr":0.001,"grad_norm":0.8,"tokens_per_s":51000,"val_loss":4.1}.
struct MetricsRecord {
  std::int64_t step = 0;  ///< Updates done, from 1.
  double loss = 0.0;      ///< Of the step's batch, before its update.
  double lr = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double tokens_per_s = 0.0;
  std::optional<double> val_loss;  ///< After the update, when it was evaluated.
};

std::string to_json(const MetricsRecord& record);

/// Larger files are refused. This is enough for about four million steps.
inline constexpr std::int64_t kMaxMetricsBytes = std::int64_t{512} << 20;

/// The lines that are removed from a metrics file are kept in a file of that name + kCutSuffix.
inline constexpr std::string_view kCutSuffix = ".cut";

/// The records of a file in the order of their steps. Damaged lines, and lines whose step is not
/// larger than the one before, are skipped. kNotFound, kIo; kInvalidFile for a file that is too
/// large.
Result<std::vector<MetricsRecord>> read_metrics(const std::string& path);

class MetricsFile {
 public:
  /// Opens a file to continue after step `step`. Its valid lines of steps 1 to `step` stay. All
  /// other lines (damaged, out of order, torn, of later steps) are appended to PATH.cut and then
  /// removed. A warning with their numbers is logged for lines that are damaged or out of order.
  /// kIo; kInvalidFile for a symbolic link, for a file that is too large, and if PATH.cut is needed
  /// and something else than a regular file.
  static Result<MetricsFile> open(const std::string& path, std::int64_t step);

  /// Writes and flushes a line. After a failure, every later call first tries to write the missing
  /// lines. Only the first error of an outage is returned; the calls after it return no error until
  /// writing has worked again.
  Status write(const MetricsRecord& record);
  /// Makes the written lines durable. The same errors.
  Status sync();
  /// Replaces the file's last line by a record, atomically. Nothing may have been written to the
  /// file since open(). kIo.
  Status replace_last(const MetricsRecord& record);
  /// The file has been moved to `path`, with the folder that it lies in.
  void was_moved(std::string path) { path_ = std::move(path); }

 private:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  Status write_pending(bool sync);
  Status reopen();
  Status once(Status status);

  std::string path_;
  std::optional<FileWriter> file_;
  std::int64_t good_bytes_ = 0;  ///< The file's length up to its last whole line.
  std::string pending_;          ///< Whole lines that are not in the file yet.
  bool failing_ = false;
};

}  // namespace volta
