// The unit of work of CachedAttention on tensor cores: one block of 64 keys, which is a page of the
// cache, for 16 queries of a warp. Few rows (cached_attention_blocks.cuh) and many rows
// (cached_attention_tiles.cuh) compute blocks and join them with the functions here, so that both
// give the same bits. cached_attention_mma.cuh describes the scheme.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_mma_forward.cuh"
#include "kernels/cuda/cached_attention.cuh"

namespace volta::cuda::attention::mma {

/// Bytes of shared memory that a thread block can have on every GPU from compute capability 8.0 on.
inline constexpr int kMostShared = 99 * 1024;

struct CachedLaunch {
  CachedCall call;
  /// Whether 16 bytes of q, the caches and y can be loaded or stored at once.
  bool q_at_once = false, cache_at_once = false, y_at_once = false;
  /// A thread block takes this many rows at a time, and of each one head group: at most this many
  /// query heads of one key/value head.
  int rows_at_once = 1, heads_at_once = 1;
  int head_groups = 1;  ///< Of each key/value head.
  /// For few rows, [rows, heads, blocks, head_dim + 2]: the output, the maximum and the sum of each
  /// block that a row sees.
  float* partials = nullptr;

  __host__ __device__ int all_head_groups() const { return call.kv_heads * head_groups; }
};

/// Query heads that share a key/value head and are computed together.
struct HeadGroup {
  int kv_head, first_head, heads;
};
/// Head group `index` of all_head_groups().
__device__ inline HeadGroup head_group(const CachedLaunch& launch, int index) {
  const int shared = launch.call.heads / launch.call.kv_heads;  // Query heads per key/value head.
  const int kv_head = index / launch.head_groups;
  const int first = index % launch.head_groups * launch.heads_at_once;
  return {kv_head, kv_head * shared + first, min(launch.heads_at_once, shared - first)};
}

/// What a thread holds of the attention weights of a block of keys. Its warp has 16 queries, and
/// the thread works for two of them: number lane / 4 (index 0) and number lane / 4 + 8 (index 1).
/// `max` is the largest score of each, `sum` the sum of its weights. `weights` is the thread's part
/// of the weights of both in 16 bits, laid out as the left operand of multiply_add().
struct BlockWeights {
  float max[2], sum[2];
  std::uint32_t weights[kBlockTiles / 2][4];
};
/// Outputs of a block are computed for this many dims at a time, so that they stay in registers.
inline constexpr int kPartDims = 64;
using PartOutputs = float[kPartDims / 2];

/// The weight of a key is 2^(factor (score - max)). A positive scale is a part of the factor, which
/// saves a multiplication of every score. With a soft cap, or a scale that is not positive,
/// finish_scores() scales the scores, and the factor is 1.
__device__ inline float score_factor(const CachedCall& call) {
  return call.softcap > 0.0f || !(call.scale > 0.0f) ? 1.0f : call.scale * kLog2E;
}

/// Soft-caps and scales scores (see score_factor()), and sets those of keys that a query does not
/// see to -inf. `key` is the block's first key, `seen` what the thread's two queries see.
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

/// Turns scores into weights, 2^(factor (score - max)), which are multiplied by 2^15 for f16. All
/// weights of a query that sees no key of the block are 0.
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

/// The weights of the block's keys k [kDim, 64] for the queries [row, row + 16) of q.
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

/// out = the weights times the block's values v [64, kDim], for dims [kPartDims part,
/// kPartDims (part + 1)). Values that no query sees must be zeros, see copy_page().
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
/// Adds a block's maximum and sum to those so far. A block of which the query sees no key has a sum
/// of 0 and changes nothing. (With a NaN among the scores the sum is NaN and not 0.)
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
/// Adds an element of a block's output to that so far.
__device__ inline float join_block(const BlockFactors& factors, float before, float next) {
  const float scaled = __fmul_rn(before, factors.before);
  return factors.next == 0.0f ? scaled : fmaf(next, factors.next, scaled);
}

/// Begins to copy kRows rows of kWidth elements, which follow each other in memory, to a tile. The
/// work is shared by `threads` threads, of which this one is number `thread`. Rows outside of
/// [begin, end) become zeros. With `at_once`, 16 bytes are copied at a time.
template <int kRows, int kWidth, typename T>
__device__ inline void copy_page(const T* from, int begin, int end, bool at_once, T* to, int thread,
                                 int threads) {
  constexpr int kChunks = kWidth / kChunk;
#pragma unroll 4
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

}  // namespace volta::cuda::attention::mma
