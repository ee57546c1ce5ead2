// Presets: whole sets of run options under a name.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "train/run_options.h"

namespace [[gnu::visibility("default")]] volta {

/// A preset by name, and what it is in one line.
struct PresetInfo {
  std::string_view name;
  std::string_view summary;
};

/// All presets, in the order in which they are listed to people.
std::span<const PresetInfo> presets();

/// The options of a preset; data and out are empty. kInvalidArgument with the known names.
Result<RunOptions> preset(std::string_view name);
/// The same for going on with `run`: what no preset says (data, init, seed, compute type) is its.
Result<RunOptions> preset(std::string_view name, const RunOptions& run);

}  // namespace volta
