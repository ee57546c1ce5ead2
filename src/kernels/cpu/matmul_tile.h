// A tile of c and the kernels that compute one. Each file matmul_tiles_<what>.cc has the kernels
// for one kind of operands and every instruction set. The loops around them are in matmul_loops.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_parameters.h"

namespace volta::cpu {

class TileConfiguration;

/// One tile: rows of a times panels of b over one K block.
struct Tile {
  const void* a;       ///< Row i, step k at a[i * a_row + k]; packed: at a[k * rows + i].
  std::int64_t a_row;  ///< Unused when a is packed.
  const void* b;       ///< Panel p, group g of steps at b[p * panel_stride + g * b_step].
  std::int64_t b_step;
  std::int64_t panel_stride;
  std::int64_t prefetch;       ///< Elements from what is read of b to what is prefetched; may be 0.
  std::int64_t prefetch_step;  ///< How far the prefetched address moves per step; only for
                               ///< rows_tiles().
  std::int64_t k;              ///< Steps: of K, or pairs of them for bf16_dot_tiles() and
                               ///< amx_tiles().
  float* c;
  std::int64_t c_row;
  std::int64_t columns;  ///< Valid columns of c. b's vectors are readable beyond them.
  bool accumulate;       ///< Continue from c (later K blocks) instead of from zero.
  // Only for amx_tiles():
  std::int64_t rows;
  TileConfiguration* registers;  ///< How the tile registers are configured.
  const float* next_c;           ///< The first row of the tile that follows, or null.
};
using TileFunction = void (*)(const Tile&);

/// Kernels by rows, then by tile_column() of the vectors side by side; null if has_tile() is false.
constexpr std::size_t tile_column(std::int64_t vectors) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(vectors)) - 1);
}
using TileRow = std::array<TileFunction, 5>;
/// The most rows of a tile of amx_tiles().
inline constexpr int kMostAmxRows = 32;
/// The steps of K that they multiply at a time. K blocks are multiples of it.
inline constexpr std::int64_t kAmxSteps = 32;
using TileTable = std::array<TileRow, kMostAmxRows + 1>;
static_assert(tile_column(kMostVectors) == 4);

const TileTable& f32_tiles(Simd simd);
/// For a row-major f32 b[K, N] that is read in place, with panels side by side.
const TileTable& rows_tiles(Simd simd);
/// With AVX-512, tiles of rows_tiles() with at most this many rows leave prefetching to the
/// hardware.
inline constexpr int kHardwarePrefetchRows = 4;
/// For a transposed a, whose tiles are packed; at most a panel wide.
const TileTable& packed_a_tiles(Simd simd);
const TileTable& f16_tiles(Simd simd);
/// For b in pairs of bf16 and a in f32.
const TileTable& bf16_tiles(Simd simd);
/// For a and b in pairs of bf16, with the processor's own dot product.
const TileTable& bf16_dot_tiles();
/// The same for a transposed a, whose tiles are packed; at most a panel wide.
const TileTable& bf16_dot_packed_a_tiles();
/// For a and b in pairs of bf16, with AMX. They have up to kMostAmxRows rows; with more than 16
/// rows they are at most a panel wide. Tiles of at most kFewAmxRows rows are those
/// of amx_few_rows_tiles(). If a is transposed, it is packed row by row.
const TileTable& amx_tiles();
/// Tiles of few rows with the bits of AMX, but without it: they read b faster from memory.
const TileTable& amx_few_rows_tiles();
inline constexpr int kFewAmxRows = 2;

}  // namespace volta::cpu
