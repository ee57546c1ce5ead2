// Packing for the matrix product: columns of b into panels, rows of a into tiles. Compiled once per
// instruction set (see simd.h); knows no threads and no loops over panels or tiles.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_plan.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// Copies `steps` rows of b[K, N] into panels `stride` apart: step k of the first at
/// to[k * panel width]; zeros beyond `columns`. All panels row by row: long reads, which the
/// hardware's prefetching wants.
template <typename T>
void pack_panels(const T* HWY_RESTRICT b, std::int64_t row, std::int64_t steps,
                 std::int64_t columns, std::int64_t stride, float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  const std::int64_t panel_width = kPanelVectors * width;
  for (std::int64_t k = 0; k < steps; ++k, b += row, to += panel_width) {
    float* panel = to;
    for (std::int64_t j = 0; j < columns; j += panel_width, panel += stride) {
      for (int v = 0; v < kPanelVectors; ++v) {
        const std::int64_t at = j + v * width;
        const std::int64_t n = std::clamp<std::int64_t>(columns - at, 0, width);
        const V32 x = n == width ? load(d, b + at) : n > 0 ? load_n(d, b + at, n) : hn::Zero(d);
        hn::StoreU(x, d, panel + v * width);
      }
    }
  }
}

/// A vector whose block j (of four lanes) is p[4 * j * row .. + 4).
template <typename T>
HWY_INLINE V32 load_blocks(const T* p, std::int64_t row) {
  const hn::FixedTag<float, 4> d4;
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<float, 8> d8;
  const auto low = hn::Combine(d8, load(d4, p + 4 * row), load(d4, p));
  const auto high = hn::Combine(d8, load(d4, p + 12 * row), load(d4, p + 8 * row));
  return hn::Combine(F32(), high, low);
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(F32(), load(d4, p + 4 * row), load(d4, p));
#else
  (void)row;
  return load(d4, p);
#endif
}

/// Four steps k of one vector of columns, read from b[N, K] (rows of b are columns of the
/// product), transposed into the panel.
template <typename T>
HWY_INLINE void transpose_steps(const T* HWY_RESTRICT b, std::int64_t row,
                                float* HWY_RESTRICT panel) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const V32 r0 = load_blocks(b, row);
  const V32 r1 = load_blocks(b + row, row);
  const V32 r2 = load_blocks(b + 2 * row, row);
  const V32 r3 = load_blocks(b + 3 * row, row);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));  // r0k0 r1k0 r0k1 r1k1
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));  // k2, k3
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  const std::int64_t step = kPanelVectors * lanes(d);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, panel + step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, panel + 2 * step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, panel + 3 * step);
}

/// One panel from b[N, K]: b points at the panel's first column and the block's first step.
template <typename T>
void pack_panel_transposed(const T* HWY_RESTRICT b, std::int64_t row, std::int64_t steps,
                           std::int64_t columns, float* HWY_RESTRICT panel) {
  const std::int64_t width = lanes(F32());
  const std::int64_t step = kPanelVectors * width;
  for (int v = 0; v < kPanelVectors; ++v) {
    const T* from = b + v * width * row;
    float* to = panel + v * width;
    const std::int64_t n = std::clamp<std::int64_t>(columns - v * width, 0, width);
    std::int64_t k = 0;
    if (n == width) {
      for (; k + 4 <= steps; k += 4) transpose_steps(from + k, row, to + k * step);
    }
    for (; k < steps; ++k) {
      for (std::int64_t j = 0; j < width; ++j) {
        to[k * step + j] = j < n ? to_f32(from[j * row + k]) : 0.0f;
      }
    }
  }
}

/// A tile of a[K, M] (row i of the tile is column i): step k's `rows` elements at to[k * rows].
// SAFETY: whole vectors are stored, and what is beyond a step's elements is overwritten by the next
// step; behind the last one the region has a vector to spare (see plan_matmul). Reads are exact.
template <typename T>
void pack_a_transposed(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps,
                       std::int64_t rows, float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t k = 0; k < steps; ++k, a += row, to += rows) {
    for (std::int64_t i = 0; i < rows; i += width) {
      const std::int64_t n = std::min(width, rows - i);
      hn::StoreU(n == width ? load(d, a + i) : load_n(d, a + i, n), d, to + i);
    }
  }
}

/// A tile of a[M, K] of two-byte elements as they are: row i at element i * steps of `to`, with
/// steps rounded up to an even number and the last one filled up with zero.
template <typename T>
void pack_a_pairs(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps, std::int64_t rows,
                  void* HWY_RESTRICT to) {
  T* out = static_cast<T*>(to);
  for (std::int64_t i = 0; i < rows; ++i, a += row) {
    out = std::copy_n(a, steps, out);
    if (steps % 2 != 0) *out++ = T{};
  }
}

/// A tile of a[M, K] in another type, as f32: row i at to[i * steps].
template <typename T>
void pack_a_rows(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps, std::int64_t rows,
                 float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t i = 0; i < rows; ++i, a += row, to += steps) {
    std::int64_t k = 0;
    for (; k + width <= steps; k += width) store(d, load(d, a + k), to + k);
    if (k < steps) store_n(d, load_n(d, a + k, steps - k), to + k, steps - k);
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_
