// AttentionGrad on Hopper's tensor cores (wgmma), for bf16 and f16 with a head_dim of 64 or 128.
// attention_grad.cuh says how the work is cut. Bound by flops and, while scores become weights, by
// the rate of exponentials.
//
// One thread of the first warp group takes work items and copies tiles by TMA: K and V of the next
// block of keys while the last rows of the one before are in work, and two tiles of rows (q, dy and
// the rows' statistics). Two consumer groups own 64 keys each. Products K Q^T and V dY^T have keys
// as rows, so that weights and their gradients, rounded to 16 bits, are the left operands of dV and
// dK in registers. dQ sums over the keys of both groups, so the score gradients also go to shared
// memory; a group computes 64 rows of dQ (head_dim 64) or 64 columns (128).
#pragma once

#include <cuda.h>

#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_grad_sm90_ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::grad {

inline constexpr int kGroupThreads = 128;
inline constexpr int kConsumers = 2;
inline constexpr int kSm90Threads = (1 + kConsumers) * kGroupThreads;
inline constexpr int kGroupKeys = kKeys / kConsumers;
inline constexpr int kRing = 2;         ///< Stages of either ring.
inline constexpr int kStepDepth = 16;   ///< Summands of one product.
inline constexpr int kBoxColumns = 64;  ///< Columns of a box of 128-byte rows.

/// The work of one stage of K and V, for the consumers.
struct StageItem {
  int pair;  ///< Of a key/value head, over the batch; -1 at the end.
  int block;
};

/// The shared memory of a thread block. Tiles [rows, kDim] are boxes of 64 columns side by side.
template <int kDim_>
struct Sm90Layout {
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kDim == 64 ? 128 : 64;  ///< Of a tile of queries.
  static constexpr int kBoxes = kDim / kBoxColumns;
  static constexpr int kKeyBoxBytes = kKeys * kBoxRowBytes;
  static constexpr int kRowBoxBytes = kRows * kBoxRowBytes;
  static constexpr int kKeyBytes = kBoxes * kKeyBoxBytes;  ///< K or V.
  static constexpr int kRowBytes = kBoxes * kRowBoxBytes;  ///< q or dy.
  static constexpr int kDscoreBytes = kRows / kBoxColumns * kKeyBoxBytes;
  static constexpr int kStatsBytes = kRows * static_cast<int>(sizeof(RowStats));
  static constexpr int kHeadBytes = 128;  ///< Barriers and items.
  static constexpr int kAlignment = 1024;
  static constexpr int kBytes =
      kHeadBytes + kAlignment +
      kRing * (2 * kKeyBytes + 2 * kRowBytes + kDscoreBytes + kStatsBytes);
  static_assert(kBytes <= 227 * 1024);
};

/// The operands as the copy engine sees them.
struct Sm90Maps {
  CUtensorMap q, k, v, dy;
};

#if VOLTA_HOPPER

/// Addresses in shared memory.
template <typename Layout>
struct Sm90Shared {
  std::uint32_t barriers, tiles;
  StageItem* items;

  __device__ explicit Sm90Shared(unsigned char* shared)
      : barriers(shared_address(shared)),
        tiles((barriers + Layout::kHeadBytes + Layout::kAlignment - 1) / Layout::kAlignment *
              Layout::kAlignment),
        // SAFETY: the head has room for the items behind 64 bytes of barriers, and is aligned.
        items(reinterpret_cast<StageItem*>(shared + 64)) {}
  static __device__ std::uint32_t times(int stage, int bytes) {
    return static_cast<std::uint32_t>(stage * bytes);
  }
  __device__ std::uint32_t keys_full(int stage) const { return barriers + times(stage, 8); }
  __device__ std::uint32_t keys_empty(int stage) const {
    return barriers + times(kRing + stage, 8);
  }
  __device__ std::uint32_t rows_full(int stage) const {
    return barriers + times(2 * kRing + stage, 8);
  }
  __device__ std::uint32_t rows_empty(int stage) const {
    return barriers + times(3 * kRing + stage, 8);
  }
  __device__ std::uint32_t k(int stage) const {
    return tiles + times(stage, 2 * Layout::kKeyBytes);
  }
  __device__ std::uint32_t v(int stage) const { return k(stage) + Layout::kKeyBytes; }
  __device__ std::uint32_t q(int stage) const {
    return k(kRing) + times(stage, 2 * Layout::kRowBytes);
  }
  __device__ std::uint32_t dy(int stage) const { return q(stage) + Layout::kRowBytes; }
  __device__ std::uint32_t dscores(int stage) const {
    return q(kRing) + times(stage, Layout::kDscoreBytes);
  }
  __device__ std::uint32_t stats(int stage) const {
    return dscores(kRing) + times(stage, Layout::kStatsBytes);
  }
};

