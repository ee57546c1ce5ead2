// The grid and the model behind candidates.h.
#include "tuner/candidates.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <ranges>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "base/arithmetic.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::tuner {
namespace {

constexpr std::int32_t kAll = 1 << 20;  ///< The largest block that is valid.

constexpr std::array<std::int32_t, 14> kKBlocks = {64,  96,  128,  160,  192,  256,  384,
                                                   512, 768, 1024, 1536, 2048, 4096, 8192};
constexpr std::array<std::int32_t, 7> kMBlocks = {32, 48, 64, 96, 128, 256, 512};
constexpr std::array<std::int32_t, 11> kNBlockPanels = {2, 4, 5, 8, 10, 16, 20, 32, 40, 64, 128};
constexpr std::array<std::int32_t, 5> kPrefetchBytes = {0, 2048, 4096, 8192, 12288};

/// A plain b is copied slice by slice. A slice larger than this is far larger than any core's L2.
constexpr std::int64_t kMostPackedBytes = 8 << 20;

// The limits that cut `size` in different ways, and `whole`, which does not cut it.
std::vector<std::int32_t> distinct_limits(std::int64_t size, std::int64_t unit,
                                          std::span<const std::int32_t> limits,
                                          std::int32_t whole) {
  std::vector<std::int32_t> blocks;
  std::vector<std::int64_t> seen;
  for (const std::int32_t limit : limits) {
    if (limit >= size) break;
    const std::int64_t length = cpu::even_block(size, limit, unit);
    if (std::ranges::find(seen, length) != seen.end()) continue;
    seen.push_back(length);
    blocks.push_back(limit);
  }
  blocks.push_back(whole);
  return blocks;
}

// Adds a limit, unless another one cuts in the same way.
void add_limit(std::int64_t size, std::int64_t unit, std::int32_t limit,
               std::vector<std::int32_t>& limits) {
  const auto same = [&](std::int32_t other) {
    return cpu::even_block(size, other, unit) == cpu::even_block(size, limit, unit);
  };
  if (std::ranges::none_of(limits, same)) limits.push_back(limit);
}

std::int64_t lanes(cpu::Simd simd) { return cpu::panel_width(simd) / 2; }

// The product in the form that the kernels use.
MatMul op_of(const cpu::MatMulShape& s) {
  return {.transpose_a = s.transpose_a, .transpose_b = s.transpose_b};
}
cpu::MatMulProblem problem_of(const cpu::MatMulShape& s, cpu::Simd simd) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .a_type = s.a_type,
          .b_type = s.b_type,
          .b_encoding = s.packed ? cpu::panel_encoding(s.b_type, false, simd) : Encoding{}};
}
cpu::MatMulPlan plan_of(const cpu::MatMulParameters& parameters, const cpu::MatMulShape& s,
                        cpu::Simd simd) {
  return cpu::plan_matmul(op_of(s), problem_of(s, simd), simd, s.threads, parameters);
}

// The tiles that are worth trying, the tallest first. Tiles taller than m would run like those of m
// rows.
std::vector<cpu::TileShape> sensible_tiles(const cpu::MatMulShape& shape, cpu::Simd simd) {
  std::vector<cpu::TileShape> tiles;
  std::int32_t most = 0;
  const auto usable = [&](const cpu::TileShape& tile) {
    return tile.rows <= shape.m &&
           tile.columns <= cpu::most_tile_columns(shape.transpose_a, simd) &&
           (tile.columns < 2 * shape.n || tile.columns <= lanes(simd));
  };
  for (const cpu::TileShape& tile : cpu::tile_shapes(simd)) {
    if (usable(tile)) most = std::max(most, tile.rows * tile.columns);
  }
  for (const cpu::TileShape& tile : cpu::tile_shapes(simd)) {
    if (usable(tile) && 2 * tile.rows * tile.columns >= most) tiles.push_back(tile);
  }
  std::ranges::stable_sort(tiles, std::greater(), &cpu::TileShape::rows);
  return tiles;
}

// How a tile may prefetch: a strategy and its distance.
struct PrefetchChoice {
  cpu::Prefetch strategy = cpu::Prefetch::kAhead;
  std::int32_t bytes = 0;
  bool operator==(const PrefetchChoice&) const = default;
};

