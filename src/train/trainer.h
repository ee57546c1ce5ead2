// Trainer: updates a model's weights, one step at a time, by running plans. It knows batches and
// tensors; files, progress and policy belong to the run (train/run.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/memory.h"
#include "base/result.h"
#include "nn/training_graph.h"
#include "nn/transformer.h"
#include "train/data.h"
#include "train/schedule.h"

namespace [[gnu::visibility("default")]] volta {

struct TrainerOptions {
  std::int64_t batch = 12;      ///< Sequences per micro-batch.
  std::int64_t time = 64;       ///< Tokens per sequence.
  std::int64_t accumulate = 1;  ///< Micro-batches per update; their gradients are averaged.
  /// Some tokens of the batches have no target (one below 0). The loss and its gradient are then
  /// means over the targets of the whole update, of all its micro-batches together.
  bool masked = false;
  float dropout = 0.0f;
  OptimizerConfig optimizer = {};
  ScheduleConfig schedule = {};
  std::uint64_t seed = 1;  ///< Of dropout.
  /// The type of activations, their gradients and the operands of matrix products. Weights, their
  /// gradients, losses, statistics and the optimiser's tensors are always f32.
  DType compute_dtype = DType::kF32;
};
/// Checks the range of every field; the message names the field, its value and the range.
Status validate(const TrainerOptions& options);

/// The result of one update.
struct StepReport {
  std::int64_t step = 0;  ///< The update's number, from 1.
  double loss = 0.0;      ///< Mean over the targets of its batch, before the update.
  double lr = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
};

/// Memory that training needs, in bytes, known before the first step.
struct TrainerMemory {
  std::int64_t weights = 0;
  std::int64_t optimizer = 0;    ///< Moments, and gradients where they are accumulated.
  std::int64_t activations = 0;  ///< Arenas of the plans.
};

class Trainer {
 public:
  /// Builds and loads the plans. `model` shares its weights with the trainer, which updates them in
  /// place, or those of the adapter when it has one.
  static Result<Trainer> create(const Transformer& model, const TrainerOptions& options);
  /// What create() and memory() would tell of a model of this shape. Nothing is allocated.
  static Result<TrainerMemory> estimate(const TransformerConfig& model, const LoraConfig& lora,
                                        const TrainerOptions& options, Device& device);

  const Transformer& model() const { return model_; }
  const TrainerOptions& options() const { return options_; }
  /// The number of updates done.
  std::int64_t steps_done() const { return step_; }
  TrainerMemory memory() const;
  /// The optimised graph of an update (of a micro-batch when accumulating).
  const Graph& graph() const { return graph_; }

  /// Performs one update. With a non-finite loss or gradient, no weight is changed; the error is
  /// kNonFinite and names the step and the first op that gave a non-finite value.
  Result<StepReport> step(const BatchSource& batches);

  /// The optimiser's tensors by name ("adam.m.<parameter>", ...), sharing memory.
  const std::map<std::string, Tensor>& optimizer_state() const { return state_; }
  /// Continues after `steps_done` updates with copies of these optimiser tensors. Every tensor must
  /// be present with its type and shape (kInvalidFile).
  Status restore(std::int64_t steps_done, const std::map<std::string, Tensor>& state);

 private:
  Trainer(Transformer model, const TrainerOptions& options)
      : model_(std::move(model)), options_(options) {}

  Result<Executable> load(const Graph& graph);
  Status write_batch(const BatchSource& batches, std::int64_t micro);
  Status write_loss_scale(const BatchSource& batches);
  Status write_schedule();
  Result<double> run_micro_batches(const BatchSource& batches);
  Status zero_gradients();
  Error name_non_finite(const BatchSource& batches, double loss, double norm);

  Transformer model_;
  TrainerOptions options_;
  Graph graph_;
  std::optional<Executable> micro_;          ///< The whole update when accumulate is 1.
  std::optional<Executable> apply_;          ///< Absent when accumulate is 1.
  std::map<std::string, Tensor> state_;      ///< Optimiser state, part of checkpoints.
  std::map<std::string, Tensor> gradients_;  ///< Accumulated gradients; zero between updates.
  HeapArray<std::int32_t> ids_;
  HeapArray<std::int32_t> targets_;
  std::int64_t step_ = 0;
};

}  // namespace volta
