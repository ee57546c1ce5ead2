#include "train/presets.h"

#include <fmt/format.h>

#include <array>
#include <string>

namespace volta {
namespace {

// nanoGPT's character-level recipe (config/train_shakespeare_char.py and the CPU variant in its
// README): GPT-2 blocks without biases, exact GELU, tied output, AdamW with cosine decay.
RunOptions shakespeare(std::int64_t layers, std::int64_t heads, std::int64_t dim) {
  RunOptions o;
  o.tokenizer = "char";
  o.model = {.context = 64,
             .layers = layers,
             .dim = dim,
             .heads = heads,
             .kv_heads = heads,
             .head_dim = dim / heads,
             .ffn = 4 * dim};
  o.trainer.batch = 12;
  o.trainer.optimizer.beta2 = 0.99f;
  o.trainer.optimizer.weight_decay = 0.1f;
  o.trainer.optimizer.clip = 1.0f;
  o.trainer.schedule = {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000};
  o.val_fraction = 0.1;
  o.eval_every = 250;
  o.eval_batches = 20;
  return o;
}

RunOptions shakespeare_char_cpu() { return shakespeare(4, 4, 128); }

RunOptions shakespeare_char_gpu() {
  RunOptions o = shakespeare(6, 6, 384);
  o.model.context = 256;
  o.trainer.batch = 64;
  o.trainer.dropout = 0.2f;
  o.trainer.schedule.steps = 5000;
  return o;
}

// The default TinyLm.
RunOptions tiny() {
  RunOptions o;
  o.model = tiny_lm_config();
  o.trainer.batch = 8;
  o.trainer.optimizer.beta2 = 0.99f;
  o.trainer.optimizer.weight_decay = 0.1f;
  o.trainer.optimizer.clip = 1.0f;
  o.trainer.schedule = {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 1000};
  return o;
}

// Takes about a minute on two cores. A short context and a higher learning rate learn the most in
// so few steps.
RunOptions demo() {
  RunOptions o = tiny();
  o.model.context = 128;
  o.trainer.batch = 8;
  o.trainer.schedule = {.lr = 2e-3, .min_lr = 2e-4, .warmup = 50, .steps = 2000};
  o.eval_every = 200;
  return o;
}

struct Preset {
  PresetInfo info;
  RunOptions (*make)();
};
constexpr std::array kPresets = {
    Preset{{"demo", "a small byte model for about 200 KB of text, a minute on two cores"}, demo},
    Preset{{"tiny", "the default TinyLm: 4 layers, 128 wide, context 512, bytes"}, tiny},
    Preset{
        {"shakespeare-char-cpu", "nanoGPT's characters for CPUs: 4 layers, 128 wide, 2000 steps"},
        shakespeare_char_cpu},
    Preset{
        {"shakespeare-char-gpu", "nanoGPT's characters for GPUs: 6 layers, 384 wide, 5000 steps"},
        shakespeare_char_gpu},
};
constexpr auto kInfos = [] {
  std::array<PresetInfo, kPresets.size()> infos;
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kPresets[i].info;
  return infos;
}();

}  // namespace

std::span<const PresetInfo> presets() { return kInfos; }

Result<RunOptions> preset(std::string_view name) {
  std::string known;
  for (const Preset& entry : kPresets) {
    if (entry.info.name == name) return entry.make();
    known += known.empty() ? "" : ", ";
    known += entry.info.name;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown preset '{}'; there are {}", name, known));
}

Result<RunOptions> preset(std::string_view name, const RunOptions& run) {
  VOLTA_TRY(RunOptions options, preset(name));
  options.data = run.data;
  options.init = run.init;
  options.recorded_paths = run.recorded_paths;
  options.recorded_paths.erase("tokenizer");  // The preset chooses the tokenizer.
  options.seed = run.seed;
  options.trainer.compute_dtype = run.trainer.compute_dtype;
  return options;
}

}  // namespace volta
