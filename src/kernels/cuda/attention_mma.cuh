// Attention on tensor cores, for bf16 and f16 with a head_dim of 64 or 128: tiles in shared memory,
// fragments in registers, and the kernel. Bound by flops.
//
// Products of two 16-bit operands are exact and summed in f32. Weights are f32 numbers, which are
// rounded once to 16 bits before they are multiplied by v (ops/op.h).
//
// A warp owns 16 rows, and the sums of a row are taken in an order that does not depend on the
// others.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda::attention::mma {

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();
/// Rows of a warp.
inline constexpr int kWarpRows = 16;
/// Elements of 16 bits that are copied at once.
inline constexpr int kChunk = 8;

/// 2^x within 2 units in the last place; 0 where the result would be subnormal.
__device__ inline float exp2_weight(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Weights are at most 1. In f16 they are multiplied by this power of two, so that small ones keep
/// their bits.
template <typename T>
inline constexpr int kWeightExponent = std::is_same_v<T, f16> ? 15 : 0;

// ---- tiles --------------------------------------------------------------------------------------

/// The element of a tile [rows, kDim] in shared memory at which chunk `chunk` of row `row` begins.
/// Chunks are permuted within groups of eight, so that the same chunk of eight rows lies in
/// different banks.
template <int kDim>
__device__ int place(int row, int chunk) {
  return row * kDim + (chunk ^ (row & 7)) * kChunk;
}

/// The rows of one head, from one row on.
template <typename T>
struct Rows {
  const T* first;
  std::int64_t stride;
  int count;

  __device__ Rows(const HeadRows& rows, std::int64_t batch, int t, int head)
      : first(static_cast<const T*>(rows.data) + rows.index(batch, t, head)),
        stride(rows.stride),
        count(static_cast<int>(min(rows.time - t, std::int64_t{1} << 20))) {}
};

/// Begins to copy kRows rows to a tile. Rows that do not exist become zeros. `at_once` says whether
/// chunks can be copied at once; otherwise they are copied element by element.
template <typename T, int kDim, int kRows, int kThreads>
__device__ void load_tile(const Rows<T>& rows, bool at_once, T* to) {
  constexpr int kChunks = kDim / kChunk;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll 1
  for (int n = 0; n < kRows * kChunks / kThreads; ++n) {
    const int i = n * kThreads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks, chunk = i % kChunks;
    const T* const source = rows.first + row * rows.stride + chunk * kChunk;
    T* const target = to + place<kDim>(row, chunk);
    if (row < rows.count && at_once) {
      copy_async_16(shared_address(target), source, 16);
      continue;
    }
    // SAFETY: a tile is aligned, and places are multiples of a chunk.
    auto& chunk_in_tile = *reinterpret_cast<Vector<T, kChunk>*>(target);
    for (int j = 0; j < kChunk; ++j) {
      chunk_in_tile.at[j] = row < rows.count ? source[j] : from_f32<T>(0.0f);
    }
  }
}

// Addresses of chunks in shared memory that lanes give to load_matrices(). A tile begins at a
// multiple of its rows' bytes, so that chunk c of a row is at address ^ (16 c) if `address` is that
// of chunk 0. Steps over columns are therefore one instruction, and steps of eight rows a constant.

/// For the left operand of multiply_add(): rows [row, row + 16) of a tile, the first 16 columns.
template <int kDim, typename T>
__device__ std::uint32_t left_address(const T* tile, int row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return shared_address(tile + place<kDim>(row + lane % 16, lane / 16));
}
/// For two right operands: the transposes of rows [0, 8) and [8, 16) of a tile, the first 16
/// columns. The first one is in registers 0 and 1.
template <int kDim, typename T>
__device__ std::uint32_t right_address(const T* tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return shared_address(tile + place<kDim>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
}
/// For two right operands: rows [0, 16) of a tile, columns [0, 8) and [8, 16). With
/// load_matrices_transposed().
template <int kDim, typename T>
__device__ std::uint32_t right_rows_address(const T* tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return shared_address(tile + place<kDim>(lane % 16, lane / 16));
}
/// The address 16 `step` columns and `rows` rows further on; `rows` is a multiple of 8.
template <int kDim>
__device__ std::uint32_t advance(std::uint32_t address, int step, int rows) {
  return (address ^ static_cast<std::uint32_t>(32 * step)) +
         static_cast<std::uint32_t>(rows * kDim * 2);
}

/// sum = rows [row, row + 16) of `left` times the transpose of rows [first, first + 8 kTiles) of
/// `right`, over all columns in order.
template <int kDim, int kTiles, typename T>
__device__ void multiply_rows(const T* left, int row, const T* right, int first,
                              float (&sum)[kTiles][4]) {
#pragma unroll
  for (auto& tile : sum) {
#pragma unroll
    for (float& each : tile) each = 0.0f;
  }
  const std::uint32_t left_at = left_address<kDim>(left, row);
  const std::uint32_t right_at = right_address<kDim>(right + first * kDim);
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4];
    load_matrices(a, advance<kDim>(left_at, step, 0));
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, advance<kDim>(right_at, step, 8 * n));
      multiply_add<T>(sum[n], a, b[0], b[1]);
      multiply_add<T>(sum[n + 1], a, b[2], b[3]);
    }
  }
}

