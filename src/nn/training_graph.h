// The graphs that train a transformer: forward and backward, gradient accumulation, one update.
// They build on nn/transformer_graph.h, and shapes use the same letters.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "graph/graph.h"
#include "nn/transformer_config.h"
#include "nn/transformer_graph.h"

namespace [[gnu::visibility("default")]] volta {

/// The optimiser of a training graph.
struct OptimizerConfig {
  enum class Kind : std::uint8_t { kAdamW, kSgd } kind = Kind::kAdamW;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;  ///< On parameters of two and more dimensions.
  float momentum = 0.0f;      ///< SGD only.
  float clip = 0.0f;          ///< Global gradient norm; 0: none.
};
struct TrainingGraphOptions {
  std::int64_t batch = 1;
  std::int64_t time = 1;
  std::int64_t accumulate = 1;  ///< Micro-batches per update.
  /// Some tokens are no targets (their target is below 0), and the loss is the mean over the rest.
  /// How many there are is known to the caller: the graphs with a loss have the further input
  /// "loss_scale" f32[1], 1 / the targets of the whole update, and their loss is the sum over the
  /// targets times that scale. The loss of an update is then the sum over its micro-batches.
  bool masked = false;
  DropoutOptions dropout{};
  OptimizerConfig optimizer{};
  LoraConfig lora{};  ///< If active, only the adapter is trained, and <param> below means its
                      ///< parameters.
};
/// One update over one batch: forward, backward, norm, clip, optimiser.
/// Inputs: "ids", "targets" i32[B, T], "positions" i32[T], "rng" i64[2] with dropout,
/// "schedule" f32[3] = {lr, 1 - beta1^t, 1 - beta2^t}.
/// States: "adam.m.<param>", "adam.v.<param>" (or "sgd.v.<param>").
/// Outputs: "loss" f32[1] (mean over the targets of the batch), "stats" f32[3] of GlobalNorm.
Result<Graph> build_training_graph(const TransformerConfig& config,
                                   const TrainingGraphOptions& options);
/// With accumulate > 1: adds one micro-batch's gradients / accumulate to the states "grad.<param>",
/// and its loss / accumulate to the state "grad.loss" f32[1] (of a masked batch, without the
/// division: its scale is that of the whole update). Inputs and outputs are as above, without
/// "schedule" and "stats".
Result<Graph> build_accumulate_graph(const TransformerConfig& config,
                                     const TrainingGraphOptions& options);
/// The update from accumulated gradients, which are then set back to zero.
/// Input "schedule"; output "stats".
Result<Graph> build_apply_graph(const TransformerConfig& config,
                                const TrainingGraphOptions& options);

}  // namespace volta
