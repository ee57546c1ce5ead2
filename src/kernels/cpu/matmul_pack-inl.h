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

/// Copies `steps` rows of b[K, N] into panels that are `stride` apart. Step k of the first panel is
/// at to[k * panel width]; columns from `columns` on are zeros. It copies row by row across all
/// panels, because the hardware prefetches long reads best.
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

/// Steps k and k + 1 of one vector of columns as pairs of bf16, carried as floats. The first step
/// is in the low halves. If `second` is null, zeros take its place.
HWY_INLINE V32 load_pairs(const BF16* first, const BF16* second, std::int64_t n) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  // A bf16 as f32 is its bits in the high half.
  const auto high = [&](const BF16* p) HWY_ATTR {
    return hn::BitCast(du, n == lanes(d) ? load(d, p) : load_n(d, p, n));
  };
  const auto low = hn::ShiftRight<16>(high(first));
  return hn::BitCast(d, second == nullptr ? low : hn::Or(low, high(second)));
}

/// Copies `steps` steps of a panel of pairs of bf16 into a panel of f32.
inline void widen_panel(const std::uint32_t* HWY_RESTRICT pairs, std::int64_t steps,
                        float* HWY_RESTRICT to) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const auto high = hn::Set(du, 0xFFFF0000u);
  constexpr std::int64_t kWidth = kPanelVectors * lanes(F32());
  for (std::int64_t k = 0; k < steps; k += 2, pairs += kWidth, to += 2 * kWidth) {
    for (std::int64_t j = 0; j < kWidth; j += lanes(d)) {
      const auto pair = hn::LoadU(du, pairs + j);
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(pair)), d, to + j);
      if (k + 1 < steps) hn::StoreU(hn::BitCast(d, hn::And(pair, high)), d, to + kWidth + j);
    }
  }
}

/// pack_panels() for b[K, N] of bf16, as pairs of steps: pair k of the first panel at
/// to[k * panel width]; a last odd step is paired with zeros.
inline void pack_panels_of_pairs(const BF16* HWY_RESTRICT b, std::int64_t row, std::int64_t steps,
                                 std::int64_t columns, std::int64_t stride,
                                 float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  const std::int64_t panel_width = kPanelVectors * width;
  for (std::int64_t k = 0; k < steps; k += 2, b += 2 * row, to += panel_width) {
    const bool two = k + 1 < steps;
    float* panel = to;
    for (std::int64_t j = 0; j < columns; j += panel_width, panel += stride) {
      for (int v = 0; v < kPanelVectors; ++v) {
        const std::int64_t at = j + v * width;
        const std::int64_t n = std::clamp<std::int64_t>(columns - at, 0, width);
        V32 x = hn::Zero(d);
        if (n > 0) x = load_pairs(b + at, two ? b + row + at : nullptr, n);
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

/// The same for b[N, K] of bf16, as pairs of steps.
// SAFETY: pairs are moved as floats, which keeps their bits, where rows begin at whole pairs.
inline void pack_panel_transposed_pairs(const BF16* HWY_RESTRICT b, std::int64_t row,
                                        std::int64_t steps, std::int64_t columns,
                                        float* HWY_RESTRICT panel) {
  if (row % 2 == 0 && steps % 2 == 0 && reinterpret_cast<std::uintptr_t>(b) % sizeof(float) == 0) {
    pack_panel_transposed(reinterpret_cast<const float*>(b), row / 2, steps / 2, columns, panel);
    return;
  }
  const std::int64_t width = kPanelVectors * lanes(F32());
  auto* to = reinterpret_cast<BF16*>(panel);
  for (std::int64_t k = 0; k < steps + steps % 2; ++k) {
    for (std::int64_t j = 0; j < width; ++j) {
      const bool there = k < steps && j < columns;
      to[(k / 2 * width + j) * 2 + k % 2] = there ? b[j * row + k] : BF16{};
    }
  }
}

/// Packs a tile of a[K, M] (row i of the tile is column i): step k's `rows` elements are at to[k *
/// rows].
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

/// The same for a of bf16, as pairs of steps: pair k's `rows` at to[k * rows].
inline void pack_a_transposed_pairs(const BF16* HWY_RESTRICT a, std::int64_t row,
                                    std::int64_t steps, std::int64_t rows, float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t k = 0; k < steps; k += 2, a += 2 * row, to += rows) {
    for (std::int64_t i = 0; i < rows; i += width) {
      const BF16* next = k + 1 < steps ? a + row + i : nullptr;
      hn::StoreU(load_pairs(a + i, next, std::min(width, rows - i)), d, to + i);
    }
  }
}

/// Four vectors of pairs (steps k, k + 2, k + 4 and k + 6 of one vector of a's columns),
/// transposed: four pairs of row i at to[i * to_row].
HWY_INLINE void store_transposed(const V32 (&pairs)[4], float* HWY_RESTRICT to, std::int64_t to_row,
                                 std::int64_t rows) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, pairs[0], pairs[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, pairs[2], pairs[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, pairs[0], pairs[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, pairs[2], pairs[3]));
  // Block j (of four lanes) of each belongs to one of the rows 4 j to 4 j + 3.
  HWY_ALIGN float blocks[4][lanes(F32())];
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, blocks[0]);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, blocks[1]);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, blocks[2]);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, blocks[3]);
  const hn::FixedTag<float, 4> d4;
  for (std::int64_t i = 0; i < rows; ++i) {
    hn::StoreU(hn::Load(d4, blocks[i % 4] + i / 4 * 4), d4, to + i * to_row);
  }
}

