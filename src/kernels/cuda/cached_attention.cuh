// What the kernels of CachedAttention share: the call, and which keys its rows see.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/paged_rows.cuh"

namespace volta::cuda::attention {

struct CachedCall {
  HeadRows q, y;  ///< One batch entry.
  DType dtype = DType::kF32, cache_dtype = DType::kF32;
  const void* cache_k = nullptr;  ///< [pages, kv_heads, dim, 64]
  const void* cache_v = nullptr;  ///< [pages, kv_heads, 64, dim]
  PagedRows rows;
  Fault fault;
  int heads = 1, kv_heads = 1, window = 0;
  float scale = 1.0f, softcap = 0.0f;
};

/// The keys [begin, end) that a row sees.
struct Keys {
  int begin, end;
};
__device__ inline Keys keys_at(const CachedCall& call, int position) {
  return {call.window > 0 ? max(0, position - call.window + 1) : 0, position + 1};
}
__device__ inline Keys keys_of(const CachedCall& call, std::int64_t row) {
  return keys_at(call, call.rows.positions[row]);
}

/// Whether pages are missing that hold any of these keys of a placed row's sequence. All threads of
/// a block call it and get the same answer.
__device__ inline bool lacks_pages(const CachedCall& call, std::int64_t row, const Keys& keys) {
  bool missing = false;
  for (int block = keys.begin / kKeyBlock + static_cast<int>(threadIdx.x);
       block <= (keys.end - 1) / kKeyBlock; block += static_cast<int>(blockDim.x)) {
    missing = missing || call.rows.page(row, block) < 0;
  }
  return __syncthreads_or(missing ? 1 : 0) != 0;
}

/// Whether the row has a place, and all pages that it sees exist. All threads of a block call it
/// and get the same answer.
__device__ inline bool readable(const CachedCall& call, std::int64_t row) {
  return call.rows.placed(row) && !lacks_pages(call, row, keys_of(call, row));
}

/// Whether the tensor cores compute CachedAttention with these types and this head_dim. It depends
/// on nothing else, so that a row's bits do not depend on its neighbours.
constexpr bool cached_on_tensor_cores(DType q, DType cache, std::int64_t head_dim) {
  return q == cache && has_tensor_core_kernel(q, head_dim);
}

/// Whether rows are computed one by one, with a workspace for what is joined at the end.
struct CachedMmaCut {
  bool by_blocks = false;
  std::int64_t workspace_bytes = 0;
};
CachedMmaCut cut_cached_mma(const AttentionShape& shape, std::int64_t rows, std::int64_t blocks);

/// See cached_attention_mma.cuh. `partials` has the workspace_bytes of the cut.
cudaError_t cached_mma_bf16(const CachedCall& call, float* partials,
                            const Context& context) noexcept;
cudaError_t cached_mma_f16(const CachedCall& call, float* partials,
                           const Context& context) noexcept;

}  // namespace volta::cuda::attention
