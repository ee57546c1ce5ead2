// open_model(): opens the model that a user names. It lies above ModelSource because a run's
// checkpoints do.
#pragma once

#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/model_source.h"

namespace [[gnu::visibility("default")]] volta {

/// Opens a model folder, a .gguf file, the checkpoint that represents a training run, or a model
/// in the Hugging Face cache by its name ("ORGANISATION/NAME", "ORGANISATION/NAME@REVISION"). When
/// a folder has a manifest of Volta's, everything is verified first, so that a damaged checkpoint
/// is refused; `interrupted` is called meanwhile. kNotFound when there is no such model;
/// kInterrupted; kInvalidArgument for an adapter's folder, and for a folder that holds both a model
/// and a run; kInvalidFile.
Result<ModelSource> open_model(const std::string& model, const Interruption& interrupted = {});

}  // namespace volta