/// A place in the sequence of uses of a ring.
struct Sm90Position {
  unsigned uses = 0;

  __device__ int stage() const { return static_cast<int>(uses % kRing); }
  /// Of the current round's phase of the stage's barriers.
  __device__ unsigned parity() const { return uses / kRing % 2; }
  __device__ void advance() { ++uses; }
};

/// Tiles of rows of a block's keys, over the query heads of its group.
struct Sm90Tiles {
  int pair;  ///< The first query head, over the batch.
  int head, heads;

  __device__ Sm90Tiles(const Work& work, const KeyBlock& block)
      : heads(work.call.heads / work.call.kv_heads) {
    head = block.kv_head * heads;
    pair = block.batch * work.call.heads + head;
  }
};

template <typename Layout>
__device__ inline void copy_tile(std::uint32_t to, const CUtensorMap& map, const HeadRows& rows,
                                 std::uint32_t barrier, int box_bytes, int head, int row,
                                 int batch) {
#pragma unroll
  for (int box = 0; box < Layout::kBoxes; ++box) {
    hopper::copy_box(to + static_cast<std::uint32_t>(box * box_bytes), map, barrier,
                     static_cast<int>(rows.first) + head * Layout::kDim + box * kBoxColumns, row,
                     batch);
  }
}

/// The producer: one thread.
template <typename Layout>
__device__ inline void produce(const Sm90Shared<Layout>& shared, const Work& work,
                               const Sm90Maps& maps) {
  Sm90Position keys, rows;
  const auto copy_rows = [&](const KeyBlock& block, int pair, int head, int t) {
    hopper::wait_barrier(shared.rows_empty(rows.stage()), rows.parity() ^ 1);
    const std::uint32_t full = shared.rows_full(rows.stage());
    hopper::arrive_and_expect(full, 2 * Layout::kRowBytes + Layout::kStatsBytes);
    copy_tile<Layout>(shared.q(rows.stage()), maps.q, work.call.in.q, full, Layout::kRowBoxBytes,
                      head, t, block.batch);
    hopper::copy_bulk(shared.stats(rows.stage()), work.stats + std::int64_t{pair} * work.padded + t,
                      Layout::kStatsBytes, full);
    copy_tile<Layout>(shared.dy(rows.stage()), maps.dy, work.call.dy, full, Layout::kRowBoxBytes,
                      head, t, block.batch);
    rows.advance();
  };
  for (;;) {
    const unsigned index = atomicAdd(work.ticket, 1u);
    if (index >= work.items()) break;
    const Item item(work, index);
#pragma unroll 1
    for (int at = item.block; at >= item.last; --at) {
      const KeyBlock block(work, item.pair, at, Layout::kRows);
      // In the first round this is the phase before the first, which counts as completed.
      hopper::wait_barrier(shared.keys_empty(keys.stage()), keys.parity() ^ 1);
      shared.items[keys.stage()] = {item.pair, at};
      const std::uint32_t full = shared.keys_full(keys.stage());
      hopper::arrive_and_expect(full, 2 * Layout::kKeyBytes);
      copy_tile<Layout>(shared.k(keys.stage()), maps.k, work.call.in.k, full, Layout::kKeyBoxBytes,
                        block.kv_head, block.key, block.batch);
      copy_tile<Layout>(shared.v(keys.stage()), maps.v, work.call.in.v, full, Layout::kKeyBoxBytes,
                        block.kv_head, block.key, block.batch);
      keys.advance();
      const Sm90Tiles tiles(work, block);
#pragma unroll 1
      for (int head = 0; head < tiles.heads; ++head) {
#pragma unroll 1
        for (int tile = 0; tile < block.tiles; ++tile) {
          copy_rows(block, tiles.pair + head, tiles.head + head,
                    block.begin + tile * Layout::kRows);
        }
      }
    }
  }
  hopper::wait_barrier(shared.keys_empty(keys.stage()), keys.parity() ^ 1);
  shared.items[keys.stage()] = {-1, 0};
  hopper::arrive(shared.keys_full(keys.stage()));
}

