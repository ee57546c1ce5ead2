#include "nn/memory_estimate.h"

#include <algorithm>

#include "graph/passes.h"
#include "graph/plan.h"
#include "nn/decoder.h"
#include "nn/kv_cache.h"
#include "nn/transformer_graph.h"

namespace volta {
namespace {

Result<Plan> plan_for(const TransformerConfig& config,
                      const std::map<std::string, TensorSpec>& weights,
                      const CachedGraphOptions& wanted, DType compute_dtype, Device& device) {
  VOLTA_TRY(const Graph built, build_cached_graph(config, wanted));
  const auto stored = [&](const Value& value) {
    const auto found = weights.find(value.name);
    return found == weights.end() ? value.spec : found->second;
  };
  return plan_for_weights(built, stored, compute_dtype, device);
}

}  // namespace

Result<MemoryEstimate> estimate_memory(const TransformerConfig& config,
                                       const std::map<std::string, TensorSpec>& weights,
                                       const MemoryEstimateOptions& options, Device& device) {
  const std::int64_t capacity = options.capacity == 0 ? config.context : options.capacity;
  MemoryEstimate estimate;
  VOLTA_TRY(estimate.cache,
            TransformerKvCache::bytes_for(config, options.slots, capacity, options.cache_dtype));
  for (const auto& [name, spec] : weights) estimate.weights += spec.bytes();
  CachedGraphOptions wanted{.slots = options.slots,
                            .chunk = 1,
                            .capacity = capacity,
                            .cache_dtype = options.cache_dtype,
                            .sampling = true};
  VOLTA_TRY(const Plan decode, plan_for(config, weights, wanted, options.compute_dtype, device));
  estimate.decode = decode.arena_bytes;
  for (const PlanBinding& binding : decode.bindings) {
    const bool counted = weights.contains(binding.name) || binding.name.starts_with("cache.");
    if (!counted) estimate.tables += binding.spec.bytes();
  }
  wanted.slots = 1;  // Prompts run one after the other, with a plan for each chunk they are cut in.
  for (const std::int64_t chunk : prefill_chunks()) {
    if (chunk > capacity) continue;
    estimate.chunk = std::max(estimate.chunk, chunk);
    wanted.chunk = chunk;
    VOLTA_TRY(const Plan prefill, plan_for(config, weights, wanted, options.compute_dtype, device));
    estimate.prefill += prefill.arena_bytes;
  }
  return estimate;
}

}  // namespace volta
