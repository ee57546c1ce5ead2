// CachedAttention on tensor cores (mma.sync), for queries and caches of bf16 or of f16 with a
// head_dim of 64 or 128. Prompts are bound by the products, decoding by the bytes of the cache.
//
// The unit of work is a page: the 64 keys of a block. For 16 queries a warp computes the scores of
// a block, the weights relative to the block's own maximum, and their product with the values from
// zero on. Blocks are joined in the order of their positions, each by one multiply-add. With few
// rows every block of every row is a warp's work, and a second kernel joins them. With many rows a
// thread block goes over all blocks for a tile of 64 queries. Both compute the same, so a row's
// bits depend on its q and its cache alone.
//
// Products of two 16-bit operands are exact and summed in f32. Weights are rounded to 16 bits once.
// A weight of 0 does not hide a value that is not finite: in a tile, a row may become NaN because a
// later token of its own prompt has one in the same page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_mma_forward.cuh"
#include "kernels/cuda/cached_attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace volta::cuda::attention::mma {

inline constexpr int kCachedThreads = 128;
inline constexpr int kCachedWarps = kCachedThreads / kWarp;
inline constexpr int kTileQueries = kCachedWarps * kWarpRows;
/// Blocks of keys that a thread block computes at a time, one for each warp.
template <int kDim>
inline constexpr int kBlocksAtOnce = kDim == 64 ? 4 : 2;
/// The shared memory of a thread block on every GPU from compute capability 8.0 on.
inline constexpr int kMostShared = 99 * 1024;

struct CachedLaunch {
  CachedCall call;
  bool q_at_once = false, cache_at_once = false, y_at_once = false;
  /// A tile has this many rows, and of each this many query heads of one key/value head.
  int rows_at_once = 1, heads_at_once = 1;
  std::int64_t head_groups = 1;
  /// By blocks: [rows, heads, blocks, head_dim + 2]: the output, the maximum and the sum of each
  /// block that a row sees.
  float* partials = nullptr;
};

// ---- one block of keys --------------------------------------------------------------------------

/// What 16 queries of a warp make of a block of keys: of rows g and g + 8 the maximum of the scores
/// and the sum of the weights, and the weights in 16 bits, as left operands of multiply_add().
struct BlockWeights {
  float max[2], sum[2];
  std::uint32_t weights[kBlockTiles / 2][4];
};
/// The results of a block are made for this many dims at a time, so that they stay in registers.
inline constexpr int kPartDims = 64;
using PartOutputs = float[kPartDims / 2];

/// What the scores of weights() are multiplied by, in units of ln 2.
__device__ inline float score_factor(const CachedCall& call) {
  return call.softcap > 0.0f || !(call.scale > 0.0f) ? 1.0f : call.scale * kLog2E;
}

/// Soft-caps, scales and hides scores. `key` is the first column, `seen` what rows g and g + 8 see.
__device__ inline void finish_scores(const CachedCall& call, int key, const Keys (&seen)[2],
                                     float (&scores)[4 * kBlockTiles]) {
  if (call.softcap > 0.0f) {
#pragma unroll
    for (float& score : scores) {
      float slope;
      score = cap_score(score * call.scale, call.softcap, slope) * kLog2E;
    }
  } else if (!(call.scale > 0.0f)) {
#pragma unroll
    for (float& score : scores) score *= call.scale * kLog2E;
  }
  const int column = key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int begin = seen[half].begin - column, end = seen[half].end - column;
#pragma unroll
    for (int j = 0; j < kBlockTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i < begin || 8 * j + i >= end) scores[4 * j + 2 * half + i] = kLowest;
      }
    }
  }
}

/// Scores to weights, 2^(factor (score - max)), in f16 times 2^15. Without a visible key all
/// weights are 0.
template <typename T>
__device__ inline void weigh_block(float factor, float (&scores)[4 * kBlockTiles], float (&max)[2],
                                   float (&sum)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = kLowest;
#pragma unroll
    for (int j = 0; j < kBlockTiles; ++j) {
      largest = fmaxf(largest, fmaxf(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float base =
        kWeightExponent<T> - (largest == kLowest ? 0.0f : __fmul_rn(largest, factor));
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j < kBlockTiles; ++j) {
      float& first = scores[4 * j + 2 * half];
      float& second = scores[4 * j + 2 * half + 1];
      first = exp2_weight(fmaf(first, factor, base));
      second = exp2_weight(fmaf(second, factor, base));
      even += first;
      odd += second;
    }
    float total = even + odd;
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    max[half] = largest;
    sum[half] = total;
  }
}

/// The weights of the keys in k [kDim, 64] for the queries [row, row + 16) of q.
template <int kDim, typename T>
__device__ inline void weigh_keys(const CachedCall& call, const T* q, int row, const T* k, int key,
                                  const Keys (&seen)[2], BlockWeights& block) {
  float scores[4 * kBlockTiles] = {};
  const std::uint32_t left_at = left_address<kDim>(q, row);
  const std::uint32_t keys_at = right_rows_address<kKeyBlock>(k);
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4];
    load_matrices(a, advance<kDim>(left_at, step, 0));
#pragma unroll
    for (int pair = 0; pair < kBlockTiles / 2; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b, advance<kKeyBlock>(keys_at, pair, 16 * step));
      multiply_add<T>(sums_of_tile(scores, 2 * pair), a, b[0], b[1]);
      multiply_add<T>(sums_of_tile(scores, 2 * pair + 1), a, b[2], b[3]);
    }
  }
  finish_scores(call, key, seen, scores);
  weigh_block<T>(score_factor(call), scores, block.max, block.sum);
