// The defaults, the tiles that exist, and the lookup of matmul_parameters.h.
#include "kernels/cpu/matmul_parameters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/arithmetic.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/matmul_tile.h"

namespace volta::cpu {
namespace {

/// A tile reads each panel once, at 9 bytes per cycle. L3 is that fast for a core that prefetches
/// early enough (below). So slices are large, 5.6 MiB with AVX-512: c is read and written once for
/// up to 3072 steps of K, and a tile's packed rows of a are used for many columns. Slices of 480
/// KiB with K blocks of 768, which fit L2, are slower (Zen 5, 16 to 512 rows by six weights of
/// transformers, and squares, with the same prefetches: large slices are 1.02 times as fast, never
/// below 0.975). A b that is packed during the product is faster in small blocks, although c is
/// then read and written more often, in L1.
constexpr std::int32_t kKBlock = 3072, kSliceColumns = 480;
constexpr std::int32_t kPlainKBlock = 384, kPlainSliceColumns = 320;

/// A single tile of few rows reads two panels at a time over all of K. Memory delivers two long
/// streams faster than more or shorter ones, and c is written once (Zen 5, one to eight rows, b of
/// 4096 x 4096 in memory: 1.1 to 1.3 times as fast as eight panels in K blocks of 384).
constexpr std::int32_t kStreamKBlock = 1 << 13;
constexpr std::int32_t kStreamPanels = 2;

/// Rows of a and c that stay in L2 from one slice or K block to the next (2048 cubed: 1.05 times as
/// fast as all rows at once; half as many rows cost more reads of b than they save).
constexpr std::int32_t kRowBlock = 256;

/// A tile of several rows computes for so long between two reads of b that the hardware does not
/// prefetch far enough ahead. Prefetches at this distance double the speed of 8 to 32 rows on
/// weights in memory (Zen 5, 4096 x 4096, 8 rows: 58 to 115 GFLOP/s); 2 KiB gives two thirds of
/// that. Three times the distance makes full tiles of long panels faster still (1.01 times; from L3
/// 1.1 times with 16 and 32 rows, 1.2 with 8), but fewer rows slower (4 rows: 0.85).
constexpr std::int32_t kPrefetchBytes = 4096, kTilePrefetchBytes = 12288;
constexpr std::int64_t kFarRows = 8;

/// For a plain b that is read in place. Its rows are pages apart, and the hardware starts
/// prefetching again on each page. A b that fits the caches is prefetched only a few rows ahead,
/// because rows that are a multiple of 4 KiB apart share few sets of L1 and evict each other (Zen
/// 5, 768 x 3072, 16 rows: 199 GFLOP/s with 4 rows ahead, 155 with 32).
constexpr std::int32_t kNearSteps = 4, kFarSteps = 8;
/// A larger b comes from memory. Its K blocks are short enough that all of the next one can be
/// prefetched during the current one, in runs as long as a slice is wide (Zen 5, 4096 x 4096 and
/// 768 x 50257, 8 to 32 rows: 1.3 to 2.4 times as fast). From caches this is slower, because c is
/// read and written more often.
constexpr std::int64_t kCachedBytes = 16 << 20;
constexpr std::int32_t kNextBlockSteps = 32;
constexpr std::int64_t kMostNextBlockRows = 64;

/// For a packed b that is larger than that, and two tiles of rows. The second tile reads each pair
/// of panels right after the first one, from L2. With larger slices two threads would read b from
/// memory twice if their slices together exceed L3 (Zen 5, 16 rows: 1.1 to 1.5 times as fast on two
/// threads, 1.0 to 1.15 on one; with three or more tiles it is slower from 4096 steps of K on).
constexpr std::int32_t kPairKBlock = 1024;
constexpr std::int32_t kPairPanels = 2;

/// A product by AMX is fastest if a slice of b, 1 MiB, stays in L2 for all rows of a (Sapphire
/// Rapids, 1024 cubed: 1380 GFLOP/s, with K blocks of 512 1170, of 256 1040; 2048 cubed: 1070).
constexpr std::int32_t kAmxKBlock = 1024, kAmxSliceColumns = 512, kAmxRowBlock = 4096;
constexpr std::int32_t kAmxPanel = 32;

std::vector<TileShape> make_tile_shapes(Simd simd) {
  const int lanes = static_cast<int>(panel_width(simd)) / 2;
  std::vector<TileShape> shapes;
  for (int vectors = 1; vectors <= kMostVectors; vectors *= 2) {
    for (int rows = 1; rows <= kMostRows; ++rows) {
      if (has_tile(simd, rows, vectors)) shapes.push_back({rows, vectors * lanes});
    }
  }
  return shapes;
}

int octave(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, n))));
}

