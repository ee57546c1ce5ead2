#include "train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "train/checkpoint_manifest.h"

namespace volta {
namespace {

constexpr JsonLimits kLineLimits{.max_bytes = 1 << 16, .max_values = 64, .max_depth = 4};

Result<MetricsRecord> parse_record(std::string_view line, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(line, name, kLineLimits));
  const JsonRef root(json, name);
  MetricsRecord record;
  VOLTA_TRY(record.step, root.get_int("step", 1, kMaxPlausibleCount));
  VOLTA_TRY(record.loss, root.get_float("loss"));
  VOLTA_TRY(record.lr, root.get_float("lr"));
  VOLTA_TRY(record.grad_norm, root.get_float("grad_norm"));
  VOLTA_TRY(record.tokens_per_s, root.get_float("tokens_per_s"));
  VOLTA_TRY(const auto val_loss, root.optional_member("val_loss"));
  if (val_loss) {
    VOLTA_TRY(record.val_loss, val_loss->as_float());
  }
  return record;
}

// The lines of a file, sorted by what happens to them when a run continues after `last_step`. They
// are views of the file's text without line ends.
struct Lines {
  std::vector<MetricsRecord> records;  // Of the lines that stay.
  std::vector<std::string_view> staying;
  std::vector<std::string_view> cut;
  std::vector<std::int64_t> damaged;  // Line numbers (from 1) of unexpected cut lines.
};
// kOutOfMemory: a line that cannot be read for want of memory is not damaged.
Result<Lines> sort_lines(std::string_view text, std::string_view name, std::int64_t last_step) {
  Lines lines;
  std::int64_t step = 0;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const bool torn = end == std::string_view::npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(torn ? text.size() : end + 1);
    const auto record = parse_record(line, name);
    if (!record && record.error().code() == ErrorCode::kOutOfMemory) {
      return std::unexpected(record.error());
    }
    if (record && record->step > step && record->step <= last_step) {
      step = record->step;
      lines.records.push_back(*record);
      lines.staying.push_back(line);
      continue;
    }
    lines.cut.push_back(line);
    // A kill can cut off the last line, and steps after the checkpoint are computed again.
    const bool expected = torn || (record && record->step > last_step);
    if (!expected) lines.damaged.push_back(number);
  }
  return lines;
}

std::string join_lines(std::span<const std::string_view> lines) {
  std::string text;
  for (const std::string_view line : lines) text.append(line).append("\n");
  return text;
}

// "3", "3, 7", "1, 2, 3, 4, 5, 6, 7, 8 and 12 more".
std::string enumerate(std::span<const std::int64_t> numbers) {
  constexpr std::size_t kMost = 8;
  const std::size_t shown = std::min(numbers.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(numbers.first(shown), ", "));
  if (numbers.size() > shown) text += fmt::format(" and {} more", numbers.size() - shown);
  return text;
}

// No option names this file, so the remedy is another one than for other files.
Status check_place_of_cut_lines(const std::string& path, const std::string& place) {
  const bool file = !path_exists(place) || file_size(place);
  if (file && !is_link(place)) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}': lines that are not of the checkpoint's steps are moved to '{}', "
                          "which is not a regular file: remove it, or move it away",
                          path, place));
}

// Appends the removed lines to the file that keeps them, and makes that file durable.
Status save_cut_lines(const std::string& path, const Lines& lines) {
  const std::string place = path + std::string(kCutSuffix);
  VOLTA_TRY(check_place_of_cut_lines(path, place));
  VOLTA_TRY(FileWriter file, FileWriter::open(place, FileWriter::Mode::kAppend));
  for (const std::string_view line : lines.cut) {
    VOLTA_TRY(file.write(line));
    VOLTA_TRY(file.write(std::string_view("\n")));
  }
  VOLTA_TRY(file.sync());
  VOLTA_TRY(file.close());
  if (lines.damaged.empty()) {
    log(LogLevel::kInfo, fmt::format("lines of '{}' that are not of the checkpoint's steps are "
                                     "kept in '{}'",
                                     path, place));
  } else {
    log(LogLevel::kWarning,
        fmt::format("'{}': damaged or out of order, and now kept in '{}': {} {}. All other lines "
                    "of the checkpoint's steps stay",
                    path, place, lines.damaged.size() == 1 ? "line" : "lines",
                    enumerate(lines.damaged)));
  }
  return {};
}

}  // namespace

