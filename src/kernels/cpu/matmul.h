// A matrix product that is planned once and run many times: what a loaded plan keeps of a MatMul.
// See matmul.cc for an overview.
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/matmul_quant.h"

namespace volta::cpu {

/// A MatMul with its addresses, its problem and its plan, which includes the tuned parameters.
struct PreparedMatMul {
  MatMulPlan plan;        ///< With a b of small integers only `op` and `problem` are set.
  MatMulQuantPlan quant;  ///< For a b of small integers.
  MatMulOperands operands;
  std::byte* workspace = nullptr;
};

/// Plans the product for these shapes and the context's threads, instruction set and tuning.
PreparedMatMul prepare(const MatMul& op, const Args& args, const Context& context) noexcept;
/// Runs it. The context must be the one that it was prepared for.
void run(const PreparedMatMul& matmul, const Context& context) noexcept;

}  // namespace volta::cpu
