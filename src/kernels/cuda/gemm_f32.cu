// Products in f32 of matrices of any types: 16 bits are widened on the way into shared memory.
// Bound by flops.
//
// A block computes a tile of c; every thread keeps a part of it in registers. A stage of both
// operands is in shared memory while the next one is on its way from global memory to registers.
// Every element of c is one chain of fused multiply-adds over k in order, from 0, without padding:
// the bits of the CPU's product.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_output.cuh"

namespace volta::cuda {
namespace {

inline constexpr int kThreads = 256;
inline constexpr int kDepth = 16;  ///< Steps of k per stage.
inline constexpr int kGroup = 4;   ///< Elements that a thread loads at once.
/// Floats between two steps of k in shared memory, for tiles of kTile rows (or columns). The four
/// more avoid bank conflicts where an operand along k is transposed.
template <int kTile>
inline constexpr int kLine = kTile + 4;

/// Four elements at `from` as they are in memory, of which `count` exist; the others are zero.
/// aligned: the address is a multiple of their size. Groups of 16-bit elements fill two words.
// SAFETY: reads nothing but the `count` elements, and nothing at all if it is not positive.
__device__ inline uint4 load_group(const void* from, DType type, bool aligned, int count) {
  uint4 group = make_uint4(0, 0, 0, 0);
  if (count <= 0) return group;
  if (type == DType::kF32) {
    const auto* words = static_cast<const std::uint32_t*>(from);
    if (aligned && count >= kGroup) return *static_cast<const uint4*>(from);
    group.x = words[0];
    if (count > 1) group.y = words[1];
    if (count > 2) group.z = words[2];
    if (count > 3) group.w = words[3];
    return group;
  }
  if (aligned && count >= kGroup) {
    const uint2 pair = *static_cast<const uint2*>(from);
    group.x = pair.x;
    group.y = pair.y;
    return group;
  }
  const auto* halves = static_cast<const unsigned short*>(from);
  group.x = halves[0];
  if (count > 1) group.x |= static_cast<std::uint32_t>(halves[1]) << 16;
  if (count > 2) group.y = halves[2];
  if (count > 3) group.y |= static_cast<std::uint32_t>(halves[3]) << 16;
  return group;
}

__device__ inline float widen(std::uint32_t bits, bool is_bf16) {
  if (is_bf16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits & 0xffffu)));
}

/// The elements of load_group in f32.
__device__ inline float4 widen_group(const uint4& group, DType type) {
  if (type == DType::kF32) {
    return make_float4(__uint_as_float(group.x), __uint_as_float(group.y), __uint_as_float(group.z),
                       __uint_as_float(group.w));
  }
  const bool is_bf16 = type == DType::kBF16;
  return make_float4(widen(group.x, is_bf16), widen(group.x >> 16, is_bf16),
                     widen(group.y, is_bf16), widen(group.y >> 16, is_bf16));
}

/// Brings an operand's tile of kTile rows of a (columns of b) to shared memory, kDepth steps of k
/// at a time. A thread moves kGroups groups of neighbours in memory, 8 steps of k apart.
template <int kTile>
class OperandTile {
 public:
  __device__ OperandTile(const GemmOperand& operand, std::int64_t part, std::int64_t row,
                         std::int64_t rows, std::int64_t k)
      : type_(operand.type), aligned_(operand.aligned), along_k_(operand.along_k) {
    const int thread = static_cast<int>(threadIdx.x);
    if (along_k_) {
      // Neighbouring threads take two groups of one row, then the next row: whole sectors of 32
      // bytes are read, and the transposed stores of a warp go to different banks.
      row_ = thread / 2 % kTile;
      k_ = kGroup * (thread % 2 + thread / 2 / kTile * 2);
    } else {
      row_ = thread % (kTile / kGroup) * kGroup;
      k_ = thread / (kTile / kGroup);
    }
    const std::int64_t size = type_ == DType::kF32 ? 4 : 2;
    const std::int64_t line = along_k_ ? row + row_ : k + k_;
    const std::int64_t element = along_k_ ? k + k_ : row + row_;
    const std::int64_t k_stride = along_k_ ? 1 : operand.stride;
    from_ = static_cast<const unsigned char*>(operand.data) +
            (part * operand.batch_stride + line * operand.stride + element) * size;
    step_ = kGroupStep * k_stride * size;
    rows_ = rows - row_ < kTile ? static_cast<int>(rows - row_) : kTile;
    plain_ = type_ == DType::kF32 && aligned_ && rows >= kTile;
  }

