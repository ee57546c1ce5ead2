// Attention in 16 bits for Hopper. Bound by flops: with a head_dim of 64 by the exponentials as
// much as by the tensor cores.
//
// One block runs on each multiprocessor and takes tile after tile of rows of one head. Its first
// four warps are the producer: one thread fills a ring of stages in shared memory with blocks of
// keys and of values through the copy engine, in the order in which they are used, and is ahead of
// the others by up to the whole ring and two tiles of queries. Two or three consumer groups of four
// warps own 64 rows each. Scores, weights and outputs stay in their registers: the weights, rounded
// to 16 bits, are the left operand of the product with the values. A group starts the scores of the
// next block, then the product of this block's weights with its values, and turns the next scores
// into weights while the latter runs. With a head_dim of 128 two groups take turns at starting
// products, so that one multiplies while the other one computes exponentials.
//
// Blocks of 128 keys, at multiples of 128, are taken from the last one that a row sees to the
// first. In blocks in which a row sees no key neither its maximum nor its sums change, so that its
// bits do not depend on its tile.
//
// Which tiles a block of threads takes follows from its number alone. Then the compiler knows that
// all addresses are the same in all threads, and keeps them in uniform registers; tiles that are
// given out as they are asked for cost a tenth of the speed.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/attention_sm90_narrow_ptx.cuh"
#include "kernels/cuda/attention_sm90_ptx.cuh"
#include "kernels/cuda/attention_sm90_work.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::sm90 {

#if VOLTA_HOPPER

// Registers of a thread. With lane l of warp w of a group, g = l / 4 and t = l % 4, element 4 j +
// 2 h + i of scores or outputs is row 16 w + g + 8 h, column 8 j + 2 t + i.
using Scores = float[kKeys / 2];
using Weights = std::uint32_t[kKeys / 16][4];

/// Starts scores = q k^T, of all keys of a block or of the first 64.
template <typename S, int kCount>
__device__ inline void start_scores(std::uint64_t q, std::uint64_t k, float (&scores)[kCount]) {
  using T = typename S::Type;
  constexpr int kSteps = S::kDim / 16, kBoxSteps = kBoxColumns / 16;
  hopper::fence_sums();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    // In units of 16 bytes: 16 columns are 32 bytes.
    const auto box = static_cast<std::uint64_t>(step / kBoxSteps);
    const auto within = static_cast<std::uint64_t>(step % kBoxSteps * 2);
    const std::uint64_t a = q + box * (kGroupRows * kBoxRowBytes / 16) + within;
    const std::uint64_t b = k + box * (kKeys * kBoxRowBytes / 16) + within;
    if constexpr (kCount == kKeys / 2) {
      hopper::multiply_async<T, false, false>(scores, a, b, step > 0);
    } else {
      hopper::multiply_narrow_async<T>(scores, a, b, step > 0);
    }
  }
  hopper::commit_products();
}

/// Starts out += weights v.
template <typename S>
__device__ inline void start_outputs(const Weights& weights, std::uint64_t v,
                                     float (&out)[S::kDim / 2]) {
  hopper::fence_sums();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    hopper::multiply_registers_async<typename S::Type>(
        out, weights[step], v + static_cast<std::uint64_t>(step * (16 * kBoxRowBytes / 16)));
  }
  hopper::commit_products();
}

/// Rounds weights to 16 bits.
template <typename T>
__device__ inline void round_weights(const Scores& scores, Weights& weights) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    weights[i / 4][i % 4] = mma::round_pair<T>(scores[2 * i], scores[2 * i + 1]);
  }
}

/// Of four registers in each lane of a quad, lane t gets register t of all lanes, in order.
__device__ inline void transpose_quad(std::uint32_t (&x)[4]) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x / 2 % 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, odd ? x[i] : x[i + 1], 1);
    (odd ? x[i] : x[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, high ? x[i] : x[i + 2], 2);
    (high ? x[i] : x[i + 2]) = other;
  }
}

/// A consumer group.
template <typename S>
class Consumer {
 public:
  using T = typename S::Type;

  __device__ Consumer(const Shared<S>& shared, const Launch& launch, int group)
      : shared_(shared), launch_(launch), dropout_(launch.call.dropout), group_(group) {}

