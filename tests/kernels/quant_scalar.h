// Weights to integers in plain C++: what quantize.cc has to give bit for bit.
#pragma once

#include <cstdint>

#include "kernels/cpu/quant.h"

namespace volta::test {

/// Rounds `count` values. int8: the nearest of 255 even steps. int4: 16 steps, of which the lowest
/// is at the largest magnitude or near it: the best of a few scales by the sum of squared errors.
/// Where a value is not finite, the scale is NaN and the integers are ones.
void quantize_block(const float* x, std::int64_t count, Quant quant, WeightBlock& out);

/// Writes block `block` of `blocks` of a column where tensor/encoding.h says.
void put_block(const WeightBlock& from, const Encoding& e, std::int64_t blocks, std::int64_t column,
               std::int64_t block, std::uint8_t* data);

}  // namespace volta::test
