// What the tensor-core kernels of AttentionGrad share: their work items, their workspace, and the
// order in which dQ is summed. attention_grad.cu describes the mathematics.
//
// A work item is a block of 128 keys of one key/value head. It goes over the query heads of its
// group and over tiles of rows, and sums dK and dV in registers, in order. The five products of a
// tile are computed once, so dQ is summed across work items, in f32 in the workspace: each block of
// keys adds its part, the last block that a row sees first. That order does not depend on who
// computes an item, and there are two ways to keep it:
// - owned: one thread block takes all blocks of keys of a head, from the last to the first. A
//   thread always adds to the same elements, so that the order is that of its program.
// - in turns: work items are independent, and 16 rows at a time wait until the block of keys after
//   theirs has added. Items are handed out from the last block of keys to the first. In a causal
//   sequence the last block begins with the last rows, so that nobody waits long; and an item only
//   waits for items that were handed out before it, so that there is always one that can go on.
#pragma once

#include <cstdint>
#include <limits>

#include "base/arithmetic.h"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::grad {

inline constexpr int kKeys = 128;       ///< Of a work item.
inline constexpr int kSharedRows = 16;  ///< Rows of dQ that one warp adds to at a time.

/// A row as the kernels read it. The weight of a key is 2^(score log2(e) - lse).
struct alignas(8) RowStats {
  float lse;    ///< In units of ln 2. Infinite for rows past the end, whose weights are then 0.
  float delta;  ///< The sum of dy y over head_dim.
};

struct Work {
  Backward call;
  RowStats* stats = nullptr;  ///< [batch, heads, padded]
  /// [batch, heads, padded / 16, head_dim / 8, 32 lanes, 4]: lane i holds columns 2 (i % 4) and
  /// 2 (i % 4) + 1 of 8, of rows i / 4 and i / 4 + 8 of 16: a product's sums as they lie in
  /// registers.
  float* dq = nullptr;
  unsigned* turns = nullptr;   ///< [batch, heads, padded / 16, 2]: the number of parts added.
  unsigned* ticket = nullptr;  ///< The number of items that were handed out.
  int padded = 0;              ///< The time, rounded up to whole blocks of keys.
  bool in_turns = false;
  bool at_once = false;  ///< Whether 16 bytes of q, k, v, dy and the results can be read at once.

  __host__ __device__ int blocks() const { return padded / kKeys; }
  /// Items are all blocks of a head, or single blocks. The number fits, because every block of a
  /// head has more than 2^15 bytes of workspace.
  __host__ __device__ unsigned items() const {
    return static_cast<unsigned>(call.batch) * static_cast<unsigned>(call.kv_heads) *
           static_cast<unsigned>(in_turns ? blocks() : 1);
  }
};

/// Where the parts of the workspace begin, in bytes.
struct Workspace {
  std::int64_t dq, turns, ticket, bytes;

  Workspace(std::int64_t batch, std::int64_t heads, std::int64_t time, std::int64_t dim) {
    const std::int64_t rows = batch * heads * round_up(time, std::int64_t{kKeys});
    dq = rows * static_cast<std::int64_t>(sizeof(RowStats));
    turns = dq + rows * dim * static_cast<std::int64_t>(sizeof(float));
    ticket = turns + rows / kSharedRows * 2 * static_cast<std::int64_t>(sizeof(unsigned));
    bytes = ticket + static_cast<std::int64_t>(sizeof(unsigned));
  }
};

/// Writes stats, and clears the turns and the ticket.
cudaError_t prepare(const Work& work, const Context& context);
/// Writes scale * dq to call.out.q.
cudaError_t finish(const Work& work, const Context& context);

/// With mma.sync; for every operand. Both ways give the same bits.
cudaError_t launch_mma_bf16(const Work& work, const Context& context);
cudaError_t launch_mma_f16(const Work& work, const Context& context);
/// With wgmma, on Hopper; needs sm90_applies(work, context).
bool sm90_applies(const Work& work, const Context& context);
/// Rows of heads as the copy engine sees them.
MappedMatrix mapped_rows(const HeadRows& rows, DType dtype, std::int64_t batch);
cudaError_t launch_sm90_bf16(const Work& work, const Context& context);
cudaError_t launch_sm90_f16(const Work& work, const Context& context);

// ---- tiles --------------------------------------------------------------------------------------

/// Whether any of `rows` rows from t on may see any of `keys` keys from `key` on.
__device__ inline bool tiles_meet(const Mask& mask, int t, int rows, int key, int keys) {
  return key < mask.time && mask.meet(t, rows, key, keys);
}
/// Whether all rows that exist of `rows` rows from t on see all of `keys` keys from `key` on.
__device__ inline bool tiles_see_all(const Mask& mask, int t, int rows, int key, int keys) {
  return key + keys <= mask.time && key + keys <= mask.end(t) && key >= mask.begin(t + rows - 1);
}
/// Whether row t, if it exists, sees the key.
__device__ inline bool sees(const Mask& mask, int t, int key) {
  return key < mask.time && (!mask.causal || key <= t) && key >= mask.begin(t);
}

/// One block of keys, and where its sequence of tiles is.
struct KeyBlock {
  int batch, kv_head, key;
  int begin, tiles;  ///< The first row of the first tile, and the number of tiles for a query head.

