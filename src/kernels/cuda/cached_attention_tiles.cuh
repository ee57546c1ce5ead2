// CachedAttention on tensor cores for many rows, as in prompts: a thread block goes over all blocks
// of keys for a tile of 64 queries and joins them in registers. Bound by the products.
// cached_attention_mma.cuh describes the scheme.
#pragma once

#include <cstdint>

#include "kernels/cuda/cached_attention_block.cuh"
#include "kernels/cuda/launch.cuh"

namespace volta::cuda::attention::mma {

inline constexpr int kTileThreads = 128;
inline constexpr int kTileQueries = kTileThreads / kWarp * kWarpRows;

template <typename T, int kDim>
struct TileShared {
  alignas(256) T q[kTileQueries * kDim];
  alignas(256) T k[2][kKeyBlock * kDim];
  alignas(256) T v[2][kKeyBlock * kDim];
  int positions[kTileQueries], sequences[kTileQueries];  // By row; -1 if it has no place.
};

/// A tile of queries: consecutive rows, and of each one head group. Query i is head
/// first_head + i % heads of row first_row + i / heads. A warp has 16 of them.
template <typename T, int kDim>
class CachedTile {
 public:
  __device__ CachedTile(const CachedLaunch& launch, std::int64_t first_row, const HeadGroup& group,
                        TileShared<T, kDim>& shared)
      : launch_(launch),
        call_(launch.call),
        shared_(shared),
        first_row_(first_row),
        rows_(static_cast<int>(min(std::int64_t{launch.rows_at_once}, call_.rows.all - first_row))),
        counted_(static_cast<int>(
            max(std::int64_t{0}, min(std::int64_t{rows_}, call_.rows.count() - first_row)))),
        group_(group) {}

  /// Computes the rows of the tile; consecutive ones of one sequence together, as long as all pages
  /// that they see exist. Rows that do not count or cannot be read are cleared.
  __device__ void attend() {
    __syncthreads();  // All threads have finished with the tile before.
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < counted_) {
      const bool placed = call_.rows.placed(first_row_ + thread);
      shared_.positions[thread] = placed ? call_.rows.positions[first_row_ + thread] : -1;
      shared_.sequences[thread] = placed ? call_.rows.sequences[first_row_ + thread] : -1;
    }
    load_queries();
    __syncthreads();
    for (int row = 0; row < rows_;) {
      if (row >= counted_) {
        clear(row++);
        continue;
      }
      int rows = shared_.sequences[row] < 0 ? 0 : 1;
      while (rows > 0 && row + rows < counted_ &&
             shared_.sequences[row + rows] == shared_.sequences[row]) {
        ++rows;
      }
      if (rows > 0 && lacks_pages(call_, first_row_ + row, keys_of_rows(row, row + rows))) {
        rows = readable(call_, first_row_ + row) ? 1 : 0;
      }
      if (rows > 0) {
        attend_rows(row, row + rows);
        row += rows;
        continue;
      }
      if (threadIdx.x == 0 && group_.first_head == 0) call_.fault.report(first_row_ + row);
      clear(row++);
    }
  }

 private:
  /// What any of the rows [first, end) of the tile sees.
  __device__ Keys keys_of_rows(int first, int end) const {
    Keys all = keys_at(call_, shared_.positions[first]);
    for (int row = first + 1; row < end; ++row) {
      const Keys keys = keys_at(call_, shared_.positions[row]);
      all = {min(all.begin, keys.begin), max(all.end, keys.end)};
    }
    return all;
  }

  /// Begins to copy the tile's queries. Those that do not exist become zeros.
  __device__ void load_queries() {
    constexpr int kChunks = kDim / kChunk;
    for (int i = static_cast<int>(threadIdx.x); i < kTileQueries * kChunks; i += kTileThreads) {
      const int query = i / kChunks, chunk = i % kChunks;
      const bool wanted = query < rows_ * group_.heads;
      const T* const from = static_cast<const T*>(call_.q.data) +
                            (wanted ? query_index(call_.q, query) + chunk * kChunk : 0);
      T* const to = shared_.q + place<kDim>(query, chunk);
      if (launch_.q_at_once) {
        copy_async_16(shared_address(to), from, wanted ? 16 : 0);
        continue;
      }
      for (int j = 0; j < kChunk; ++j) to[j] = wanted ? from[j] : from_f32<T>(0.0f);
    }
    commit_copies();  // attend_rows() waits for it with the first block.
  }

  /// The first element of a query of the tile in q or y.
  __device__ std::int64_t query_index(const HeadRows& rows, int query) const {
    return rows.index(0, first_row_ + query / group_.heads,
                      group_.first_head + query % group_.heads);
  }

  /// Begins to copy a block of keys and values. attend() has checked that its page exists.
  __device__ void load_block(int row, int block, const Keys& keys, int stage) const {
    const std::int64_t page = call_.rows.page(first_row_ + row, block);
    if (page >= 0) {
      const std::int64_t at = page_index<kDim>(call_, page, group_.kv_head);
      const int key = block * kKeyBlock, thread = static_cast<int>(threadIdx.x);
      copy_page<kDim, kKeyBlock>(static_cast<const T*>(call_.cache_k) + at, 0, kDim,
                                 launch_.cache_at_once, shared_.k[stage], thread, kTileThreads);
      copy_page<kKeyBlock, kDim>(static_cast<const T*>(call_.cache_v) + at, keys.begin - key,
                                 keys.end - key, launch_.cache_at_once, shared_.v[stage], thread,
                                 kTileThreads);
    }
    commit_copies();
  }

