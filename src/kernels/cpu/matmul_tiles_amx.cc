// Tiles of pairs of bf16 on both sides, with AMX. TDPBF16PS multiplies 16 rows of a by 16 columns
// of b over 32 steps of K: in every element of c it adds up the even and the odd steps separately
// in f32, each a chain of multiply-adds from zero, and adds both sums to c. Subnormal numbers count
// as zero. (Checked against plain C++ on a Sapphire Rapids: no bit differs.) So an element depends
// on K alone, if K blocks are multiples of 32 steps and the last steps are filled up with zeros.
//
// The instruction takes 16 cycles, and 8 cycles with at most 8 rows. Loading a tile takes 8. With
// two by two tiles of c, loads of a and b hide behind the products: 1000 to 1380 GFLOP/s on one
// core, where the products alone reach 2,870 (Sapphire Rapids). With few rows, b streams through
// once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/arithmetic.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_tile.h"

namespace volta::cpu {
namespace {

constexpr std::int64_t kPairs = 16;    ///< Pairs of steps in a row of a tile.
constexpr std::int64_t kColumns = 16;  ///< Columns of b, or floats of c, in a row of a tile.

/// Sixteen pairs of some rows of a, and of a vector of columns of b, with zeros behind the last
/// pair.
struct alignas(64) LastSteps {
  std::uint32_t a[2 * kTileRows][kPairs] = {};
  std::uint32_t b[4][kPairs][kColumns] = {};
};

/// Where the operands of 16 pairs of steps are. Strides are in bytes.
struct Steps {
  const std::uint32_t* a;
  std::int64_t a_stride;
  const std::uint32_t* b[4];
  std::int64_t b_stride;
};

/// Multiplies up to 16 rows by `Vectors` vectors of columns, or up to 32 rows by one or two.
template <int Vectors, bool TwoRows>
void multiply(const Steps& s) {
  load_tile<4>(s.a, s.a_stride);
  load_tile<6>(s.b[0], s.b_stride);
  multiply_bf16<0, 4, 6>();
  if constexpr (Vectors > 1) {
    load_tile<7>(s.b[1], s.b_stride);
    multiply_bf16<1, 4, 7>();
  }
  if constexpr (TwoRows) {
    load_tile<5>(s.a + kTileRows * s.a_stride / 4, s.a_stride);
    multiply_bf16<2, 5, 6>();
    if constexpr (Vectors > 1) multiply_bf16<3, 5, 7>();
  } else if constexpr (Vectors > 2) {
    load_tile<5>(s.b[2], s.b_stride);
    multiply_bf16<2, 4, 5>();
    load_tile<6>(s.b[3], s.b_stride);
    multiply_bf16<3, 4, 6>();
  }
}

/// Calls fn.template operator()<Tile>(row, vector) for each tile of c.
template <int Vectors, bool TwoRows, class Function>
void for_each_c(const Function& fn) {
  fn.template operator()<0>(0, 0);
  if constexpr (Vectors > 1) fn.template operator()<1>(0, 1);
  if constexpr (TwoRows) {
    fn.template operator()<2>(kTileRows, 0);
    if constexpr (Vectors > 1) fn.template operator()<3>(kTileRows, 1);
  } else if constexpr (Vectors > 2) {
    fn.template operator()<2>(0, 2);
    fn.template operator()<3>(0, 3);
  }
}

/// Prefetches the next tile of c while this one is computed, because its rows are too far apart for
/// the hardware to do so.
template <int Vectors>
class NextTile {
 public:
  explicit NextTile(const Tile& t)
      : at_(t.next_c),
        end_(at_ == nullptr ? nullptr : at_ + t.rows * t.c_row),
        c_row_(t.c_row),
        rows_(ceil_div(t.rows * kPairs, std::max(kPairs, t.k))) {}

