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

/// What times depend on, besides the device and the options.
struct ModelSize {
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;  ///< As the weights are kept, in whatever format.
};

struct LatencyBaseline {
  std::string path;
  ModelSize size;
  std::vector<Latency> latencies;
};

/// Reads a stored report. kInvalidFile if it is none. kInvalidArgument if it was measured on
/// another device, with another instruction set or number of threads, in another type or for
/// answers of another number of tokens: such times say nothing.
Result<LatencyBaseline> read_baseline(const std::string& path, const DeviceInfo& device,
                                      DType dtype, std::int64_t tokens);

/// kMismatch, naming each time that is more than `limit` per cent above its stored one.
/// kInvalidArgument if the model has another size, or no prompt length was measured both times.
Status compare_latencies(std::span<const Latency> now, const ModelSize& size,
                         const LatencyBaseline& baseline, double limit);

}  // namespace volta::cli
