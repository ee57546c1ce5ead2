// The parameters of a matrix product of floats that do not change any bit of its result: block
// sizes and the shape of a tile. Also the table of parameters that a device was given. This is
// plain data; src/tuner/ finds better parameters and stores them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {
namespace cpu {

/// A tile of c that stays in registers during a K block: rows by columns.
struct TileShape {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  bool operator==(const TileShape&) const = default;
};

/// How a tile prefetches b.
enum class Prefetch : std::uint8_t {
  kAhead,      ///< Data that it reads `prefetch_bytes` later.
  kNextBlock,  ///< All of the next K block, in memory order. Only for a row-major b read in place.
};
/// "ahead", "next_block".
const char* prefetch_name(Prefetch prefetch);

/// How a product is cut. Sizes are upper limits: a smaller product has smaller blocks, and the
/// blocks of a product are made about equally long.
struct MatMulParameters {
  std::int32_t k_block = 0;  ///< Steps of K that a tile stays in registers for; a multiple of 8.
  std::int32_t m_block = 0;  ///< Rows of a that use a slice of b before the next slice.
  std::int32_t n_block = 0;  ///< Columns of b in a slice, in whole panels.
  TileShape tile = {};       ///< One of tile_shapes(). A tile with fewer rows has as many columns.
  Prefetch prefetch = Prefetch::kAhead;
  std::int32_t prefetch_bytes = 0;  ///< The distance of kAhead, 0 for no prefetching; 0 with
                                    ///< kNextBlock.
  bool operator==(const MatMulParameters&) const = default;
};

/// The most vectors side by side in a tile.
inline constexpr int kMostVectors = 16;
/// The most rows of a tile.
inline constexpr int kMostRows = 16;

/// Whether there is a kernel of `rows` rows by `vectors` vectors of c. Their sums, the vectors of b
/// and an element of a must fit the registers (32 of AVX-512, otherwise 16). Tiles that are one
/// vector wide may be taller than that: on AVX2 they include the usual 4x8, 8x8, 12x8 and 16x8.
constexpr bool has_tile(Simd simd, int rows, int vectors) {
  if (rows < 1 || rows > kMostRows) return false;
  if (vectors == 1) return simd != Simd::kSse4 || rows <= 8;
  if (vectors == 2) return rows <= (has_avx512(simd) ? 14 : simd == Simd::kAvx2 ? 6 : 4);
  if (vectors != 4 && vectors != 8 && vectors != 16) return false;
  const int registers = has_avx512(simd) ? 32 : 16;
  // With one row b is an operand from memory and needs no register.
  const int others = rows == 1 ? 2 : vectors + 1;
  return rows * vectors + others <= registers && rows * vectors <= registers - 4;
}

/// The tiles of has_tile(), with columns instead of vectors.
std::span<const TileShape> tile_shapes(Simd simd);

/// Whether a kernel can run with these parameters: a tile that exists, K blocks in multiples of 8
/// steps, whole panels, no absurd sizes. Parameters from a file are checked with this.
bool valid_parameters(const MatMulParameters& parameters, Simd simd);

/// The products that share one choice. `m` counts in classes (row_class). `n` and `k` count exactly
/// if such a shape was tuned, and otherwise by the power of two that they reach.
struct MatMulShape {
  DType a_type = DType::kF32;
  DType b_type = DType::kF32;
  bool packed = true;        ///< b is in panels (a prepared weight), not plain.
  bool transpose_a = false;  ///< a is stored as a[k, m]: for a weight's gradient.
  bool transpose_b = false;  ///< A plain b is stored as b[n, k]; panels are alike either way.
  std::int32_t threads = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool operator==(const MatMulShape&) const = default;
};

/// What an untuned product uses: constants of the instruction set, the same on every CPU. They
/// differ for few and many rows, and for a b in panels and a small or large plain b.
MatMulParameters default_parameters(Simd simd, const MatMulShape& shape);
/// The same for a long K and a wide N, if all that is known of b is whether it is in panels
/// (`packed`) or is copied into panels during the product.
MatMulParameters default_parameters(Simd simd, std::int64_t m, bool packed = true);

/// The largest m that is treated like this one: 1, 2, 4, 8, 16, 32, 64, 128, 512 or the largest
/// std::int64_t.
std::int64_t row_class(std::int64_t m);

/// Choices for one instruction set. Filled before a device is made and never changed afterwards.
class MatMulTuning {
 public:
  /// Adds a choice, or replaces that of the same shape. No parameters mean that the default was
  /// kept: then every shape that this one stands for uses its own default.
  void set(const MatMulShape& shape, const std::optional<MatMulParameters>& parameters);
  /// The choice for this product: that of the same n and k, or of the nearest shape in the same
  /// class. Nothing if none was tuned or the default was kept. Batched products are not tuned.
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
