// Presets: complete sets of run options, each with a name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/run_options.h"

namespace [[gnu::visibility("default")]] volta {

/// The name of a preset and its one-line summary.
struct PresetInfo {
  std::string_view name;
  std::string_view summary;
};

/// All presets, in the order in which they are listed to people.
std::span<const PresetInfo> presets();
/// Their names.
std::vector<std::string> preset_names();

/// The options of a preset; data and out are empty, and shorten_warmup is set. kInvalidArgument,
/// with the known names, for an unknown preset.
Result<RunOptions> preset(std::string_view name);
/// The same, to resume `run` with the options of a preset. Presets do not set data, init, seed and
/// compute type; these are taken from `run`.
Result<RunOptions> preset(std::string_view name, const RunOptions& run);

}  // namespace volta
