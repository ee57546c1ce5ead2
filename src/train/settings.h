// The settings of a run that decide its numbers: written into every checkpoint, compared on resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "train/dataset.h"
#include "train/run_options.h"

namespace [[gnu::visibility("default")]] volta {

/// The options of a Trainer as one JSON object.
void write_training_fields(JsonWriter& json, const TrainerOptions& options);

/// LoRA's settings as one JSON object.
void write_lora_fields(JsonWriter& json, const LoraConfig& options);

/// Everything that decides the numbers of a run, as JSON: the data's fingerprint, the tokenizer,
/// the architecture, batch, optimiser, schedule and seeds. `options` are the completed ones.
std::string settings_json(const RunOptions& options, const Dataset& data);

/// The lowest estimate of the validation loss, and the updates done before it.
struct BestEstimate {
  std::int64_t step = 0;  ///< 0: not known (a checkpoint of an earlier version).
  double val_loss = 0.0;
};

/// What a run must remember beside the trainer's tensors; part of every checkpoint.
struct RunState {
  std::string settings;              ///< settings_json().
  std::int64_t rows_seen = 0;        ///< The data position: rows of the batch stream used up.
  std::optional<BestEstimate> best;  ///< So far.
  std::int64_t waited = 0;           ///< Estimates since then.
  bool estimate_due = false;         ///< The one of the last step was broken off.
  std::optional<double> loss;        ///< Of the last update.
};
std::string to_json(const RunState& state);
/// kInvalidFile, or kMismatch when the saved settings are not `settings`, naming the first one that
/// differs.
Result<RunState> parse_run_state(std::string_view json, std::string_view name,
                                 const std::string& settings);

/// The first setting that differs, as "training.batch is 12, the checkpoint has 8"; nothing when
/// all agree. With a constant schedule the number of steps may differ: a run can be extended.
/// kInvalidFile when `saved` is not such JSON.
Result<std::optional<std::string>> compare_settings(const std::string& current,
                                                    const JsonRef& saved);

}  // namespace volta