  /// Loads the next steps of k, of which k_left are left in the operand, into registers.
  __device__ void load(std::int64_t k_left) {
    if (plain_ && k_left >= kDepth) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        groups_[i] = *reinterpret_cast<const uint4*>(from_ + i * step_);
      }
      from_ += kDepth / kGroupStep * step_;
      return;
    }
    const int depth = k_left < kDepth ? static_cast<int>(k_left) : kDepth;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int steps = depth - k_ - i * kGroupStep;
      const int count = along_k_ ? (rows_ > 0 ? steps : 0) : (steps > 0 ? rows_ : 0);
      groups_[i] = load_group(from_ + i * step_, type_, aligned_, count);
    }
    from_ += kDepth / kGroupStep * step_;
  }

  /// Stores them.
  __device__ void store(float (&to)[kDepth][kLine<kTile>]) const {
    float4 x[kGroups];
    if (type_ == DType::kF32) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) x[i] = widen_group(groups_[i], DType::kF32);
    } else {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) x[i] = widen_group(groups_[i], type_);
    }
    float* at = &to[k_][row_];
    constexpr int kStep = kLine<kTile>, kNext = kGroupStep * kStep;
    if (along_k_) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        at[i * kNext] = x[i].x;
        at[i * kNext + kStep] = x[i].y;
        at[i * kNext + 2 * kStep] = x[i].z;
        at[i * kNext + 3 * kStep] = x[i].w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) *reinterpret_cast<float4*>(at + i * kNext) = x[i];
    }
  }

 private:
  static constexpr int kGroups = kTile * kDepth / kGroup / kThreads;
  static constexpr int kGroupStep = 8;
  static_assert(kGroups * kGroup * kThreads == kTile * kDepth && kGroups <= 2);

  const unsigned char* from_;
  std::int64_t step_;
  uint4 groups_[kGroups];
  int row_, k_;
  int rows_;  ///< How many of the rows from the thread's first one on exist.
  DType type_;
  bool aligned_, along_k_;
  bool plain_;  ///< Whole stages are groups of f32, all of which exist.
};

template <int kTile>
struct Stages {
  float a[2][kDepth][kLine<kTile>];
  float b[2][kDepth][kLine<kTile>];
};

/// A thread's sums: kParts x kParts squares of 4 x 4, 64 rows and columns apart.
template <int kTile>
struct ThreadSums {
  static constexpr int kParts = kTile / 64;
  float at[kParts * 4][kParts * 4] = {};
};

/// Adds one step of k.
template <int kTile>
__device__ inline void multiply_step(ThreadSums<kTile>& sums, const float* a, const float* b) {
  constexpr int kParts = ThreadSums<kTile>::kParts;
  float x[kParts * 4], y[kParts * 4];
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    const float4 u = *reinterpret_cast<const float4*>(a + p * 64);
    const float4 v = *reinterpret_cast<const float4*>(b + p * 64);
    x[p * 4] = u.x, x[p * 4 + 1] = u.y, x[p * 4 + 2] = u.z, x[p * 4 + 3] = u.w;
    y[p * 4] = v.x, y[p * 4 + 1] = v.y, y[p * 4 + 2] = v.z, y[p * 4 + 3] = v.w;
  }
#pragma unroll
  for (int i = 0; i < kParts * 4; ++i) {
#pragma unroll
    for (int j = 0; j < kParts * 4; ++j) sums.at[i][j] = fmaf(x[i], y[j], sums.at[i][j]);
  }
}

