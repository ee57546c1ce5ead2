// Comparing what a token costs now with a stored report of `volta bench infer --output json`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace volta::cli {

/// The medians at one prompt length, in seconds.
struct Latency {
  std::int64_t prompt = 0;
  double first_token = 0.0;
  double token = 0.0;
};

/// What times depend on, besides the device.
struct LatencySetting {
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;  ///< As the weights are kept, in whatever format.
  std::string dtype;              ///< Of the computation.
  std::int64_t tokens = 0;        ///< Of every answer.
};

struct LatencyBaseline {
  std::string path;
  LatencySetting setting;
  std::vector<Latency> latencies;
};

/// Reads a stored report. kInvalidFile if it is none. kInvalidArgument if it was measured on
/// another device, with another instruction set or with another number of threads: such times say
/// nothing.
Result<LatencyBaseline> read_baseline(const std::string& path, const DeviceInfo& device);

/// kMismatch, naming each time that is more than `limit` per cent above its stored one.
/// kInvalidArgument if the setting was another one, or no prompt length was measured both times.
Status compare_latencies(std::span<const Latency> now, const LatencySetting& setting,
                         const LatencyBaseline& baseline, double limit);

}  // namespace volta::cli
