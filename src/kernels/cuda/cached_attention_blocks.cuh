// CachedAttention on tensor cores for few rows, as in decoding: a warp computes one block of keys
// for one row, so that even a single row is work for many multiprocessors. A second kernel joins
// the blocks of a row, which wait in the workspace. Bound by the bytes of the cache.
// cached_attention_mma.cuh describes the scheme.
#pragma once

#include <cstdint>

#include "kernels/cuda/cached_attention_block.cuh"
#include "kernels/cuda/launch.cuh"

namespace volta::cuda::attention::mma {

/// Blocks of keys that a thread block computes at a time, one for each warp.
template <int kDim>
inline constexpr int kBlocksAtOnce = kDim == 64 ? 4 : 2;

__device__ inline float* partial_of(const CachedLaunch& launch, std::int64_t row, std::int64_t head,
                                    std::int64_t block) {
  const CachedCall& call = launch.call;
  return launch.partials +
         ((row * call.heads + head) * call.rows.blocks + block) * (call.q.dim + 2);
}

/// Stores a part's outputs of query lane / 4 + 8 half.
__device__ inline void store_part(const PartOutputs& out, int half, float2* to) {
#pragma unroll
  for (int tile = 0; tile < kPartDims / 8; ++tile) {
    to[4 * tile + static_cast<int>(threadIdx.x) % 4] =
        make_float2(out[4 * tile + 2 * half], out[4 * tile + 2 * half + 1]);
  }
}

template <typename T, int kDim>
struct BlocksShared {
  alignas(256) T q[kWarpRows * kDim];
  alignas(256) T k[kBlocksAtOnce<kDim>][kKeyBlock * kDim];
  alignas(256) T v[kBlocksAtOnce<kDim>][kKeyBlock * kDim];
};

/// A thread block computes kBlocksAtOnce blocks of keys, one with each warp, for one head group of
/// one row.
template <typename T, int kDim>
__global__ void __launch_bounds__(kBlocksAtOnce<kDim>* kWarp)
    blocks_kernel(const __grid_constant__ CachedLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: launch_blocks() asks for sizeof(BlocksShared<T, kDim>) bytes of dynamic shared memory.
  auto& shared = *reinterpret_cast<BlocksShared<T, kDim>*>(storage);
  const CachedCall& call = launch.call;
  let_next_begin();
  wait_for_earlier();
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int groups = launch.all_head_groups();
  constexpr int kThreads = kBlocksAtOnce<kDim> * kWarp;
  const std::int64_t parts = ceil_div(call.rows.blocks, std::int64_t{kBlocksAtOnce<kDim>});
  const std::int64_t items = call.rows.all * groups * parts;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t part = item % parts;
    const std::int64_t row = item / parts / groups;
    if (row >= call.rows.count() || !call.rows.placed(row)) continue;
    const Keys keys = keys_of(call, row);
    const auto block = static_cast<int>(part * kBlocksAtOnce<kDim> + warp);
    const int key = block * kKeyBlock;
    const bool seen = block < call.rows.blocks && key < keys.end && key + kKeyBlock > keys.begin;
    const std::int64_t page = seen ? call.rows.page(row, block) : -1;
    // This is also the barrier before shared.q is overwritten: all threads have read the q of the
    // previous item.
    if (__syncthreads_or(page >= 0 ? 1 : 0) == 0) continue;
    const HeadGroup group = head_group(launch, static_cast<int>(item / parts % groups));
    // The heads of a row follow each other.
    copy_page<kWarpRows, kDim>(
        static_cast<const T*>(call.q.data) + call.q.index(0, row, group.first_head), 0, group.heads,
        launch.q_at_once, shared.q, static_cast<int>(threadIdx.x), kThreads);
    if (page >= 0) {
      const std::int64_t at = page_index<kDim>(call, page, group.kv_head);
      copy_page<kDim, kKeyBlock>(static_cast<const T*>(call.cache_k) + at, 0, kDim,
                                 launch.cache_at_once, shared.k[warp], lane, kWarp);
      copy_page<kKeyBlock, kDim>(static_cast<const T*>(call.cache_v) + at, keys.begin - key,
                                 keys.end - key, launch.cache_at_once, shared.v[warp], lane, kWarp);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    if (page < 0) continue;
    BlockWeights weights;
    const Keys both[2] = {keys, keys};
    weigh_keys<kDim>(call, shared.q, 0, shared.k[warp], key, both, weights);
#pragma unroll
    for (int n = 0; n < kDim / kPartDims; ++n) {
      PartOutputs out;
      mix_values<kDim>(weights, shared.v[warp], n, out);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int head = lane / 4 + 8 * half;
        if (head >= group.heads) continue;
        // SAFETY: rows of partials have an even number of floats, and the workspace is aligned.
        auto* const to =
            reinterpret_cast<float2*>(partial_of(launch, row, group.first_head + head, block));
        store_part(out, half, to + n * (kPartDims / 2));
        if (n == 0 && lane % 4 == 0) {
          to[kDim / 2] = make_float2(weights.max[half], weights.sum[half]);
        }
      }
    }
  }
}

/// A thread block joins the blocks of one row and head; a thread has one dim. Rows that do not
/// count or cannot be read are cleared here. blocks_kernel may have computed blocks of the latter,
/// which are never read.
template <typename T, int kDim>
__global__ void __launch_bounds__(kDim)
    join_blocks_kernel(const __grid_constant__ CachedLaunch launch) {
  const CachedCall& call = launch.call;
  let_next_begin();
  wait_for_earlier();
  const float factor = score_factor(call);
  const std::int64_t items = call.rows.all * call.heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t row = item / call.heads;
    const int head = static_cast<int>(item % call.heads);
    const int d = static_cast<int>(threadIdx.x);
    const bool counts = row < call.rows.count();
    const bool good = counts && readable(call, row);
    if (counts && !good && head == 0 && d == 0) call.fault.report(row);
    const Keys keys = good ? keys_of(call, row) : Keys{0, 0};
    float max = kLowest, sum = 0.0f, out = 0.0f;
    const int end = ceil_div(keys.end, kKeyBlock);
#pragma unroll 4
    for (int block = keys.begin / kKeyBlock; block < end; ++block) {
      const float* const partial = partial_of(launch, row, head, block);
      const BlockFactors factors = join_block(max, sum, partial[kDim], partial[kDim + 1], factor);
      out = join_block(factors, out, partial[d]);
    }
    static_cast<T*>(call.y.data)[call.y.index(0, row, head) + d] =
        from_f32<T>(good ? __fmul_rn(out, 1.0f / sum) : 0.0f);
  }
}

template <typename T, int kDim>
cudaError_t launch_blocks(const CachedLaunch& launch, const Context& context) {
  constexpr int kBytes = sizeof(BlocksShared<T, kDim>);
  static_assert(kBytes <= kMostShared);
  const auto kernel = blocks_kernel<T, kDim>;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const CachedCall& call = launch.call;
  const std::int64_t items = call.rows.all * launch.all_head_groups() *
                             ceil_div(call.rows.blocks, std::int64_t{kBlocksAtOnce<kDim>});
  error = launch_early(kernel, blocks_for(items, 1), kBlocksAtOnce<kDim> * kWarp, kBytes, context,
                       launch);
  if (error != cudaSuccess) return error;
  return launch_early(&join_blocks_kernel<T, kDim>, blocks_for(call.rows.all * call.heads, 1), kDim,
                      0, context, launch);
}

}  // namespace volta::cuda::attention::mma