/// Starts sum = rows of `left` times the transpose of rows of `right`, over kDim columns in order.
template <typename T, typename Layout, int kSums>
__device__ inline void multiply_rows_async(float (&sum)[kSums], std::uint32_t left,
                                           std::uint32_t right) {
  const std::uint64_t a = hopper::operand_descriptor<false>(left, 0);
  const std::uint64_t b = hopper::operand_descriptor<false>(right, 0);
  constexpr int kSteps = kBoxColumns / kStepDepth;  // Of a box.
#pragma unroll
  for (int step = 0; step < Layout::kDim / kStepDepth; ++step) {
    const int box = step / kSteps, offset = step % kSteps * (kStepDepth * 2 / 16);
    hopper::multiply_async<T, false, false>(
        sum, a + static_cast<std::uint64_t>(box * (Layout::kKeyBoxBytes / 16) + offset),
        b + static_cast<std::uint64_t>(box * (Layout::kRowBoxBytes / 16) + offset), step > 0);
  }
}

/// In descriptors, from 16 rows of 128 bytes to the next 16.
inline constexpr std::uint64_t kNextRows = kStepDepth * kBoxRowBytes / 16;

/// Starts sum += left [64 keys, rows] times a tile of rows.
template <typename T, typename Layout, int kSums, int kSteps>
__device__ inline void add_products_async(float (&sum)[kSums],
                                          const std::uint32_t (&left)[kSteps][4],
                                          std::uint32_t tile) {
  const std::uint64_t b = hopper::operand_descriptor<true>(tile, Layout::kRowBoxBytes);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    hopper::multiply_registers_async<T>(sum, left[step],
                                        b + static_cast<std::uint64_t>(step) * kNextRows);
  }
}

/// Turns products k q into weights. Rows of the product are 16 keys from `key` on, columns rows
/// from t on.
template <int kSums>
__device__ inline void weigh(const Backward& call, int t, int key, bool all, std::uint32_t stats,
                             float (&scores)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int g = lane / 4, pair = lane % 4 * 2;
  const float factor = call.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kSums / 4; ++n) {
    const float4 two = hopper::load_four(stats + static_cast<std::uint32_t>((8 * n + pair) * 8));
    const float lse[2] = {two.x, two.z};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[4 * n + i] = fmaf(scores[4 * n + i], factor, -lse[i % 2]);
    }
  }
  if (!all) {
    const Mask& mask = call.mask;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Rows [first, last] see the key; both are counted from this lane's first row.
      const int own = key + g + 8 * half, base = t + pair;
      constexpr int kFar = 1 << 30;
      const int first = own >= mask.time ? kFar : mask.causal ? own - base : -kFar;
      const int last = mask.window > 0 ? own - base + min(mask.window, mask.time) - 1 : kFar;
#pragma unroll
      for (int n = 0; n < kSums / 4; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[4 * n + 2 * half + i];
          if (8 * n + i < first || 8 * n + i > last) score = mma::kLowest;
        }
      }
    }
  }
#pragma unroll
  for (float& each : scores) each = mma::exp2_weight(each);
}

/// Turns weights and products v dy into left operands: weights and score gradients, in 16 bits.
template <typename T, int kSums>
__device__ inline void score_gradients(const float (&weights)[kSums],
                                       const float (&products)[kSums], std::uint32_t stats,
                                       std::uint32_t (&left)[kSums / 8][4],
                                       std::uint32_t (&dscores)[kSums / 8][4]) {
  const int pair = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kSums / 4; ++n) {
    const float4 two = hopper::load_four(stats + static_cast<std::uint32_t>((8 * n + pair) * 8));
    const float delta[2] = {two.y, two.w};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = 4 * n + 2 * half;
      left[n / 2][n % 2 * 2 + half] = mma::round_pair<T>(weights[at], weights[at + 1]);
      dscores[n / 2][n % 2 * 2 + half] =
          mma::round_pair<T>(weights[at] * __fadd_rn(products[at], -delta[0]),
                             weights[at + 1] * __fadd_rn(products[at + 1], -delta[1]));
    }
  }
}

/// Stores a warp's score gradients of 16 keys from `key` (in the block) on: boxes [keys, 64 rows].
template <typename Layout, int kSteps>
__device__ inline void keep_dscores(const std::uint32_t (&dscores)[kSteps][4], int key,
                                    std::uint32_t to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = key + lane % 16;
  constexpr int kBoxSteps = kBoxColumns / kStepDepth;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = step % kBoxSteps * 2 + lane / 16;
    hopper::store_matrices(
        to + static_cast<std::uint32_t>(step / kBoxSteps * Layout::kKeyBoxBytes +
                                        row * kBoxRowBytes + (chunk ^ row % 8) * 16),
        dscores[step][0], dscores[step][1], dscores[step][2], dscores[step][3]);
  }
}

