// What the kernels of attention on tensor cores share, for bf16 and f16 with a head_dim of 64 or
// 128: tiles in shared memory, fragments in registers, and dropout.
//
// Products of two 16-bit operands are exact and summed in f32. Weights are f32 numbers, which are
// rounded once to 16 bits before they are multiplied (ops/op.h).
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

}  // namespace volta::cuda::attention::mma
