// What the kernels of CachedAttention share: the call, which keys its rows see, and the launchers
// that cached_attention.cu chooses.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/paged_rows.cuh"

namespace volta::cuda::attention {

/// The most blocks of a sequence. With these, every position fits into an int, and so do the
/// positions past the end that a split of 256 keys may have.
inline constexpr std::int64_t kMostBlocks = std::numeric_limits<int>::max() / 256;
/// The most bytes of results that are stored to be joined by a second kernel.
inline constexpr std::int64_t kMostPartialBytes = std::int64_t{256} << 20;

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

/// The kernels on tensor cores; see cached_attention_mma.cuh. For few rows, `partials` is memory
/// for the results of each block of keys, f32 [rows, heads, blocks, head_dim + 2], which a second
/// kernel joins. For many rows it is null, and a thread block goes over all keys of a tile of
/// queries. Both give the same bits if the cache holds finite numbers.
cudaError_t cached_mma_bf16(const CachedCall& call, float* partials,
                            const Context& context) noexcept;
cudaError_t cached_mma_f16(const CachedCall& call, float* partials,
                           const Context& context) noexcept;

/// The kernels for everything else; see cached_attention_plain.cu. `workspace` has
/// cached_plain_workspace() bytes.
std::int64_t cached_plain_workspace(const AttentionShape& shape, std::int64_t rows,
                                    std::int64_t blocks, const Context& context);
cudaError_t cached_plain(const AttentionShape& shape, const CachedCall& call, float* workspace,
                         const Context& context) noexcept;

}  // namespace volta::cuda::attention
