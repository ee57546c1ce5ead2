// The matrix product in plain C++: no vectors, no blocks, no threads.
#pragma once

#include "kernels/cpu/cpu.h"

namespace volta::test {

/// Like run(MatMul), each element summed over k in order in f64 and rounded once before the
/// epilogue, which is f32 by the C library's functions. Needs no workspace.
void matmul_scalar(const MatMul& op, const cpu::Args& args) noexcept;

}  // namespace volta::test
