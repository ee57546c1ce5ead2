// CachedAttention: attention of new tokens to the keys and values in their sequences' pages. This
// file chooses the kernels. The tensor cores take 16-bit operands (cached_attention_mma.cuh), and
// the plain kernels everything else (cached_attention_plain.cu).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/cached_attention.cuh"

namespace volta::cuda {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace): this file is a part of it.

// How the tensor-core kernels take the rows: with few of them, by blocks of keys, whose results
// wait in the workspace until they are joined.
struct MmaCut {
  bool by_blocks = false;
  std::int64_t workspace_bytes = 0;
};
MmaCut cut_mma(const AttentionShape& shape, std::int64_t rows, std::int64_t blocks) {
  constexpr std::int64_t kFewRows = 64;
  const std::int64_t row_bytes =
      shape.heads * (shape.head_dim + std::int64_t{2}) * static_cast<std::int64_t>(sizeof(float));
  if (rows > kFewRows || blocks > kMostPartialBytes / (row_bytes * std::max<std::int64_t>(rows, 1)))
    return {};
  return {.by_blocks = true, .workspace_bytes = rows * blocks * row_bytes};
}

}  // namespace

bool supports(const CachedAttention&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const CachedAttention& op, const ArgShapes& shapes,
                             const Context& context) {
  const View& q = shapes.inputs[0];
  const std::int64_t blocks = shapes.inputs[6].shape[1];
  if (cached_on_tensor_cores(q.dtype, shapes.inputs[1].dtype, op.shape.head_dim)) {
    return cut_mma(op.shape, q.shape[0], blocks).workspace_bytes;
  }
  return cached_plain_workspace(op.shape, q.shape[0], blocks, context);
}

cudaError_t run(const CachedAttention& op, const Args& args, const Context& context) noexcept {
  const AttentionShape& shape = op.shape;
  const View& y = args.outputs[0];
  if (y.shape.elements() == 0) return cudaSuccess;
  const View& q = args.inputs[0];
  const View& cache_k = args.inputs[1];
  const View& cache_v = args.inputs[2];
  const PagedRows rows(args.inputs.subspan(1));
  if (rows.blocks > kMostBlocks) return cudaErrorInvalidValue;
  const CachedCall cached = {.q = {q.data, rows.all, q.shape[1], 0, shape.head_dim},
                             .y = {y.data, rows.all, y.shape[1], 0, shape.head_dim},
                             .dtype = y.dtype,
                             .cache_dtype = cache_k.dtype,
                             .cache_k = cache_k.data,
                             .cache_v = cache_v.data,
                             .rows = rows,
                             .fault = Fault(context),
                             .heads = shape.heads,
                             .kv_heads = shape.kv_heads,
                             .window = shape.window,
                             .scale = shape.scale,
                             .softcap = shape.softcap};
  // SAFETY: the workspace is 256-byte aligned, and workspace_bytes() counts its floats.
  auto* const workspace = reinterpret_cast<float*>(args.workspace.data());
  if (cached_on_tensor_cores(q.dtype, cache_k.dtype, shape.head_dim)) {
    const bool by_blocks = cut_mma(shape, rows.all, rows.blocks).by_blocks;
    float* const partials = by_blocks ? workspace : nullptr;
    return q.dtype == DType::kBF16 ? cached_mma_bf16(cached, partials, context)
                                   : cached_mma_f16(cached, partials, context);
  }
  return cached_plain(shape, cached, workspace, context);
}

}  // namespace volta::cuda
