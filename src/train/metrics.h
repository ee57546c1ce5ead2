// metrics.jsonl: one JSON object a step, for people, plots and other tools. Written so that
// neither a kill nor a full disk costs more than the lines that could not be written. A line that
// is taken out of the file is never lost: it goes to metrics.jsonl.cut.
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
  std::optional<double> val_loss;  ///< After the update, where it was evaluated.
};

std::string to_json(const MetricsRecord& record);

/// Larger files are refused (some four million steps).
inline constexpr std::int64_t kMaxMetricsBytes = std::int64_t{512} << 20;

/// What is appended to a metrics file's name for the file that keeps the lines taken out of it.
inline constexpr std::string_view kCutSuffix = ".cut";

/// The records of a file in the order of their steps. Damaged lines, and lines whose step is not
/// larger than the one before, are skipped. kNotFound, kIo; kInvalidFile for a file that is too
/// large.
Result<std::vector<MetricsRecord>> read_metrics(const std::string& path);

class MetricsFile {
 public:
  /// Keeps the file's valid lines of steps 1 to `step`, and goes on behind them. The others
  /// (damaged, out of order, torn, of later steps) are appended to PATH.cut before they are taken
  /// out; a warning is logged that names the lines that are not of later steps. kIo; kInvalidFile
  /// for a file that is too large.
  static Result<MetricsFile> open(const std::string& path, std::int64_t step);

  /// Writes and flushes a line. After a failure, every later call first tries to write what is
  /// still missing; the error is given once per outage, then nothing until it works again.
  Status write(const MetricsRecord& record);
  /// Makes what was written durable. The same errors.
  Status sync();
  /// Puts a record in the place of the file's last line, atomically. Only for a file that nothing
  /// was written to since open(). kIo.
  Status replace_last(const MetricsRecord& record);

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