/// What a warp still has to do for the part of dQ that it added last.
struct PendingTurn {
  unsigned* turn = nullptr;
  int order = 0;

  __device__ void end() {
    if (turn != nullptr) end_turn(turn, order);
    turn = nullptr;
  }
};

/// A consumer group's state.
template <typename Layout>
struct Consumer {
  int group, warp;  ///< Of two groups, and of the group's four warps.
  Sm90Position keys, rows;
  PendingTurn pending;
};

/// One tile of rows of one query head.
template <typename T, typename Layout, bool kInTurns>
__device__ inline void add_tile(const Sm90Shared<Layout>& shared, const Work& work,
                                const KeyBlock& block, int pair, int t, Consumer<Layout>& at,
                                float (&dk)[Layout::kDim / 2], float (&dv)[Layout::kDim / 2]) {
  constexpr bool kNarrow = Layout::kDim == 64;
  constexpr int kSums = Layout::kRows / 2;  // 64 keys times rows, per thread.
  const int own = at.group * kGroupKeys;    // The group's first key in the block.
  const int stage = at.rows.stage();
  const std::uint32_t k = shared.k(at.keys.stage()), v = shared.v(at.keys.stage());
  const std::uint32_t q = shared.q(stage), dy = shared.dy(stage), stats = shared.stats(stage);
  float weights[kSums], products[kSums];
  hopper::wait_barrier(shared.rows_full(stage), at.rows.parity());
  hopper::fence_sums();
  multiply_rows_async<T, Layout>(weights, k + static_cast<std::uint32_t>(own * kBoxRowBytes), q);
  hopper::commit_products();
  multiply_rows_async<T, Layout>(products, v + static_cast<std::uint32_t>(own * kBoxRowBytes), dy);
  hopper::commit_products();
  if constexpr (kInTurns) at.pending.end();
  hopper::wait_for_products<1>();
  hopper::use_sums(weights);
  const bool all = tiles_see_all(work.call.mask, t, Layout::kRows, block.key + own, kGroupKeys);
  weigh(work.call, t, block.key + own + at.warp * 16, all, stats, weights);
  hopper::wait_for_products<0>();
  hopper::use_sums(products);
  std::uint32_t left[kSums / 8][4], dscores[kSums / 8][4];
  score_gradients<T>(weights, products, stats, left, dscores);
  hopper::fence_sums();
  add_products_async<T, Layout>(dv, left, dy);
  hopper::commit_products();
  const std::uint32_t stored = shared.dscores(stage);
  keep_dscores<Layout>(dscores, own + at.warp * 16, stored);
  hopper::publish_stores();
  hopper::wait_numbered_barrier(1, kConsumers * kGroupThreads);
  float dq[32];
  const std::uint64_t a = hopper::operand_descriptor<true>(
      stored + static_cast<std::uint32_t>(kNarrow ? at.group * Layout::kKeyBoxBytes : 0), 0);
  const std::uint64_t b = hopper::operand_descriptor<true>(
      k + static_cast<std::uint32_t>(kNarrow ? 0 : at.group * Layout::kKeyBoxBytes), 0);
  hopper::fence_sums();
#pragma unroll
  for (int step = 0; step < kKeys / kStepDepth; ++step) {
    const auto offset = static_cast<std::uint64_t>(step) * kNextRows;
    hopper::multiply_async<T, true, true>(dq, a + offset, b + offset, step > 0);
  }
  hopper::commit_products();
  add_products_async<T, Layout>(dk, dscores, q);
  hopper::commit_products();
  hopper::wait_for_products<1>();
  hopper::use_sums(dq);
  // This warp's part of dQ: 16 rows.
  const int part_t = t + (kNarrow ? at.group * kBoxColumns : 0) + at.warp * kSharedRows;
  if (tiles_meet(work.call.mask, part_t, kSharedRows, block.key, kKeys)) {
    const Part part(work, pair, part_t, kNarrow ? 0 : at.group,
                    kNarrow ? 0 : at.group * kBoxColumns, block.key / kKeys);
    if constexpr (kInTurns) wait_for_turn(part);
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      const float four[4] = {dq[4 * group], dq[4 * group + 1], dq[4 * group + 2],
                             dq[4 * group + 3]};
      part.add(group, four);
    }
    if constexpr (kInTurns) at.pending = {part.turn, part.order};
  }
  hopper::wait_for_products<0>();
  hopper::use_sums(dk);
  hopper::use_sums(dv);
  if (threadIdx.x % kWarp == 0) hopper::arrive(shared.rows_empty(stage));
  at.rows.advance();
}

