// A matrix product cut up once and run many times: what a loaded plan keeps of a MatMul. See
// matmul.cc for the whole.
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {

/// A MatMul with its addresses, its problem and (with a b of floats) the way that it is cut up, the
/// tuned choice of parameters included.
struct PreparedMatMul {
  MatMulPlan plan;  ///< With a b of small integers only `op` and `problem` are set.
  MatMulOperands operands;
  std::byte* workspace = nullptr;
};

/// Chooses for these shapes, the context's threads, instruction set and tuning.
PreparedMatMul prepare(const MatMul& op, const Args& args, const Context& context) noexcept;
/// Runs it in the context that it was prepared for.
void run(const PreparedMatMul& matmul, const Context& context) noexcept;

}  // namespace volta::cpu
