// The matrix product with a quantised b: see matmul_quant.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {

/// Whether this machine has VNNI at 512 bits: four products of bytes added up in one instruction.
/// Results do not depend on it: sums of integers are exact.
bool vnni_available();

/// Scratch bytes of matmul_quant().
std::int64_t matmul_quant_workspace(const MatMulProblem& problem);

/// c = activation(a b + bias) + residual with b in panels of integers; `workspace` as large as
/// matmul_quant_workspace() says, aligned to 64 bytes.
void matmul_quant(const MatMul& op, const MatMulProblem& problem, const MatMulOperands& operands,
                  const Context& context, bool vnni, std::byte* workspace);

}  // namespace volta::cpu
