#include "nn/memory_estimate.h"

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
  const InferenceChoices choices = device.inference_choices(options.compute_dtype);
  const KvCacheSizes sizes{.slots = options.slots,
                           .capacity = options.capacity == 0 ? config.context : options.capacity,
                           .dtype = options.cache_dtype.value_or(choices.cache),
                           .step_rows = choices.step_rows};
  MemoryEstimate estimate;
  VOLTA_TRY(estimate.cache, TransformerKvCache::bytes_for(config, sizes));
  for (const auto& [name, spec] : weights) estimate.weights += spec.bytes();
  const StepSize largest = largest_size(sizes);
  const CachedGraphOptions wanted{
      .rows = largest.rows, .logit_rows = largest.logit_rows, .cache = sizes};
  VOLTA_TRY(const Plan plan, plan_for(config, weights, wanted, options.compute_dtype, device));
  estimate.activations = plan.arena_bytes;
  estimate.rows = largest.rows;
  for (const PlanBinding& binding : plan.bindings) {
    const bool counted = weights.contains(binding.name) || binding.name.starts_with("cache.");
    if (!counted) estimate.tables += binding.spec.bytes();
  }
  return estimate;
}

}  // namespace volta
