// MatMul with a b of small integers: rounds the rows of a (quant_rows.cu) and chooses the kernel
// that multiplies. quant_product.cuh says what is summed in which order, so the choice changes no
// bits.
#include "kernels/cuda/quant.h"
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

/// Up to this many rows, reading b again for every kFewRows of them (from the L2 cache, mostly) is
/// less work than computing whole tiles, of which there would be too few for all multiprocessors.
constexpr std::int64_t kMostFewRows = 2 * kFewRows;

}  // namespace

std::int64_t matmul_quantized_workspace(const MatMul& /*op*/, const ArgShapes& shapes,
                                        const Context& /*context*/) {
  const Shape& a = shapes.inputs[0].shape;
  return quant_rows_bytes(shapes.inputs[1].encoding, a.rows(), a[-1]);
}

cudaError_t matmul_quantized(const MatMul& op, const Args& args, const Context& context) {
  const View &a = args.inputs[0], &b = args.inputs[1], &c = args.outputs[0];
  const Encoding& encoding = b.encoding;
  QuantProduct p;
  p.a = place_quant_rows(encoding, a.shape.rows(), a.shape[-1], args.workspace.data());
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
  if (p.a.m == 0 || p.n == 0) return cudaSuccess;
  const cudaError_t error = quantize_rows(a.dtype, a.data, p.a, context);
  if (error != cudaSuccess) return error;
  return p.a.m <= kMostFewRows ? launch_few_rows(p, context) : launch_row_tiles(p, context);
}

}  // namespace volta::cuda