std::string to_json(const MetricsRecord& record) {
  JsonWriter json;
  json.begin_object().field("step", record.step).field("loss", record.loss);
  json.field("lr", record.lr).field("grad_norm", record.grad_norm);
  json.field("tokens_per_s", record.tokens_per_s);
  if (record.val_loss) json.field("val_loss", *record.val_loss);
  json.end_object();
  return std::move(json).take();
}

Result<std::vector<MetricsRecord>> read_metrics(const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxMetricsBytes));
  VOLTA_TRY(const Lines lines, sort_lines(text, path, kMaxPlausibleCount));
  return lines.records;
}

Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t step) {
  if (is_link(path)) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("cannot write '{}': it is a symbolic link; remove it, or use another "
                            "folder",
                            path));
  }
  MetricsFile file(path);
  if (path_exists(path)) {
    VOLTA_TRY(const std::int64_t bytes, file_size(path));
    if (bytes > kMaxMetricsBytes) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("'{}' is {} long, and what a run reads of its metrics at most {}: "
                              "rename it, and the run goes on with a new one (mv {} {})",
                              path, format_bytes(bytes), format_bytes(kMaxMetricsBytes),
                              shell_quoted(path), shell_quoted(path + ".old")));
    }
    VOLTA_TRY(const std::string text, read_text_file(path, kMaxMetricsBytes));
    VOLTA_TRY(const Lines lines, sort_lines(text, path, step));
    for (const std::string_view line : lines.staying) file.good_bytes_ += std::ssize(line) + 1;
    if (!lines.cut.empty()) {
      VOLTA_TRY(save_cut_lines(path, lines));
    }
    if (file.good_bytes_ != std::ssize(text)) {
      VOLTA_TRY(write_file_atomic(path, join_lines(lines.staying)));
    }
  }
  VOLTA_TRY(file.reopen());
  return file;
}

// Cuts off a line that may be incomplete, and continues after the last line known to be complete.
Status MetricsFile::reopen() {
  file_.reset();
  if (path_exists(path_)) {
    VOLTA_TRY(truncate_file(path_, good_bytes_));
  } else {
    good_bytes_ = 0;
  }
  VOLTA_TRY(file_, FileWriter::open(path_, FileWriter::Mode::kAppend));
  return {};
}

Status MetricsFile::write(const MetricsRecord& record) {
  pending_ += to_json(record) + "\n";
  return once(write_pending(false));
}

Status MetricsFile::sync() { return once(write_pending(true)); }

Status MetricsFile::replace_last(const MetricsRecord& record) {
  VOLTA_TRY(std::string text, read_text_file(path_, kMaxMetricsBytes));
  text.resize(text.empty() ? 0 : text.rfind('\n', text.size() - 2) + 1);  // npos + 1 is 0.
  text += to_json(record) + "\n";
  VOLTA_TRY(write_file_atomic(path_, text));
  good_bytes_ = std::ssize(text);
  return reopen();
}

Status MetricsFile::write_pending(bool sync) {
  if (!file_ || failing_) {
    VOLTA_TRY(reopen());
  }
  VOLTA_TRY(file_->write(std::string_view(pending_)));
  VOLTA_TRY(sync ? file_->sync() : file_->flush());
  good_bytes_ += static_cast<std::int64_t>(pending_.size());
  pending_.clear();
  return {};
}

// Returns only the first error of an outage.
Status MetricsFile::once(Status status) {
  const bool told = std::exchange(failing_, !status.has_value());
  if (!status && told) return {};
  return status;
}

}  // namespace volta