#pragma unroll
  for (int step = 0; step < kBlockTiles / 2; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      block.weights[step][i] =
          round_pair<T>(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
    }
  }
}

/// out = the weights times v [64, kDim], for dims [kPartDims part, kPartDims (part + 1)). Values
/// that no query of the tile sees are zeros.
template <int kDim, typename T>
__device__ inline void mix_values(const BlockWeights& block, const T* v, int part,
                                  PartOutputs& out) {
#pragma unroll
  for (float& each : out) each = 0.0f;
  const std::uint32_t values_at = right_rows_address<kDim>(v);
#pragma unroll
  for (int step = 0; step < kBlockTiles / 2; ++step) {
#pragma unroll
    for (int pair = 0; pair < kPartDims / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b,
                               advance<kDim>(values_at, part * (kPartDims / 16) + pair, 16 * step));
      multiply_add<T>(sums_of_tile(out, 2 * pair), block.weights[step], b[0], b[1]);
      multiply_add<T>(sums_of_tile(out, 2 * pair + 1), block.weights[step], b[2], b[3]);
    }
  }
}

/// How the outputs so far and those of the next block are scaled when they are added.
struct BlockFactors {
  float before, next;
};
/// Adds a block's maximum and sum to those so far. A block without a visible key, whose weights are
/// all 0, changes nothing. (NaN among the scores makes the sum NaN.)
__device__ inline BlockFactors join_block(float& max, float& sum, float block_max, float block_sum,
                                          float factor) {
  if (block_sum == 0.0f) return {1.0f, 0.0f};
  const float now = fmaxf(max, block_max);
  const BlockFactors factors = {
      max == now ? 1.0f : exp2_weight(__fmul_rn(max - now, factor)),
      block_max == now ? 1.0f : exp2_weight(__fmul_rn(block_max - now, factor))};
  sum = fmaf(block_sum, factors.next, __fmul_rn(sum, factors.before));
  max = now;
  return factors;
}
__device__ inline float join_block(const BlockFactors& factors, float before, float next) {
  const float scaled = __fmul_rn(before, factors.before);
  return factors.next == 0.0f ? scaled : fmaf(next, factors.next, scaled);
}

/// Begins to copy kRows rows of kWidth elements that follow each other in memory to a tile, with
/// `threads` threads of which this is number `thread`. Rows outside of [begin, end) become zeros.
template <int kRows, int kWidth, typename T>
__device__ inline void copy_page(const T* from, int begin, int end, bool at_once, T* to, int thread,
                                 int threads) {
  constexpr int kChunks = kWidth / kChunk;
#pragma unroll 2
  for (int i = thread; i < kRows * kChunks; i += threads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool wanted = row >= begin && row < end;
    T* const target = to + place<kWidth>(row, chunk);
    const T* const source = from + i * kChunk;
    if (at_once) {
      copy_async_16(shared_address(target), wanted ? source : from, wanted ? 16 : 0);
      continue;
    }
    for (int j = 0; j < kChunk; ++j) target[j] = wanted ? source[j] : from_f32<T>(0.0f);
  }
}

/// The place of a page of one key/value head in the caches.
template <int kDim>
__device__ inline std::int64_t page_index(const CachedCall& call, std::int64_t page, int kv_head) {
  return (page * call.kv_heads + kv_head) * kDim * kKeyBlock;
}

// ---- few rows: every block by itself ------------------------------------------------------------

__device__ inline float* partial_of(const CachedLaunch& launch, std::int64_t row, std::int64_t head,
                                    std::int64_t block) {
  const CachedCall& call = launch.call;
  return launch.partials +
         ((row * call.heads + head) * call.rows.blocks + block) * (call.q.dim + 2);
}

