// c = activation(a b + bias) + residual. The classic scheme (Goto & van de Geijn 2008): a slice of
// b is packed into panels that stay in L2, every tile of rows of a is multiplied by every panel,
// and c's tile stays in registers during a K block. With few rows (decoding) b is read in place
// instead.
//
// The result has the same bits for any blocks and threads. An element of c is always the same chain
// of multiply-adds over k, and threads split only M, N and the batch. If a and b are both bf16, it
// may be a chain of dot products of pairs, or of products of tiles (see Multiplier). Those treat
// subnormal numbers as zero.
//
//   matmul_parameters     what may be tuned, the defaults, and the table of tuned choices
//   matmul_plan           how a product is cut, from shapes and parameters alone
//   matmul_kernel-inl.h   the tile in registers; matmul_tiles_*.cc instantiate it
//   matmul_tiles_amx.cc   the tile in AMX's own registers
//   matmul_tiles_amx_few  tiles of few rows with the bits of AMX
//   matmul_pack-inl.h     packing
//   matmul_loops          the loops around them, once per instruction set
//   matmul_quant          all of this for a b of small integers
#include "kernels/cpu/matmul.h"

#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/matmul_quant.h"

namespace volta::cpu {

std::int64_t workspace_bytes(const MatMul& op, const ArgShapes& shapes, const Context& context) {
  const MatMulProblem problem = matmul_problem(op, shapes);
  if (problem.b_encoding.quantized()) return matmul_quant_workspace(problem);
  const MatMulPlan plan =
      plan_matmul(op, problem, context.simd, context.pool->threads(), context.tuning);
  return plan.workspace_floats() * static_cast<std::int64_t>(sizeof(float));
}

PreparedMatMul prepare(const MatMul& op, const Args& args, const Context& context) noexcept {
  PreparedMatMul matmul;
  MatMulPlan& plan = matmul.plan;
  const MatMulProblem problem = matmul_problem(op, {args.inputs, args.outputs});
  plan.op = op;
  plan.problem = problem;
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) return matmul;
  MatMulOperands& operands = matmul.operands;
  operands.a = args.inputs[0].data;
  operands.b = args.inputs[1].data;
  std::size_t next = 2;
  if (op.has_bias) operands.bias = args.inputs[next++].as<const float>();
  if (op.has_residual) operands.residual = args.inputs[next].as<const float>();
  if (problem.c_type == DType::kF32) {
    operands.c = args.outputs[0].as<float>();
  } else {
    operands.narrow_c = args.outputs[0].data;
  }
  matmul.workspace = args.workspace.data();
  if (problem.b_encoding.quantized()) {
    matmul.quant = plan_matmul_quant(problem, context.simd, matmul.workspace);
  } else {
    plan = plan_matmul(op, problem, context.simd, context.pool->threads(), context.tuning);
  }
  return matmul;
}

void run(const PreparedMatMul& matmul, const Context& context) noexcept {
  const MatMulPlan& plan = matmul.plan;
  const MatMulProblem& problem = plan.problem;
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) return;
  if (problem.b_encoding.quantized()) {
    matmul_quant(plan.op, problem, matmul.quant, matmul.operands, context);
    return;
  }
  // SAFETY: the workspace holds workspace_bytes(), which is parts * region_floats floats, and is
  // aligned to 64 bytes; every part gets a region of its own.
  float* workspace = reinterpret_cast<float*>(matmul.workspace);
  parallel_chunks(*context.pool, plan.parts, [&](std::int64_t part) {
    matmul_part(context.simd, plan, matmul.operands, part, workspace + part * plan.region_floats);
  });
}

void run(const MatMul& op, const Args& args, const Context& context) noexcept {
  run(prepare(op, args, context), context);
}

}  // namespace volta::cpu