/// Two f32 numbers, rounded to 16 bits, in a register; the first one is in its lower half.
template <typename T>
__device__ std::uint32_t round_pair(float first, float second) {
  std::uint32_t bits;
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    static_assert(std::is_same_v<T, f16>);
    const __half2 pair = __floats2half2_rn(first, second);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
}

/// out += weights [16, 8 kTiles], rounded to 16 bits, times rows [first, first + 8 kTiles) of
/// `right`, in order of these rows.
template <int kDim, int kTiles, typename T>
__device__ void add_weighted_rows(const float (&weights)[kTiles][4], const T* right, int first,
                                  float (&out)[kDim / 8][4]) {
  const std::uint32_t right_at = right_rows_address<kDim>(right + first * kDim);
#pragma unroll
  for (int step = 0; step < kTiles / 2; ++step) {
    const auto& left = weights[2 * step];
    const auto& next = weights[2 * step + 1];
    const std::uint32_t a[4] = {round_pair<T>(left[0], left[1]), round_pair<T>(left[2], left[3]),
                                round_pair<T>(next[0], next[1]), round_pair<T>(next[2], next[3])};
#pragma unroll
    for (int pair = 0; pair < kDim / 16; ++pair) {
      std::uint32_t b[4];
      load_matrices_transposed(b, advance<kDim>(right_at, pair, 16 * step));
      multiply_add<T>(out[2 * pair], a, b[0], b[1]);
      multiply_add<T>(out[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

/// Stores a warp's 16 rows of a result, times `factor` for rows g and g + 8, by way of the same 16
/// rows of a tile, which no other warp uses any more. `t` is the warp's first row.
template <typename T, int kDim>
__device__ void store_rows(const HeadRows& to, std::int64_t batch, int t, int head, bool at_once,
                           const float (&factor)[2], const float (&out)[kDim / 8][4], T* tile,
                           int row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T* const at = tile + place<kDim>(row + lane / 4 + 8 * half, n) + lane % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(at) =
          round_pair<T>(out[n][2 * half] * factor[half], out[n][2 * half + 1] * factor[half]);
    }
  }
  __syncwarp();
  constexpr int kChunks = kDim / kChunk;
#pragma unroll 1  // Unrolled, these addresses would cost the loop over keys its registers.
  for (int i = lane; i < kWarpRows * kChunks; i += kWarp) {
    const int r = i / kChunks, chunk = i % kChunks;
    if (t + r >= to.time) continue;
    const auto& from =
        *reinterpret_cast<const Vector<T, kChunk>*>(tile + place<kDim>(row + r, chunk));
    T* const target = static_cast<T*>(to.data) + to.index(batch, t + r, head) + chunk * kChunk;
    if (at_once) {
      *reinterpret_cast<Vector<T, kChunk>*>(target) = from;
    } else {
      for (int j = 0; j < kChunk; ++j) target[j] = from.at[j];
    }
  }
}

// ---- dropout ------------------------------------------------------------------------------------

/// Whether dropout keeps elements c[0] to c[3] of a product tile whose rows are rows of queries, or
/// keys if kKeys: bits 0 to 3. `element` is the index of row 0 and key 0 of the tile, and rows of
/// the mask are `time` elements apart.
///
/// A tile has 32 blocks of four random words, one for each lane, if blocks begin at whole blocks of
/// four keys. Then a lane computes one block and gets the other bits from its neighbours.
template <bool kKeys>
__device__ unsigned kept_of_tile(const DropoutMask& mask, std::int64_t element, std::int64_t time) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int g = lane / 4, t = lane % 4;
  unsigned kept = 0;
  if (time % 4 == 0) {
    // Without kKeys: block `lane` is of row lane / 2 and keys 4 (lane % 2) to 4 (lane % 2) + 3.
    // With it: of row lane % 8 and keys 4 (lane / 8) to 4 (lane / 8) + 3.
    const int row = kKeys ? lane % 8 : lane / 2, key = 4 * (kKeys ? lane / 8 : lane % 2);
    const Random4 words = mask.words(static_cast<std::uint64_t>(element + row * time + key) / 4);
    const unsigned bits = (mask.keeps(words.x) ? 1u : 0u) | (mask.keeps(words.y) ? 2u : 0u) |
                          (mask.keeps(words.z) ? 4u : 0u) | (mask.keeps(words.w) ? 8u : 0u);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Element i has the row or key g + 8 (i / 2), and the key or row 2t + i % 2.
      const int from =
          kKeys ? (g / 4 + i / 2 * 2) * 8 + 2 * t + i % 2 : 2 * (g + i / 2 * 8) + t / 2;
      const int bit = kKeys ? g % 4 : 2 * (t % 2) + i % 2;
      kept |= (__shfl_sync(kAllLanes, bits, from) >> bit & 1u) << i;
    }
    return kept;
  }
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const int own = g + i / 2 * 8, other = 2 * t + i % 2;
    const int row = kKeys ? other : own, key = kKeys ? own : other;
    const auto at = static_cast<std::uint64_t>(element + row * time + key);
    const Random4 words = mask.words(at / 4);
    kept |= (mask.keeps(words.lane(static_cast<std::uint32_t>(at % 4))) ? 1u : 0u) << i;
  }
  return kept;
}

