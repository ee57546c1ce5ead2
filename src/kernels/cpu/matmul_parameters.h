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

namespace volta::cpu {

/// A tile of c that stays in registers over a K block: rows by columns.
struct TileShape {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  bool operator==(const TileShape&) const = default;
};

/// How a product is cut. Sizes are upper limits: a smaller product has smaller blocks, and blocks
/// are evened out.
struct MatMulParameters {
  std::int32_t k_block = 0;         ///< Steps of K that a tile stays in registers for; times 8.
  std::int32_t m_block = 0;         ///< Rows of a that pass by a slice of b before the next slice.
  std::int32_t n_block = 0;         ///< Columns of b in a slice.
  TileShape tile = {};              ///< One of tile_shapes().
  std::int32_t prefetch_bytes = 0;  ///< How far ahead a tile asks for b; 0: not at all.
  bool operator==(const MatMulParameters&) const = default;
};

/// Every tile that `simd` has a kernel for, as tuning may choose them.
std::span<const TileShape> tile_shapes(Simd simd);

/// What an untuned product of `m` rows uses: one constant set per instruction set, alike on every
/// CPU, with the widest tile that few rows leave room for.
MatMulParameters default_parameters(Simd simd, std::int64_t m);

/// Whether a kernel can run with them: a tile it has, blocks of 8 steps and whole panels, nothing
/// absurd. What comes from a file is asked first.
bool valid_parameters(const MatMulParameters& parameters, Simd simd);

/// The products that share one choice. `rows` counts in classes (row_class); n and k count exactly
/// where such a shape was tuned, and otherwise by the power of two that they reach.
struct MatMulShape {
  DType b_type = DType::kF32;
  bool packed = true;  ///< b comes in panels (a prepared weight), not row by row.
  std::int32_t threads = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool operator==(const MatMulShape&) const = default;
};

/// The largest m that is treated like this one: 1, 2, 4, 8, 16, 32, 64, 128, 512 or the largest
/// number there is.
std::int64_t row_class(std::int64_t m);

/// Choices for one instruction set. Filled before a device is made and never changed afterwards.
class MatMulTuning {
 public:
  /// Adds a choice, or replaces that of the same shape.
  void set(const MatMulShape& shape, const MatMulParameters& parameters);
  /// The choice for this product: of the same n and k, or the nearest shape of the same class;
  /// nothing where none was tuned. Batched products are not tuned.
  std::optional<MatMulParameters> find(const MatMulShape& shape) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    MatMulShape shape;
    MatMulParameters parameters;
  };
  std::vector<Entry> entries_;  ///< Sorted by class, then by shape.
};

}  // namespace volta::cpu
