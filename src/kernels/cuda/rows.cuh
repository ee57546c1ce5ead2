// What the kernels that work row by row share. A team of threads has a row: a warp has a short one,
// a block a long one; the number of columns alone decides. A row is cut into vectors of 16 bytes,
// counted from its first element, and thread `rank` of a team of kTeam threads has the vectors
// rank, rank + kTeam, and so on. So the order of a row's sum does not depend on the row's address:
// rows that begin at an odd address are read and written in other ways, and give the same bits. It
// knows no op.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {

/// A warp has a row of at most this many columns.
inline constexpr std::int64_t kWarpColumns = 1024;
/// The elements of a row that each thread of a team may keep in registers.
inline constexpr int kHeldElements = 32;
/// A team of kHeldThreads holds a row of at most kHeldColumns columns in registers; longer rows are
/// read more than once, by kLongThreads.
inline constexpr int kHeldThreads = 256;
inline constexpr std::int64_t kHeldColumns = std::int64_t{kHeldThreads} * kHeldElements;
inline constexpr int kLongThreads = 512;

static_assert(kWarp * kHeldElements >= kWarpColumns);

/// The threads of a block whose teams have kTeam threads each: several warps, or one team.
template <int kTeam>
inline constexpr int kBlockThreads = kTeam == kWarp ? 256 : kTeam;

/// The row of this thread's team. A whole warp, or no thread of a block, is beyond the last row.
template <int kTeam>
__device__ inline std::int64_t team_row() {
  return std::int64_t{blockIdx.x} * (kBlockThreads<kTeam> / kTeam) + threadIdx.x / kTeam;
}
template <int kTeam>
__device__ inline int team_rank() {
  return static_cast<int>(threadIdx.x) % kTeam;
}
/// The blocks for so many rows.
template <int kTeam>
unsigned row_blocks(std::int64_t rows) {
  return blocks_for(rows, kBlockThreads<kTeam> / kTeam);
}

/// Carries a number of threads to a generic lambda.
template <int kCount>
struct Team {
  static constexpr int kThreads = kCount;
};

/// The sum and the largest of a team's values, in all of its threads. `shared` has kTeam / 32
/// floats; a team of one warp does not use it. See block_sum in common.cuh.
template <int kTeam>
__device__ inline float team_sum(float x, float* shared) {
  if constexpr (kTeam == kWarp) return warp_sum(x);
  return block_sum<kTeam>(x, shared);
}
template <int kTeam>
__device__ inline float team_max(float x, float* shared) {
  if constexpr (kTeam == kWarp) return warp_max(x);
  return block_max<kTeam>(x, shared);
}

/// The sums of kCount values each over a team, in all of its threads. `shared` has kCount * kTeam /
/// 32 floats; a team of one warp does not use it. There is one barrier: two calls that follow each
/// other must not have the same `shared`. The order of a sum depends on nothing but the threads.
template <int kTeam, int kCount>
__device__ inline void team_sums(float (&x)[kCount], float* shared) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) x[k] = warp_sum(x[k]);
  if constexpr (kTeam > kWarp) {
    constexpr int kWarps = kTeam / kWarp;
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) shared[k * kWarps + threadIdx.x / kWarp] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      x[k] = shared[k * kWarps];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) x[k] += shared[k * kWarps + i];
    }
  }
}

/// As many elements as fit into 16 bytes.
template <typename T>
using RowVector = Vector<T, kVector<T>>;

/// How many bytes an address lies after a multiple of 16.
__device__ inline unsigned misalignment(const void* address) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) & 15u);
}

/// The 16 bytes at `address`, which is no multiple of 16, from the two aligned pieces around them.
/// The caller owns all bytes of both pieces.
template <typename T>
__device__ inline RowVector<T> load_across(const T* address) {
  const unsigned before = misalignment(address);
  // SAFETY: the pieces begin at multiples of 16 and hold nothing but elements of the caller.
  const auto* pieces =
      reinterpret_cast<const uint4*>(reinterpret_cast<std::uintptr_t>(address) - before);
  const uint4 low = pieces[0], high = pieces[1];
  std::uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if ((before & 8u) != 0) {
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if ((before & 4u) != 0) {
#pragma unroll
    for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
  }
  if ((before & 2u) != 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __funnelshift_r(word[i], word[i + 1], 16);
  }
  RowVector<T> result;
  static_assert(sizeof(result) == 16);
  memcpy(&result, word, 16);
  return result;
}

/// Elements [i, i + kVector) of a row of n elements; `fill` for those after the end. i is a
/// multiple of kVector. Index is an integer that holds n + 2 kVector.
template <typename T, typename Index>
__device__ inline RowVector<T> load_vector(const T* row, Index i, Index n, T fill) {
  constexpr int kCount = kVector<T>;
  const bool aligned = misalignment(row) == 0;
  // Across two aligned pieces only where both are within the row: a row may be all that there is.
  if (i + kCount <= n && (aligned || (i > 0 && i + 2 * kCount <= n))) {
    // SAFETY: the elements are within the row, and the address is a multiple of 16 if it must be.
    return aligned ? *reinterpret_cast<const RowVector<T>*>(row + i) : load_across(row + i);
  }
  RowVector<T> to;
#pragma unroll
  for (int j = 0; j < kCount; ++j) to.at[j] = i + j < n ? row[i + j] : fill;
  return to;
}

template <typename T, int kCount>
__device__ inline void widen(const Vector<T, kCount>& from, float (&to)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] = to_f32(from.at[j]);
}
template <typename T, int kCount>
__device__ inline Vector<T, kCount> narrow(const float (&from)[kCount]) {
  Vector<T, kCount> to;
#pragma unroll
  for (int j = 0; j < kCount; ++j) to.at[j] = from_f32<T>(from[j]);
  return to;
}

