// Estimates the device memory that a running model takes from its sizes alone. Nothing is loaded,
// and nothing of that size is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

struct MemoryEstimateOptions {
  std::int64_t slots = 1;              ///< Sequences at once.
  std::int64_t capacity = 0;           ///< Tokens per sequence; 0: the context.
  std::optional<DType> cache_dtype{};  ///< Of the KV cache; nothing: what the device prefers.
  DType compute_dtype = DType::kF32;
};

/// All sizes are in bytes.
struct MemoryEstimate {
  std::int64_t weights = 0;
  std::int64_t cache = 0;        ///< Of all sequences.
  std::int64_t activations = 0;  ///< Of the largest step, because all steps share one arena.
  std::int64_t tables = 0;       ///< Rotary angles, token counts, inputs.
  std::int64_t rows = 1;         ///< Tokens of the largest step.
  std::int64_t total() const { return weights + cache + activations + tables; }
};

/// Estimates what generation takes with these weights. `weights` are the specs of loaded_specs().
/// kInvalidArgument for sizes that the model cannot have.
Result<MemoryEstimate> estimate_memory(const TransformerConfig& config,
                                       const std::map<std::string, TensorSpec>& weights,
                                       const MemoryEstimateOptions& options, Device& device);

}  // namespace volta