// The values that the grid has of each parameter but the tile.
struct Axes {
  std::vector<std::int32_t> k_blocks, m_blocks, n_blocks;
  std::vector<PrefetchChoice> prefetches = {};
};
Axes axes_of(const cpu::MatMulShape& shape, cpu::Simd simd) {
  const auto panel = static_cast<std::int32_t>(cpu::panel_width(simd));
  std::vector<std::int32_t> n_limits;
  for (const std::int32_t panels : kNBlockPanels) n_limits.push_back(panels * panel);
  // There is an upper limit even without a cut, because larger products of the same class get what
  // was measured here.
  const auto whole = [](std::int64_t size, std::int64_t unit) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(kAll, round_up(size, unit)));
  };
  Axes axes{.k_blocks = distinct_limits(shape.k, 8, kKBlocks, whole(shape.k, 8)),
            .m_blocks = distinct_limits(shape.m, 1, kMBlocks, whole(shape.m, 1)),
            .n_blocks = distinct_limits(shape.n, panel, n_limits, whole(shape.n, panel))};
  const cpu::MatMulParameters usual = cpu::default_parameters(simd, shape);
  axes.prefetches.push_back({usual.prefetch, usual.prefetch_bytes});
  for (const std::int32_t bytes : kPrefetchBytes) {
    const PrefetchChoice choice = {cpu::Prefetch::kAhead, bytes};
    if (choice != axes.prefetches.front()) axes.prefetches.push_back(choice);
  }
  // If b is read in place, the default has block sizes that the grid has nowhere else.
  if (plan_of(usual, shape, simd).source == cpu::PanelSource::kInRows) {
    add_limit(shape.k, 8, usual.k_block, axes.k_blocks);
    add_limit(shape.n, panel, usual.n_block, axes.n_blocks);
  }
  return axes;
}

// A core as the model sees it, per nanosecond.
struct Core {
  double multiply_adds;  ///< Vectors.
  double loads;          ///< Vectors or broadcast elements.
  double latency;        ///< Nanoseconds of one multiply-add.
};

// At about 4 GHz: one 512-bit or two narrower multiply-adds and two loads per cycle.
Core core_of(cpu::Simd simd) {
  switch (simd) {
    case cpu::Simd::kAvx512NoVnni:
    case cpu::Simd::kAvx512:
    case cpu::Simd::kAvx512Bf16:
    case cpu::Simd::kAmx:
      return {.multiply_adds = 4, .loads = 8, .latency = 1.0};
    case cpu::Simd::kAvx2:
      return {.multiply_adds = 8, .loads = 8, .latency = 1.0};
    case cpu::Simd::kSse4:
      return {.multiply_adds = 4, .loads = 8, .latency = 1.75};  // Multiplication, then addition.
  }
  return {.multiply_adds = 4, .loads = 8, .latency = 1.0};
}

// Nanoseconds to pack one element of a.
constexpr double kPackNs = 0.05;

// Nanoseconds per byte that is read repeatedly from a block of this size.
double ns_per_byte(double block_bytes, const CacheSizes& caches) {
  const auto half = [](std::int64_t bytes, std::int64_t fallback) {
    return 0.5 * static_cast<double>(bytes > 0 ? bytes : fallback);
  };
  if (block_bytes <= half(caches.l1d, 32 << 10)) return 0.004;
  if (block_bytes <= half(caches.l2, 512 << 10)) return 0.01;
  if (block_bytes <= half(caches.l3, 8 << 20)) return 0.03;
  return 0.08;
}

}  // namespace