/// Stores row g + 8 half of a part's outputs.
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

/// A thread block computes some blocks of keys for the query heads of one row that share a
/// key/value head.
template <typename T, int kDim>
__global__ void __launch_bounds__(kBlocksAtOnce<kDim>* kWarp)
    blocks_kernel(const __grid_constant__ CachedLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: the launcher gives the kernel this much shared memory.
  auto& shared = *reinterpret_cast<BlocksShared<T, kDim>*>(storage);
  const CachedCall& call = launch.call;
  let_next_begin();
  wait_for_earlier();
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = call.heads / call.kv_heads;
  constexpr int kThreads = kBlocksAtOnce<kDim> * kWarp;
  const std::int64_t parts = ceil_div(call.rows.blocks, std::int64_t{kBlocksAtOnce<kDim>});
  const std::int64_t items = call.rows.all * call.kv_heads * launch.head_groups * parts;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t part = item % parts;
    const std::int64_t head_group = item / parts % launch.head_groups;
    const auto kv_head = static_cast<int>(item / parts / launch.head_groups % call.kv_heads);
    const std::int64_t row = item / parts / launch.head_groups / call.kv_heads;
    if (row >= call.rows.count() || !call.rows.placed(row)) continue;
    const Keys keys = keys_of(call, row);
    const auto block = static_cast<int>(part * kBlocksAtOnce<kDim> + warp);
    const int key = block * kKeyBlock;
    const bool seen = block < call.rows.blocks && key < keys.end && key + kKeyBlock > keys.begin;
    const std::int64_t page = seen ? call.rows.page(row, block) : -1;
    if (__syncthreads_or(page >= 0 ? 1 : 0) == 0) continue;  // Also: q has been read.
    const int first_head = kv_head * group + static_cast<int>(head_group) * launch.heads_at_once;
    const int heads = min(launch.heads_at_once, (kv_head + 1) * group - first_head);
    // The heads of a row follow each other.
    copy_page<kWarpRows, kDim>(
        static_cast<const T*>(call.q.data) + call.q.index(0, row, first_head), 0, heads,
        launch.q_at_once, shared.q, static_cast<int>(threadIdx.x), kThreads);
    if (page >= 0) {
      const std::int64_t at = page_index<kDim>(call, page, kv_head);
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
        if (head >= heads) continue;
        // SAFETY: rows of partials have an even number of floats, and the workspace is aligned.
        auto* const to =
            reinterpret_cast<float2*>(partial_of(launch, row, first_head + head, block));
        store_part(out, half, to + n * (kPartDims / 2));
        if (n == 0 && lane % 4 == 0) {
          to[kDim / 2] = make_float2(weights.max[half], weights.sum[half]);
        }
      }
    }
  }
}

/// Joins the blocks of one row and head. Rows that do not count or cannot be read are cleared here;
/// what was computed for the latter is never read.
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

// ---- many rows: a tile of queries goes over all blocks -----------------------------------------

template <typename T, int kDim>
struct TileShared {
  alignas(256) T q[kTileQueries * kDim];
  alignas(256) T k[2][kKeyBlock * kDim];
  alignas(256) T v[2][kKeyBlock * kDim];
  int positions[kTileQueries], sequences[kTileQueries];  // By row; -1: it has no place.
};

/// One tile: query i is head first_head + i % heads of row first_row + i / heads.
template <typename T, int kDim>
class CachedTile {
 public:
  __device__ CachedTile(const CachedLaunch& launch, std::int64_t first_row, int kv_head,
                        int first_head, int heads, TileShared<T, kDim>& shared)
      : launch_(launch),
        call_(launch.call),
        shared_(shared),
        first_row_(first_row),
        rows_(static_cast<int>(min(std::int64_t{launch.rows_at_once}, call_.rows.all - first_row))),
        counted_(static_cast<int>(
            max(std::int64_t{0}, min(std::int64_t{rows_}, call_.rows.count() - first_row)))),
        kv_head_(kv_head),
        first_head_(first_head),
        heads_(heads) {}

  /// Rows of one sequence are computed together.
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
      if (threadIdx.x == 0 && first_head_ == 0) call_.fault.report(first_row_ + row);
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

