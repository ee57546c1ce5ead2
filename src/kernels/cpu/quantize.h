// Encode if one side is quantised: see quantize.cc.
#pragma once

#include "kernels/cpu/cpu.h"

namespace volta::cpu {

/// Rounds plain weights to integers in rows or panels, copies integers from rows to panels or back,
/// or converts them to f32.
void encode_quantized(const Encode& op, const Args& args, const Context& context);

}  // namespace volta::cpu
