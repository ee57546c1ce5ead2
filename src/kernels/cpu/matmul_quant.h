// The matrix product with a quantised b: see matmul_quant.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/quant_rows.h"

namespace volta::cpu {

/// The scratch bytes that matmul_quant() needs.
std::int64_t matmul_quant_workspace(const MatMulProblem& problem);

/// How such a product is computed: decided once, when the product is bound to its memory.
struct MatMulQuantPlan {
  QuantRows rows{};   ///< Where a's rows lie as integers.
  bool vnni = false;  ///< Four products of bytes are added up in one instruction.
  bool amx = false;   ///< By the tiles of matmul_quant_amx-inl.h.
};

/// Plans a product. `workspace` has matmul_quant_workspace() bytes and is aligned to 64 bytes.
MatMulQuantPlan plan_matmul_quant(const MatMulProblem& problem, Simd simd, std::byte* workspace);

/// c = activation(a b + bias) + residual with b in panels of integers. Results do not depend on the
/// instructions that the plan chose, because sums of integers are exact.
void matmul_quant(const MatMul& op, const MatMulProblem& problem, const MatMulQuantPlan& plan,
                  const MatMulOperands& operands, const Context& context);

}  // namespace volta::cpu