/// pack_a_transposed_pairs() for tiles whose rows lie one after the other: row i at to[i * to_row].
// SAFETY: four pairs are stored at a time. packed_row() leaves room for those behind the last one.
inline void pack_a_transposed_rows(const BF16* HWY_RESTRICT a, std::int64_t row, std::int64_t steps,
                                   std::int64_t rows, float* HWY_RESTRICT to, std::int64_t to_row) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t k = 0; k < steps; k += 8, a += 8 * row, to += 4) {
    for (std::int64_t i = 0; i < rows; i += width) {
      const std::int64_t n = std::min(width, rows - i);
      V32 pairs[4];
      for (std::int64_t p = 0; p < 4; ++p) {
        const BF16* first = a + 2 * p * row + i;
        const std::int64_t left = steps - k - 2 * p;
        pairs[p] = left <= 0 ? hn::Zero(d) : load_pairs(first, left > 1 ? first + row : nullptr, n);
      }
      store_transposed(pairs, to + i * to_row, to_row, n);
    }
  }
}

/// A tile of a[M, K] of bf16 as pairs of steps: row i at to[i * to_row]; a last odd step is paired
/// with zero.
// SAFETY: `to` has room for the rows, and to_row for the steps, rounded up to an even number.
inline void pack_a_pairs(const BF16* HWY_RESTRICT a, std::int64_t row, std::int64_t steps,
                         std::int64_t rows, float* HWY_RESTRICT to, std::int64_t to_row) {
  for (std::int64_t i = 0; i < rows; ++i, a += row, to += to_row) {
    BF16* end = std::copy_n(a, steps, reinterpret_cast<BF16*>(to));
    if (steps % 2 != 0) *end = BF16{};
  }
}

/// A tile of a[M, K] in another type, as f32: row i at to[i * to_row].
template <typename T>
void pack_a_rows(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps, std::int64_t rows,
                 float* HWY_RESTRICT to, std::int64_t to_row) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t i = 0; i < rows; ++i, a += row, to += to_row) {
    std::int64_t k = 0;
    for (; k + width <= steps; k += width) store(d, load(d, a + k), to + k);
    if (k < steps) store_n(d, load_n(d, a + k, steps - k), to + k, steps - k);
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_PACK_INL_H_