/// The same for kTiles tiles side by side: bits 4 n to 4 n + 3 are those of tile n.
template <bool kKeys, int kTiles>
__device__ unsigned kept_of_tiles(const DropoutMask& mask, std::int64_t element,
                                  std::int64_t time) {
  static_assert(kTiles <= 8);
  const std::int64_t step = kKeys ? 8 * time : 8;
  unsigned kept = 0;
#pragma unroll 1
  for (int n = 0; n < kTiles; ++n) {
    kept |= kept_of_tile<kKeys>(mask, element + n * step, time) << (4 * n);
  }
  return kept;
}

// ---- forward ------------------------------------------------------------------------------------

inline constexpr int kForwardThreads = 256;
inline constexpr int kForwardRows = kForwardThreads / kWarp * kWarpRows;

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

/// A warp's 16 rows. Lane i holds elements of rows i / 4 and i / 4 + 8, and its part of their sums.
template <int kDim>
struct ForwardState {
  float max[2], sum[2];  // Of scores in units of ln 2, and of their weights.
  float out[kDim / 8][4];
};

/// Turns products q k into scores in units of ln 2, and those that the mask hides into -inf. Rows
/// begin at t, and keys at `key`.
template <int kTiles>
__device__ void scale_scores(const Forward& call, int t, int key, float (&scores)[kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (call.softcap > 0.0f) {
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (float& s : tile) {
        float slope;
        s = cap_score(s * call.scale, call.softcap, slope) * kLog2E;
      }
    }
  } else {
    const float factor = call.scale * kLog2E;
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (float& s : tile) s *= factor;
    }
  }
  if (call.mask.sees_all(t, kWarpRows, key, 8 * kTiles)) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = t + lane / 4 + 8 * half, first = key + lane % 4 * 2;
    const int begin = call.mask.begin(row) - first, end = call.mask.end(row) - first;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * n + i < begin || 8 * n + i >= end) scores[n][2 * half + i] = kLowest;
      }
    }
  }
}

