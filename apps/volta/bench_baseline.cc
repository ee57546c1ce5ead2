// See bench_baseline.h.
#include "bench_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kMaxReportBytes = std::int64_t{1} << 20;

Status expect_same(const std::string& path, std::string_view what, const std::string& stored,
                   const std::string& now) {
  if (stored == now) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--baseline {}: it was measured with {} '{}', and this run has '{}'; "
                          "measure a baseline here with --output json",
                          path, what, stored, now));
}

}  // namespace

Result<LatencyBaseline> read_baseline(const std::string& path, const DeviceInfo& device,
                                      DType dtype, std::int64_t tokens) {
  VOLTA_TRY(const std::string text, read_input(path, kMaxReportBytes));
  VOLTA_TRY(const JsonValue json, parse_json(text, input_name(path)));
  const JsonRef root(json, input_name(path));
  VOLTA_TRY(const std::string name, root.get_string("device"));
  VOLTA_TRY(const std::string isa, root.get_string("isa"));
  VOLTA_TRY(const std::int64_t threads, root.get_int("threads"));
  VOLTA_TRY(expect_same(path, "the device", name, device.name));
  VOLTA_TRY(expect_same(path, "the instruction set", isa, device.isa));
  VOLTA_TRY(expect_same(path, "the number of threads", std::to_string(threads),
                        std::to_string(device.threads)));
  VOLTA_TRY(const std::string type, root.get_string("dtype"));
  VOLTA_TRY(const std::int64_t answer, root.get_int("tokens", 1));
  VOLTA_TRY(expect_same(path, "--dtype", type, std::string(dtype_name(dtype))));
  VOLTA_TRY(expect_same(path, "--tokens", std::to_string(answer), std::to_string(tokens)));
  LatencyBaseline baseline{.path = path, .size = {}, .latencies = {}};
  VOLTA_TRY(baseline.size.parameters, root.get_int("parameters", 1));
  VOLTA_TRY(baseline.size.weight_bytes, root.get_int("weight_bytes", 1));
  VOLTA_TRY(const JsonRef lengths, root.member("lengths"));
  VOLTA_TRY(const auto elements, lengths.elements());
  for (const JsonRef& element : elements) {
    constexpr double kLeast = std::numeric_limits<double>::min();
    Latency latency;
    VOLTA_TRY(latency.prompt, element.get_int("prompt", 1));
    VOLTA_TRY(latency.first_token, element.get_float("first_token_s", kLeast));
    VOLTA_TRY(latency.token, element.get_float("token_s", kLeast));
    baseline.latencies.push_back(latency);
  }
  return baseline;
}

Status compare_latencies(std::span<const Latency> now, const ModelSize& size,
                         const LatencyBaseline& baseline, double limit) {
  const ModelSize& stored = baseline.size;
  VOLTA_TRY(expect_same(baseline.path, "a model of",
                        fmt::format("{} parameters", stored.parameters),
                        fmt::format("{} parameters", size.parameters)));
  VOLTA_TRY(expect_same(baseline.path, "weights of", fmt::format("{} bytes", stored.weight_bytes),
                        fmt::format("{} bytes", size.weight_bytes)));
  std::string slower;
  bool compared = false;
  const auto compare = [&](std::string_view what, std::int64_t prompt, double before, double time) {
    const double change = 100.0 * (time / before - 1.0);
    if (change <= limit) return;
    slower += fmt::format("{}{} after {}: {} instead of {} (+{:.0f}%)", slower.empty() ? "" : ", ",
                          what, prompt, format_duration(time), format_duration(before), change);
  };
  for (const Latency& latency : now) {
    const auto before = std::ranges::find(baseline.latencies, latency.prompt, &Latency::prompt);
    if (before == baseline.latencies.end()) continue;
    compared = true;
    compare("the first token", latency.prompt, before->first_token, latency.first_token);
    compare("a token", latency.prompt, before->token, latency.token);
  }
  if (!compared) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--baseline {}: it has none of the prompt lengths of this run; see "
                            "--lengths",
                            baseline.path));
  }
  if (slower.empty()) return {};
  return fail(
      ErrorCode::kMismatch,
      fmt::format("slower than {} by more than {:g}%: {}. Measure again on a quiet machine; "
                  "if it stays, find the change with scripts/bench-guard",
                  baseline.path, limit, slower));
}

}  // namespace volta::cli
