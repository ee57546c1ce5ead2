// The flags of `volta train` as one table: for each its name, help, type and range, where its value
// lies in RunOptions and in run.json, and whether a resumed run may change it. The command line,
// run.json, the settings that a resumed run is compared with, and the presets all read this table
// (train/flag_values.h).
// The default of a flag is the initial value of its field. A new flag is one row in
// training_flags.cc and the code that uses its value. This file knows no command line parser.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/arithmetic.h"
#include "train/run_options.h"

namespace volta {

/// The value of a flag. Words (kWord) are text, kPaths a list.
using FlagValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::string>>;

/// The heading in --help under which a flag is listed.
enum class FlagGroup : std::uint8_t { kRun, kModel, kTraining, kLora };
/// kReal32 is stored as f32. A switch that is on by default also has a form --no-NAME. kPaths is a
/// list; run.json has a list of one as a text.
enum class FlagType : std::uint8_t { kWhole, kReal, kReal32, kSwitch, kText, kWord, kPaths };

/// Whether a resumed run may have another value than the run had before. kMayExtend: it may have a
/// larger one, and any with a constant schedule, which does not depend on the number of steps.
/// kMayAdjust: it may, and a message says so, because the results change from there on.
enum class OnResume : std::uint8_t { kMayChange, kMustAgree, kMayExtend, kMayAdjust };

/// What a flag needs of the other options. A flag can need several of these.
enum FlagNeed : std::uint16_t {
  kNeedsNothing = 0,
  kNeedsFreshModel = 1,  ///< A model that is not loaded from a folder.
  kNeedsSplit = 2,  ///< Data of which a part can be kept for validation: text or conversations.
  kNeedsTokenIds = 4,
  kNeedsAdamW = 8,
  kNeedsSgd = 16,
  kNeedsDecay = 32,  ///< A schedule whose learning rate falls.
  kNeedsLora = 64,
  kNeedsText = 128,
  kNeedsChats = 256,
  kNeedsIdRows = 1024,
  kNeedsRows = 512,  ///< Data that comes in rows: token ids or conversations.
};

/// Where the value of a flag lies in RunOptions. Both functions are null for a flag that changes
/// several fields, or none.
struct FlagField {
  FlagType type = FlagType::kSwitch;
  std::span<const std::string_view> words = {};  ///< Of kWord: the possible values.
  FlagValue (*get)(const RunOptions&) = nullptr;
  void (*set)(RunOptions&, const FlagValue&) = nullptr;
};

/// Both ends are included.
template <typename T>
struct FlagRange {
  T least = 0;
  T most = 0;
};
inline constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

struct TrainingFlag {
  std::string_view name{};  ///< "lora-rank" for --lora-rank; empty: in run.json only.
  FlagGroup group = FlagGroup::kRun;
  std::string_view help{};
  FlagField field{};
  /// The path of the value in run.json, such as "training.batch"; empty: not in run.json. Values
  /// below "model" are written and read with the whole architecture (formats/model_config.h).
  std::string_view key{};
  OnResume resume = OnResume::kMustAgree;
  /// Of kWhole and kReal. `range` describes it for messages ("at least 1"); a flag without this
  /// text is checked by the part of Volta that uses the value.
  FlagRange<std::int64_t> whole{0, kMaxPlausibleCount};
  FlagRange<double> real{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
  std::string_view range{};
  unsigned needs = kNeedsNothing;  ///< FlagNeed, combined with |.
  /// Changes the fields whose values follow from this flag. Called after `field.set`, and for a
  /// switch only when it is on.
  void (*then)(RunOptions&) = nullptr;
  /// run.json and checkpoints of earlier versions lack it; the field then keeps its default.
  bool added_later = false;
};

/// All rows, in the order of --help and of run.json.
std::span<const TrainingFlag> training_flags();
/// Whether --no-NAME exists: for switches that are on by default.
bool has_negative_form(const TrainingFlag& flag);

}  // namespace volta
