// Attention on tensor cores with the instructions of sm_80, for bf16 and f16 with a head_dim of 64
// or 128. Bound by flops and, about as much, by reading tiles from shared memory, so a warp owns 32
// rows: every fragment of keys or values is then used twice.
//
// The sums of a row are taken in an order that does not depend on the others.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda::attention::mma {

inline constexpr int kForwardThreads = 128;
inline constexpr int kParts = 2;  ///< Of 16 rows, of a warp.
inline constexpr int kForwardRows = kForwardThreads / kWarp * kParts * kWarpRows;
inline constexpr int kBlockTiles = kKeyBlock / 8;

template <typename T, int kDim>
struct ForwardShared {
  alignas(256) T q[kForwardRows * kDim];
  alignas(256) T k[2][kKeyBlock * kDim];
  alignas(256) T v[2][kKeyBlock * kDim];
};

struct ForwardLaunch {
  Forward call;
  bool at_once = false;
  std::int64_t tiles = 0;
};

using Scores = float[kParts][4 * kBlockTiles];
template <int kDim>
using Outputs = float[kParts][kDim / 2];

/// The sums of tile j of a part, as multiply_add() takes them.
template <int kCount>
__device__ inline float (&sums_of_tile(float (&sums)[kCount], int j))[4] {
  // SAFETY: sums are whole tiles of four.
  return *reinterpret_cast<float(*)[4]>(&sums[4 * j]);
}

/// Begins to copy kRows rows to a tile 16 bytes at a time. Rows that do not exist become zeros.
template <typename T, int kDim, int kRows>
__device__ inline void copy_tile(const Rows<T>& rows, T* to) {
  constexpr int kChunks = kDim / kChunk, kStep = kForwardThreads / kChunks;
  const int first = static_cast<int>(threadIdx.x) / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const T* from = rows.first + first * rows.stride + chunk * kChunk;
#pragma unroll
  for (int n = 0; n < kRows / kStep; ++n) {
    const int row = first + n * kStep;
    const bool exists = row < rows.count;
    copy_async_16(shared_address(to + place<kDim>(row, chunk)), exists ? from : rows.first,
                  exists ? 16 : 0);
    from += kStep * rows.stride;
  }
}

/// scores = rows [row, row + 32) of q times the transpose of k.
template <int kDim, typename T>
__device__ inline void multiply_queries(const T* q, int row, const T* k, Scores& scores) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 4 * kBlockTiles; ++i) scores[part][i] = 0.0f;
  }
  const std::uint32_t left_at = left_address<kDim>(q, row), right_at = right_address<kDim>(k);
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      load_matrices(a[part], advance<kDim>(left_at, step, kWarpRows * part));
    }
#pragma unroll
    for (int n = 0; n < kBlockTiles; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, advance<kDim>(right_at, step, 8 * n));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        multiply_add<T>(sums_of_tile(scores[part], n), a[part], b[0], b[1]);
        multiply_add<T>(sums_of_tile(scores[part], n + 1), a[part], b[2], b[3]);
      }
    }
  }
}

/// out += weights, rounded to 16 bits, times v, in order of its rows.
template <int kDim, typename T>
__device__ inline void add_values(const Scores& weights, const T* v, Outputs<kDim>& out) {
  const std::uint32_t right_at = right_rows_address<kDim>(v);
#pragma unroll
  for (int step = 0; step < kBlockTiles / 2; ++step) {
    std::uint32_t a[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[part][i] =
            round_pair<T>(weights[part][8 * step + 2 * i], weights[part][8 * step + 2 * i + 1]);
      }
    }
#pragma unroll
    for (int pair = 0; pair < kDim / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b, advance<kDim>(right_at, pair, 16 * step));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        multiply_add<T>(sums_of_tile(out[part], 2 * pair), a[part], b[0], b[1]);
        multiply_add<T>(sums_of_tile(out[part], 2 * pair + 1), a[part], b[2], b[3]);
      }
    }
  }
}

/// One tile of rows of one head. kExtras: see needs_extras().
template <typename T, int kDim, bool kExtras>
class ForwardTile {
 public:
  __device__ ForwardTile(const ForwardLaunch& launch, std::int64_t batch, int head, int t,
                         ForwardShared<T, kDim>& shared)
      : launch_(launch),
        call_(launch.call),
        shared_(shared),
        batch_(batch),
        head_(head),
        t_(t),
        row_(static_cast<int>(threadIdx.x) / kWarp * kParts * kWarpRows) {}

  /// Over all keys that the rows see. Blocks of keys are copied one ahead.
  __device__ void attend(const DropoutMask& dropout) {
    const Mask& mask = call_.mask;
    int key = mask.begin(t_) / kKeyBlock * kKeyBlock;
    const int end = mask.end(min(t_ + kForwardRows, mask.time) - 1);
    __syncthreads();  // All threads have finished with the tiles before.
    load<kForwardRows>(call_.in.q, t_, head_, shared_.q);
    load_block(key, 0);
    RowState state[kParts];
    Outputs<kDim> out;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) out[part][i] = 0.0f;
    }