  /// Computes the rows [first, end) of the tile, which belong to one sequence. Blocks are copied
  /// one ahead.
  __device__ void attend_rows(int first, int end) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int query = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;  // The warp's first one.
    const Keys keys = keys_of_rows(first, end);
    Keys seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (query + lane / 4 + 8 * half) / group_.heads;
      seen[half] = row >= first && row < end ? keys_at(call_, shared_.positions[row]) : Keys{0, 0};
    }
    float max[2] = {kLowest, kLowest}, sum[2] = {};
    float out[kDim / 2] = {};
    const float factor = score_factor(call_);
    int block = keys.begin / kKeyBlock;
    const int last = (keys.end - 1) / kKeyBlock;
    load_block(first, block, keys, 0);
#pragma unroll 1
    for (int stage = 0; block <= last; ++block, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();  // The block is there, and the other stage has been read.
      if (block < last) load_block(first, block + 1, keys, stage ^ 1);
      const int key = block * kKeyBlock;
      bool meets = false;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        meets = meets || (key < seen[half].end && key + kKeyBlock > seen[half].begin);
      }
      if (__any_sync(kAllLanes, meets) == 0) continue;
      BlockWeights weights;
      weigh_keys<kDim>(call_, shared_.q, query, shared_.k[stage], key, seen, weights);
      BlockFactors factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factors[half] =
            join_block(max[half], sum[half], weights.max[half], weights.sum[half], factor);
      }
#pragma unroll
      for (int part = 0; part < kDim / kPartDims; ++part) {
        PartOutputs next;
        mix_values<kDim>(weights, shared_.v[stage], part, next);
#pragma unroll
        for (int i = 0; i < kPartDims / 2; ++i) {
          float& before = out[part * (kPartDims / 2) + i];
          before = join_block(factors[i / 2 % 2], before, next[i]);
        }
        __syncwarp();  // Keeps the compiler from holding two parts in registers at once.
      }
    }
    __syncthreads();  // The next rows may use both stages.
    store(query, first, end, sum, out);
  }

  /// Stores the results of the warp's queries in the rows [first, end). They take the place of the
  /// queries in shared memory first, from where whole chunks are stored.
  __device__ void store(int query, int first, int end, const float (&sum)[2],
                        const float (&out)[kDim / 2]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = query + lane / 4 + 8 * half;
      if (at / group_.heads < first || at / group_.heads >= end) continue;
      const float factor = 1.0f / sum[half];
      // SAFETY: an even element of a tile is at a multiple of 4 bytes. Below, a chunk of a tile is
      // at a multiple of 16 bytes, and so is one of y if y_at_once.
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(shared_.q + place<kDim>(at, n) + lane % 4 * 2) =
            round_pair<T>(__fmul_rn(out[4 * n + 2 * half], factor),
                          __fmul_rn(out[4 * n + 2 * half + 1], factor));
      }
    }
    __syncwarp();
    constexpr int kChunks = kDim / kChunk;
#pragma unroll 1
    for (int i = lane; i < kWarpRows * kChunks; i += kWarp) {
      const int at = query + i / kChunks, chunk = i % kChunks;
      if (at / group_.heads < first || at / group_.heads >= end) continue;
      const auto& from =
          *reinterpret_cast<const Vector<T, kChunk>*>(shared_.q + place<kDim>(at, chunk));
      T* const to = static_cast<T*>(call_.y.data) + query_index(call_.y, at) + chunk * kChunk;
      if (launch_.y_at_once) {
        *reinterpret_cast<Vector<T, kChunk>*>(to) = from;
      } else {
        for (int j = 0; j < kChunk; ++j) to[j] = from.at[j];
      }
    }
  }

  /// Zeros for the results of a row that is not computed.
  __device__ void clear(int row) const {
    for (int i = static_cast<int>(threadIdx.x); i < group_.heads * kDim; i += kTileThreads) {
      static_cast<T*>(
          call_.y.data)[query_index(call_.y, row * group_.heads + i / kDim) + i % kDim] =
          from_f32<T>(0.0f);
    }
  }

  const CachedLaunch& launch_;
  const CachedCall& call_;
  TileShared<T, kDim>& shared_;
  std::int64_t first_row_;
  int rows_, counted_;  ///< Rows of the tile, and how many of them count: the first ones.
  HeadGroup group_;
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kTileThreads, 2)
    tiles_kernel(const __grid_constant__ CachedLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: launch_tiles() asks for sizeof(TileShared<T, kDim>) bytes of dynamic shared memory.
  auto& shared = *reinterpret_cast<TileShared<T, kDim>*>(storage);
  const CachedCall& call = launch.call;
  let_next_begin();
  wait_for_earlier();
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const int groups = launch.all_head_groups();
  const std::int64_t tiles = ceil_div(call.rows.all, std::int64_t{launch.rows_at_once});
  const std::int64_t items = tiles * groups;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const HeadGroup group = head_group(launch, static_cast<int>(item % groups));
    // The later rows of a prompt see more keys, so they come first.
    const std::int64_t tile = tiles - 1 - item / groups;
    CachedTile<T, kDim>(launch, tile * launch.rows_at_once, group, shared).attend();
  }
}

template <typename T, int kDim>
cudaError_t launch_tiles(const CachedLaunch& launch, const Context& context) {
  constexpr int kBytes = sizeof(TileShared<T, kDim>);
  static_assert(kBytes <= kMostShared);
  const auto kernel = tiles_kernel<T, kDim>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const CachedCall& call = launch.call;
  const std::int64_t items =
      ceil_div(call.rows.all, std::int64_t{launch.rows_at_once}) * launch.all_head_groups();
  return launch_early(kernel, blocks_for(items, 1), kTileThreads, kBytes, context, launch);
}

}  // namespace volta::cuda::attention::mma
