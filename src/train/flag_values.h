// What the table of training flags is for: setting the options of a run from the values of flags,
// checking these, and writing and reading run.json.
#pragma once

#include <map>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "train/run_options.h"
#include "train/training_flags.h"

namespace volta {

/// Values by the names of their flags, without dashes.
using FlagValues = std::map<std::string_view, FlagValue>;

/// Sets the fields of these flags in the order of the table. kInvalidArgument, naming the flag, for
/// an unknown name, a value of another type, an unknown word, and a value out of range.
Status set_flags(const FlagValues& values, RunOptions& options);
/// kInvalidArgument when the options lack what one of these flags needs.
Status check_needs(const FlagValues& values, const RunOptions& options);
/// Checks the ranges of the options that only RunOptions has, such as eval_every.
Status check_ranges(const RunOptions& options);

/// Writes all values of one object of run.json ("training", "lora", or "" for the values outside of
/// objects) into the object that is open in `json`.
void write_flags(JsonWriter& json, std::string_view object, const RunOptions& options);
/// Writes the objects "training" and, for a LoRA run, "lora".
void write_training_objects(JsonWriter& json, const RunOptions& options);
/// Writes the values outside of objects that a resumed run must agree with. The tokenizer is not
/// one of them, because a checkpoint has its own.
void write_agreed_flags(JsonWriter& json, const RunOptions& options);
/// Reads them. kInvalidFile for values that are missing, of the wrong type or out of range.
Status read_flags(const JsonRef& ref, std::string_view object, RunOptions& options);
/// Whether a resumed run may extend the value at this path of run.json.
bool may_extend(std::string_view key);
/// Whether a resumed run may have another value at this path, of which a message tells.
bool may_adjust(std::string_view key);

/// The option that sets the value at this path of run.json, as "--batch"; the path itself when no
/// option sets it.
std::string option_of(std::string_view key);

/// Whether checkpoints of earlier versions lack the value at this path of run.json, and `value` is
/// what it was for them.
bool is_absent_default(std::string_view key, std::string_view value);

}  // namespace volta
