// MatMul: makes a Gemm of the op's operands and chooses the kernel (see gemm.h). A quantised b is
// for quant.h.
//
// The gradient of a weight has few tiles and a long K, all tokens. Its K is cut into pieces that
// are products of their own, and a second kernel adds their sums in order. Only a product with
// transpose_a is cut, and the pieces follow from its sizes and types alone.
//
// Hopper's copy engine reads rows that are multiples of 16 bytes only (a vocabulary of 50,257 has
// others). Such an operand of a large product is copied to the workspace first.
#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/copy_rows.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/gemm_stream.h"
#include "kernels/cuda/quant.h"

namespace volta::cuda {
namespace {

/// Whether the tensor cores multiply the operands as they are.
bool on_tensor_cores(DType a, DType b) { return a == b && a != DType::kF32; }

/// The steps of k of a piece; all of them if the product is not cut.
// The costs are estimates for a GPU of 132 multiprocessors that holds one tile on each, in units of
// a tile's time for one step of k. They must not depend on the GPU at hand.
std::int64_t piece_steps(const MatMul& op, const Gemm& g) {
  constexpr std::int64_t kProcessors = 132, kTileRows = 128, kMostPieces = 32;
  constexpr std::int64_t kLeastSteps = 1024;              // Of a piece.
  constexpr std::int64_t kMostFloats = 64 * 1024 * 1024;  // Of all sums together.
  constexpr std::int64_t kRound = 64;                     // Stages are never cut.
  if (!op.transpose_a || op.batched || g.m == 0 || g.n == 0) return g.k;
  const bool tensor_cores = on_tensor_cores(g.a.type, g.b.type);
  const std::int64_t tile_columns = tensor_cores ? 256 : 128;
  // Sums that are written and read in the time of a step, and the steps of a launch.
  const std::int64_t floats_per_step = tensor_cores ? 7500 : 39000;
  const std::int64_t launch_steps = tensor_cores ? 250 : 50;
  const std::int64_t tiles = ceil_div(g.m, kTileRows) * ceil_div(g.n, tile_columns);
  std::int64_t best = 1, best_cost = ceil_div(tiles, kProcessors) * g.k;
  for (std::int64_t pieces = 2; pieces <= kMostPieces; ++pieces) {
    if (g.k < pieces * kLeastSteps || g.m > kMostFloats / (pieces * g.n)) break;
    const std::int64_t cost = ceil_div(tiles * pieces, kProcessors) * ceil_div(g.k, pieces) +
                              pieces * g.m * g.n / floats_per_step + launch_steps;
    if (cost < best_cost) {
      best = pieces;
      best_cost = cost;
    }
  }
  return best == 1 ? g.k : round_up(ceil_div(g.k, best), kRound);
}

GemmOperand operand(const View& view, bool batched, bool along_k) {
  const std::int64_t rows = batched ? view.shape[-2] : view.shape.rows();
  return {.data = view.data,
          .type = view.dtype,
          .along_k = along_k,
          .stride = view.shape[-1],
          .batch_stride = batched ? rows * view.shape[-1] : 0};
}

/// The product, without what depends on addresses and the workspace.
Gemm make_gemm(const MatMul& op, std::span<const View> inputs) {
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  const std::int64_t a_rows = op.batched ? a[-2] : a.rows();
  const std::int64_t b_rows = op.batched ? b[-2] : b.rows();
  Gemm g;
  g.a = operand(inputs[0], op.batched, !op.transpose_a);
  g.b = operand(inputs[1], op.batched, op.transpose_b);
  g.m = op.transpose_a ? a[-1] : a_rows;
  g.k = op.transpose_a ? a_rows : a[-1];
  g.n = op.transpose_b ? b_rows : b[-1];
  g.parts = op.batched ? a.product(0, a.rank() - 2) : 1;
  g.piece_k = g.k;
  const std::int64_t piece = piece_steps(op, g);
  if (piece < g.k) {
    g.pieces = true;
    g.piece_k = piece;
    g.parts = ceil_div(g.k, piece);
  }
  return g;
}

/// The bytes in the workspace of the copy of an operand; 0 if it is read where it is.
// The other kernels do not need the copy, so it is made only where gemm_sm90 gains more from it
// than it costs.
std::int64_t copy_bytes(const GemmOperand& operand, std::int64_t width, const MatMul& op,
                        const Gemm& g, const Context& context) {
  constexpr std::int64_t kEngineUnit = 8, kLeastWidth = 128, kElementBytes = 2;
  constexpr int kHopper = 90;
  if (op.batched || context.architecture != kHopper || !on_tensor_cores(g.a.type, g.b.type) ||
      std::min(g.m, g.n) < kLeastWidth || g.k == 0 || operand.stride % kEngineUnit == 0) {
    return 0;
  }
  const std::int64_t rows = operand.along_k ? width : g.k;
  return rows * round_up(operand.stride, kCopyStride) * kElementBytes;
}

/// Where things are in the workspace.
struct Workspace {
  std::int64_t a = 0, b = 0;  ///< Of the copies, or 0.
  std::int64_t sums = 0;      ///< Of the pieces; a and b come behind them.

