// MatMul with a b of small integers: rounds the rows of a (quant_rows.cu) and chooses the kernel
// that multiplies. quant_product.cuh says what is summed in which order, so the choice changes no
// bits.
#include <algorithm>
#include <variant>

#include "kernels/cuda/quant.h"
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

/// Up to this many rows, reading b again for every kFewRows of them (from the L2 cache, mostly) is
/// less work than computing whole tiles, of which there would be too few for all multiprocessors.
constexpr std::int64_t kMostFewRows = 2 * kFewRows;

/// The product, with the rounded rows in `workspace`.
QuantProduct make_product(const MatMul& op, const Args& args, std::byte* workspace) {
  const View &a = args.inputs[0], &b = args.inputs[1], &c = args.outputs[0];
  const Encoding& encoding = b.encoding;
  QuantProduct p;
  p.a = place_quant_rows(encoding, a.shape.rows(), a.shape[-1], workspace);
  p.b = b.as<const std::uint8_t>();
  p.quant = encoding.quant;
  p.block = encoding.block;
  p.block_bytes = static_cast<int>(encoding.block_bytes());
  p.b_per_a = p.a.block / p.block;
  p.column_bytes = encoding.blocks(p.a.k) * p.block_bytes;
  p.n = encoding.n(b.shape);
  p.bytes = p.n * p.column_bytes;
  p.c = c.data;
  p.out = c.dtype;
  p.activation = op.activation;
  std::size_t next = 2;
  if (op.has_bias) p.bias = args.inputs[next++].as<const float>();
  if (op.has_residual) p.residual = args.inputs[next].data;
  return p;
}

}  // namespace

std::int64_t matmul_quantized_workspace(const MatMul& /*op*/, const ArgShapes& shapes,
                                        const Context& /*context*/) {
  const Shape& a = shapes.inputs[0].shape;
  return quant_rows_bytes(shapes.inputs[1].encoding, a.rows(), a[-1]);
}

cudaError_t matmul_quantized(const MatMul& op, const Args& args, const Context& context) {
  const QuantProduct p = make_product(op, args, args.workspace.data());
  if (p.a.m == 0 || p.n == 0) return cudaSuccess;
  const View& a = args.inputs[0];
  const cudaError_t error = quantize_rows(a.dtype, a.data, p.a, context);
  if (error != cudaSuccess) return error;
  if (p.a.m > kMostFewRows) return launch_row_tiles(p, context);
  return launch_few_rows(
      {.products = {p}, .count = 1, .steady = is_steady(context.steady_inputs, 1)}, context);
}

bool quantized_together(std::span<const DecodeCall> calls) {
  if (calls.empty() || calls.size() > static_cast<std::size_t>(QuantProducts::kMost)) return false;
  const View& rows = calls[0].args.inputs[0];
  const Encoding& encoding = calls[0].args.inputs[1].encoding;
  if (rows.shape.rows() < 1 || rows.shape.rows() > kMostFewRows) return false;
  return std::ranges::all_of(calls, [&](const DecodeCall& call) {
    if (!std::holds_alternative<MatMul>(*call.op)) return false;
    const View& a = call.args.inputs[0];
    const View& b = call.args.inputs[1];
    return a.data == rows.data && a.spec() == rows.spec() && encoding.quantized() &&
           b.encoding == encoding && b.encoding.n(b.shape) > 0;
  });
}

cudaError_t matmul_quantized_group(std::span<const DecodeCall> calls, const Context& context) {
  QuantProducts all;
  all.steady = true;
  for (const DecodeCall& call : calls) {
    all.products[all.count++] =
        make_product(std::get<MatMul>(*call.op), call.args, calls[0].args.workspace.data());
    all.steady = all.steady && is_steady(call.steady_inputs, 1);
  }
  const View& a = calls[0].args.inputs[0];
  const cudaError_t error = quantize_rows(a.dtype, a.data, all.products[0].a, context);
  return error != cudaSuccess ? error : launch_few_rows(all, context);
}

}  // namespace volta::cuda
