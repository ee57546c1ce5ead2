// Builds the graphs that a model runs, as its commands do, and collects their products.
#include "tune_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "formats/model_source.h"
#include "graph/passes.h"
#include "nn/training_graph.h"
#include "nn/transformer_graph.h"
#include "train/open_model.h"
#include "train/presets.h"
#include "train/run_options.h"
#include "tuner/matmul_shapes.h"
#include "tuner/tuning_cache.h"

namespace volta::cli {
namespace {

/// Training sizes for a model that has no run.
constexpr std::int64_t kUsualBatch = 4;
constexpr std::int64_t kUsualTokens = 256;
/// Rows per step over a KV cache whose products are tuned: 1 for decoding, others for prompts.
constexpr std::array<std::int64_t, 4> kTunedRows = {256, 64, 16, 1};

// An architecture, the specs of its weights once they are loaded (absent for a preset, which has no
// weights yet), and how it is trained.
struct TunedModel {
  TransformerConfig config;
  std::optional<std::map<std::string, TensorSpec>> weights = {};
  TrainingGraphOptions training = {};
  DType training_dtype = DType::kF32;
};

TrainingGraphOptions training_of(const TrainerOptions& trainer, const LoraConfig& lora) {
  return {.batch = trainer.batch,
          .time = trainer.time,
          .accumulate = trainer.accumulate,
          .dropout = {trainer.dropout},
          .optimizer = trainer.optimizer,
          .lora = lora};
}

Result<TunedModel> open_preset(const ModelWork& work) {
  VOLTA_TRY(const RunOptions run, preset(work.preset));
  VOLTA_TRY(TransformerConfig config, complete_sizes(run.model));
  if (work.vocab > 0) config.vocab_size = work.vocab;
  TunedModel model{.config = config, .training = training_of(run.trainer, {})};
  if (model.training.time == 0) model.training.time = config.context;
  return model;
}

Result<TunedModel> read_model(const Globals& globals, const ModelWork& work, CpuDevice& device) {
  if (work.vocab > 0) {
    return fail(ErrorCode::kInvalidArgument, "--vocab goes with --preset: a model has its own");
  }
  std::optional<RunOptions> run;
  if (path_exists(join_path(work.model, kRunFile))) {
    VOLTA_TRY(run, load_run_options(work.model));
  }
  // The folder of a LoRA run holds an adapter; the model that runs is its base.
  const bool adapts = run && run->lora.active();
  VOLTA_TRY(const ModelSource source, open_model(adapts ? run->init : work.model, interrupted));
  TunedModel model;
  VOLTA_TRY(model.config, source.config());
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const auto weights, source.weights(model.config));
  VOLTA_TRY(model.weights, loaded_specs(model.config, *weights, device, wanted));
  model.training = {.batch = kUsualBatch, .time = 0};
  if (run) {
    LoraConfig lora = run->lora;
    if (adapts) {
      VOLTA_TRY(lora, complete_lora(lora, model.config));
    }
    model.training = training_of(run->trainer, lora);
    model.training_dtype = run->trainer.compute_dtype;
  }
  const std::int64_t usual = run && !adapts ? model.config.context : kUsualTokens;
  if (model.training.time == 0) model.training.time = std::min(model.config.context, usual);
  return model;
}

// The shapes of several graphs, one for each tuning entry.
class Shapes {
 public:
  explicit Shapes(CpuDevice& device) : device_(device) {}
  Status add(const Graph& built, DType compute_dtype, std::string_view phase) {
    VOLTA_TRY(const Graph graph, optimize(built, device_, {.compute_dtype = compute_dtype}));
    for (const cpu::MatMulShape& shape : matmul_shapes(graph, device_.threads())) {
      const auto known = std::ranges::find_if(
          all_, [&](const ShapeToTune& other) { return tuner::same_choice(shape, other.shape); });
      if (known == all_.end()) {
        all_.push_back({.shape = shape, .use = std::string(phase)});
      } else if (!known->use.ends_with(phase)) {  // Graphs of one phase are added one by one.
        known->use += fmt::format("+{}", phase);
      }
    }
    return {};
  }
  std::vector<ShapeToTune> take() && { return std::move(all_); }

 private:
  CpuDevice& device_;
  std::vector<ShapeToTune> all_;
};

// For inference, weights are packed: in the format in which they are loaded, or for a preset in
// that of --weights.
Result<Graph> with_weights(const Globals& globals, const TunedModel& model, const Graph& built,
                           CpuDevice& device) {
  if (!model.weights) {
    VOLTA_TRY(const WeightFormat format, weight_format(globals));
    return prepack(built, device, format);
  }
  return set_parameter_specs(built, [&](const Value& value) {
    const auto found = model.weights->find(value.name);
    return found == model.weights->end() ? value.spec : found->second;
  });
}

// The training graph: forward, and both gradients of every product. Its weights are not packed.
Result<Graph> training_graph(const TunedModel& model, const ModelWork& work) {
  TrainingGraphOptions wanted = model.training;
  if (work.batch > 0) wanted.batch = work.batch;
  if (work.tokens > model.config.context) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--tokens {}: the model's context is {}",
                                                         work.tokens, model.config.context));
  }
  if (work.tokens > 0) wanted.time = work.tokens;
  return wanted.accumulate > 1 ? build_accumulate_graph(model.config, wanted)
                               : build_training_graph(model.config, wanted);
}

}  // namespace

Result<std::vector<ShapeToTune>> shapes_of_model(const Globals& globals, const ModelWork& work,
                                                 CpuDevice& device) {
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const TunedModel model,
            work.preset.empty() ? read_model(globals, work, device) : open_preset(work));
  const bool all = work.phase.empty() || work.phase == "all";
  Shapes shapes(device);
  for (const std::int64_t rows : kTunedRows) {
    const std::string_view phase = rows == 1 ? "decode" : "prompt";
    if (rows > model.config.context || !(all || work.phase == phase)) continue;
    VOLTA_TRY(const Graph built, build_cached_graph(model.config, {.rows = rows}));
    VOLTA_TRY(const Graph graph, with_weights(globals, model, built, device));
    VOLTA_TRY(shapes.add(graph, dtype, phase));
  }
  if (all || work.phase == "train") {  // Without --dtype, in the type of the run.
    VOLTA_TRY(const Graph graph, training_graph(model, work));
    VOLTA_TRY(shapes.add(graph, globals.has("--dtype") ? dtype : model.training_dtype, "train"));
  }
  auto found = std::move(shapes).take();
  if (!found.empty()) return found;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: has no products of floats to tune in phase '{}'",
                  work.preset.empty() ? work.model : work.preset, all ? "all" : work.phase));
}

}  // namespace volta::cli
