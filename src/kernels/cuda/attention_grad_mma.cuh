// AttentionGrad on tensor cores by mma.sync (sm_80 and up), for bf16 and f16 with a head_dim of 64
// or 128. attention_grad.cuh says how the work is cut. Bound by flops, and nearly as much by reads
// of shared memory.
//
// Each of eight warps owns 16 keys. Products K Q^T and V dY^T have keys as rows, so that a warp's
// weights and their gradients, rounded to 16 bits, are the left operands of its dV and dK as they
// lie in registers. dQ sums over keys, hence over warps: the score gradients also go to shared
// memory, and each warp computes 16 rows and half of the columns.
#pragma once

#include "kernels/cuda/attention_grad.cuh"

namespace volta::cuda::attention::grad {

inline constexpr int kMmaThreads = 256;
inline constexpr int kMmaRows = 64;  ///< Rows of a tile of queries.
inline constexpr int kMmaKeys = 16;  ///< Keys of a warp.
static_assert(kMmaThreads / kWarp * kMmaKeys == kKeys);

template <typename T, int kDim>
struct MmaShared {
  alignas(256) T k[kKeys * kDim];
  alignas(256) T v[kKeys * kDim];
  alignas(256) T q[2][kMmaRows * kDim];
  alignas(256) T dy[2][kMmaRows * kDim];
  alignas(256) T dscores[kKeys * kMmaRows];  ///< [keys, rows], chunks permuted as in a tile.
  alignas(16) RowStats stats[2][kMmaRows];
  unsigned item;
};

/// One tile of rows of one query head.
struct RowTile {
  int head, t;
  int pair;  ///< The head, counted over the batch.

  __device__ RowTile(const Work& work, const KeyBlock& block, int index, int rows) {
    const int group = work.call.heads / work.call.kv_heads;
    head = block.kv_head * group + index / block.tiles;
    t = block.begin + index % block.tiles * rows;
    pair = block.batch * work.call.heads + head;
  }
};

/// Turns products q k into weights, which are packed as a left operand, and leaves weights times
/// the slope of the soft cap. Rows of the product are keys from `key` on, columns rows from t on.
template <typename T, int kTiles>
__device__ void weigh(const Backward& call, int t, int key, const RowStats* stats, unsigned kept,
                      float (&scores)[kTiles][4], std::uint32_t (&packed)[kTiles / 2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int g = lane / 4, pair = lane % 4 * 2;
  const bool all = tiles_see_all(call.mask, t, 8 * kTiles, key, kMmaKeys);
  const float factor = call.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    // SAFETY: pairs of rows' statistics begin at multiples of 16 bytes.
    const float4 two = *reinterpret_cast<const float4*>(stats + 8 * n + pair);
    const float lse[2] = {two.x, two.z};
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& s = scores[n][i];
      float slope = 1.0f;
      float exponent = fmaf(s, factor, -lse[i % 2]);
      if (call.softcap > 0.0f) {
        exponent = fmaf(cap_score(s * call.scale, call.softcap, slope), kLog2E, -lse[i % 2]);
      }
      if (!all && !sees(call.mask, t + 8 * n + pair + i % 2, key + g + i / 2 * 8)) {
        exponent = mma::kLowest;
      }
      const float weight = mma::exp2_weight(exponent);
      weights[i] = (kept >> (4 * n + i) & 1u) != 0 ? weight : 0.0f;
      s = weight * slope;
    }
    packed[n / 2][n % 2 * 2] = mma::round_pair<T>(weights[0], weights[1]);
    packed[n / 2][n % 2 * 2 + 1] = mma::round_pair<T>(weights[2], weights[3]);
  }
}

/// Turns products v dy into score gradients, which are packed as a left operand and written to
/// `to`, a place in MmaShared::dscores.
template <typename T, int kTiles>
__device__ void score_gradients(const float (&weights)[kTiles][4],
                                const float (&products)[kTiles][4], float kept_scale, unsigned kept,
                                const RowStats* stats, std::uint32_t (&packed)[kTiles / 2][4]) {
  const int pair = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const float4 two = *reinterpret_cast<const float4*>(stats + 8 * n + pair);
    const float delta[2] = {two.y, two.w};
    float ds[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float dp = (kept >> (4 * n + i) & 1u) != 0 ? products[n][i] * kept_scale : 0.0f;
      ds[i] = weights[n][i] * __fadd_rn(dp, -delta[i % 2]);
    }
    packed[n / 2][n % 2 * 2] = mma::round_pair<T>(ds[0], ds[1]);
    packed[n / 2][n % 2 * 2 + 1] = mma::round_pair<T>(ds[2], ds[3]);
  }
}