/// Turns scores against a block of keys into weights, and updates the rows' state. A block in which
/// a row sees no key does not change its state.
template <typename T, int kDim>
__device__ void softmax_block(float (&scores)[kKeyBlock / 8][4], ForwardState<kDim>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = state.max[half];
#pragma unroll
    for (const auto& tile : scores) {
      largest = fmaxf(largest, fmaxf(tile[2 * half], tile[2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float shift = largest == kLowest ? 0.0f : largest - kWeightExponent<T>;
    // As long as a row has seen no key, there is nothing to correct.
    const float correction =
        state.max[half] == kLowest ? 0.0f : exp2_weight(state.max[half] - largest);
    state.max[half] = largest;
    float& sum = state.sum[half];
    sum *= correction;
#pragma unroll
    for (auto& tile : state.out) {
      tile[2 * half] *= correction;
      tile[2 * half + 1] *= correction;
    }
#pragma unroll
    for (auto& tile : scores) {
      tile[2 * half] = exp2_weight(tile[2 * half] - shift);
      tile[2 * half + 1] = exp2_weight(tile[2 * half + 1] - shift);
      sum += tile[2 * half];
      sum += tile[2 * half + 1];
    }
  }
}

/// Sets the weights of dropped elements to 0. The others are scaled at the end.
__device__ inline void drop_weights(const Forward& call, const DropoutMask& mask,
                                    std::int64_t batch, int head, int t, int key,
                                    float (&weights)[kKeyBlock / 8][4]) {
  const std::int64_t row = (batch * call.heads + head) * call.mask.time + t;
  const unsigned kept =
      kept_of_tiles<false, kKeyBlock / 8>(mask, row * call.mask.time + key, call.mask.time);
#pragma unroll
  for (int n = 0; n < kKeyBlock / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((kept >> (4 * n + i) & 1u) == 0) weights[n][i] = 0.0f;
    }
  }
}

template <typename T, int kDim>
__device__ void store_forward(const ForwardLaunch& launch, std::int64_t batch, int head, int t,
                              float kept_scale, ForwardState<kDim>& state, T* tile, int row) {
  const Forward& call = launch.call;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float& sum = state.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    factor[half] = kept_scale / sum;
    const int at = t + lane / 4 + 8 * half;
    if (lane % 4 == 0 && at < call.mask.time) {
      call.lse[(batch * call.heads + head) * call.mask.time + at] =
          (state.max[half] - kWeightExponent<T> + log2f(sum)) * kLn2;
    }
  }
  store_rows<T, kDim>(call.y, batch, t, head, launch.at_once, factor, state.out, tile, row);
}

/// One tile of rows of one head over all keys that it sees. Blocks of keys are copied one ahead.
template <typename T, int kDim>
__device__ void attend(const ForwardLaunch& launch, std::int64_t batch, int head, int t,
                       ForwardShared<T, kDim>& shared) {
  const Forward& call = launch.call;
  const Mask& mask = call.mask;
  const DropoutMask dropout(call.dropout);
  const int kv_head = head / (call.heads / call.kv_heads);
  const int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const int last = min(t + kForwardRows, mask.time) - 1;
  const auto load_block = [&](int key, int stage) {
    load_tile<T, kDim, kKeyBlock, kForwardThreads>(Rows<T>(call.in.k, batch, key, kv_head),
                                                   launch.at_once, shared.k[stage]);
    load_tile<T, kDim, kKeyBlock, kForwardThreads>(Rows<T>(call.in.v, batch, key, kv_head),
                                                   launch.at_once, shared.v[stage]);
  };
  int key = mask.begin(t) / kKeyBlock * kKeyBlock;
  const int end = mask.end(last);
  __syncthreads();  // All threads have finished with the tiles before.
  load_tile<T, kDim, kForwardRows, kForwardThreads>(Rows<T>(call.in.q, batch, t, head),
                                                    launch.at_once, shared.q);
  load_block(key, 0);
  ForwardState<kDim> state;
  for (int half = 0; half < 2; ++half) {
    state.max[half] = kLowest;
    state.sum[half] = 0.0f;
  }
#pragma unroll
  for (auto& tile : state.out) {
#pragma unroll
    for (float& each : tile) each = 0.0f;
  }
  for (int stage = 0; key < end; key += kKeyBlock, stage ^= 1) {
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();  // The block is there, and the other stage has been read.
    if (key + kKeyBlock < end) load_block(key + kKeyBlock, stage ^ 1);
    if (!mask.meet(t + row, kWarpRows, key, kKeyBlock)) continue;
    float weights[kKeyBlock / 8][4];
    multiply_rows<kDim>(shared.q, row, shared.k[stage], 0, weights);
    scale_scores(call, t + row, key, weights);
    softmax_block<T>(weights, state);
    if (dropout.on()) drop_weights(call, dropout, batch, head, t + row, key, weights);
    add_weighted_rows<kDim>(weights, shared.v[stage], 0, state.out);
  }
  const float kept_scale = dropout.on() ? call.dropout.kept_scale : 1.0f;
  store_forward<T>(launch, batch, head, t + row, kept_scale, state, shared.q, row);
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kForwardThreads, kDim == 64 ? 2 : 1)
    forward_kernel(const ForwardLaunch launch) {
  extern __shared__ __align__(256) unsigned char storage[];
  // SAFETY: the launcher gives the kernel this much shared memory.
  auto& shared = *reinterpret_cast<ForwardShared<T, kDim>*>(storage);
  const int heads = launch.call.heads;
  const std::int64_t items = launch.call.batch * heads * launch.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    // The later rows of a causal sequence see more keys, so they come first.
    const std::int64_t tile = launch.tiles - 1 - item % launch.tiles;
    const std::int64_t pair = item / launch.tiles;
    attend<T, kDim>(launch, pair / heads, static_cast<int>(pair % heads),
                    static_cast<int>(tile * kForwardRows), shared);
  }
}

template <typename T, int kDim>
cudaError_t launch_forward(const ForwardLaunch& launch, const Context& context) {
  constexpr int kBytes = sizeof(ForwardShared<T, kDim>);
  const cudaError_t error = cudaFuncSetAttribute(
      forward_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const std::int64_t items = launch.call.batch * launch.call.heads * launch.tiles;
  forward_kernel<T, kDim>
      <<<blocks_for(items, 1), kForwardThreads, kBytes, context.stream>>>(launch);
  return launch_error();
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
  return call.y.dim == 64 ? launch_forward<T, 64>(launch, context)
                          : launch_forward<T, 128>(launch, context);
}

}  // namespace volta::cuda::attention::mma
