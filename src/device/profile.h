// Profile: what a ProfilingDevice measured, as plain data, and the formats in which it can be
// written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] volta {

/// The sums over all calls with the same op, attributes and input shapes (or with the same label).
struct ProfileRow {
  std::string op;      ///< "MatMul{transpose_b, bias}"; empty in rows of labels.
  std::string shapes;  ///< Of the inputs: "f32[1, 128], f32[128, 384]"; empty in rows of labels.
  std::string label;   ///< "h.0.attn"; empty in rows of ops.
  std::int64_t calls = 0;
  std::int64_t total_ns = 0;
  std::int64_t min_ns = 0;  ///< Of the fastest call.
  std::int64_t max_ns = 0;
  std::int64_t bytes = 0;  ///< The least that all calls together had to move (see OpCost).
  std::int64_t flops = 0;  ///< Of all calls together.

  double gigabytes_per_second() const;
  double gigaflops_per_second() const;
  double mean_ns() const;
};

/// One call on the timeline.
struct ProfileEvent {
  std::int32_t source = -1;   ///< Index into Profile::sources; -1 for the run of a whole plan.
  std::uint32_t thread = 0;   ///< A small number for the calling thread.
  std::int64_t start_ns = 0;  ///< Since the profile began.
  std::int64_t duration_ns = 0;
};

/// What events refer to: all calls with the same op, shapes and label.
struct ProfileSource {
  std::string op;
  std::string op_name;  ///< Without attributes.
  std::string shapes;
  std::string label;
  std::int64_t bytes = 0;  ///< Of one call.
  std::int64_t flops = 0;
};

struct Profile {
  std::string device;              ///< "cpu (AMD EPYC ..., avx512, 2 threads)"
  std::vector<ProfileRow> ops;     ///< One row per op and input shapes, most time first.
  std::vector<ProfileRow> labels;  ///< One row per label, most time first.
  std::int64_t executions = 0;     ///< Number of plan runs that completed.
  std::int64_t total_ns = 0;       ///< Time spent in ops.
  std::vector<ProfileSource> sources;
  std::vector<ProfileEvent> events;  ///< The latest ones, oldest first.
  std::int64_t dropped_events = 0;   ///< Number of older events that did not fit.
};

/// The formats in which a profile can be written.
enum class ProfileFormat : std::uint8_t { kTable, kCsv, kJson, kTrace };
/// The format for a file name: .csv; .trace.json or .trace; .json; a table for any other name.
ProfileFormat profile_format_for(std::string_view path);
std::string to_text(const Profile& profile, ProfileFormat format);

/// For people: ops sorted by time, with their share, calls, times, GB/s and GFLOP/s; then labels.
std::string profile_table(const Profile& profile);
/// kind,op,shapes,label,calls,total_ns,mean_ns,min_ns,max_ns,bytes,flops,gb_per_s,gflop_per_s with
/// a header line; kind is "op" or "label". RFC 4180 quoting.
std::string profile_csv(const Profile& profile);
/// {"device", "executions", "total_ns", "dropped_events", "ops": [..], "labels": [..]}
std::string profile_json(const Profile& profile);
/// Trace Event JSON (complete events, microseconds), which opens in Perfetto and chrome://tracing.
std::string profile_trace(const Profile& profile);

}  // namespace volta