  Workspace(const MatMul& op, const Gemm& g, const Context& context)
      : a(copy_bytes(g.a, g.m, op, g, context)), b(copy_bytes(g.b, g.n, op, g, context)) {
    constexpr std::int64_t kAlignment = 256;
    if (g.pieces) {
      sums = round_up(g.parts * g.m * g.n * static_cast<std::int64_t>(sizeof(float)), kAlignment);
    }
    a = round_up(a, kAlignment);
  }
  std::int64_t bytes() const { return sums + a + b; }
};

/// Copies an operand, which is then the copy.
cudaError_t copy_operand(GemmOperand& operand, std::byte* to, std::int64_t rows,
                         const Context& context) {
  const cudaError_t error = copy_rows_apart(operand.data, to, rows, operand.stride, context);
  operand.data = to;
  operand.stride = round_up(operand.stride, kCopyStride);
  return error;
}

GemmOutput make_output(const MatMul& op, const Args& args, std::int64_t n) {
  GemmOutput out;
  out.c = args.outputs[0].data;
  out.type = op.out;
  out.activation = op.activation;
  if (op.has_bias) out.bias = args.inputs[2].as<const float>();
  if (op.has_residual) out.residual = args.inputs[op.has_bias ? 3 : 2].data;
  out.n = n;
  // A null pointer is aligned.
  const auto group = static_cast<std::size_t>(kOutputColumns * dtype_size(op.out));
  out.aligned = n % kOutputColumns == 0 && is_aligned(out.c, group) &&
                is_aligned(out.residual, group) && is_aligned(out.bias, sizeof(float4));
  return out;
}

/// Whether loads of `elements` elements may begin at every multiple of them in every row.
bool rows_aligned(const GemmOperand& operand, std::int64_t elements) {
  return operand.stride % elements == 0 &&
         is_aligned(operand.data, static_cast<std::size_t>(elements * dtype_size(operand.type)));
}

/// Adds a product of one part with a b along k. False if it has another a than those before.
bool add_stream(const Gemm& g, bool steady, GemmStreams& streams) {
  const GemmStreams& s = streams;
  if (s.count == kMostStreams) return false;
  if (s.count > 0 && (s.a.data != g.a.data || s.a.type != g.a.type || s.m != g.m || s.k != g.k)) {
    return false;
  }
  streams.a = g.a;
  streams.m = g.m;
  streams.k = g.k;
  streams.steady = steady && (s.count == 0 || s.steady);
  streams.b[s.count] = g.b.data;
  streams.out[s.count] = g.out;
  ++streams.count;
  return true;
}

cudaError_t launch_product(Gemm g, const Context& context) {
  const bool one = g.a.along_k && g.parts == 1 && !g.pieces;
  const bool tensor_cores = on_tensor_cores(g.a.type, g.b.type);
  if (tensor_cores) {
    g.a.aligned = rows_aligned(g.a, 8);
    g.b.aligned = rows_aligned(g.b, 8);
    if (one && g.m <= kFewRows16Bit) {
      GemmStreams streams;
      if (g.b.along_k && add_stream(g, is_steady(context.steady_inputs, 1), streams) &&
          gemm_streams_apply(streams, context)) {
        return gemm_streams(streams, context);
      }
      return gemm_rows_16bit(g, context);
    }
    if (gemm_sm90_applies(g, context)) return gemm_sm90(g, context);
    if (g.a.type == DType::kBF16) {
      return g.a.along_k ? gemm_mma_bf16(g, context) : gemm_mma_bf16_transposed_a(g, context);
    }
    return g.a.along_k ? gemm_mma_f16(g, context) : gemm_mma_f16_transposed_a(g, context);
  }
  if (one && g.m <= kFewRowsF32) {
    g.b.aligned = rows_aligned(g.b, 16 / dtype_size(g.b.type));
    return gemm_rows_f32(g, context);
  }
  g.a.aligned = rows_aligned(g.a, 4);
  g.b.aligned = rows_aligned(g.b, 4);
  return gemm_f32(g, context);
}

/// c = activation(sums of the pieces, in order, + bias) + residual. sums: f32[pieces, rows, n].
/// The sums are not aligned if n is not a multiple of four.
__global__ void __launch_bounds__(256)
    add_pieces(const GemmOutput out, const float* sums, std::int64_t pieces, std::int64_t rows) {
  const std::int64_t groups = ceil_div(out.n, std::int64_t{kOutputColumns});
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < rows * groups; i += step) {
    const std::int64_t row = i / groups, column = i % groups * kOutputColumns;
    const float* from = sums + row * out.n + column;
    const std::int64_t left = out.n - column;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (std::int64_t piece = 0; piece < pieces; ++piece, from += rows * out.n) {
      float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (out.n % kOutputColumns == 0) {
        x = *reinterpret_cast<const float4*>(from);
      } else {
        x.x = from[0];
        if (left > 1) x.y = from[1];
        if (left > 2) x.z = from[2];
        if (left > 3) x.w = from[3];
      }
      sum.x += x.x;
      sum.y += x.y;
      sum.z += x.z;
      sum.w += x.w;
    }
    write_output(out, row, column, sum);
  }
}

cudaError_t launch_add_pieces(const Gemm& g, const GemmOutput& out, const float* sums,
                              const Context& context) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t groups = g.m * ceil_div(g.n, std::int64_t{kOutputColumns});
  add_pieces<<<blocks_for(groups, kThreads, 8 * std::int64_t{context.multiprocessors}), kThreads, 0,
               context.stream>>>(out, sums, g.parts, g.m);
  return launch_error();
}

}  // namespace

