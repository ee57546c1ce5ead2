// The matrix product with a quantised b: see matmul_quant.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {

/// The scratch bytes that matmul_quant() needs.
std::int64_t matmul_quant_workspace(const MatMulProblem& problem);

/// c = activation(a b + bias) + residual with b in panels of integers. `workspace` has
/// matmul_quant_workspace() bytes and is aligned to 64 bytes. With VNNI four products of bytes are
/// added up in one instruction. Results do not depend on it, because sums of integers are exact.
void matmul_quant(const MatMul& op, const MatMulProblem& problem, const MatMulOperands& operands,
                  const Context& context, std::byte* workspace);

}  // namespace volta::cpu
