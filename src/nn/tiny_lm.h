// TinyLm and forward_step: short names for the default small model and for one step of decoding.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "nn/decoder.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// A small language model. It is a Transformer like any other; TinyLm::random(tiny_lm_config(),
/// seed, device) makes the default one with new weights.
using TinyLm = Transformer;

/// Feeds `token` to a slot of the decoder, behind the tokens that the slot holds, runs one step,
/// and returns the likeliest next token. kInvalidArgument if the model has no such token; otherwise
/// the errors of Decoder::set_next() and step(). Sampling and several slots at once: see Decoder.
inline Result<DrawnToken> forward_step(Decoder& decoder, std::int64_t slot, std::int32_t token) {
  const std::int64_t vocab = decoder.model().config().vocab_size;
  if (token < 0 || token >= vocab) {
    return fail(ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                 ": the model has the tokens 0 to " +
                                                 std::to_string(vocab - 1));
  }
  constexpr SamplingRow kGreedy = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};
  VOLTA_TRY(decoder.set_next(slot, token, kGreedy, {}));
  VOLTA_TRY(decoder.step());
  return decoder.drawn(slot);
}

}  // namespace volta