/// Finishes and stores the block's sums, 64 columns at a time, through shared memory.
template <int kTile>
__device__ void write_sums(const GemmOutput& out, const ThreadSums<kTile>& sums, float* lines,
                           int x, int y, std::int64_t row, std::int64_t column, std::int64_t rows) {
  constexpr int kParts = ThreadSums<kTile>::kParts;
  constexpr int kColumns = 64, kGroupsPerLine = kColumns / kOutputColumns;
  // One copy of the code for both halves: only the stores of registers are repeated.
#pragma unroll 1
  for (int half = 0; half < kParts; ++half) {
    __syncthreads();  // The stages, or the half before, have been read.
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (p != half) continue;
#pragma unroll
      for (int i = 0; i < kParts * 4; ++i) {
        const float* sum = &sums.at[i][p * 4];
        *reinterpret_cast<float4*>(lines + (i / 4 * 64 + y * 4 + i % 4) * kColumns + x * 4) =
            make_float4(sum[0], sum[1], sum[2], sum[3]);
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kGroupsPerLine; i += kThreads) {
      const int line = i / kGroupsPerLine, group = i % kGroupsPerLine * kOutputColumns;
      if (line >= rows) break;
      write_output(out, row + line, column + half * kColumns + group,
                   *reinterpret_cast<const float4*>(lines + line * kColumns + group));
    }
  }
}

template <int kTile>
__global__ void __launch_bounds__(kThreads, 2) gemm_f32_tile(const Gemm g) {
  __shared__ __align__(16) Stages<kTile> shared;
  static_assert(sizeof(shared) >= kTile * 64 * sizeof(float));

  const GemmTile tile = gemm_tile(g, blockIdx.x, kTile, kTile);
  OperandTile<kTile> a(g.a, tile.part, tile.row, g.m - tile.row, tile.k_begin);
  OperandTile<kTile> b(g.b, tile.part, tile.column, g.n - tile.column, tile.k_begin);
  // A warp covers 4 x 8 squares: few different addresses in shared memory.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int x = lane % 8 + warp % 2 * 8, y = lane / 8 + warp / 2 * 4;

  ThreadSums<kTile> sums;
  std::int64_t left = tile.k_end - tile.k_begin;
  if (left > 0) {
    a.load(left);
    b.load(left);
    a.store(shared.a[0]);
    b.store(shared.b[0]);
  }
  __syncthreads();
#pragma unroll 1
  for (int stage = 0; left > 0; stage ^= 1, left -= kDepth) {
    const std::int64_t next = left - kDepth;
    if (next > 0) {
      a.load(next);
      b.load(next);
    }
    const float* from_a = &shared.a[stage][0][y * 4];
    const float* from_b = &shared.b[stage][0][x * 4];
    if (left >= kDepth) {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        multiply_step<kTile>(sums, from_a + k * kLine<kTile>, from_b + k * kLine<kTile>);
      }
    } else {
#pragma unroll 1
      for (int k = 0; k < left; ++k) {
        multiply_step<kTile>(sums, from_a + k * kLine<kTile>, from_b + k * kLine<kTile>);
      }
    }
    if (next > 0) {
      // The other stage was last read before the barrier of the last round.
      a.store(shared.a[stage ^ 1]);
      b.store(shared.b[stage ^ 1]);
    }
    __syncthreads();
  }
  write_sums<kTile>(g.out, sums, reinterpret_cast<float*>(&shared), x, y,
                    tile.part * g.m + tile.row, tile.column, g.m - tile.row);
}

template <int kTile>
cudaError_t launch_f32(const Gemm& g, const Context& context) {
  return launch_gemm(&gemm_f32_tile<kTile>, gemm_tiles(g, kTile, kTile), kThreads, 0, context, g);
}

}  // namespace

cudaError_t gemm_f32(const Gemm& gemm, const Context& context) {
  const std::int64_t processors = std::max(context.multiprocessors, 1);
  // Waves of blocks. A large tile costs as much as four small ones that are half as efficient: an
  // estimate.
  const std::int64_t large = ceil_div(gemm_tiles(gemm, 128, 128), processors) * 2;
  const std::int64_t small = ceil_div(gemm_tiles(gemm, 64, 64), processors);
  return large <= small ? launch_f32<128>(gemm, context) : launch_f32<64>(gemm, context);
}

}  // namespace volta::cuda