#pragma unroll 1
    for (int stage = 0; key < end; key += kKeyBlock, stage ^= 1) {
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();  // The block is there, and the other stage has been read.
      if (key + kKeyBlock < end) load_block(key + kKeyBlock, stage ^ 1);
      if (!mask.meet(t_ + row_, kParts * kWarpRows, key, kKeyBlock)) continue;
      Scores scores;
      multiply_queries<kDim>(shared_.q, row_, shared_.k[stage], scores);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        weigh_part(dropout, t_ + row_ + kWarpRows * part, key, scores[part], state[part],
                   out[part]);
      }
      add_values<kDim>(scores, shared_.v[stage], out);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      store(dropout, row_ + kWarpRows * part, state[part], out[part]);
    }
  }

 private:
  template <int kRows>
  __device__ void load(const HeadRows& from, int t, int head, T* to) const {
    const Rows<T> rows(from, batch_, t, head);
    if (launch_.at_once) {
      copy_tile<T, kDim, kRows>(rows, to);
    } else {
      load_tile<T, kDim, kRows, kForwardThreads>(rows, false, to);
    }
  }
  __device__ void load_block(int key, int stage) const {
    const int kv_head = head_ / (call_.heads / call_.kv_heads);
    load<kKeyBlock>(call_.in.k, key, kv_head, shared_.k[stage]);
    load<kKeyBlock>(call_.in.v, key, kv_head, shared_.v[stage]);
  }
  /// Scores of 16 rows from `row` on to weights.
  __device__ void weigh_part(const DropoutMask& dropout, int row, int key,
                             float (&scores)[4 * kBlockTiles], RowState& state,
                             float (&out)[kDim / 2]) const {
    float correction[2];
    if constexpr (kExtras) scale_scores(call_, scores);
    if (!call_.mask.sees_all(row, kWarpRows, key, kKeyBlock)) {
      hide_scores(call_.mask, row, key, scores);
    }
    weigh<T>(kExtras ? 1.0f : call_.scale * kLog2E, scores, state, correction);
    if constexpr (kExtras) {
      if (dropout.on()) drop_weights(call_, dropout, batch_, head_, row, key, scores);
    }
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) out[i] *= correction[i / 2 % 2];
  }
  /// Stores 16 rows, by way of the same rows of the tile of queries.
  __device__ void store(const DropoutMask& dropout, int row, RowState& state,
                        float (&out)[kDim / 2]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    finish_sums(state);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = (dropout.on() ? call_.dropout.kept_scale : 1.0f) / state.sum[half];
      const int at = t_ + row + lane / 4 + 8 * half;
      if (lane % 4 != 0 || at >= call_.mask.time) continue;
      call_.lse[(batch_ * call_.heads + head_) * call_.mask.time + at] =
          log_sum<T>(state.max[half], state.sum[half], kExtras ? kLn2 : call_.scale);
    }
    // SAFETY: elements are whole tiles of four.
    store_rows<T, kDim>(call_.y, batch_, t_ + row, head_, launch_.at_once, factor,
                        *reinterpret_cast<const float(*)[kDim / 8][4]>(&out), shared_.q, row);
  }

  const ForwardLaunch& launch_;
  const Forward& call_;
  ForwardShared<T, kDim>& shared_;
  std::int64_t batch_;
  int head_, t_, row_;
};

template <typename T, int kDim, bool kExtras>
__global__ void __launch_bounds__(kForwardThreads, 2)
    forward_kernel(const __grid_constant__ ForwardLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: the launcher gives the kernel this much shared memory.
  auto& shared = *reinterpret_cast<ForwardShared<T, kDim>*>(storage);
  const DropoutMask dropout(launch.call.dropout);
  const int heads = launch.call.heads;
  const std::int64_t items = launch.call.batch * heads * launch.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    // The later rows of a causal sequence see more keys, so they come first.
    const std::int64_t tile = launch.tiles - 1 - item % launch.tiles;
    const std::int64_t pair = item / launch.tiles;
    ForwardTile<T, kDim, kExtras>(launch, pair / heads, static_cast<int>(pair % heads),
                                  static_cast<int>(tile * kForwardRows), shared)
        .attend(dropout);
  }
}

template <typename T, int kDim, bool kExtras>
cudaError_t launch_forward(const ForwardLaunch& launch, const Context& context) {
  constexpr int kBytes = sizeof(ForwardShared<T, kDim>);
  const auto kernel = forward_kernel<T, kDim, kExtras>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const std::int64_t items = launch.call.batch * launch.call.heads * launch.tiles;
  kernel<<<blocks_for(items, 1), kForwardThreads, kBytes, context.stream>>>(launch);
  return launch_error();
}

template <typename T, bool kExtras>
cudaError_t launch_forward(const ForwardLaunch& launch, const Context& context) {
  return launch.call.y.dim == 64 ? launch_forward<T, 64, kExtras>(launch, context)
                                 : launch_forward<T, 128, kExtras>(launch, context);
}

template <typename T>
cudaError_t forward(const Forward& call, const Context& context) {
  ForwardLaunch launch;
  launch.call = call;
  launch.at_once = true;
  for (const HeadRows& rows : {call.in.q, call.in.k, call.in.v, call.y}) {
    launch.at_once = launch.at_once && rows.is_aligned_for(kChunk, call.dtype);
  }
  launch.tiles = ceil_div(call.y.time, std::int64_t{kForwardRows});
  return needs_extras(call) ? launch_forward<T, true>(launch, context)
                            : launch_forward<T, false>(launch, context);
}

}  // namespace volta::cuda::attention::mma
