// How a matrix product is cut: panels, K blocks, slices of N, and the parts that threads take. It
// is plain arithmetic on shapes; it knows no vectors and touches no data. See matmul.cc for an
// overview.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_parameters.h"

namespace volta::cpu {

/// Columns of b are grouped into panels of `width`, and K is cut into blocks of `k_block`. Neither
/// changes the result, because an element of c is one chain of multiply-adds over k, in order.
struct PanelLayout {
  std::int64_t width = 1;
  std::int64_t k_block = 1;
};
/// A panel is as wide as this many vectors.
inline constexpr std::int64_t kPanelVectors = 2;
/// The columns of a panel.
std::int64_t panel_width(Simd simd);
/// The encoding of a weight that the kernels read: panels, with bf16 in pairs of rows, and with
/// quantised values in groups of four and in the blocks of `stored`.
Encoding panel_encoding(DType dtype, bool transposed, Simd simd, const Encoding& stored = {});
/// K cut into even blocks of at most `k_block` steps.
PanelLayout panel_layout(std::int64_t k, std::int64_t k_block, Simd simd);

/// The length of equally long blocks of at most `block` steps that `size` steps are cut into, in
/// whole units. Blocks of K and M and slices of N are cut like this.
constexpr std::int64_t even_block(std::int64_t size, std::int64_t block, std::int64_t unit = 1) {
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(size, block));
  return round_up(ceil_div(size, blocks), unit);
}

/// Whether a plain b[K, N] is read in place. With few rows of a, b is used too seldom to pay for
/// packing (768 x 3072, 16 and 32 rows: 1.15 and 1.25 times as fast in place). Rows of b that share
/// pages are as good as packed (3072 x 768, 256 rows: 1.06). A b that is not f32 is packed, because
/// packing converts it once instead of once per tile.
bool reads_rows_in_place(DType b_type, std::int64_t m, std::int64_t n);

/// The operands as c[batch][m, n] = a[batch][m, k] b[batch][k, n].
struct MatMulProblem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType a_type = DType::kF32;
  DType b_type = DType::kF32;
  Encoding b_encoding = {};
  DType c_type = DType::kF32;
};
MatMulProblem matmul_problem(const MatMul& op, const ArgShapes& shapes);

/// The columns of the widest tile. Tiles of a transposed a, which is packed, are a panel wide.
std::int64_t most_tile_columns(bool transpose_a, Simd simd);

/// The shape by which a MatMulTuning knows this product. Nothing if it is never tuned: in batches,
/// and with a b of small integers, which has other kernels.
std::optional<MatMulShape> tuned_shape(const MatMul& op, const MatMulProblem& problem, int threads);

/// The instructions that multiply.
enum class Multiplier : std::uint8_t {
  kFma,      ///< Multiply-adds in f32, into which operands of other types are converted.
  kBf16Dot,  ///< AVX512_BF16's dot product of pairs of bf16.
  kAmx,      ///< AMX's product of tiles of bf16.
};
/// What multiplies a and b of these types. It depends on nothing else, so that a row's result does
/// not depend on how many rows there are.
Multiplier multiplier(DType a_type, DType b_type, Simd simd);

/// Whether b's panels of bf16 are converted to f32 once for all rows, not once for every tile of
/// rows. With AVX-512 a tile has up to 14 rows, so that conversions are a small part of its time,
/// and converting once pays only for many rows. Measured on a Zen 4 with a model that is 768 wide,
/// the speed of converting once relative to converting in each tile: with AVX-512 0.86 for 64 rows,
/// 0.95 for 128, and 1.0 from 256 on; with AVX2 1.1, 1.2 and 1.3.
bool widens_panels(DType a_type, DType b_type, std::int64_t m, Simd simd);

