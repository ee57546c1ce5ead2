// The matrix product with a quantised b: see matmul_quant.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {

/// Whether this machine has VNNI at 512 bits, which adds up four products of bytes in one
/// instruction. Results do not depend on it, because sums of integers are exact.
bool vnni_available();

/// The scratch bytes that matmul_quant() needs.
std::int64_t matmul_quant_workspace(const MatMulProblem& problem);

/// c = activation(a b + bias) + residual with b in panels of integers. `workspace` has
/// matmul_quant_workspace() bytes and is aligned to 64 bytes.
void matmul_quant(const MatMul& op, const MatMulProblem& problem, const MatMulOperands& operands,
                  const Context& context, bool vnni, std::byte* workspace);

}  // namespace volta::cpu