/// out += left [16, 16 kSteps] times the first 16 kSteps rows of `right`, in order of these rows.
template <typename T, int kDim, int kSteps>
__device__ void add_products(const std::uint32_t (&left)[kSteps][4], const T* right,
                             float (&out)[kDim / 8][4]) {
  const std::uint32_t right_at = mma::right_rows_address<kDim>(right);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int pair = 0; pair < kDim / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b, mma::advance<kDim>(right_at, pair, 16 * step));
      multiply_add<T>(out[2 * pair], left[step], b[0], b[1]);
      multiply_add<T>(out[2 * pair + 1], left[step], b[2], b[3]);
    }
  }
}

/// Stores packed score gradients of a warp's 16 keys and 8 kTiles rows from `row` on.
template <typename T, int kTiles>
__device__ void keep_dscores(const std::uint32_t (&packed)[kTiles / 2][4], int row, T* dscores) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int key = static_cast<int>(threadIdx.x) / kWarp * kMmaKeys + lane / 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T* const at = dscores + mma::place<kMmaRows>(key + 8 * half, row / 8 + n) + lane % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(at) = packed[n / 2][n % 2 * 2 + half];
    }
  }
}

/// dK and dV of one tile of rows; leaves the score gradients in shared memory.
template <typename T, int kDim>
__device__ void add_key_gradients(const Work& work, const DropoutMask& dropout,
                                  const KeyBlock& block, const RowTile& tile,
                                  MmaShared<T, kDim>& shared, int stage, float (&dk)[kDim / 8][4],
                                  float (&dv)[kDim / 8][4]) {
  constexpr int kStep = kDim == 64 ? 32 : 16;  // Rows at a time: what registers allow.
  const Backward& call = work.call;
  const int own = static_cast<int>(threadIdx.x) / kWarp * kMmaKeys, key = block.key + own;
#pragma unroll 1
  for (int row = 0; row < kMmaRows; row += kStep) {
    std::uint32_t left[kStep / 16][4];
    const int t = tile.t + row;
    if (!tiles_meet(call.mask, t, kStep, key, kMmaKeys)) {
#pragma unroll
      for (auto& four : left) {
        for (std::uint32_t& each : four) each = 0;
      }
      keep_dscores<T, kStep / 8>(left, row, shared.dscores);
      continue;
    }
    const T* const q = shared.q[stage] + row * kDim;
    const T* const dy = shared.dy[stage] + row * kDim;
    const RowStats* const stats = shared.stats[stage] + row;
    unsigned kept = ~0u;
    float kept_scale = 1.0f;
    if (dropout.on()) {
      kept_scale = call.dropout.kept_scale;
      kept = mma::kept_of_tiles<true, kStep / 8>(
          dropout, (std::int64_t{tile.pair} * call.mask.time + t) * call.mask.time + key,
          call.mask.time);
    }
    float weights[kStep / 8][4], products[kStep / 8][4];
    mma::multiply_rows<kDim>(shared.k, own, q, 0, weights);
    weigh<T>(call, t, key, stats, kept, weights, left);
    add_products<T, kDim>(left, dy, dv);
    mma::multiply_rows<kDim>(shared.v, own, dy, 0, products);
    score_gradients<T>(weights, products, kept_scale, kept, stats, left);
    keep_dscores<T, kStep / 8>(left, row, shared.dscores);
    add_products<T, kDim>(left, q, dk);
  }
}

/// Adds a tile's part of dQ: this warp's 16 rows and half of the columns.
template <typename T, int kDim>
__device__ void add_query_gradients(const Work& work, const KeyBlock& block, const RowTile& tile,
                                    const MmaShared<T, kDim>& shared) {
  constexpr int kGroups = kDim / 16;  // Of 8 columns, in half of the columns.
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = warp / 2, half = warp % 2, t = tile.t + row * kSharedRows;
  if (!tiles_meet(work.call.mask, t, kSharedRows, block.key, kKeys)) return;
  float sum[kGroups][4] = {};
  const std::uint32_t left_at = mma::right_address<kMmaRows>(shared.dscores);
  const std::uint32_t right_at = mma::right_rows_address<kDim>(shared.k);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t a[4];
    load_matrices_transposed(a, mma::advance<kMmaRows>(left_at, row, 16 * step));
#pragma unroll
    for (int pair = 0; pair < kGroups / 2; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(
          b, mma::advance<kDim>(right_at, half * (kGroups / 2) + pair, 16 * step));
      multiply_add<T>(sum[2 * pair], a, b[0], b[1]);
      multiply_add<T>(sum[2 * pair + 1], a, b[2], b[3]);
    }
  }
  const Part part(work, tile.pair, t, half, half * (kDim / 2), block.key / kKeys);
  if (work.in_turns) wait_for_turn(part);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) part.add(group, sum[group]);
  if (work.in_turns) end_turn(part.turn, part.order);
}

