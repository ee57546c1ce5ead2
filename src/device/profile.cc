// The formats in which a profile can be written.
#include "device/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace volta {

namespace {

double per(std::int64_t amount, std::int64_t divisor) {
  return divisor > 0 ? static_cast<double>(amount) / static_cast<double>(divisor) : 0.0;
}

// A CSV field (RFC 4180).
std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// Microseconds, with all nanoseconds as decimals.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

void append_table(std::string& out, const std::vector<ProfileRow>& rows, std::int64_t total_ns,
                  std::string_view title) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "\n{:>6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n", "share",
                 "calls", "total ms", "mean us", "min us", "max us", "GB/s", "GFLOP/s", title);
  for (const ProfileRow& row : rows) {
    const std::string name = row.op.empty() ? (row.label.empty() ? "-" : row.label)
                                            : fmt::format("{} ({})", row.op, row.shapes);
    fmt::format_to(to,
                   "{:>5.1f}%  {:>9}  {:>9.3f}  {:>9.2f}  {:>9.2f}  {:>9.2f}  {:>9.2f}  {:>9.2f}  "
                   "{}\n",
                   100.0 * per(row.total_ns, total_ns), row.calls,
                   static_cast<double>(row.total_ns) * 1e-6, row.mean_ns() * 1e-3,
                   static_cast<double>(row.min_ns) * 1e-3, static_cast<double>(row.max_ns) * 1e-3,
                   row.gigabytes_per_second(), row.gigaflops_per_second(), name);
  }
}

void append_csv(std::string& out, const std::vector<ProfileRow>& rows, std::string_view kind) {
  for (const ProfileRow& row : rows) {
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{:.1f},{},{},{},{},{:.4f},{:.4f}\n",
                   kind, csv_field(row.op), csv_field(row.shapes), csv_field(row.label), row.calls,
                   row.total_ns, row.mean_ns(), row.min_ns, row.max_ns, row.bytes, row.flops,
                   row.gigabytes_per_second(), row.gigaflops_per_second());
  }
}

void append_json(JsonWriter& json, std::string_view key, const std::vector<ProfileRow>& rows) {
  json.key(key).begin_array();
  for (const ProfileRow& row : rows) {
    json.begin_object();
    if (row.op.empty()) {
      json.field("label", row.label);
    } else {
      json.field("op", row.op).field("shapes", row.shapes);
    }
    json.field("calls", row.calls)
        .field("total_ns", row.total_ns)
        .field("mean_ns", row.mean_ns())
        .field("min_ns", row.min_ns)
        .field("max_ns", row.max_ns)
        .field("bytes", row.bytes)
        .field("flops", row.flops)
        .field("gb_per_s", row.gigabytes_per_second())
        .field("gflop_per_s", row.gigaflops_per_second())
        .end_object();
  }
  json.end_array();
}

// One complete event of the Trace Event format.
void append_event(JsonWriter& json, const Profile& profile, const ProfileEvent& event) {
  json.begin_object();
  if (event.source < 0) {
    json.field("name", "execute").field("cat", "plan");
  } else {
    const ProfileSource& source = profile.sources[static_cast<std::size_t>(event.source)];
    const std::string separator = source.label.empty() ? "" : " ";
    json.field("name", source.op_name + separator + source.label).field("cat", "op");
    json.key("args")
        .begin_object()
        .field("op", source.op)
        .field("label", source.label)
        .field("shapes", source.shapes)
        .field("bytes", source.bytes)
        .field("flops", source.flops)
        .end_object();
  }
  json.field("ph", "X").key("ts").raw(microseconds(event.start_ns));
  json.key("dur").raw(microseconds(event.duration_ns));
  json.field("pid", 1).field("tid", event.thread).end_object();
}

}  // namespace

// Bytes per nanosecond are gigabytes per second.
double ProfileRow::gigabytes_per_second() const { return per(bytes, total_ns); }
double ProfileRow::gigaflops_per_second() const { return per(flops, total_ns); }
double ProfileRow::mean_ns() const { return per(total_ns, calls); }

ProfileFormat profile_format_for(std::string_view path) {
  if (path.ends_with(".csv")) return ProfileFormat::kCsv;
  if (path.ends_with(".trace.json") || path.ends_with(".trace")) return ProfileFormat::kTrace;
  if (path.ends_with(".json")) return ProfileFormat::kJson;
  return ProfileFormat::kTable;
}

std::string to_text(const Profile& profile, ProfileFormat format) {
  switch (format) {
    case ProfileFormat::kCsv:
      return profile_csv(profile);
    case ProfileFormat::kJson:
      return profile_json(profile);
    case ProfileFormat::kTrace:
      return profile_trace(profile);
    case ProfileFormat::kTable:
      break;
  }
  return profile_table(profile);
}

std::string profile_table(const Profile& profile) {
  std::string out = fmt::format("device {}: {} in ops, {} plan executions\n", profile.device,
                                format_duration(static_cast<double>(profile.total_ns) * 1e-9),
                                profile.executions);
  append_table(out, profile.ops, profile.total_ns, "op (input shapes)");
  append_table(out, profile.labels, profile.total_ns, "label");
  return out;
}

std::string profile_csv(const Profile& profile) {
  std::string out =
      "kind,op,shapes,label,calls,total_ns,mean_ns,min_ns,max_ns,bytes,flops,gb_per_s,"
      "gflop_per_s\n";
  append_csv(out, profile.ops, "op");
  append_csv(out, profile.labels, "label");
  return out;
}

std::string profile_json(const Profile& profile) {
  JsonWriter json(2);
  json.begin_object()
      .field("device", profile.device)
      .field("executions", profile.executions)
      .field("total_ns", profile.total_ns)
      .field("dropped_events", profile.dropped_events);
  append_json(json, "ops", profile.ops);
  append_json(json, "labels", profile.labels);
  json.end_object();
  return std::move(json).take() + "\n";
}

std::string profile_trace(const Profile& profile) {
  JsonWriter json;
  json.begin_object().field("displayTimeUnit", "ns");
  json.key("otherData")
      .begin_object()
      .field("device", profile.device)
      .field("dropped_events", profile.dropped_events)
      .end_object();
  json.key("traceEvents").begin_array();
  json.begin_object().field("name", "process_name").field("ph", "M").field("pid", 1);
  json.key("args")
      .begin_object()
      .field("name", "volta " + profile.device)
      .end_object()
      .end_object();
  for (const ProfileEvent& event : profile.events) append_event(json, profile, event);
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

}  // namespace volta