  __device__ void run() {
    if (S::kTurns && group_ == 0) hopper::arrive_numbered_barrier(turn(0), kTurnThreads);
    Tiles<S> tiles(launch_);
    for (Tile tile; tiles.next(tile);) attend(tile);
  }

 private:
  static constexpr int kTurnThreads = 2 * kGroup;
  /// The barrier that a group waits at before it starts products.
  __device__ static int turn(int group) { return 1 + group; }
  __device__ void wait_for_turn() const {
    if (!S::kTurns) return;
    hopper::wait_numbered_barrier(turn(group_), kTurnThreads);
  }
  __device__ void pass_turn() const {
    if (!S::kTurns) return;
    hopper::arrive_numbered_barrier(turn((group_ + 1) % S::kConsumers), kTurnThreads);
  }

  __device__ std::uint64_t keys(int stage) const {
    return hopper::operand_descriptor<false>(shared_.block(stage), kKeys * kBoxRowBytes);
  }
  __device__ std::uint64_t values(int stage) const {
    return hopper::operand_descriptor<true>(shared_.block(stage), kKeys * kBoxRowBytes);
  }
  __device__ void release(int stage) const {
    if (threadIdx.x % kWarp == 0) hopper::arrive(shared_.empty(stage));
  }

  /// Passes over a stage of the ring.
  __device__ void skip_block() {
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    release(block_.stage());
    block_.advance();
  }
  /// A warp's first row, if `row` is that of the group.
  __device__ static int warp_row(int row) {
    return row + static_cast<int>(threadIdx.x) / kWarp % 4 * 16;
  }

  /// Scores of the group's rows, from `row` on, and keys from `key` on to weights.
  template <int kCount>
  __device__ void weigh_keys(const Tile& tile, int row, int key, RowState& state,
                             float (&correction)[2], float (&scores)[kCount]) const {
    const Forward& call = launch_.call;
    if constexpr (S::kExtras) scale_scores(call, scores);
    const bool all = key + 2 * kCount <= (call.mask.causal ? row + 1 : call.mask.time) &&
                     (call.mask.window == 0 || key > row + kGroupRows - 1 - call.mask.window);
    if (!all) hide_scores(call.mask, warp_row(row), key, scores);
    weigh<T>(S::kExtras ? 1.0f : call.scale * kLog2E, scores, state, correction);
    if constexpr (S::kExtras) {
      if (!dropout_.on()) return;
      drop_weights(call, dropout_, tile.batch, tile.head, warp_row(row), key, scores);
    }
  }

  /// The group's rows of a tile.
  __device__ void attend(const Tile& tile) {
    const int row = tile.row + group_ * kGroupRows, first_key = tile.first * kKeys;
    int key = (tile.first + tile.blocks - 1) * kKeys;
    RowState state;
    float out[S::kDim / 2], correction[2];
    Scores scores;
    Weights weights;
#pragma unroll
    for (float& each : out) each = 0.0f;
    const std::uint64_t query = hopper::operand_descriptor<false>(
        shared_.query(query_.index) + static_cast<std::uint32_t>(group_ * S::kGroupBytes),
        kGroupRows * kBoxRowBytes);
    hopper::wait_barrier(shared_.full(query_.stage()), query_.parity);
    // No row of the group sees the last block if it begins behind them.
    const bool skips = key > first_key && launch_.call.mask.causal && key >= row + kGroupRows;
    if (skips) {
      skip_block();
      key -= kKeys;
      wait_for_turn();
      pass_turn();
    }
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    // No row sees the second half of its last block if that begins behind it.
    if (launch_.call.mask.causal && key >= row) {
      // SAFETY: the scores of the first half of a block are the first half of the registers.
      auto& first_half = reinterpret_cast<float(&)[kKeys / 4]>(scores);
      start_scores<S>(query, keys(block_.stage()), first_half);
      hopper::wait_for_products<0>();
      hopper::use_sums(first_half);
      release(block_.stage());
      weigh_keys(tile, row, key, state, correction, first_half);
#pragma unroll
      for (int i = kKeys / 4; i < kKeys / 2; ++i) scores[i] = 0.0f;
    } else {
      start_scores<S>(query, keys(block_.stage()), scores);
      hopper::wait_for_products<0>();
      hopper::use_sums(scores);
      release(block_.stage());
      weigh_keys(tile, row, key, state, correction, scores);
    }
    block_.advance();
    if (skips) skip_block();
    round_weights<T>(scores, weights);
#pragma unroll 1
    while (key > first_key) {
      key -= kKeys;
      const int key_stage = block_.stage();
      hopper::wait_barrier(shared_.full(key_stage), block_.parity);
      block_.advance();
      wait_for_turn();
      use_weights(weights);
      start_scores<S>(query, keys(key_stage), scores);
      correct(correction, out);  // While the products run.
      const int value_stage = block_.stage();
      hopper::wait_barrier(shared_.full(value_stage), block_.parity);
      block_.advance();
      hopper::use_sums(out);
      start_outputs<S>(weights, values(value_stage), out);
      pass_turn();
      hopper::wait_for_products<1>();
      hopper::use_sums(scores);
      release(key_stage);
      weigh_keys(tile, row, key, state, correction, scores);
      hopper::wait_for_products<0>();
      hopper::use_sums(out);
      release(value_stage);
      round_weights<T>(scores, weights);
    }
    correct(correction, out);
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    hopper::use_sums(out);
    use_weights(weights);
    start_outputs<S>(weights, values(block_.stage()), out);
    release(query_.stage());
    query_.advance();
    finish_sums(state);
    hopper::wait_for_products<0>();
    hopper::use_sums(out);
    release(block_.stage());
    block_.advance();
    store(tile, state, out);
  }

