#include "train/metrics.h"

#include <utility>

#include "base/json.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxStep = std::int64_t{1} << 40;
constexpr std::int64_t kMaxMetricsBytes = std::int64_t{1} << 30;  // Some five million steps.
constexpr JsonLimits kLineLimits{.max_bytes = 1 << 16, .max_values = 64, .max_depth = 4};

Result<MetricsRecord> parse_record(std::string_view line, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(line, name, kLineLimits));
  const JsonRef root(json, name);
  MetricsRecord record;
  VOLTA_TRY(record.step, root.get_int("step", 1, kMaxStep));
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

// The records of whole, valid lines in the order of their steps, and the bytes these lines take.
struct Lines {
  std::vector<MetricsRecord> records;
  std::size_t bytes = 0;
};
Lines parse_lines(std::string_view text, std::string_view name, std::int64_t last_step) {
  Lines lines;
  std::int64_t step = 0;
  for (;;) {
    const std::string_view rest = text.substr(lines.bytes);
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return lines;
    const auto record = parse_record(rest.substr(0, end), name);
    if (!record || record->step <= step || record->step > last_step) return lines;
    step = record->step;
    lines.records.push_back(*record);
    lines.bytes += end + 1;
  }
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
  return parse_lines(text, path, kMaxStep).records;
}

Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t step) {
  MetricsFile file(path);
  if (path_exists(path)) {
    VOLTA_TRY(const std::string text, read_text_file(path, kMaxMetricsBytes));
    file.good_bytes_ = static_cast<std::int64_t>(parse_lines(text, path, step).bytes);
  }
  VOLTA_TRY(file.reopen());
  return file;
}

// Cuts what may be torn and goes on behind the last line that is known to be whole.
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

// Lets the first error of an outage through.
Status MetricsFile::once(Status status) {
  const bool told = std::exchange(failing_, !status.has_value());
  if (!status && told) return {};
  return status;
}

}  // namespace volta