double expected_cost(const cpu::MatMulParameters& p, const cpu::MatMulShape& s, cpu::Simd simd,
                     const CacheSizes& caches) {
  const Core core = core_of(simd);
  const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
             k = static_cast<double>(s.k);
  const bool pairs = cpu::multiplier(s.a_type, s.b_type, simd) != cpu::Multiplier::kFma;
  const cpu::MatMulPlan plan = plan_of(p, s, simd);
  const cpu::MatMulCut cut = cpu::cut_of(plan);
  // What is packed during the product has the type that the kernels multiply.
  const double element = pairs ? 2 : 4;
  const bool copied = plan.source == cpu::PanelSource::kPack;
  const double type = copied ? element : static_cast<double>(dtype_size(s.b_type));
  const auto k_block = static_cast<double>(cut.k_block);
  const auto m_block = static_cast<double>(cut.m_block);
  const std::int64_t panels = ceil_div(ceil_div(plan.panels(), plan.n_parts), cut.slices);
  const auto n_block = static_cast<double>(panels * plan.layout.width);

  // Rows are spread evenly over the tiles. A tile that is not full of columns takes as long as a
  // full one.
  const double row_tiles = static_cast<double>(cut.row_tiles) * m / m_block;
  const auto column_tiles = static_cast<double>(ceil_div(s.n, cut.tile_columns));
  const double rows = m / row_tiles;
  const auto vectors = static_cast<double>(cut.tile_columns) / static_cast<double>(lanes(simd));
  const double step = std::max({rows * vectors / core.multiply_adds, (rows + vectors) / core.loads,
                                core.latency * (rows * vectors < 2 ? 1.0 : 0.5) * 0.5});
  const double compute = row_tiles * column_tiles * (pairs ? k / 2 : k) * step;

  // Every tile of rows reads a whole slice of b. The first tile in a block of rows reads it from
  // where all of b is, the others from the cache that the slice fits.
  const double whole = k * n * type;
  const double passes = std::max(1.0, m / m_block);
  const double b_reads =
      whole * passes * ns_per_byte(whole, caches) +
      whole * std::max(0.0, row_tiles - passes) * ns_per_byte(k_block * n_block * type, caches);
  // With prefetches that are early enough, memory and arithmetic overlap for the most part;
  // without, they overlap less.
  const bool far = ns_per_byte(whole, caches) > 0.02;
  const bool prefetches = cut.prefetch_next_block || cut.prefetch_bytes > 0;
  const bool early = cut.prefetch_next_block || cut.prefetch_bytes >= 2048;
  const double hidden = early ? 0.9 : prefetches ? 0.8 : 0.7;
  const double overlapped = std::min(compute, b_reads);
  const double b_and_compute = std::max(compute, b_reads) +
                               overlapped * (far ? 1.0 - hidden : 0.1) +
                               compute * 0.0005 * (prefetches && !far ? 1.0 : 0.0);

  // Each slice of b reads a once. If a tile cannot read a in place, a is packed again for each
  // slice. c is read and written once per block of K.
  const double slices = std::max(1.0, n / n_block);
  const double a_reads =
      m * k * slices *
      (element * ns_per_byte(m_block * k_block * element, caches) + (plan.pack_a ? kPackNs : 0.0));
  const double k_blocks = std::max(1.0, k / k_block);
  const double c_bytes = m * n * 4 * (2 * k_blocks - 1);
  const double c_moves = c_bytes * ns_per_byte(m_block * n_block * 4, caches);
  // In addition, each tile has a fixed cost in every block.
  const double entries = row_tiles * column_tiles * k_blocks * 8.0;
  return b_and_compute + a_reads + c_moves + entries;
}

std::vector<Candidate> candidates(const cpu::MatMulShape& shape, cpu::Simd simd,
                                  const CacheSizes& caches) {
  const Axes axes = axes_of(shape, simd);
  const std::vector<cpu::TileShape> tiles = sensible_tiles(shape, simd);
  std::vector<Candidate> all;
  std::set<cpu::MatMulCut> seen;  // The kernels run parameters with equal cuts alike.
  const auto add = [&](const cpu::MatMulParameters& parameters) {
    const cpu::MatMulPlan plan = plan_of(parameters, shape, simd);
    if (!seen.insert(cpu::cut_of(plan)).second) return;
    all.push_back({parameters, expected_cost(parameters, shape, simd, caches)});
  };
  // The largest sizes and the default's prefetching come first, because the first of several
  // parameters with equal cuts stands for all of them.
  for (const std::int32_t m_block : axes.m_blocks | std::views::reverse) {
    for (const cpu::TileShape& tile : tiles) {
      if (m_block < tile.rows) continue;
      for (const std::int32_t k_block : axes.k_blocks) {
        for (const std::int32_t n_block : axes.n_blocks | std::views::reverse) {
          const std::int64_t slice = std::min<std::int64_t>(n_block, shape.n) * k_block * 4;
          if (n_block < tile.columns) continue;
          const bool too_large = !shape.packed && slice > kMostPackedBytes;
          if (too_large && n_block > axes.n_blocks.front()) continue;
          for (const PrefetchChoice& prefetch : axes.prefetches) {
            add({.k_block = k_block,
                 .m_block = m_block,
                 .n_block = n_block,
                 .tile = tile,
                 .prefetch = prefetch.strategy,
                 .prefetch_bytes = prefetch.bytes});
          }
        }
      }
    }
  }
  std::ranges::sort(all, {}, [](const Candidate& c) {
    const cpu::MatMulParameters& p = c.parameters;
    return std::tuple(c.cost, p.m_block, -p.tile.rows, p.tile.columns, p.k_block, p.n_block,
                      p.prefetch, p.prefetch_bytes);
  });
  return all;
}

}  // namespace volta::tuner
