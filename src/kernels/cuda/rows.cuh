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