  /// Corrects the outputs so far; not before what stands before this call.
  __device__ static void correct(float (&correction)[2], float (&out)[S::kDim / 2]) {
    hopper::use_sums(correction);
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] *= correction[i / 2 % 2];
  }
  /// Keeps the compiler from computing weights later than here.
  __device__ static void use_weights(Weights& weights) {
#pragma unroll
    for (auto& four : weights) {
#pragma unroll
      for (std::uint32_t& each : four) asm volatile("" : "+r"(each) : : "memory");
    }
  }

  __device__ void store(const Tile& tile, const RowState& state, const float (&out)[S::kDim / 2]) {
    const Forward& call = launch_.call;
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const int row =
        warp_row(tile.row + group_ * kGroupRows) + static_cast<int>(threadIdx.x) % kWarp / 4;
    const float kept = dropout_.on() ? call.dropout.kept_scale : 1.0f;
    const float to_log = S::kExtras ? kLn2 : call.scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = row + 8 * half;
      const float factor = kept / state.sum[half];
      const bool exists = t >= 0 && t < call.mask.time;
      if (quad == 0 && exists) {
        call.lse[(std::int64_t{tile.batch} * call.heads + tile.head) * call.mask.time + t] =
            log_sum<T>(state.max[half], state.sum[half], to_log);
      }
      T* const to = static_cast<T*>(call.y.data) + call.y.index(tile.batch, t, tile.head);
#pragma unroll
      for (int j = 0; j < S::kDim / 8; j += 4) {
        std::uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = mma::round_pair<T>(out[4 * (j + i) + 2 * half] * factor,
                                    out[4 * (j + i) + 2 * half + 1] * factor);
        }
        transpose_quad(x);
        if (!exists) continue;
        store_chunk(to + (j + quad) * 8, x);
      }
    }
  }
  /// Stores 8 neighbouring elements.
  __device__ void store_chunk(T* to, const std::uint32_t (&x)[4]) const {
    // SAFETY: at_once says that heads of y begin at multiples of 16 bytes; elements have 16 bits.
    if (launch_.at_once) {
      *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
      return;
    }
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      halves[2 * i] = static_cast<std::uint16_t>(x[i]);
      halves[2 * i + 1] = static_cast<std::uint16_t>(x[i] >> 16);
    }
  }

  const Shared<S>& shared_;
  const Launch& launch_;
  DropoutMask dropout_;
  int group_;
  BlockPosition<S> block_;
  QueryPosition<S> query_;
};

#endif  // VOLTA_HOPPER

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap map_q,
                   const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v,
                   const __grid_constant__ Launch launch) {
#if VOLTA_HOPPER
  extern __shared__ __align__(16) unsigned char storage[];
  const Shared<S> shared(storage);
  // From the first lane, so that the compiler knows that a warp does not diverge here.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroup, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::kStages + S::kQueryStages; ++stage) {
      hopper::init_barrier(shared.full(stage), launch.mapped ? 1 : kGroup);
      hopper::init_barrier(shared.empty(stage), S::kConsumers * kGroup / kWarp);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    hopper::give_registers<S::kProducerRegisters>();
    Producer<S>(shared, launch, map_q, map_k, map_v).run();
  } else {
    hopper::take_registers<S::kConsumerRegisters>();
    Consumer<S>(shared, launch, group - 1).run();
  }
