// What may be chosen in a matrix product of floats without a change in any bit of its result: block
// sizes and the shape of a tile; and the table of choices that a device was given. Plain data: who
// finds better choices and keeps them is src/tuner/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {
namespace cpu {

/// A tile of c that stays in registers over a K block: rows by columns.
struct TileShape {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  bool operator==(const TileShape&) const = default;
};

/// How a tile prefetches b.
enum class Prefetch : std::uint8_t {
  kAhead,      ///< What it reads `prefetch_bytes` later.
  kNextBlock,  ///< All of the next K block, in memory order. Only of a row-major b read in place.
};
/// "ahead", "next_block".
const char* prefetch_name(Prefetch prefetch);

/// How a product is cut. Sizes are upper limits: a smaller product has smaller blocks, and blocks
/// of K and M are evened out.
struct MatMulParameters {
  std::int32_t k_block = 0;  ///< Steps of K that a tile stays in registers for; times 8.
  std::int32_t m_block = 0;  ///< Rows of a that pass by a slice of b before the next slice.
  std::int32_t n_block = 0;  ///< Columns of b in a slice, in whole panels.
  TileShape tile = {};       ///< One of tile_shapes(). Fewer rows get the same columns.
  Prefetch prefetch = Prefetch::kAhead;
  std::int32_t prefetch_bytes = 0;  ///< Distance of kAhead; 0 for no prefetching. Else 0.
  bool operator==(const MatMulParameters&) const = default;
};

/// The vectors side by side in the widest tile.
inline constexpr int kMostVectors = 16;
/// The rows of the tallest one.
inline constexpr int kMostRows = 16;

/// Whether there is a kernel of `rows` rows by `vectors` vectors of c: where their sums, the
/// vectors of b and an element of a fit the registers (32 of AVX-512, otherwise 16). Tiles one
/// vector wide come taller than that: on AVX2 they are the 4x8, 8x8, 12x8 and 16x8 of the field.
constexpr bool has_tile(Simd simd, int rows, int vectors) {
  if (rows < 1 || rows > kMostRows) return false;
  if (vectors == 1) return simd != Simd::kSse4 || rows <= 8;
  if (vectors == 2) return rows <= (simd == Simd::kAvx512 ? 14 : simd == Simd::kAvx2 ? 6 : 4);
  if (vectors != 4 && vectors != 8 && vectors != 16) return false;
  const int registers = simd == Simd::kAvx512 ? 32 : 16;
  // With one row b is an operand from memory and needs no register.
  const int others = rows == 1 ? 2 : vectors + 1;
  return rows * vectors + others <= registers && rows * vectors <= registers - 4;
}

/// The tiles of has_tile() in columns.
std::span<const TileShape> tile_shapes(Simd simd);

/// Whether a kernel can run with them: a tile it has, blocks of 8 steps and whole panels, nothing
/// absurd. Parameters from a file are checked with it.
bool valid_parameters(const MatMulParameters& parameters, Simd simd);

/// The products that share one choice. `rows` counts in classes (row_class); n and k count exactly
/// where such a shape was tuned, and otherwise by the power of two that they reach.
struct MatMulShape {
  DType a_type = DType::kF32;
  DType b_type = DType::kF32;
  bool packed = true;        ///< b comes in panels (a prepared weight), not row by row.
  bool transpose_a = false;  ///< a lies as a[k, m]: a weight's gradient.
  bool transpose_b = false;  ///< A b row by row lies as b[n, k]; panels lie alike either way.
  std::int32_t threads = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool operator==(const MatMulShape&) const = default;
};

/// What an untuned product uses: constants of the instruction set, alike on every CPU; for few rows
/// and for many, for a b in panels, or row by row and small or large.
MatMulParameters default_parameters(Simd simd, const MatMulShape& shape);
/// The same where K is long, N is wide, and all that is known of b is whether it comes in panels
/// (`packed`) or is copied into some on the way.
MatMulParameters default_parameters(Simd simd, std::int64_t m, bool packed = true);

/// The largest m that is treated like this one: 1, 2, 4, 8, 16, 32, 64, 128, 512 or the largest
/// number there is.
std::int64_t row_class(std::int64_t m);

/// Choices for one instruction set. Filled before a device is made and never changed afterwards.
class MatMulTuning {
 public:
  /// Adds a choice, or replaces that of the same shape. None: the default was kept, and so every
  /// shape that this one stands for keeps its own.
  void set(const MatMulShape& shape, const std::optional<MatMulParameters>& parameters);
  /// The choice for this product: of the same n and k, or the nearest shape of the same class;
  /// nothing where none was tuned or the default was kept. Batched products are not tuned.
  std::optional<MatMulParameters> find(const MatMulShape& shape) const;
  std::size_t size() const { return entries_.size(); }
  /// Whether every choice is one that the kernels of `simd` can run with.
  bool valid(Simd simd) const;

 private:
  struct Entry {
    MatMulShape shape;
    std::optional<MatMulParameters> parameters;
  };
  std::vector<Entry> entries_;  ///< Sorted by class, then by shape.
};

}  // namespace cpu
}  // namespace volta
