#include "nn/memory_estimate.h"

#include <algorithm>

#include "graph/passes.h"
#include "graph/plan.h"
#include "nn/kv_cache.h"
#include "nn/step_plans.h"
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
  const KvCacheSizes sizes{
      .slots = options.slots, .capacity = options.capacity, .dtype = options.cache_dtype};
  MemoryEstimate estimate;
  VOLTA_TRY(estimate.cache, TransformerKvCache::bytes_for(config, sizes));
  for (const auto& [name, spec] : weights) estimate.weights += spec.bytes();
  CachedGraphOptions wanted{.cache = sizes};
  // One plan for each number of sequences that may be decoded at once.
  for (std::int64_t rows = 1; rows <= options.slots;) {
    wanted.rows = wanted.logit_rows = step_size(rows, options.slots);
    VOLTA_TRY(const Plan decode, plan_for(config, weights, wanted, options.compute_dtype, device));
    estimate.decode += decode.arena_bytes;
    estimate.tables = 0;  // Those of the largest.
    for (const PlanBinding& binding : decode.bindings) {
      const bool counted = weights.contains(binding.name) || binding.name.starts_with("cache.");
      if (!counted) estimate.tables += binding.spec.bytes();
    }
    rows = wanted.rows + 1;
  }
  // The largest piece of a prompt.
  const std::int64_t capacity = options.capacity == 0 ? config.context : options.capacity;
  wanted.rows = step_size(std::min(capacity, kLargestStep), options.slots);
  wanted.logit_rows = 1;
  VOLTA_TRY(const Plan prefill, plan_for(config, weights, wanted, options.compute_dtype, device));
  estimate.prefill = prefill.arena_bytes;
  estimate.chunk = std::min(capacity, kLargestStep);
  return estimate;
}

}  // namespace volta