  __device__ void load_queries() {
    constexpr int kChunks = kDim / kChunk;
    for (int i = static_cast<int>(threadIdx.x); i < kTileQueries * kChunks; i += kCachedThreads) {
      const int query = i / kChunks, chunk = i % kChunks;
      const bool wanted = query < rows_ * heads_;
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

  __device__ std::int64_t query_index(const HeadRows& rows, int query) const {
    return rows.index(0, first_row_ + query / heads_, first_head_ + query % heads_);
  }

  /// Begins to copy a block of keys and values. A block without a page is one that nobody sees.
  __device__ void load_block(int row, int block, const Keys& keys, int stage) const {
    const std::int64_t page = call_.rows.page(first_row_ + row, block);
    if (page >= 0) {
      const std::int64_t at = page_index<kDim>(call_, page, kv_head_);
      const int key = block * kKeyBlock, thread = static_cast<int>(threadIdx.x);
      copy_page<kDim, kKeyBlock>(static_cast<const T*>(call_.cache_k) + at, 0, kDim,
                                 launch_.cache_at_once, shared_.k[stage], thread, kCachedThreads);
      copy_page<kKeyBlock, kDim>(static_cast<const T*>(call_.cache_v) + at, keys.begin - key,
                                 keys.end - key, launch_.cache_at_once, shared_.v[stage], thread,
                                 kCachedThreads);
    }
    commit_copies();
  }

  __device__ void attend_rows(int first, int end) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int query = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;  // The warp's first one.
    const Keys keys = keys_of_rows(first, end);
    Keys seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (query + lane / 4 + 8 * half) / heads_;
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
        __syncwarp();  // So that the next part takes the registers of this one.
      }
    }
    __syncthreads();  // The next rows may use both stages.
    store(query, first, end, sum, out);
  }

  /// Stores the warp's queries of the rows [first, end), by way of their places in the tile.
  __device__ void store(int query, int first, int end, const float (&sum)[2],
                        const float (&out)[kDim / 2]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = query + lane / 4 + 8 * half;
      if (at / heads_ < first || at / heads_ >= end) continue;
      const float factor = 1.0f / sum[half];
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
      if (at / heads_ < first || at / heads_ >= end) continue;
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
    for (int i = static_cast<int>(threadIdx.x); i < heads_ * kDim; i += kCachedThreads) {
      static_cast<T*>(call_.y.data)[query_index(call_.y, row * heads_ + i / kDim) + i % kDim] =
          from_f32<T>(0.0f);
    }
  }

  const CachedLaunch& launch_;
  const CachedCall& call_;
  TileShared<T, kDim>& shared_;
  std::int64_t first_row_;
  int rows_, counted_, kv_head_, first_head_, heads_;
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kCachedThreads, 2)
    tiles_kernel(const __grid_constant__ CachedLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: the launcher gives the kernel this much shared memory.
  auto& shared = *reinterpret_cast<TileShared<T, kDim>*>(storage);
  const CachedCall& call = launch.call;
  let_next_begin();
  wait_for_earlier();
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const int group = call.heads / call.kv_heads;
  const std::int64_t tiles = ceil_div(call.rows.all, std::int64_t{launch.rows_at_once});
  const std::int64_t items = tiles * call.kv_heads * launch.head_groups;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t head_group = item % launch.head_groups;
    const auto kv_head = static_cast<int>(item / launch.head_groups % call.kv_heads);
    // The later rows of a prompt see more keys, so they come first.
    const std::int64_t tile = tiles - 1 - item / launch.head_groups / call.kv_heads;
    const int first_head = kv_head * group + static_cast<int>(head_group) * launch.heads_at_once;
    const int heads = min(launch.heads_at_once, (kv_head + 1) * group - first_head);
    CachedTile<T, kDim>(launch, tile * launch.rows_at_once, kv_head, first_head, heads, shared)
        .attend();
  }
}

// ---- launches -----------------------------------------------------------------------------------

template <typename T, int kDim>
cudaError_t launch_blocks(const CachedLaunch& launch, const Context& context) {
  constexpr int kBytes = sizeof(BlocksShared<T, kDim>);
  static_assert(kBytes <= kMostShared);
  const auto kernel = blocks_kernel<T, kDim>;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const CachedCall& call = launch.call;
  const std::int64_t items = call.rows.all * call.kv_heads * launch.head_groups *
                             ceil_div(call.rows.blocks, std::int64_t{kBlocksAtOnce<kDim>});
  error = launch_early(kernel, blocks_for(items, 1), kBlocksAtOnce<kDim> * kWarp, kBytes, context,
                       launch);
  if (error != cudaSuccess) return error;
  return launch_early(&join_blocks_kernel<T, kDim>, blocks_for(call.rows.all * call.heads, 1), kDim,
                      0, context, launch);
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
  const std::int64_t items = ceil_div(call.rows.all, std::int64_t{launch.rows_at_once}) *
                             call.kv_heads * launch.head_groups;
  return launch_early(kernel, blocks_for(items, 1), kCachedThreads, kBytes, context, launch);
}

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
