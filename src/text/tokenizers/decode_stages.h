// The stages that run the steps of decoders; see decoder.h.
#pragma once

#include <memory>

#include "text/tokenizers/decoder.h"

namespace volta::tokenizers {

/// The stage refers to `step`.
std::unique_ptr<DecodeStage> make_stage(const DecodeStep& step);
/// A stage that collects the chunks of a token until it is complete.
std::unique_ptr<DecodeStage> make_gather_stage();

}  // namespace volta::tokenizers