double octaves_apart(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

bool is_large(const MatMulShape& s) { return s.k * s.n * dtype_size(s.b_type) > kCachedBytes; }

/// What an entry has in common with the entries that may be used in its place.
auto class_of(const MatMulShape& s) {
  return std::tuple(s.a_type, s.b_type, s.packed, s.transpose_a, s.transpose_b, s.threads,
                    row_class(s.m), is_large(s), octave(s.n), octave(s.k));
}
auto order_of(const MatMulShape& s) { return std::tuple(class_of(s), s.n, s.k); }

/// Changes the parameters for several rows if a row-major b is read in place.
void read_in_rows(Simd simd, const MatMulShape& s, MatMulParameters& p) {
  const auto row_bytes = static_cast<std::int32_t>(panel_width(simd) * dtype_size(s.b_type));
  if (is_large(s) && s.m >= kFarRows && s.m <= kMostNextBlockRows) {
    p.k_block = kNextBlockSteps;
    p.n_block = kNextBlockSteps * p.tile.columns;  // A tile prefetches a row of the next block.
    p.prefetch = Prefetch::kNextBlock;
    p.prefetch_bytes = 0;
    return;
  }
  const bool aliased = s.n * dtype_size(s.b_type) % 4096 == 0;
  if (s.m <= p.tile.rows || aliased) p.k_block = kKBlock;
  p.prefetch_bytes = row_bytes * (s.m < kFarRows || aliased ? kNearSteps : kFarSteps);
}

/// Changes the parameters for a product by AMX. Its tiles have a shape of their own.
void use_tile_registers(const MatMulShape& s, MatMulParameters& p) {
  p.prefetch_bytes = 0;
  if (s.packed && s.m <= kMostAmxRows) {
    p.k_block = kStreamKBlock;
    p.n_block = 2 * kStreamPanels * kAmxPanel;
    return;
  }
  p.k_block = kAmxKBlock;
  p.m_block = kAmxRowBlock;
  p.n_block = kAmxSliceColumns;
}

/// Fits blocks of `p.n_block` columns by `p.k_block` steps to a shape. Both are at most as long as
/// its b. If blocks of K are shorter, more columns fit the same cache.
void fit_blocks(Simd simd, const MatMulShape& s, MatMulParameters& p) {
  const PanelLayout layout = panel_layout(s.k, p.k_block, simd);
  const std::int64_t elements = std::int64_t{p.n_block} * p.k_block;
  const std::int64_t panels =
      std::min(elements / (layout.k_block * layout.width), ceil_div(s.n, layout.width));
  p.n_block = static_cast<std::int32_t>(std::max<std::int64_t>(1, panels) * layout.width);
  const std::int64_t whole_k = round_up(std::max<std::int64_t>(1, s.k), 8);
  p.k_block = static_cast<std::int32_t>(std::min<std::int64_t>(p.k_block, whole_k));
}

}  // namespace

const char* prefetch_name(Prefetch prefetch) {
  return prefetch == Prefetch::kNextBlock ? "next_block" : "ahead";
}

std::span<const TileShape> tile_shapes(Simd simd) {
  static const std::array<std::vector<TileShape>, 3> shapes = {make_tile_shapes(Simd::kSse4),
                                                               make_tile_shapes(Simd::kAvx2),
                                                               make_tile_shapes(Simd::kAvx512)};
  return shapes[has_avx512(simd) ? 2 : simd == Simd::kAvx2 ? 1 : 0];
}