/// How a task reads b's panels.
enum class PanelSource : std::uint8_t {
  kPack,     ///< Copies a slice of them into its workspace, as f32 or pairs of bf16. Panels of
             ///< bf16 become panels of f32.
  kInRows,   ///< Reads them in place, in an f32 b[K, N]: a panel's steps are N apart.
  kEncoded,  ///< Reads b's own panels.
};

/// A problem that is cut. Tasks are numbered (batch, m part, n part), the last fastest. Each of the
/// `parts` parts runs a contiguous range of tasks in its own region of the workspace.
struct MatMulPlan {
  MatMul op;
  MatMulProblem problem;
  Simd simd = Simd::kSse4;
  PanelLayout layout;
  std::int64_t tile_rows = 1;     ///< The most rows of a tile.
  std::int64_t tile_vectors = 1;  ///< The most vectors side by side of a tile.
  std::int64_t m_block = 1;       ///< Rows that use a slice of b before the next slice.
  Multiplier multiplier = Multiplier::kFma;
  PanelSource source = PanelSource::kPack;
  bool pack_a = false;  ///< Copy tiles of a: transposed, of another type, or with badly aligned
                        ///< rows.
  std::int64_t m_parts = 1;
  std::int64_t n_parts = 1;
  std::int64_t parts = 1;
  /// How far ahead a tile prefetches each panel; 0 leaves prefetching to the hardware.
  std::int64_t prefetch_bytes = 0;
  bool prefetch_next_block = false;  ///< See Prefetch::kNextBlock.
  std::int64_t slice_panels = 1;     ///< Panels of b that a task takes at a time.
  /// Workspace of one part: packed b, then a packed tile of a, then the sums of a slice of c if c
  /// has 16 bits.
  std::int64_t region_floats = 0;
  std::int64_t packed_b_floats = 0;
  std::int64_t packed_a_floats = 0;

  /// Whether the tiles take a and b in pairs of bf16, two steps of K in 32 bits.
  bool pairs() const { return multiplier != Multiplier::kFma; }
  /// Whether c has 16 bits: then the sums of a slice are in the workspace until they are complete.
  bool narrow() const { return problem.c_type != DType::kF32; }
  std::int64_t panels() const { return ceil_div(problem.n, layout.width); }
  std::int64_t tasks() const { return problem.batch * m_parts * n_parts; }
  std::int64_t workspace_floats() const { return parts * region_floats; }
};
/// Cuts a problem according to the parameters.
MatMulPlan plan_matmul(const MatMul& op, const MatMulProblem& problem, Simd simd, int threads,
                       const MatMulParameters& parameters);
/// The same with the parameters of `tuning`, which may be null, or else the default ones.
MatMulPlan plan_matmul(const MatMul& op, const MatMulProblem& problem, Simd simd, int threads,
                       const MatMulTuning* tuning = nullptr);

/// What parameters mean to the kernels: those with equal cuts run alike.
struct MatMulCut {
  std::int64_t m_parts = 1;       ///< Parts into which threads split M,
  std::int64_t n_parts = 1;       ///< and N.
  std::int64_t k_block = 1;       ///< Steps of K.
  std::int64_t m_block = 1;       ///< Rows of a that use a slice before the next.
  std::int64_t slices = 1;        ///< Of a thread's columns.
  std::int64_t row_tiles = 1;     ///< Tiles in m_block rows.
  std::int64_t tile_columns = 1;  ///< Columns of the widest tile that a product of N columns uses.
  std::int64_t prefetch_bytes = 0;
  bool prefetch_next_block = false;
  auto operator<=>(const MatMulCut&) const = default;
};
MatMulCut cut_of(const MatMulPlan& plan);

/// Floats from row to row of a packed tile of a, whose rows have `floats` floats. One more cache
/// line keeps rows from being a power of two apart (2048 cubed, Zen 5: 1.01 times as fast in f32,
/// 1.03 in bf16).
constexpr std::int64_t packed_row(std::int64_t floats) { return round_up(floats, 16) + 16; }

}  // namespace volta::cpu