bool add_stream(const MatMul& op, const Args& args, bool steady, GemmStreams& streams) {
  if (args.inputs[1].encoding.quantized()) return false;
  Gemm g = make_gemm(op, args.inputs);
  if (!g.a.along_k || !g.b.along_k || g.parts != 1 || g.pieces || g.m == 0 || g.n == 0 ||
      !on_tensor_cores(g.a.type, g.b.type)) {
    return false;
  }
  g.out = make_output(op, args, g.n);
  return add_stream(g, steady, streams);
}

bool supports(const MatMul&, std::span<const TensorSpec> inputs) {
  return inputs[0].encoding.plain() && inputs[1].encoding.packing == Packing::kRows;
}

std::int64_t workspace_bytes(const MatMul& op, const ArgShapes& shapes, const Context& context) {
  if (shapes.inputs[1].encoding.quantized()) {
    return matmul_quantized_workspace(op, shapes, context);
  }
  return Workspace(op, make_gemm(op, shapes.inputs), context).bytes();
}

cudaError_t run(const MatMul& op, const Args& args, const Context& context) noexcept {
  if (args.inputs[1].encoding.quantized()) return matmul_quantized(op, args, context);
  Gemm g = make_gemm(op, args.inputs);
  if (g.m == 0 || g.n == 0 || g.parts == 0) return cudaSuccess;
  const GemmOutput out = make_output(op, args, g.n);
  // SAFETY: the workspace has workspace_bytes() and is 256-byte aligned.
  const Workspace workspace(op, g, context);
  std::byte* copies = args.workspace.data() + workspace.sums;
  if (workspace.a > 0) {
    const cudaError_t error = copy_operand(g.a, copies, g.a.along_k ? g.m : g.k, context);
    if (error != cudaSuccess) return error;
  }
  if (workspace.b > 0) {
    const cudaError_t error =
        copy_operand(g.b, copies + workspace.a, g.b.along_k ? g.n : g.k, context);
    if (error != cudaSuccess) return error;
  }
  if (!g.pieces) {
    g.out = out;
    return launch_product(g, context);
  }
  auto* sums = reinterpret_cast<float*>(args.workspace.data());
  g.out.c = sums;
  g.out.n = g.n;
  g.out.aligned = g.n % kOutputColumns == 0;
  const cudaError_t error = launch_product(g, context);
  return error != cudaSuccess ? error : launch_add_pieces(g, out, sums, context);
}

}  // namespace volta::cuda
