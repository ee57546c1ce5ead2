// Products of tiles in shared memory with f32 multiply-adds, for the plain attention kernels: any
// float type, which is read at run time and converted on load, and any head_dim. Bound by flops.
//
// A block of 16 x 16 threads works on a tile of 64 x 64 scores. Thread (y, x) holds rows 4y to
// 4y + 3 and columns 4x to 4x + 3 of it, and of an output the same rows and columns 4x to 4x + 3 of
// every 64. So a thread block needs 34 KiB of shared memory whatever head_dim is.
#pragma once

#include "kernels/cuda/attention.cuh"

namespace volta::cuda::attention::plain {

inline constexpr int kTile = 64;      ///< Rows of either side of a tile of scores.
inline constexpr int kThreads = 256;  ///< 16 x 16.
inline constexpr int kDepth = 32;     ///< Summands that are staged at once.
/// Floats from a staged row to the next: rows of 64 with a shift that spreads them over the banks.
inline constexpr int kPitch = kTile + 4;
static_assert(kKeyBlock == kTile);

/// The shared memory of a thread block. `weights` is [kTile, kPitch].
struct Shared {
  alignas(16) float staged[2 * kDepth * kPitch];
  alignas(16) float weights[kTile * kPitch];
};

/// The rows of one head, from one row on; rows from `count` on are read as zeros.
struct Rows {
  const void* data;
  DType dtype;
  bool fours;  ///< Whether elements can be loaded four at a time.
  std::int64_t index, stride;
  int count;
  std::int64_t dim;

  __device__ Rows(const HeadRows& rows, DType its_dtype, bool its_fours, std::int64_t batch, int t,
                  int head)
      : data(rows.data),
        dtype(its_dtype),
        fours(its_fours),
        index(rows.index(batch, t, head)),
        stride(rows.stride),
        count(static_cast<int>(min(rows.time - t, std::int64_t{kTile}))),
        dim(rows.dim) {}

  /// Elements d to d + 3 of row r; zeros where there are none.
  __device__ float4 four(int r, std::int64_t d) const {
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (r >= count || d >= dim) return x;
    const std::int64_t at = index + r * stride + d;
    if (fours) {
      if (dtype == DType::kF32) return *reinterpret_cast<const float4*>(as<float>() + at);
      if (dtype == DType::kBF16) return widen<bf16>(at);
      return widen<f16>(at);
    }
    x.x = load_element(data, dtype, at);
    if (d + 1 < dim) x.y = load_element(data, dtype, at + 1);
    if (d + 2 < dim) x.z = load_element(data, dtype, at + 2);
    if (d + 3 < dim) x.w = load_element(data, dtype, at + 3);
    return x;
  }

 private:
  template <typename T>
  __device__ const T* as() const {
    return static_cast<const T*>(data);
  }
  template <typename T>
  __device__ float4 widen(std::int64_t at) const {
    // SAFETY: `fours` says that the address is a multiple of four elements.
    const auto v = *reinterpret_cast<const Vector<T, 4>*>(as<T>() + at);
    return {to_f32(v.at[0]), to_f32(v.at[1]), to_f32(v.at[2]), to_f32(v.at[3])};
  }
};

/// Stages dims [d, d + kDepth) of all rows, transposed: to[kDepth, kPitch].
__device__ inline void stage_transposed(const Rows& rows, std::int64_t d, float* to) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth / 4; i += kThreads) {
    const int row = i % kTile, at = i / kTile * 4;
    const float4 x = rows.four(row, d + at);
    to[(at + 0) * kPitch + row] = x.x;
    to[(at + 1) * kPitch + row] = x.y;
    to[(at + 2) * kPitch + row] = x.z;
    to[(at + 3) * kPitch + row] = x.w;
  }
}

/// sum[i][j] = the product of rows 4y + i of a and 4x + j of b, summed over their dims in order.
__device__ inline void multiply_rows(const Rows& a, const Rows& b, Shared& shared,
                                     float (&sum)[4][4]) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
  float* const first = shared.staged;
  float* const second = shared.staged + kDepth * kPitch;
