// RunOptions: all options of `volta train` in one struct, with their checks and their JSON form.
// The only file that is opened here is run.json.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "nn/lora.h"
#include "nn/transformer_config.h"
#include "train/trainer.h"

namespace [[gnu::visibility("default")]] volta {

/// One training run. Defaults are those of the `tiny` preset (train/presets.h).
struct RunOptions {
  // The input and the output of the run.
  /// Files of one kind: texts, X.jsonl with conversations (train/chat_data.h), X.safetensors with
  /// `input_ids` i64[N, T + 1], or one X.bin of 16-bit ids.
  std::vector<std::string> data;
  std::string val_data;  ///< A file of that kind, to validate with; empty: see val_fraction.
  std::string out;       ///< The run's folder; created when missing.
  std::string init;      ///< A model folder to start from (fine-tuning); empty: fresh weights.
  bool resume = false;
  /// Which of data, val-data, init and tokenizer are paths from run.json that the caller has not
  /// given again. The folder may come from a stranger, so these paths are refused without a valid
  /// checkpoint, whose checksums identify the files. Not part of run.json.
  std::set<std::string, std::less<>> recorded_paths = {};
  /// The warm-up takes at most a tenth of the steps: that of a preset, which does not know how long
  /// the run is. Not part of run.json, which holds the shorter one.
  bool shorten_warmup = false;

  // The model and its training.
  /// "byte", "char" or the path of a tokenizer.json. With `init`, the tokenizer of that folder is
  /// used if it has one.
  std::string tokenizer = "byte";
  /// vocab_size comes from the tokenizer. 0 stands for `heads` in kv_heads, for dim / heads in
  /// head_dim, and for 4 dim in ffn. Ignored with `init`, where the folder defines the model.
  TransformerConfig model;
  /// `time` 0 means the model's context (or the length of ready-made examples). `seed` is replaced
  /// by RunOptions::seed.
  TrainerOptions trainer = {.batch = 8, .time = 0};
  /// With `init`: `trainer.batch` may be divided, and `accumulate` multiplied by as much, until an
  /// update fits into the device's memory. Not part of run.json, which has the batch that was used.
  bool batch_by_memory = false;
  /// When active, an adapter for the model in `init` is trained instead of the model's weights.
  /// Values that are left out here are filled in by complete_lora().
  LoraConfig lora = {};
  std::uint64_t seed = 1;  ///< Of the fresh weights, the batches and dropout.
  /// Passes over the rows of conversations or ids; 0: the steps of the schedule. A run replaces the
  /// steps by what the passes take.
  std::int64_t epochs = 0;
  bool packing = false;  ///< Of conversations: several in a row.
  bool shuffle = false;  ///< Rows of ids in another order every pass; conversations always are.

  // Evaluation and checkpoints. Only val_fraction (which text is left to train on) and patience
  // (when the run ends) change the weights.
  double val_fraction = 0.1;       ///< The part of the data that is kept for validation; 0: none.
  std::int64_t eval_every = 250;   ///< Steps between estimates of the validation loss; 0: none.
  std::int64_t eval_batches = 20;  ///< Random batches per estimate.
  std::int64_t patience = 0;       ///< Estimates without a new minimum before the run ends; 0: off.
  std::int64_t save_every = 500;   ///< Steps between checkpoints; 0: at the end only.
  std::int64_t keep = 3;           ///< Newest checkpoints that stay; 0: all.
  /// A checkpoint is written after every estimate that is a new minimum of the validation loss. The
  /// checkpoint of the lowest one stays in addition to the `keep` newest.
  bool keep_best = true;
  bool tensorboard = false;  ///< Write event files of TensorBoard into `out`/tensorboard.
  /// Renames a model or run in `out` to OUT.old, which would otherwise be an error. Not allowed
  /// with `resume`; not part of the JSON.
  bool force = false;
};

/// Replaces every 0 in the model's sizes by the value that it stands for (see RunOptions::model).
/// kInvalidArgument when dim or heads is below 1, or when the heads do not divide the width.
Result<TransformerConfig> complete_sizes(TransformerConfig model);

/// Checks the ranges of all fields, also of nested structs; the message names the field, its value
/// and the range. Nothing is allocated or opened.
Status validate(const RunOptions& options);

/// Splits a list such as "q_proj,v_proj" into LoRA's targets.
std::set<std::string, std::less<>> split_targets(std::string_view text);

/// Writes the members of the object of to_json() into an object that is open in `json`.
void write_option_fields(JsonWriter& json, const RunOptions& options);
/// The options as one JSON object, which parse_run_options() reads.
std::string to_json(const RunOptions& options);
/// `name` is the file, for messages. kInvalidFile for values that are missing, of the wrong type or
/// out of range.
Result<RunOptions> parse_run_options(std::string_view json, std::string_view name);

/// RUN_DIR/run.json holds the options that a run was started with, so that `--resume` need not
/// repeat them. load_run_options() reads it and sets `recorded_paths` to the paths in it. kNotFound
/// when the folder has no such file; kInvalidFile, naming it, also for values that validate()
/// refuses.
inline constexpr std::string_view kRunFile = "run.json";
Result<RunOptions> load_run_options(const std::string& run_directory);

}  // namespace volta