  /// `pair` is a key/value head, counted over the batch.
  __device__ KeyBlock(const Work& work, int pair, int block, int rows)
      : batch(pair / work.call.kv_heads), kv_head(pair % work.call.kv_heads), key(block * kKeys) {
    const Mask& mask = work.call.mask;
    begin = mask.first_row(key) / rows * rows;
    const int end = mask.end_row(min(key + kKeys, mask.time) - 1);
    tiles = (end - begin + rows - 1) / rows;
  }
};

/// The blocks of keys of an item, from `block` down to `last`, of one key/value head.
struct Item {
  int pair, block, last;

  __device__ Item(const Work& work, unsigned index) {
    const auto blocks = static_cast<unsigned>(work.blocks());
    pair = static_cast<int>(work.in_turns ? index / blocks : index);
    block = static_cast<int>(blocks - 1 - (work.in_turns ? index % blocks : 0));
    last = work.in_turns ? block : 0;
  }
};

// ---- the sum of dQ ------------------------------------------------------------------------------

/// The part of a warp that holds rows [t, t + 16) of a query head: which one it is in the order of
/// parts, and where it is added.
struct Part {
  float* to;  ///< This lane's four elements of the first 8 columns.
  unsigned* turn;
  int order;

  /// `head` counts over the batch. `side` tells the warps apart that hold different columns of the
  /// same rows; `column` is the first of them.
  __device__ Part(const Work& work, int head, int t, int side, int column, int block) {
    const std::int64_t tile = std::int64_t{head} * (work.padded / kSharedRows) + t / kSharedRows;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int dim = static_cast<int>(work.call.y.dim);
    to = work.dq + (tile * dim + column) * kSharedRows + lane * 4;
    turn = work.turns + tile * 2 + side;
    const int last = work.call.mask.causal ? t / kKeys : work.blocks() - 1;
    order = last - block;
  }
  /// Adds sums of 8 columns, `group` groups of 8 further on. The first part is stored.
  __device__ void add(int group, const float (&sum)[4]) const {
    float* const at = to + group * 8 * kSharedRows;
    if (order == 0) {
      // SAFETY: the sums begin at a multiple of 16 bytes, and every part of the offset is one of
      // four floats, because a tile has kSharedRows rows.
      *reinterpret_cast<float4*>(at) = {sum[0], sum[1], sum[2], sum[3]};
      return;
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(at)), "f"(sum[0]), "f"(sum[1]), "f"(sum[2]),
                   "f"(sum[3])
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) atomicAdd(at + i, sum[i]);
#endif
  }
};

/// The number of parts that have been added. What was added before is visible to this thread.
__device__ inline unsigned parts_added(const unsigned* turn) {
  unsigned parts;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(parts)
               : "l"(__cvta_generic_to_global(turn))
               : "memory");
  return parts;
}
/// Waits for this warp's turn.
__device__ inline void wait_for_turn(const Part& part) {
  if (threadIdx.x % kWarp == 0) {
    while (parts_added(part.turn) != static_cast<unsigned>(part.order)) __nanosleep(20);
  }
  __syncwarp();
}
/// Gives the turn to the next block of keys. Everything that the warp has added comes before it.
__device__ inline void end_turn(unsigned* turn, int order) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    __threadfence();
    asm volatile("st.release.gpu.global.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(turn)), "r"(order + 1)
                 : "memory");
  }
}

// ---- results ------------------------------------------------------------------------------------

/// Lane t of four has words [row][t] of a matrix of 4 x 4 words; afterwards it has words [t][i].
__device__ inline void transpose_quad(std::uint32_t (&words)[4]) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      std::uint32_t& low = words[i];
      std::uint32_t& high = words[i + distance];
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, upper ? low : high, distance);
      (upper ? low : high) = other;
    }
  }
}

/// Stores 16 rows of a result times `factor`: sums as a warp holds them, kGroups groups of 8
/// columns. Rows from `to.time` on do not exist.
template <typename T, int kGroups>
__device__ void store_sums(const HeadRows& to, std::int64_t batch, int t, int head, bool at_once,
                           float factor, const float* sum) {
  static_assert(kGroups % 4 == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = t + lane / 4 + 8 * half;
    T* const first = static_cast<T*>(to.data) + to.index(batch, row, head);
#pragma unroll
    for (int group = 0; group < kGroups; group += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const four = sum + (group + i) * 4 + 2 * half;
        words[i] = mma::round_pair<T>(four[0] * factor, four[1] * factor);
      }
      transpose_quad(words);
      if (row >= to.time) continue;
      T* const at = first + (group + lane % 4) * 8;
      if (at_once) {
        // SAFETY: at_once says that rows begin at multiples of 16 bytes, and `at` is 8 elements on.
        *reinterpret_cast<uint4*>(at) = {words[0], words[1], words[2], words[3]};
      } else {
        Vector<T, 8> eight;
        memcpy(&eight, words, sizeof(words));
#pragma unroll
        for (int i = 0; i < 8; ++i) at[i] = eight.at[i];
      }
    }
  }
}

}  // namespace volta::cuda::attention::grad
