// The settings that the results of a run depend on. They are written into every checkpoint and
// compared when the run is resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "train/dataset.h"
#include "train/run_options.h"

namespace [[gnu::visibility("default")]] volta {

/// Everything that the results of a run depend on, as JSON: the data's size and checksum, the
/// tokenizer, the architecture, batch, optimiser, schedule and seeds. `options` are those of
/// RunSetup, with every size filled in.
std::string settings_json(const RunOptions& options, const Dataset& data);

/// The lowest estimate of the validation loss, and the updates done before it.
struct BestEstimate {
  std::int64_t step = 0;  ///< 0: not known (a checkpoint of an earlier version).
  double val_loss = 0.0;
};

/// The state of a run besides the trainer's tensors; part of every checkpoint.
struct RunState {
  std::string settings;              ///< settings_json().
  std::int64_t rows_seen = 0;        ///< Rows of the batch stream used so far.
  std::optional<BestEstimate> best;  ///< The lowest so far.
  std::int64_t waited = 0;           ///< Estimates since `best`.
  bool estimate_due = false;         ///< The estimate after the last step was interrupted.
  std::optional<double> loss;        ///< Of the last update.
  /// The steps that the run had before, where it now has others. Not part of the JSON.
  std::optional<std::int64_t> other_steps = {};
  /// Settings that are not those of the checkpoint and may differ, for a message: "lr 0.0005
  /// instead of 0.001". Not part of the JSON.
  std::vector<std::string> adjustments = {};
};
std::string to_json(const RunState& state);
/// The state in a checkpoint of step `step`. kInvalidFile, also for a best step beyond it and for a
/// best loss that no training gives; kMismatch, naming the first setting that differs, when the
/// saved settings are not `settings`. `recorded`: the options in the run's run.json, so that the
/// message can tell a value of that file from one of an option; null when there are none.
Result<RunState> parse_run_state(std::string_view json, std::string_view name, std::int64_t step,
                                 const std::string& settings, const RunOptions* recorded = nullptr);
/// The checks of parse_run_state() that need no settings to compare with. kInvalidFile.
Status check_run_state(std::string_view json, std::string_view name, std::int64_t step);

/// The first setting that differs, as "training.batch is 12, the checkpoint has 8"; nullopt when
/// all agree. The number of steps may be larger, so that a run can be extended; with a constant
/// schedule it may also be smaller. The learning rate and its schedule may differ. kInvalidFile
/// when `saved` lacks the members that settings_json() writes.
Result<std::optional<std::string>> compare_settings(const std::string& current,
                                                    const JsonRef& saved);

}  // namespace volta