template <typename T, typename Layout, bool kInTurns>
__device__ inline void consume(const Sm90Shared<Layout>& shared, const Work& work, int group) {
  const Backward& call = work.call;
  Consumer<Layout> at;
  at.group = group;
  at.warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  for (;;) {
    hopper::wait_barrier(shared.keys_full(at.keys.stage()), at.keys.parity());
    const StageItem item = shared.items[at.keys.stage()];
    if (item.pair < 0) return;
    const KeyBlock block(work, item.pair, item.block, Layout::kRows);
    const Sm90Tiles tiles(work, block);
    float dk[Layout::kDim / 2], dv[Layout::kDim / 2];
#pragma unroll
    for (int i = 0; i < Layout::kDim / 2; ++i) dk[i] = dv[i] = 0.0f;
#pragma unroll 1
    for (int head = 0; head < tiles.heads; ++head) {
#pragma unroll 1
      for (int tile = 0; tile < block.tiles; ++tile) {
        add_tile<T, Layout, kInTurns>(shared, work, block, tiles.pair + head,
                                      block.begin + tile * Layout::kRows, at, dk, dv);
      }
    }
    if constexpr (kInTurns) at.pending.end();
    if (threadIdx.x % kWarp == 0) hopper::arrive(shared.keys_empty(at.keys.stage()));
    at.keys.advance();
    const int key = block.key + group * kGroupKeys + at.warp * 16;
    store_sums<T, Layout::kDim / 8>(call.out.k, block.batch, key, block.kv_head, true, call.scale,
                                    dk);
    store_sums<T, Layout::kDim / 8>(call.out.v, block.batch, key, block.kv_head, true, 1.0f, dv);
  }
}

#endif  // VOLTA_HOPPER

template <typename T, int kDim, bool kInTurns>
__global__ void __launch_bounds__(kSm90Threads, 1)
    sm90_kernel(const __grid_constant__ Sm90Maps maps, const __grid_constant__ Work work) {
#if VOLTA_HOPPER
  using Layout = Sm90Layout<kDim>;
  // Of 65,536 registers, 128 threads get 40 each and 256 get 232.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(16) unsigned char storage[];
  const Sm90Shared<Layout> shared(storage);
  // From the first lane, so that the compiler knows that a warp does not diverge here.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kRing; ++stage) {
      constexpr int kWarps = kConsumers * kGroupThreads / kWarp;
      hopper::init_barrier(shared.keys_full(stage), 1);
      hopper::init_barrier(shared.keys_empty(stage), kWarps);
      hopper::init_barrier(shared.rows_full(stage), 1);
      hopper::init_barrier(shared.rows_empty(stage), kWarps);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    hopper::give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce<Layout>(shared, work, maps);
  } else {
    hopper::take_registers<kConsumerRegisters>();
    consume<T, Layout, kInTurns>(shared, work, group - 1);
  }
#else
  // Code for other GPUs is never launched. If it were, an error is better than unwritten results.
  __trap();
#endif
}

template <typename T, int kDim>
cudaError_t launch_sm90(const Work& work, const Context& context) {
  using Layout = Sm90Layout<kDim>;
  const Backward& call = work.call;
  Sm90Maps maps;
  const auto map = [&](const HeadRows& rows, int box_rows, CUtensorMap& to) {
    return make_tensor_map(mapped_rows(rows, call.dtype, call.batch), box_rows, to);
  };
  cudaError_t error = map(call.in.q, Layout::kRows, maps.q);
  if (error == cudaSuccess) error = map(call.in.k, kKeys, maps.k);
  if (error == cudaSuccess) error = map(call.in.v, kKeys, maps.v);
  if (error == cudaSuccess) error = map(call.dy, Layout::kRows, maps.dy);
  if (error != cudaSuccess) return error;
  const auto kernel = work.in_turns ? sm90_kernel<T, kDim, true> : sm90_kernel<T, kDim, false>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<blocks_for(work.items(), 1, context.multiprocessors), kSm90Threads, Layout::kBytes,
           context.stream>>>(maps, work);
  return launch_error();
}

template <typename T>
cudaError_t launch_sm90(const Work& work, const Context& context) {
  return work.call.y.dim == 64 ? launch_sm90<T, 64>(work, context)
                               : launch_sm90<T, 128>(work, context);
}

}  // namespace volta::cuda::attention::grad
