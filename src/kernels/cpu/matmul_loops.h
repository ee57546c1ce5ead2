// The interface between matmul.cc and the vector code of matmul_loops.cc.
#pragma once

#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {

/// The data of one product; a and b are of the plan's types.
struct MatMulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;      ///< Null when there is none.
  const float* residual = nullptr;  ///< Null when there is none.
  float* c = nullptr;
  void* narrow_c = nullptr;  ///< In place of c, where c has 16 bits: of the plan's c_type.
};

/// Computes part `part` of the plan with `simd`. `region` is the part's own workspace of
/// plan.region_floats, 64-byte aligned.
void matmul_part(Simd simd, const MatMulPlan& plan, const MatMulOperands& operands,
                 std::int64_t part, float* region);

}  // namespace volta::cpu