/// Stores elements [i, i + kVector) of a row of n elements, as far as they are before its end.
template <typename T, typename Index>
__device__ inline void store_vector(T* row, Index i, Index n, const RowVector<T>& from) {
  if (i + kVector<T> <= n && misalignment(row) == 0) {
    // SAFETY: the elements are within the row, whose address and whose offset i are aligned.
    *reinterpret_cast<RowVector<T>*>(row + i) = from;
    return;
  }
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    if (i + j < n) row[i + j] = from.at[j];
  }
}

/// The 16 bytes of a vector as words: what kernels hold that have a row in registers. An array of
/// elements of 16 bits would often take a register for each.
using Words = uint4;

template <typename T>
__device__ inline void widen(const Words& from, float (&to)[kVector<T>]) {
  const std::uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (sizeof(T) == 4) {
      to[k] = __uint_as_float(words[k]);
    } else if constexpr (std::is_same_v<T, bf16>) {
      to[2 * k] = __uint_as_float(words[k] << 16);
      to[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    } else {
      __half2 pair;
      memcpy(&pair, &words[k], sizeof(pair));
      const float2 both = __half22float2(pair);
      to[2 * k] = both.x;
      to[2 * k + 1] = both.y;
    }
  }
}
/// Rounds to the nearest even values of T.
template <typename T>
__device__ inline Words narrow_words(const float (&from)[kVector<T>]) {
  std::uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (sizeof(T) == 4) {
      words[k] = __float_as_uint(from[k]);
    } else if constexpr (std::is_same_v<T, bf16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * k], from[2 * k + 1]);
      memcpy(&words[k], &pair, sizeof(pair));
    } else {
      const __half2 pair = __floats2half2_rn(from[2 * k], from[2 * k + 1]);
      memcpy(&words[k], &pair, sizeof(pair));
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

/// load_vector, with 0 after the end, and store_vector. With kWhole, all vectors of the row are
/// whole and at multiples of 16, which takes far fewer registers.
template <bool kWhole, typename T, typename Index>
__device__ inline Words load_words(const T* row, Index i, Index n) {
  Words words;
  // SAFETY: the caller checked what kWhole says.
  if constexpr (kWhole) {
    words = *reinterpret_cast<const Words*>(row + i);
  } else {
    const RowVector<T> vector = load_vector(row, i, n, T(0.0f));
    memcpy(&words, &vector, sizeof(words));
  }
  return words;
}
template <bool kWhole, typename T, typename Index>
__device__ inline void store_words(T* row, Index i, Index n, const Words& words) {
  if constexpr (kWhole) {
    *reinterpret_cast<Words*>(row + i) = words;
  } else {
    RowVector<T> vector;
    memcpy(&vector, &words, sizeof(words));
    store_vector(row, i, n, vector);
  }
}

/// Makes the compiler forget what it computed from a vector, so that it computes it again instead
/// of keeping the results in registers.
__device__ inline void forget_results(Words& words) {
  asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
}

/// A row of floats whose type is known when the kernel runs: weights that all rows share, and that
/// are therefore in a cache.
struct FloatRow {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  FloatRow() = default;
  explicit FloatRow(const View& view) : data(view.data), dtype(view.dtype) {}

  /// The elements from `offset` on.
  __device__ FloatRow from(std::int64_t offset) const {
    FloatRow rest = *this;
    rest.data = static_cast<const char*>(data) + offset * (dtype == DType::kF32 ? 4 : 2);
    return rest;
  }

  __device__ float at(std::int64_t i) const {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
    if (dtype == DType::kBF16) return to_f32(static_cast<const bf16*>(data)[i]);
    return to_f32(static_cast<const f16*>(data)[i]);
  }
  /// Elements [i, i + kCount) of n in f32, and 0 for those after the end; i is a multiple of
  /// kCount.
  template <int kCount, typename Index>
  __device__ void load(Index i, Index n, float (&to)[kCount]) const {
    if (dtype == DType::kF32) return load_as<float>(i, n, to);
    if (dtype == DType::kBF16) return load_as<bf16>(i, n, to);
    load_as<f16>(i, n, to);
  }

 private:
  template <typename T, int kCount, typename Index>
  __device__ void load_as(Index i, Index n, float (&to)[kCount]) const {
    constexpr int kPart = kCount < kVector<T> ? kCount : kVector<T>;
    const T* const row = static_cast<const T*>(data);
    if (i + kCount <= n && misalignment(row) == 0) {
#pragma unroll
      for (int part = 0; part < kCount; part += kPart) {
        // SAFETY: the elements are within the row, whose address and whose offset are aligned.
        const auto from = *reinterpret_cast<const Vector<T, kPart>*>(row + i + part);
#pragma unroll
        for (int j = 0; j < kPart; ++j) to[part + j] = to_f32(from.at[j]);
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) to[j] = i + j < n ? to_f32(row[i + j]) : 0.0f;
  }
};

/// A FloatRow that a block keeps in shared memory, in f32, because its teams need it for every row.
/// Threads read kCount elements of it at once. Groups of four elements lie so that threads with
/// neighbouring elements read neighbouring groups, without conflicts of banks.
template <int kCount>
struct SharedRow {
  float* data = nullptr;  ///< floats_of(n) floats, 16-byte aligned.
  int vectors = 0;

  static constexpr int kPlanes = kCount / 4;
  static_assert(kCount % 4 == 0);

  static std::int64_t floats_of(std::int64_t n) {
    return ceil_div(n, std::int64_t{kCount}) * kCount;
  }
  __device__ SharedRow(float* memory, int n) : data(memory), vectors((n + kCount - 1) / kCount) {}

  /// Stores from[i] + add, and 0 after the end. All threads of the block call it; a barrier must
  /// follow.
  __device__ void fill(const FloatRow& from, int n, float add) const {
    for (int i = static_cast<int>(threadIdx.x); i < vectors * kCount;
         i += static_cast<int>(blockDim.x)) {
      const int plane = i % kCount / 4;
      data[(plane * vectors + i / kCount) * 4 + i % 4] = i < n ? from.at(i) + add : 0.0f;
    }
  }
  /// Elements [i, i + kCount); i is a multiple of kCount.
  __device__ void load(int i, float (&to)[kCount]) const {
    const auto* groups = reinterpret_cast<const float4*>(data);
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const float4 group = groups[plane * vectors + i / kCount];
      to[4 * plane] = group.x;
      to[4 * plane + 1] = group.y;
      to[4 * plane + 2] = group.z;
      to[4 * plane + 3] = group.w;
    }
  }
};

/// A launch for kernels that treat each vector by itself: x counts vectors of a row (in strides of
/// the grid), y counts rows in a block, and the grid's x counts blocks of rows.
struct VectorGrid {
  dim3 blocks, threads;

  VectorGrid(std::int64_t rows, std::int64_t vectors) {
    constexpr unsigned kThreads = 256;
    unsigned lanes = 1;
    while (lanes < kThreads && lanes < vectors) lanes *= 2;
    threads = dim3(lanes, kThreads / lanes);
    blocks = dim3(blocks_for(rows, kThreads / lanes), blocks_for(vectors, lanes, 65535));
  }
};
/// The row of this thread, and its first vector and the distance to its next.
__device__ inline std::int64_t grid_row() {
  return std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
}
__device__ inline std::int64_t grid_vector() {
  return std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_stride() { return std::int64_t{gridDim.y} * blockDim.x; }

/// Calls body(v, i) for the vectors that this thread may hold in registers: its v-th vector begins
/// at element i < n. All loops over v are unrolled, so that arrays over v are registers.
template <typename T, int kTeam, int kElements = kHeldElements, typename Body>
__device__ inline void for_held_vectors(int rank, int n, const Body& body) {
#pragma unroll
  for (int v = 0; v < kElements / kVector<T>; ++v) {
    const int i = (v * kTeam + rank) * kVector<T>;
    if (i < n) body(v, i);
  }
}
/// Calls body(i) for every vector of this thread, in a row of any length.
template <typename T, int kTeam, typename Body>
__device__ inline void for_vectors(int rank, std::int64_t n, const Body& body) {
  for (std::int64_t i = std::int64_t{rank} * kVector<T>; i < n; i += kTeam * kVector<T>) body(i);
}

/// The sum of e^(x - around) over a part of a row that is read once, where `around` is the part's
/// largest element. The lowest finite number stands for "none": elements may be -infinity
/// themselves. A NaN or +infinity makes the sum NaN.
struct ExpSum {
  float around = -3.402823466e38f;
  float sum = 0.0f;

  template <int kCount>
  __device__ void add(const float (&x)[kCount]) {
    float largest = x[0];
#pragma unroll
    for (int j = 1; j < kCount; ++j) largest = fmaxf(largest, x[j]);
    if (largest > around) {
      sum *= expf(around - largest);
      around = largest;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += expf(x[j] - around);
  }

  /// Adds another part's sum.
  __device__ void add(const ExpSum& other) {
    const float largest = fmaxf(around, other.around);
    sum = fmaf(sum, expf(around - largest), __fmul_rn(other.sum, expf(other.around - largest)));
    around = largest;
  }

  /// Makes it the sum of the whole team's parts, in all threads. `shared` is as for team_sum.
  template <int kTeam>
  __device__ void join(float* shared) {
    const float largest = team_max<kTeam>(around, shared);
    sum = team_sum<kTeam>(sum * expf(around - largest), shared);
    around = largest;
  }
};

}  // namespace volta::cuda
