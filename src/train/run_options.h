// RunOptions: everything that `volta train` can be told, as one value, with its checks and its form
// as JSON. Knows no files but by name.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/lora.h"
#include "nn/transformer_config.h"
#include "train/trainer.h"

namespace [[gnu::visibility("default")]] volta {

/// One training run. Defaults are those of the `tiny` preset (train/presets.h).
struct RunOptions {
  // What to learn from, and where everything goes.
  std::string data;  ///< A text file, or X.safetensors with `input_ids` i64[N, T + 1].
  std::string out;   ///< The run's folder; made when missing.
  std::string init;  ///< A model folder to start from (fine-tuning); empty: fresh weights.
  bool resume = false;
  /// Which of data, init and tokenizer are paths that run.json names and the caller has not given
  /// again. The folder may be a stranger's: without a valid checkpoint, whose checksums say what
  /// was read, they are refused. Not part of run.json.
  std::set<std::string, std::less<>> recorded_paths = {};

  // What to train.
  /// "byte", "char" or the path of a tokenizer.json; with `init`, that folder's own if any.
  std::string tokenizer = "byte";
  /// vocab_size comes from the tokenizer. 0 in kv_heads means heads, in head_dim dim / heads, in
  /// ffn 4 dim. Not looked at with `init`, whose folder says what it is.
  TransformerConfig model;
  /// `time` 0 means the model's context (or the length of ready-made examples); `seed` is set from
  /// the run's.
  TrainerOptions trainer = {.batch = 8, .time = 0};
  /// Active: an adapter for `init`'s model is trained instead of its weights, and what is left out
  /// here filled in (complete_lora()).
  LoraConfig lora = {};
  std::uint64_t seed = 1;  ///< Of the fresh weights, the batches and dropout.

  // Watching it. None of these changes the weights, but for the patience.
  double val_fraction = 0.1;       ///< The last part of the text, kept for validation; 0: none.
  std::int64_t eval_every = 250;   ///< Steps between estimates of the validation loss; 0: none.
  std::int64_t eval_batches = 20;  ///< Random batches an estimate.
  std::int64_t patience = 0;       ///< Estimates without a new minimum before the run ends; 0: off.
  std::int64_t save_every = 500;   ///< Steps between checkpoints; 0: at the end only.
  std::int64_t keep = 3;           ///< Newest checkpoints that stay; 0: all.
  /// Every estimate that is a new minimum of the validation loss gets a checkpoint, and the one of
  /// the lowest stays, too.
  bool keep_best = true;
  /// A model or run in `out` is renamed to OUT.old, where it would be an error otherwise. Not with
  /// `resume`; not a part of the JSON.
  bool force = false;
};

/// Fills in what 0 stands for in the model's sizes (see RunOptions::model). kInvalidArgument when
/// the heads do not divide the width.
Result<TransformerConfig> complete_sizes(TransformerConfig model);

/// Ranges of every field, and of the parts; the message names the field, its value and the range.
/// Nothing is allocated or opened.
Status validate(const RunOptions& options);

/// "q_proj,v_proj" as LoRA's targets.
std::set<std::string, std::less<>> split_targets(std::string_view text);

/// The members of such an object, into one that is open.
void write_option_fields(JsonWriter& json, const RunOptions& options);
/// The options as JSON, one flat object; what parse_run_options reads.
std::string to_json(const RunOptions& options);
/// `name` is the file, for messages. kInvalidFile for missing, unknown-typed or absurd values.
Result<RunOptions> parse_run_options(std::string_view json, std::string_view name);

/// RUN_DIR/run.json: the options that a run was started with, so that `--resume` need not repeat
/// them; `recorded_paths` names its paths. kNotFound when the folder holds none.
inline constexpr std::string_view kRunFile = "run.json";
Result<RunOptions> load_run_options(const std::string& run_directory);

}  // namespace volta
