// The steps of decoders at work: see decoder.h.
#pragma once

#include <memory>

#include "text/tokenizers/decoder.h"

namespace volta::tokenizers {

/// Views the step.
std::unique_ptr<DecodeStage> make_stage(const DecodeStep& step);
/// Holds the chunks of a token back until it is whole.
std::unique_ptr<DecodeStage> make_gather_stage();

}  // namespace volta::tokenizers