  /// The rows of one step.
  void prefetch() {
    for (std::int64_t i = 0; i < rows_ && at_ != end_; ++i, at_ += c_row_) {
      for (int v = 0; v < Vectors; ++v) {
        asm volatile("prefetchw %0" ::"m"(at_[v * kColumns]));
      }
    }
  }

 private:
  const float* at_;
  const float* end_;
  std::int64_t c_row_;
  std::int64_t rows_;
};

/// The valid rows of c's tiles, in memory of which every column may be read and written.
struct WholeTiles {
  alignas(64) float c[2 * kTileRows][4 * kColumns];
};

template <int Vectors, bool TwoRows>
void amx_tile(const Tile& t) {
  t.registers->set({.rows = t.rows, .steps = kPairs});
  float* c = t.c;
  std::int64_t c_row = t.c_row;
  WholeTiles whole;
  if (t.columns < Vectors * kColumns) {
    c = whole.c[0];
    c_row = 4 * kColumns;
    for (std::int64_t i = 0; i < t.rows && t.accumulate; ++i) {
      std::copy_n(t.c + i * t.c_row, t.columns, whole.c[i]);
    }
  }
  const std::int64_t c_stride = c_row * static_cast<std::int64_t>(sizeof(float));
  for_each_c<Vectors, TwoRows>([&]<int Tile>(std::int64_t row, std::int64_t vector) {
    if (t.accumulate) {
      load_tile<Tile>(c + row * c_row + vector * kColumns, c_stride);
    } else {
      zero_tile<Tile>();
    }
  });

  const auto* a = static_cast<const std::uint32_t*>(t.a);
  const auto* b = static_cast<const std::uint32_t*>(t.b);
  Steps s{a,
          t.a_row * 4,
          {b, b + kColumns, b + t.panel_stride, b + t.panel_stride + kColumns},
          t.b_step * 4};
  NextTile<Vectors> next(t);
  for (std::int64_t pair = 0; pair + kPairs <= t.k; pair += kPairs) {
    next.prefetch();
    multiply<Vectors, TwoRows>(s);
    s.a += kPairs;
    for (const std::uint32_t*& vector : s.b) vector += kPairs * t.b_step;
  }
  if (const std::int64_t left = t.k % kPairs; left != 0) {
    LastSteps last;
    for (std::int64_t i = 0; i < t.rows; ++i) {
      std::memcpy(last.a[i], s.a + i * t.a_row, static_cast<std::size_t>(left) * 4);
    }
    for (int v = 0; v < Vectors; ++v) {
      for (std::int64_t pair = 0; pair < left; ++pair) {
        std::memcpy(last.b[v][pair], s.b[v] + pair * t.b_step, sizeof(last.b[v][pair]));
      }
    }
    multiply<Vectors, TwoRows>({last.a[0],
                                sizeof(last.a[0]),
                                {last.b[0][0], last.b[1][0], last.b[2][0], last.b[3][0]},
                                sizeof(last.b[0][0])});
  }

  for_each_c<Vectors, TwoRows>([&]<int Tile>(std::int64_t row, std::int64_t vector) {
    store_tile<Tile>(c + row * c_row + vector * kColumns, c_stride);
  });
  if (c == t.c) return;
  for (std::int64_t i = 0; i < t.rows; ++i) {
    std::copy_n(whole.c[i], t.columns, t.c + i * t.c_row);
  }
}

TileTable make_amx_tiles() {
  TileTable table = amx_few_rows_tiles();
  for (std::size_t rows = kFewAmxRows + 1; rows <= 2 * kTileRows; ++rows) {
    const bool two = rows > kTileRows;
    table[rows][tile_column(1)] = two ? &amx_tile<1, true> : &amx_tile<1, false>;
    table[rows][tile_column(2)] = two ? &amx_tile<2, true> : &amx_tile<2, false>;
    table[rows][tile_column(4)] = two ? nullptr : &amx_tile<4, false>;
  }
  return table;
}

}  // namespace

const TileTable& amx_tiles() {
  static const TileTable table = make_amx_tiles();
  return table;
}

}  // namespace volta::cpu
