// What the tests of src/nn share: small models of both families, filled with weights that make
// every parameter count, and plans bound to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/helpers.h"
#include "graph/passes.h"
#include "nn/training_graph.h"
#include "nn/transformer.h"
#include "nn/transformer_graph.h"
#include "support/random.h"

namespace volta::test {

/// The value of a Result, or an exception that fails the test with its message.
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return *std::move(result);
}
inline void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}

/// GPT-2's kind of block with every bias.
inline TransformerConfig gpt2_config() {
  return {.vocab_size = 61,
          .context = 320,
          .layers = 2,
          .dim = 32,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 8,
          .ffn = 64,
          .norm_bias = true,
          .attention_bias = true,
          .attention_out_bias = true,
          .ffn_bias = true};
}

/// Llama's kind of block with grouped heads, a window and a free output.
inline TransformerConfig llama_config() {
  return {.vocab_size = 61,
          .context = 320,
          .layers = 2,
          .dim = 32,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 48,
          .naming = WeightNaming::kLlama,
          .position = PositionKind::kRotary,
          .norm = NormKind::kRms,
          .ffn_kind = FfnKind::kGated,
          .activation = Activation::kSilu,
          .norm_eps = 1e-6f,
          .tied_output = false,
          .window = 70};
}

/// A model whose every parameter, biases and norms included, is random and large enough to matter.
inline Transformer lively_model(const TransformerConfig& config, std::shared_ptr<Device> device,
                                std::uint64_t seed = 1) {
  std::map<std::string, Tensor> weights;
  RandomSequence random(RandomKey{.seed = seed, .stream = 77});
  for (const ParameterInfo& info : parameters(config)) {
    const bool matrix = info.shape.rank() >= 2;
    const double mean = info.init == InitKind::kOnes ? 1.0 : 0.0;
    std::vector<float> values(static_cast<std::size_t>(info.shape.elements()));
    for (float& value : values) {
      value = static_cast<float>(mean + (matrix ? 0.25 : 0.15) * next_normal(random));
    }
    weights.emplace(info.name, floats(info.shape, values));
  }
  return must(Transformer::from_weights(config, std::move(weights), std::move(device)));
}

/// `count` ids below `vocab` in no order.
inline std::vector<std::int32_t> some_ids(std::size_t count, std::int64_t vocab,
                                          std::uint64_t seed = 3) {
  RandomSequence random(RandomKey{.seed = seed, .stream = 78});
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) {
    id = static_cast<std::int32_t>(random.next_below(static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

/// 0, 1, ... n - 1.
inline std::vector<std::int32_t> count_up(std::int64_t n) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Tensors that several plans share, by name; what is missing is made of zeros.
using States = std::map<std::string, Tensor>;

/// The graph as it really runs: optimised, planned, bound to the model's weights and `states`.
inline Executable bind_graph(const Graph& graph, const Transformer& model, States& states,
                             const OptimizeOptions& options = {}) {
  Device& device = *model.device();
  const Graph optimized = must(optimize(graph, device, options));
  auto plan = std::make_shared<const Plan>(must(make_plan(optimized, device)));
  return must(device.load(plan, [&](const PlanBinding& binding) -> Result<Tensor> {
    if (binding.kind == ValueKind::kParameter) return model.bind(binding);
    if (binding.kind == ValueKind::kInput) return Tensor::zeros(binding.spec, device.memory());
    if (!states.contains(binding.name)) {
      VOLTA_TRY(states[binding.name], Tensor::zeros(binding.spec, device.memory()));
    }
    return states[binding.name];
  }));
}

template <typename T>
void put(const Executable& plan, const std::string& name, const std::vector<T>& values) {
  must(must(plan.binding(name)).write(std::span<const T>(values)));
}

/// Token losses and logits of whole sequences, without a cache.
struct Evaluation {
  std::vector<float> loss;
  std::vector<float> logits;
};
inline Evaluation evaluate(const Transformer& model, const std::vector<std::int32_t>& ids,
                           std::int64_t batch, const std::vector<std::int32_t>& targets) {
  States none;
  const auto time = static_cast<std::int64_t>(ids.size()) / batch;
  Executable plan = bind_graph(
      must(build_evaluation_graph(model.config(), batch, time, true, model.lora())), model, none);
  put(plan, "ids", ids);
  put(plan, "targets", targets);
  put(plan, "positions", count_up(time));
  must(plan.run());
  return {values(plan.output("token_loss")), values(plan.output("logits"))};
}

}  // namespace volta::test