#else
  // Code for other GPUs is never launched. If it were, an error is better than an unwritten y.
  __trap();
#endif
}

/// Heads whose tiles are taken together: as many as have their keys and values in the L2 cache with
/// room for the rest, so that every block of keys comes from there but once.
inline std::int64_t heads_of_section(const Forward& call) {
  constexpr std::int64_t kCacheBytes = std::int64_t{16} << 20;
  const std::int64_t group = call.heads / call.kv_heads;
  const std::int64_t bytes = call.y.time * call.y.dim * 2 * dtype_size(call.dtype);
  return std::max<std::int64_t>(kCacheBytes / bytes, 1) * group;
}

inline MappedMatrix mapped_rows(const HeadRows& rows, const Forward& call) {
  return {.data = rows.data,
          .type = call.dtype,
          .columns = rows.stride,
          .rows = rows.time,
          .layers = call.batch,
          .stride = rows.stride,
          .layer_stride = rows.time * rows.stride};
}

template <typename S>
cudaError_t launch_forward(const Forward& call, const Context& context) {
  Launch launch;
  launch.call = call;
  const std::int64_t tiles = ceil_div(call.y.time, std::int64_t{S::kRows});
  const std::int64_t heads = call.batch * call.heads;
  // More rounds than that have no number.
  if (heads * tiles > std::numeric_limits<int>::max()) return cudaErrorInvalidValue;
  launch.heads = static_cast<unsigned>(heads);
  launch.tiles = static_cast<unsigned>(tiles);
  launch.section = static_cast<unsigned>(std::min(heads_of_section(call), heads));
  launch.at_once = call.y.is_aligned_for(8, call.dtype);
  const MappedMatrix q = mapped_rows(call.in.q, call), k = mapped_rows(call.in.k, call),
                     v = mapped_rows(call.in.v, call);
  launch.mapped = can_map(q) && can_map(k) && can_map(v);
  CUtensorMap maps[3] = {};
  if (launch.mapped) {
    cudaError_t error = make_tensor_map(q, kGroupRows, maps[0]);
    if (error == cudaSuccess) error = make_tensor_map(k, kKeys, maps[1]);
    if (error == cudaSuccess) error = make_tensor_map(v, kKeys, maps[2]);
    if (error != cudaSuccess) return error;
  }
  const auto kernel = forward_kernel<S>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (error != cudaSuccess) return error;
  const unsigned blocks = blocks_for(heads * tiles, 1, context.multiprocessors);
  kernel<<<blocks, S::kThreads, S::kSharedBytes, context.stream>>>(maps[0], maps[1], maps[2],
                                                                   launch);
  return launch_error();
}

/// Whether three groups take less time than two. They use the multiprocessor better, but their
/// tiles of 192 rows have more rows that wait for the others, or do not exist.
inline bool use_three_groups(const Forward& call) {
  constexpr std::int64_t kTwoCost = 2 * 32, kThreeCost = 3 * 27;  // Of a block of keys.
  const auto blocks = [&](std::int64_t rows) {
    const std::int64_t top = round_up(call.y.time, std::int64_t{kGroupRows});
    if (!call.mask.causal) return ceil_div(top, rows) * ceil_div(top, std::int64_t{kKeys});
    std::int64_t sum = 0;
    for (std::int64_t row = top; row > 0; row -= rows) sum += ceil_div(row, std::int64_t{kKeys});
    return sum;
  };
  return blocks(3 * kGroupRows) * kThreeCost < blocks(2 * kGroupRows) * kTwoCost;
}

template <typename T, int kDim>
cudaError_t forward(const Forward& call, const Context& context) {
  if (needs_extras(call)) return launch_forward<Shape<T, kDim, 2, true>>(call, context);
  if constexpr (kDim == 64) {
    if (use_three_groups(call)) {
      return launch_forward<Shape<T, kDim, 3, false>>(call, context);
    }
  }
  return launch_forward<Shape<T, kDim, 2, false>>(call, context);
}

}  // namespace volta::cuda::attention::sm90
