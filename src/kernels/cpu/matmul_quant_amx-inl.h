// The tiles of the product with a b of q8 with AMX: up to 32 rows of a times a panel of b.
// One instruction adds up four products of bytes in each of 16 x 16 sums, over up to 64 steps of K.
// Sums of integers are exact, and what follows in f32 has the order that matmul_quant.cc describes.
// So the results have the same bits as those of the other tiles, and the number of rows may choose.
//
// Scaling the sums takes the vector units about as long as the sums take the tile unit. Both work
// at the same time: the sums of a block are scaled while those of the next one are computed. q4 has
// a scale for every 32 steps, so that storing and scaling its sums would take longer than VNNI's
// products.
// Compiled for AVX-512 only.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_QUANT_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_QUANT_AMX_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_QUANT_AMX_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_AMX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_quant_tile-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kWidth = kPanelVectors * lanes(F32());  ///< Columns of a panel.
constexpr std::int64_t kWordBytes = 4 * kWidth;                ///< A word of each of them.
constexpr std::int64_t kVectorBytes = 4 * lanes(F32());        ///< A word of half of them.
constexpr std::int64_t kTiles = 4;                             ///< Tiles of sums.

/// What a tile computes in.
struct QuantSums {
  /// What the tiles of sums held, by turns. The vector units scale one set of sums while the next
  /// one is computed and stored, because they would wait for a store that has just begun.
  alignas(64) std::int32_t sums[2][kTiles][kTileRows][lanes(I32())];
  /// c.
  alignas(64) float total[2 * kTileRows][kWidth];
};

template <int Tiles>
HWY_INLINE void clear_tiles() {
  zero_tile<0>();
  if constexpr (Tiles > 1) zero_tile<1>();
  if constexpr (Tiles > 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
}

template <int Tiles>
HWY_INLINE void store_tiles(std::int32_t (&sums)[kTiles][kTileRows][lanes(I32())]) {
  store_tile<0>(sums[0], kVectorBytes);
  if constexpr (Tiles > 1) store_tile<1>(sums[1], kVectorBytes);
  if constexpr (Tiles > 2) {
    store_tile<2>(sums[2], kVectorBytes);
    store_tile<3>(sums[3], kVectorBytes);
  }
}

HWY_INLINE void clear_totals(const QuantTile& t, QuantSums& s) {
  for (std::int64_t i = 0; i < t.rows; ++i) std::fill_n(s.total[i], kWidth, 0.0f);
}
HWY_INLINE void write_totals(const QuantTile& t, const QuantSums& s) {
  for (std::int64_t i = 0; i < t.rows; ++i) {
    std::copy_n(s.total[i], t.columns, t.c + i * t.c_row);
  }
}

/// A tile of q8. The tiles of sums hold a block of up to 32 rows by both vectors of columns. Blocks
/// of a are blocks of b.
template <bool TwoRows>
class Int8Tile {
 public:
  explicit Int8Tile(QuantTile& t)
      : t_(t),
        scales_at_(t.b_block * kWidth),
        block_bytes_(scales_at_ + kWidth * 2),
        at_once_(t.b_block % 64 == 0 ? 64 : 32) {}

  void run() {
    t_.registers->set({.rows = TwoRows ? 2 * kTileRows : kTileRows, .steps = at_once_ / 4});
    clear_totals(t_, s_);
    for (std::int64_t block = 0; block < t_.a.blocks; ++block) {
      multiply(block);
      store_tiles<kSums>(s_.sums[block % 2]);
      if (block > 0) add(block - 1);
    }
    if (t_.a.blocks > 0) add(t_.a.blocks - 1);
    write_totals(t_, s_);
  }

 private:
  static constexpr int kSums = TwoRows ? 4 : 2;

  /// The tiles of sums = a block.
  HWY_INLINE void multiply(std::int64_t block) {
    clear_tiles<kSums>();
    const std::uint8_t* b = t_.b + block * block_bytes_;
    for (std::int64_t step = 0; step < t_.b_block; step += at_once_) {
      const std::int8_t* a = t_.a.whole.q + t_.a.at(block * t_.b_block + step);
      load_tile<6>(b, kWordBytes);
      load_tile<4>(a, QuantRows::kChunk);
      multiply_int8<0, 4, 6>();
      load_tile<7>(b + kVectorBytes, kWordBytes);
      multiply_int8<1, 4, 7>();
      if constexpr (TwoRows) {
        load_tile<5>(a + t_.a.sixteen_rows(), QuantRows::kChunk);
        multiply_int8<2, 5, 6>();
        multiply_int8<3, 5, 7>();
      }
      b += at_once_ / 4 * kWordBytes;
    }
  }

  /// total += the stored sums, which are those of `block`, scaled.
  HWY_INLINE void add(std::int64_t block) {
    const F32 d;
    const I32 di;
    const std::uint8_t* b = t_.b + block * block_bytes_;
    const IntegerRows& a = t_.a.whole;
    V32 b_scale[kPanelVectors];
    load_scales<1>(t_, b + scales_at_, b_scale);
    const std::int32_t* offset = a.offset + block;
    const float* scale = a.scale + block;
    float* total = s_.total[0];
    for (std::int64_t first = 0; first < t_.rows; first += kTileRows) {
      const std::int32_t* sum = s_.sums[block % 2][first / kTileRows * kPanelVectors][0];
      const std::int64_t rows = std::min(kTileRows, t_.rows - first);
      for (std::int64_t i = 0; i < rows; ++i) {
        const VI row_offset = hn::Set(di, *offset);
        const V32 row_scale = hn::Set(d, *scale);
        VOLTA_UNROLL
        for (int v = 0; v < kPanelVectors; ++v) {
          const VI whole = hn::Add(hn::Load(di, sum + v * kTileRows * lanes(d)), row_offset);
          const V32 scaled = hn::Mul(hn::ConvertTo(d, whole), b_scale[v]);
          float* const to = total + v * lanes(d);
          hn::Store(hn::MulAdd(scaled, row_scale, hn::Load(d, to)), d, to);
        }
        sum += lanes(d);
        offset += a.offsets;
        scale += a.scales;
        total += kWidth;
      }
    }
    t_.ahead.fetch_many(t_.b_block / 4);
    if (t_.rests) {
      add_rests<&add_row_rests<Quant::kInt8, true>>(t_, t_.rows, 1, block, b, s_.total[0]);
    }
  }

  QuantTile& t_;
  std::int64_t scales_at_, block_bytes_, at_once_;
  QuantSums s_;
};

// SAFETY of the tiles: the caller owns t.rows rows of a, and memory for whole tiles of 16 rows; a
// whole panel of b; and the valid columns of c. The system permits AMX.
void multiply_int8_panel(QuantTile& t) {
  if (t.rows > kTileRows) {
    Int8Tile<true>(t).run();
  } else {
    Int8Tile<false>(t).run();
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // VOLTA_KERNELS_CPU_MATMUL_QUANT_AMX_INL_H_