MatMulParameters default_parameters(Simd simd, std::int64_t m, bool packed) {
  const auto panel = static_cast<std::int32_t>(panel_width(simd));
  std::int32_t most_rows = 1;  // Of the tiles that are a panel wide.
  while (has_tile(simd, most_rows + 1, 2)) ++most_rows;
  MatMulParameters p{.k_block = packed ? kKBlock : kPlainKBlock,
                     .m_block = kRowBlock,
                     .n_block = packed ? kSliceColumns : kPlainSliceColumns,
                     .tile = {most_rows, panel},
                     .prefetch_bytes = packed ? kTilePrefetchBytes : kPrefetchBytes};
  if (m > most_rows) return p;
  if (m < kFarRows) p.prefetch_bytes = kPrefetchBytes;
  p.tile.rows = static_cast<std::int32_t>(std::max<std::int64_t>(1, m));
  if (packed) {
    p.k_block = kStreamKBlock;
    p.n_block = kStreamPanels * panel;
  }
  // Uses the widest tile of that many rows: at most two panels of a packed b.
  for (int vectors = packed ? 2 * kStreamPanels : kMostVectors; vectors > 2; vectors /= 2) {
    if (!has_tile(simd, p.tile.rows, vectors)) continue;
    p.tile.columns = vectors * panel / 2;
    break;
  }
  return p;
}

MatMulParameters default_parameters(Simd simd, const MatMulShape& s) {
  const bool in_panels = s.packed && !widens_panels(s.a_type, s.b_type, s.m, simd);
  MatMulParameters p = default_parameters(simd, s.m, in_panels);
  if (multiplier(s.a_type, s.b_type, simd) == Multiplier::kAmx) {
    use_tile_registers(s, p);
    fit_blocks(simd, s, p);
    return p;
  }
  if (in_panels && is_large(s) && s.m > p.tile.rows && s.m <= 2 * std::int64_t{p.tile.rows}) {
    p.k_block = kPairKBlock;
    p.n_block = kPairPanels * p.tile.columns;
  }
  const bool plain = !s.packed && !s.transpose_a && !s.transpose_b;
  if (plain && s.m > 1 && reads_rows_in_place(s.b_type, s.m, s.n)) read_in_rows(simd, s, p);
  fit_blocks(simd, s, p);
  return p;
}

bool valid_parameters(const MatMulParameters& p, Simd simd) {
  const auto panel = static_cast<std::int32_t>(panel_width(simd));
  constexpr std::int32_t kMost = 1 << 20;
  return p.k_block >= 8 && p.k_block <= kMost && p.k_block % 8 == 0 && p.m_block >= 1 &&
         p.m_block <= kMost && p.n_block >= panel && p.n_block <= kMost && p.n_block % panel == 0 &&
         p.prefetch_bytes >= 0 && p.prefetch_bytes <= kMost &&
         (p.prefetch == Prefetch::kAhead || p.prefetch_bytes == 0) &&
         std::ranges::find(tile_shapes(simd), p.tile) != tile_shapes(simd).end();
}

std::int64_t row_class(std::int64_t m) {
  for (const std::int64_t most : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
    if (m <= most) return most;
  }
  return std::numeric_limits<std::int64_t>::max();
}

void MatMulTuning::set(const MatMulShape& shape,
                       const std::optional<MatMulParameters>& parameters) {
  const auto less = [](const Entry& entry, const MatMulShape& s) {
    return order_of(entry.shape) < order_of(s);
  };
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), shape, less);
  if (at != entries_.end() && order_of(at->shape) == order_of(shape)) {
    *at = {shape, parameters};
  } else {
    entries_.insert(at, {shape, parameters});
  }
}

bool MatMulTuning::valid(Simd simd) const {
  return std::ranges::all_of(entries_, [&](const Entry& entry) {
    return !entry.parameters || valid_parameters(*entry.parameters, simd);
  });
}

std::optional<MatMulParameters> MatMulTuning::find(const MatMulShape& shape) const {
  const auto wanted = class_of(shape);
  const auto less = [](const Entry& entry, const auto& wanted_class) {
    return class_of(entry.shape) < wanted_class;
  };
  const Entry* best = nullptr;
  double nearest = 0;
  for (auto at = std::lower_bound(entries_.begin(), entries_.end(), wanted, less);
       at != entries_.end() && class_of(at->shape) == wanted; ++at) {
    const double distance =
        octaves_apart(at->shape.n, shape.n) + octaves_apart(at->shape.k, shape.k);
    if (best != nullptr && distance >= nearest) continue;
    best = &*at;
    nearest = distance;
  }
  return best == nullptr ? std::nullopt : best->parameters;
}

}  // namespace volta::cpu