/// All of one block of keys.
template <typename T, int kDim>
__device__ void block_gradients(const Work& work, const KeyBlock& block,
                                MmaShared<T, kDim>& shared) {
  const Backward& call = work.call;
  const DropoutMask dropout(call.dropout);
  const auto load_rows = [&](const RowTile& tile, int stage) {
    mma::load_tile<T, kDim, kMmaRows, kMmaThreads>(
        mma::Rows<T>(call.in.q, block.batch, tile.t, tile.head), work.at_once, shared.q[stage]);
    mma::load_tile<T, kDim, kMmaRows, kMmaThreads>(
        mma::Rows<T>(call.dy, block.batch, tile.t, tile.head), work.at_once, shared.dy[stage]);
    if (threadIdx.x < kMmaRows / 2) {
      copy_async_16(shared_address(shared.stats[stage] + threadIdx.x * 2),
                    work.stats + std::int64_t{tile.pair} * work.padded + tile.t + threadIdx.x * 2,
                    16);
    }
  };
  mma::load_tile<T, kDim, kKeys, kMmaThreads>(
      mma::Rows<T>(call.in.k, block.batch, block.key, block.kv_head), work.at_once, shared.k);
  mma::load_tile<T, kDim, kKeys, kMmaThreads>(
      mma::Rows<T>(call.in.v, block.batch, block.key, block.kv_head), work.at_once, shared.v);
  const int count = call.heads / call.kv_heads * block.tiles;
  load_rows(RowTile(work, block, 0, kMmaRows), 0);
  float dk[kDim / 8][4] = {}, dv[kDim / 8][4] = {};
#pragma unroll 1
  for (int index = 0; index < count; ++index) {
    const RowTile tile(work, block, index, kMmaRows);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();  // The tile is there, and the other stage and dscores have been read.
    if (index + 1 < count) load_rows(RowTile(work, block, index + 1, kMmaRows), (index + 1) % 2);
    add_key_gradients(work, dropout, block, tile, shared, index % 2, dk, dv);
    __syncthreads();  // All of dscores are there.
    add_query_gradients(work, block, tile, shared);
  }
  const int key = block.key + static_cast<int>(threadIdx.x) / kWarp * kMmaKeys;
  const float kept_scale = dropout.on() ? call.dropout.kept_scale : 1.0f;
  store_sums<T, kDim / 8>(call.out.k, block.batch, key, block.kv_head, work.at_once, call.scale,
                          &dk[0][0]);
  store_sums<T, kDim / 8>(call.out.v, block.batch, key, block.kv_head, work.at_once, kept_scale,
                          &dv[0][0]);
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kMmaThreads, 1) mma_kernel(const __grid_constant__ Work work) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: the launcher gives the kernel this much shared memory.
  auto& shared = *reinterpret_cast<MmaShared<T, kDim>*>(storage);
  for (;;) {
    __syncthreads();  // All threads have finished with the item before.
    if (threadIdx.x == 0) shared.item = atomicAdd(work.ticket, 1u);
    __syncthreads();
    const unsigned index = shared.item;
    if (index >= work.items()) return;
    const Item item(work, index);
#pragma unroll 1
    for (int block = item.block; block >= item.last; --block) {
      block_gradients<T, kDim>(work, KeyBlock(work, item.pair, block, kMmaRows), shared);
      __syncthreads();  // K and V have been read.
    }
  }
}

template <typename T, int kDim>
cudaError_t launch_mma(const Work& work, const Context& context) {
  constexpr int kBytes = sizeof(MmaShared<T, kDim>);
  const cudaError_t error = cudaFuncSetAttribute(
      mma_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  mma_kernel<T, kDim><<<blocks_for(work.items(), 1, context.multiprocessors), kMmaThreads, kBytes,
                        context.stream>>>(work);
  return launch_error();
}

template <typename T>
cudaError_t launch_mma(const Work& work, const Context& context) {
  return work.call.y.dim == 64 ? launch_mma<T, 64>(work, context)
                               : launch_mma<T, 128>(work, context);
}

}  // namespace volta::cuda::attention::grad
