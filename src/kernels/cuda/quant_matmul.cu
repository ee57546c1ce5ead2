// MatMul with a b of small integers: rounds the rows of a (quant_rows.cu) and chooses the kernel
// that multiplies. quant_product.cuh says what is summed in which order, so the choice changes no
// bits.
#include <algorithm>

#include "kernels/cuda/quant.h"
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

/// Up to this many rows, reading b a few times (from the L2 cache, mostly) is less work than
/// computing whole tiles, of which there would be too few for all multiprocessors.
constexpr std::int64_t kMostFewRows = 2 * kFewRows;

/// The product of a MatMul, whose rounded rows get a place in the workspace.
QuantProduct make_product(const MatMul& op, const Args& args) {
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
  return p;
}

/// Bytes of the workspace for the rounded rows. The unpacked b lies behind them.
std::int64_t rows_bytes(const QuantProduct& p, const View& b) {
  return quant_rows_bytes(b.encoding, p.a.m, p.a.k);
}

/// Whether launch_few_rows() computes the product.
bool takes_few_rows(const QuantProduct& p) {
  const bool empty = p.a.m == 0 || p.n == 0 || p.a.blocks == 0;
  return !empty && p.a.m <= kMostFewRows && few_rows_apply(p);
}

}  // namespace

std::int64_t matmul_quantized_workspace(const MatMul& op, const ArgShapes& shapes,
                                        const Context& /*context*/) {
  const QuantProduct p = make_product(op, {shapes.inputs, shapes.outputs, {}});
  return rows_bytes(p, shapes.inputs[1]) + (takes_few_rows(p) ? 0 : unpacked_bytes(p));
}

bool add_quantized(const MatMul& op, const Args& args, bool steady, QuantProducts& products) {
  const View& a = args.inputs[0];
  if (!args.inputs[1].encoding.quantized() || products.count == QuantProducts::kMost) return false;
  const QuantProduct p = make_product(op, args);
  if (!takes_few_rows(p)) return false;
  if (products.count > 0) {
    const QuantProduct& first = products.each[0];
    if (products.x != a.data || products.x_type != a.dtype || first.a.m != p.a.m ||
        first.a.k != p.a.k || first.quant != p.quant || first.block != p.block) {
      return false;
    }
  }
  products.steady = steady && (products.count == 0 || products.steady);
  products.x = a.data;
  products.x_type = a.dtype;
  products.each[products.count++] = p;
  for (QuantProduct& each : products.each) each.a = p.a;
  return true;
}

cudaError_t matmul_quantized(const QuantProducts& products, const Context& context) {
  const cudaError_t error = quantize_rows(products.x_type, products.x, products.each[0].a, context);
  return error != cudaSuccess ? error : launch_few_rows(products, context);
}

cudaError_t matmul_quantized(const MatMul& op, const Args& args, const Context& context) {
  QuantProducts products;
  if (add_quantized(op, args, is_steady(context.steady_inputs, 1), products)) {
    return matmul_quantized(products, context);
  }
  const View& a = args.inputs[0];
  const QuantProduct p = make_product(op, args);
  if (p.a.m == 0 || p.n == 0) return cudaSuccess;
  cudaError_t error = quantize_rows(a.dtype, a.data, p.a, context);
  UnpackedWeight b = place_unpacked(p, args.workspace.data() + rows_bytes(p, args.inputs[1]));
  for (; error == cudaSuccess && b.first < p.n; b.first += b.columns) {
    b.columns = std::min(b.columns, round_up(p.n - b.first, std::int64_t{kUnpackedColumns}));
    error = unpack_weight(p, b, context);
    if (error == cudaSuccess) error = launch_row_tiles(p, b, context);
  }
  return error;
}

}  // namespace volta::cuda
