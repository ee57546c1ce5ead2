// CachedAttention on tensor cores (mma.sync), for queries and caches of bf16 or of f16 with a
// head_dim of 64 or 128. Prompts are bound by the products, decoding by the bytes of the cache.
//
// The unit of work is a page of the cache: a block of 64 keys (cached_attention_block.cuh). For 16
// queries a warp computes the scores of a block, the weights relative to the block's own maximum,
// and the product of the weights with the values, which is summed from 0 for each block. Blocks are
// joined in the order of their positions, each by one multiply-add. With few rows every block of
// every row is a warp's work, and a second kernel joins them (cached_attention_blocks.cuh). With
// many rows a thread block goes over all blocks for a tile of 64 queries
// (cached_attention_tiles.cuh). Both compute the same, so a row's bits depend on its q and its
// cache alone.
//
// Products of two 16-bit operands are exact and summed in f32. Weights are rounded to 16 bits once.
// A weight of 0 does not hide a value that is not finite: in a tile, a row may become NaN because a
// later token of its own prompt has such a value in the same page.
#pragma once

#include <cstddef>

#include "kernels/cuda/cached_attention_blocks.cuh"
#include "kernels/cuda/cached_attention_tiles.cuh"

namespace volta::cuda::attention::mma {

/// With `partials` every block by itself, else tiles; see cached_mma_bf16().
template <typename T>
cudaError_t cached(const CachedCall& call, float* partials, const Context& context) {
  const int group = call.heads / call.kv_heads;
  CachedLaunch launch{.call = call, .partials = partials};
  launch.q_at_once = call.q.is_aligned_for(kChunk, call.dtype);
  launch.y_at_once = call.y.is_aligned_for(kChunk, call.dtype);
  constexpr std::size_t kBytes = 16;
  launch.cache_at_once = is_aligned(call.cache_k, kBytes) && is_aligned(call.cache_v, kBytes);
  const int queries = partials != nullptr ? kWarpRows : kTileQueries;
  launch.heads_at_once = min(group, queries);
  launch.head_groups = ceil_div(group, launch.heads_at_once);
  if (partials != nullptr) {
    return call.q.dim == 64 ? launch_blocks<T, 64>(launch, context)
                            : launch_blocks<T, 128>(launch, context);
  }
  launch.rows_at_once = queries / launch.heads_at_once;
  return call.q.dim == 64 ? launch_tiles<T, 64>(launch, context)
                          : launch_tiles<T, 128>(launch, context);
}

}  // namespace volta::cuda::attention::mma
