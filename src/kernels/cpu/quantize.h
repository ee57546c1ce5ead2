// Encode where one side is quantised: see quantize.cc.
#pragma once

#include "kernels/cpu/cpu.h"

namespace volta::cpu {

/// Rounds plain weights to integers in rows or panels, moves integers from one to the other, or
/// makes f32 of them.
void encode_quantized(const Encode& op, const Args& args, const Context& context);

}  // namespace volta::cpu