#pragma unroll
  for (auto& row : sum) {
    for (float& each : row) each = 0.0f;
  }
  for (std::int64_t d = 0; d < a.dim; d += kDepth) {
    __syncthreads();  // All threads have read what was staged before.
    stage_transposed(a, d, first);
    stage_transposed(b, d, second);
    __syncthreads();
    const int steps = static_cast<int>(min(std::int64_t{kDepth}, a.dim - d));
#pragma unroll 8
    for (int k = 0; k < steps; ++k) {
      const float4 u = *reinterpret_cast<const float4*>(first + k * kPitch + y);
      const float4 v = *reinterpret_cast<const float4*>(second + k * kPitch + x);
      const float left[4] = {u.x, u.y, u.z, u.w}, right[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
      }
    }
  }
}

/// Writes this thread's weights to shared.weights, transposed: rows of the tile become columns.
__device__ inline void keep_weights(const float (&weights)[4][4], Shared& shared) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    *reinterpret_cast<float4*>(shared.weights + (x + j) * kPitch + y) = {
        weights[0][j], weights[1][j], weights[2][j], weights[3][j]};
  }
}

/// out[i][4 c + e] += weights (kept by all threads) of row 4y + i times dim d + 64 c + 4x + e of
/// the rows of b, summed over these rows in order. Threads may keep other weights after the next
/// barrier.
template <int kGroups>
__device__ inline void add_weighted_rows(const Rows& b, std::int64_t d, Shared& shared,
                                         float (&out)[4][4 * kGroups]) {
  constexpr int kColumns = kGroups * 64;
  static_assert(kDepth * kColumns <= 2 * kDepth * kPitch);
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
  for (int r = 0; r < b.count; r += kDepth) {
    __syncthreads();  // The weights are kept, and all threads have read what was staged before.
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kColumns / 4; i += kThreads) {
      const int row = i / (kColumns / 4), at = i % (kColumns / 4) * 4;
      *reinterpret_cast<float4*>(shared.staged + row * kColumns + at) = b.four(r + row, d + at);
    }
    __syncthreads();
    const int steps = min(kDepth, b.count - r);
#pragma unroll 4
    for (int k = 0; k < steps; ++k) {
      const float4 u = *reinterpret_cast<const float4*>(shared.weights + (r + k) * kPitch + y);
      const float left[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
      for (int c = 0; c < kGroups; ++c) {
        const float4 v =
            *reinterpret_cast<const float4*>(shared.staged + k * kColumns + c * 64 + x);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          out[i][4 * c + 0] = fmaf(left[i], v.x, out[i][4 * c + 0]);
          out[i][4 * c + 1] = fmaf(left[i], v.y, out[i][4 * c + 1]);
          out[i][4 * c + 2] = fmaf(left[i], v.z, out[i][4 * c + 2]);
          out[i][4 * c + 3] = fmaf(left[i], v.w, out[i][4 * c + 3]);
        }
      }
    }
  }
}

/// Stores row 4y + i of an output from dim d on, times factor[i].
template <int kGroups>
__device__ inline void store_rows(const HeadRows& to, DType dtype, std::int64_t batch, int t,
                                  int head, std::int64_t d, const float (&factor)[4],
                                  const float (&out)[4][4 * kGroups]) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (t + y + i >= to.time) continue;
    const std::int64_t row = to.index(batch, t + y + i, head);
#pragma unroll
    for (int n = 0; n < 4 * kGroups; ++n) {
      const std::int64_t at = d + n / 4 * 64 + x + n % 4;
      if (at < to.dim) store_element(to.data, dtype, row + at, out[i][n] * factor[i]);
    }
  }
}

/// The sum, or the largest, over the 16 threads that share rows, the same in all of them.
__device__ inline float sum_of_row(float x) {
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}
__device__ inline float max_of_row(float x) {
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

}  // namespace volta::cuda::attention::plain
