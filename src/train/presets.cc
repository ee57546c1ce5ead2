#include "train/presets.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "train/flag_values.h"

namespace volta {
namespace {

// nanoGPT's character-level recipe (config/train_shakespeare_char.py and the CPU variant in its
// README): GPT-2 blocks without biases, exact GELU, tied output, AdamW with cosine decay.
FlagValues shakespeare_char_cpu() {
  return {{"tokenizer", "char"}, {"context", 64},     {"layers", 4},         {"heads", 4},
          {"dim", 128},          {"batch", 12},       {"weight-decay", 0.1}, {"clip", 1.0},
          {"beta2", 0.99},       {"lr", 1e-3},        {"min-lr", 1e-4},      {"warmup", 100},
          {"steps", 2000},       {"eval-every", 250}, {"eval-batches", 20},  {"val-fraction", 0.1}};
}

FlagValues shakespeare_char_gpu() {
  FlagValues flags = shakespeare_char_cpu();
  flags["layers"] = 6;
  flags["heads"] = 6;
  flags["dim"] = 384;
  flags["context"] = 256;
  flags["batch"] = 64;
  flags["dropout"] = 0.2;
  flags["steps"] = 5000;
  return flags;
}

// The parts of a Llama in the size of shakespeare_char_cpu(), for runs that become GGUF files.
// Three matrices of 352 columns (8/3 of the width, in whole blocks of 32) take the place of two of
// 512, so an update takes about as long.
FlagValues shakespeare_llama_cpu() {
  FlagValues flags = shakespeare_char_cpu();
  flags["position"] = "rotary";
  flags["norm"] = "rms";
  flags["ffn-kind"] = "gated";
  flags["activation"] = "silu";
  flags["ffn"] = 352;
  return flags;
}

// The default TinyLm, which is the default of every flag of the model.
FlagValues tiny() {
  return {{"batch", 8}, {"beta2", 0.99},  {"weight-decay", 0.1}, {"clip", 1.0},
          {"lr", 1e-3}, {"min-lr", 1e-4}, {"warmup", 100},       {"steps", 1000}};
}

// Takes about a minute on two fast cores. A short context and a higher learning rate learn the most
// in so few steps.
FlagValues demo() {
  FlagValues flags = tiny();
  flags["context"] = 128;
  flags["lr"] = 2e-3;
  flags["min-lr"] = 2e-4;
  flags["warmup"] = 50;
  flags["steps"] = 2000;
  flags["eval-every"] = 200;
  return flags;
}

struct Preset {
  PresetInfo info;
  FlagValues (*flags)();
};
constexpr std::array kPresets = {
    Preset{
        {"demo", "a small byte model for about 200 KB of text, about a minute on two fast cores"},
        demo},
    Preset{{"tiny", "the default TinyLm: 4 layers, 128 wide, context 512, bytes"}, tiny},
    Preset{
        {"shakespeare-char-cpu", "nanoGPT's characters for CPUs: 4 layers, 128 wide, 2000 steps"},
        shakespeare_char_cpu},
    Preset{
        {"shakespeare-char-gpu", "nanoGPT's characters for GPUs: 6 layers, 384 wide, 5000 steps"},
        shakespeare_char_gpu},
    Preset{{"shakespeare-llama-cpu", "a Llama for characters, which converts to GGUF: 4 layers"},
           shakespeare_llama_cpu},
};
constexpr auto kInfos = [] {
  std::array<PresetInfo, kPresets.size()> infos;
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kPresets[i].info;
  return infos;
}();

}  // namespace

std::span<const PresetInfo> presets() { return kInfos; }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const PresetInfo& info : kInfos) names.emplace_back(info.name);
  return names;
}

Result<RunOptions> preset(std::string_view name) {
  std::string known;
  for (const Preset& entry : kPresets) {
    if (entry.info.name == name) {
      RunOptions options;
      options.model = tiny_lm_config();
      VOLTA_TRY(set_flags(entry.flags(), options));
      VOLTA_TRY(options.model, complete_sizes(options.model));
      options.shorten_warmup = true;
      return options;
    }
    known += known.empty() ? "" : ", ";
    known += entry.info.name;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown preset '{}'; there are {}", name, known));
}

Result<RunOptions> preset(std::string_view name, const RunOptions& run) {
  VOLTA_TRY(RunOptions options, preset(name));
  options.data = run.data;
  options.val_data = run.val_data;
  options.init = run.init;
  options.recorded_paths = run.recorded_paths;
  options.recorded_paths.erase("tokenizer");  // The preset chooses the tokenizer.
  options.seed = run.seed;
  options.trainer.compute_dtype = run.trainer.compute_dtype;
  return options;
}

}  // namespace volta
