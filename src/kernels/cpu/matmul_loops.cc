// The loops of the matrix product around its tiles, compiled once per instruction set: slices of b,
// K blocks, tiles of rows, panels. It knows its part of the plan, not the threads.
#include "kernels/cpu/matmul_loops.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_loops.cc"
#include "base/arithmetic.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/split.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// The kernels for the plan's operands, by rows. `in_place`: b is read in place, not from packed
/// copies.
const TileTable& tiles_for(const MatMulPlan& plan, bool in_place) {
  if (plan.multiplier == Multiplier::kAmx) return amx_tiles();
  if (plan.multiplier == Multiplier::kBf16Dot) {
    return plan.op.transpose_a ? bf16_dot_packed_a_tiles() : bf16_dot_tiles();
  }
  if (plan.op.transpose_a) return packed_a_tiles(plan.simd);
  if (in_place && plan.source == PanelSource::kInRows) return rows_tiles(plan.simd);
  if (!in_place || plan.problem.b_type == DType::kF32) return f32_tiles(plan.simd);
  if (plan.problem.b_type == DType::kF16) return f16_tiles(plan.simd);
  return bf16_tiles(plan.simd);
}

/// A half-open range.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// What a part needs while it computes a task: the product's data and the current block.
struct Work {
  const MatMulPlan& plan;
  const MatMulOperands& operands;
  float* packed_b;
  float* packed_a;
  float* sums;  ///< Of a slice, if c has 16 bits.
  std::int64_t batch = 0;
  Range k = {};  ///< The K block.
  /// The sums of c: c itself, or those of a slice. Rows are `c_row` apart and begin with row
  /// `c_first_row` and column `c_first_column` of c.
  float* c = nullptr;
  std::int64_t c_row = 0, c_first_row = 0, c_first_column = 0;
  /// The part of a that packed_a holds. With few rows and one K block, all slices of b reuse it.
  Range packed_rows = {}, packed_k = {};
  std::int64_t packed_batch = -1;
  TileConfiguration registers = {};  ///< Of AMX.

  float* c_at(std::int64_t row, std::int64_t column) const {
    return c + (row - c_first_row) * c_row + column - c_first_column;
  }
  /// Sets where the sums of a slice of panels are.
  void place_c(Range rows, Range panels) {
    if (!plan.narrow()) {
      c = operands.c + batch * plan.problem.m * plan.problem.n;
      c_row = plan.problem.n;
      return;
    }
    c = sums;
    c_row = packed_row(panels.size() * plan.layout.width);
    c_first_row = rows.begin;
    c_first_column = panels.begin * plan.layout.width;
  }

  /// Whether these rows of the K block must still be packed. Records that they are packed.
  bool packs(Range rows) {
    if (packed_batch == batch && packed_rows == rows && packed_k == k) return false;
    packed_batch = batch;
    packed_rows = rows;
    packed_k = k;
    return true;
  }
};

/// The steps of the K block as a tile counts them: pairs if both operands are bf16. K blocks
/// begin at even steps.
std::int64_t tile_steps(const Work& w) {
  return w.plan.pairs() ? ceil_div(w.k.size(), 2) : w.k.size();
}

/// Packs panels of b, over the K block.
void pack_b(const Work& w, Range panels) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t width = w.plan.layout.width;
  const std::int64_t stride = width * tile_steps(w);
  if (!p.b_encoding.plain()) {
    // SAFETY: panels of bf16 are pairs of steps, and K blocks begin at even steps.
    const auto* pairs = static_cast<const std::uint32_t*>(w.operands.b) + w.k.begin / 2 * width;
    const std::int64_t pairs_stride = p.b_encoding.padded_k(p.k) / 2 * width;
    for (std::int64_t i = panels.begin; i < panels.end; ++i) {
      widen_panel(pairs + i * pairs_stride, w.k.size(), w.packed_b + (i - panels.begin) * stride);
    }
    return;
  }
  const Range columns{panels.begin * width, std::min(p.n, panels.end * width)};
  visit_float(p.b_type, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    constexpr bool kMayPair = std::is_same_v<T, BF16>;
    const T* b = static_cast<const T*>(w.operands.b) + w.batch * p.k * p.n;
    if (!w.plan.op.transpose_b) {
      b += w.k.begin * p.n + columns.begin;
      if constexpr (kMayPair) {
        if (w.plan.pairs()) {
          pack_panels_of_pairs(b, p.n, w.k.size(), columns.size(), stride, w.packed_b);
          return;
        }
      }
      pack_panels(b, p.n, w.k.size(), columns.size(), stride, w.packed_b);
      return;
    }
    float* to = w.packed_b;
    for (std::int64_t j = columns.begin; j < columns.end; j += width, to += stride) {
      const T* from = b + j * p.k + w.k.begin;
      const std::int64_t n = std::min(width, columns.end - j);
      if constexpr (kMayPair) {
        if (w.plan.pairs()) {
          pack_panel_transposed_pairs(from, p.k, w.k.size(), n, to);
          continue;
        }
      }
      pack_panel_transposed(from, p.k, w.k.size(), n, to);
    }
  });
}

/// Points `t` at rows of an a of bf16, as pairs of steps.
void place_pairs(Work& w, Range rows, Tile& t) {
  const MatMulProblem& p = w.plan.problem;
  const auto* a = static_cast<const BF16*>(w.operands.a) + w.batch * p.m * p.k;
  t.a = w.packed_a;
  t.a_row = packed_row(t.k);
  if (w.plan.op.transpose_a) {
    if (!w.packs(rows)) return;
    a += w.k.begin * p.m + rows.begin;
    if (w.plan.multiplier == Multiplier::kAmx) {
      pack_a_transposed_rows(a, p.m, w.k.size(), rows.size(), w.packed_a, t.a_row);
    } else {
      pack_a_transposed_pairs(a, p.m, w.k.size(), rows.size(), w.packed_a);
    }
    return;
  }
  a += rows.begin * p.k + w.k.begin;
  if (w.plan.pack_a) {
    if (!w.packs(rows)) return;
    pack_a_pairs(a, p.k, w.k.size(), rows.size(), w.packed_a, t.a_row);
  } else {
    t.a = a;
    t.a_row = p.k / 2;
  }
}

/// Points `t` at rows of a over the K block, and packs them if the plan needs it.
void place_a(Work& w, Range rows, Tile& t) {
  const MatMulProblem& p = w.plan.problem;
  if (w.plan.pairs()) {
    place_pairs(w, rows, t);
    return;
  }
  visit_float(p.a_type, [&](auto element) HWY_ATTR {
    using T = decltype(element);
    const T* a = static_cast<const T*>(w.operands.a) + w.batch * p.m * p.k;
    t.a = w.packed_a;
    t.a_row = packed_row(w.k.size());
    if (w.plan.op.transpose_a) {
      if (!w.packs(rows)) return;
      a += w.k.begin * p.m + rows.begin;
      pack_a_transposed(a, p.m, w.k.size(), rows.size(), w.packed_a);
      return;
    }
    a += rows.begin * p.k + w.k.begin;
    if (w.plan.pack_a) {
      if (!w.packs(rows)) return;
      pack_a_rows(a, p.k, w.k.size(), rows.size(), w.packed_a, t.a_row);
    } else if constexpr (sizeof(T) == sizeof(float)) {
      t.a = a;
      t.a_row = p.k;
    }
  });
}

/// The epilogue on a tile of c whose sums are complete.
void finish_tile(const Work& w, Range rows, std::int64_t column, std::int64_t columns) {
  const MatMulProblem& p = w.plan.problem;
  const float* bias = w.operands.bias == nullptr ? nullptr : w.operands.bias + column;
  visit_activation(w.plan.op.activation, [&](auto function) HWY_ATTR {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t at = (w.batch * p.m + row) * p.n + column;
      const float* residual = w.operands.residual == nullptr ? nullptr : w.operands.residual + at;
      finish_row<decltype(function)>(bias, residual, columns, w.c_at(row, column));
    }
  });
}

/// Rounds the complete sums of a slice to c's 16 bits, to nearest even, while they are in a cache.
void round_slice(const Work& w, Range rows, Range panels) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t first = panels.begin * w.plan.layout.width;
  const std::int64_t columns = std::min(p.n, panels.end * w.plan.layout.width) - first;
  visit_float(p.c_type, [&](auto element) HWY_ATTR {
    const F32 d;
    const std::int64_t width = lanes(d);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const float* from = w.c_at(row, first);
      auto* to = static_cast<decltype(element)*>(w.operands.narrow_c) +
                 (w.batch * p.m + row) * p.n + first;
      std::int64_t j = 0;
      for (; j + width <= columns; j += width) store(d, load(d, from + j), to + j);
      if (j < columns) store_n(d, load_n(d, from + j, columns - j), to + j, columns - j);
    }
  });
}

/// Some consecutive panels of b over the K block, packed or in place. The fields are those of Tile,
/// in units of `unit_bytes` (an element, or a group of them).
struct Panels {
  Range range;
  const std::byte* data;
  std::int64_t step;
  std::int64_t stride;
  std::int64_t unit_bytes;
  std::int64_t prefetch;
  const std::byte* next = nullptr;  ///< The block of b to prefetch, row by row, or null.
  std::int64_t next_columns = 0;
};

/// Finds the block of b that follows: the next steps of K, or the first steps of the next slice.
void find_next_block(const Work& w, Panels& panels) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t width = w.plan.layout.width;
  const std::int64_t columns = panels.range.size() * width;
  const bool more_steps = w.k.end < p.k;
  const std::int64_t begin = (more_steps ? panels.range.begin : panels.range.end) * width;
  panels.prefetch = 0;
  panels.next_columns = std::min(columns, p.n - begin);
  if (panels.next_columns <= 0) return;
  const std::int64_t at = (w.batch * p.k + (more_steps ? w.k.end : 0)) * p.n + begin;
  panels.next = static_cast<const std::byte*>(w.operands.b) + at * std::int64_t{sizeof(float)};
}

Panels panels_in_place(const Work& w, Range range) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t width = w.plan.layout.width;
  const auto* b = static_cast<const std::byte*>(w.operands.b);
  if (w.plan.source == PanelSource::kInRows) {
    const std::int64_t first = (w.batch * p.k + w.k.begin) * p.n + range.begin * width;
    // As many steps ahead as in packed panels.
    const std::int64_t ahead = w.plan.prefetch_bytes / (width * std::int64_t{sizeof(float)}) * p.n;
    Panels panels{range, b + first * std::int64_t{sizeof(float)}, p.n, width, sizeof(float), ahead};
    if (w.plan.prefetch_next_block) find_next_block(w, panels);
    return panels;
  }
  const std::int64_t group = p.b_encoding.group;  // It divides the K block.
  const std::int64_t unit_bytes = group * dtype_size(p.b_type);
  const std::int64_t stride = p.b_encoding.padded_k(p.k) / group * width;
  const std::int64_t first = range.begin * stride + w.k.begin / group * width;
  return {
      range, b + first * unit_bytes, width, stride, unit_bytes, w.plan.prefetch_bytes / unit_bytes};
}

Panels packed_panels(const Work& w, Range range) {
  pack_b(w, range);
  // SAFETY: any object may be seen as bytes.
  return {range,
          reinterpret_cast<const std::byte*>(w.packed_b),
          w.plan.layout.width,
          w.plan.layout.width * tile_steps(w),
          sizeof(float),
          0};
}

/// The index of a tile of rows among the `count` tiles that use the same panels.
struct TileIndex {
  std::int64_t index, count;
};

/// Lets a tile of `columns` columns prefetch its share of the next block: as many cache lines as it
/// reads, contiguous in a row of b. The tiles of rows take turns.
void prefetch_share(const Work& w, const Panels& panels, TileIndex tile, std::int64_t column,
                    std::int64_t columns, Tile& t) {
  const std::int64_t place = column / columns;
  t.prefetch = 0;
  t.prefetch_step = t.b_step;
  if (panels.next == nullptr || place % tile.count != tile.index) return;
  const std::int64_t first = place * columns * t.k;
  const std::int64_t row = first / panels.next_columns;
  if (row >= t.k) return;
  const std::int64_t element = row * w.plan.problem.n + first % panels.next_columns;
  const std::byte* at = panels.next + element * panels.unit_bytes;
  t.prefetch = (at - static_cast<const std::byte*>(t.b)) / panels.unit_bytes;
  t.prefetch_step = columns;
}

/// Multiplies one tile of rows by panels, with as many vectors at a time as the plan and the
/// kernels allow.
void multiply_panels(const Work& w, Tile t, Range rows, TileIndex tile, const Panels& panels,
                     const TileRow& tiles) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t lanes = w.plan.layout.width / kPanelVectors;
  const std::int64_t first = panels.range.begin * w.plan.layout.width;
  const std::int64_t vectors =
      ceil_div(std::min(p.n, panels.range.end * w.plan.layout.width) - first, lanes);
  const bool finish =
      w.k.end == p.k && (w.operands.bias != nullptr || w.operands.residual != nullptr ||
                         w.plan.op.activation != Activation::kNone);
  t.b_step = panels.step;
  t.panel_stride = panels.stride;
  t.prefetch = panels.prefetch;
  t.prefetch_step = panels.step;
  for (std::int64_t v = 0; v < vectors;) {
    std::int64_t taken = w.plan.tile_vectors;
    while (taken > vectors - v || tiles[tile_column(taken)] == nullptr) taken /= 2;
    const std::int64_t at = v / kPanelVectors * panels.stride + v % kPanelVectors * lanes;
    t.b = panels.data + at * panels.unit_bytes;
    t.c = w.c_at(rows.begin, first + v * lanes);
    t.columns = std::min(taken * lanes, p.n - first - v * lanes);
    if (w.plan.prefetch_next_block) prefetch_share(w, panels, tile, v * lanes, taken * lanes, t);
    t.next_c = v + taken < vectors ? t.c + taken * lanes : nullptr;
    tiles[tile_column(taken)](t);
    if (finish) finish_tile(w, rows, first + v * lanes, t.columns);
    v += taken;
  }
}

/// Multiplies all rows of the task by a slice of panels, one K block after the other. `in_place`: b
/// is read in place.
void multiply_slice(Work& w, Range rows, Range range, bool in_place) {
  const MatMulProblem& p = w.plan.problem;
  const std::int64_t tiles = ceil_div(rows.size(), w.plan.tile_rows);
  const TileTable& table = tiles_for(w.plan, in_place);
  w.place_c(rows, range);
  w.k = {};
  do {  // At least once: with K = 0 c is the epilogue of zero.
    w.k = {w.k.end, std::min(p.k, w.k.end + w.plan.layout.k_block)};
    const Panels panels = in_place ? panels_in_place(w, range) : packed_panels(w, range);
    for (std::int64_t i = 0; i < tiles; ++i) {
      const Range part{rows.begin + part_begin(rows.size(), tiles, i),
                       rows.begin + part_begin(rows.size(), tiles, i + 1)};
      Tile t{};
      t.k = tile_steps(w);
      t.c_row = w.c_row;
      t.accumulate = w.k.begin > 0;
      t.rows = part.size();
      t.registers = &w.registers;
      place_a(w, part, t);
      multiply_panels(w, t, part, TileIndex{i, tiles}, panels,
                      table[static_cast<std::size_t>(part.size())]);
    }
  } while (w.k.end < p.k);
  if (w.plan.narrow()) round_slice(w, rows, range);
}

void multiply_task(Work& w, Range rows, Range panels) {
  const bool in_place = w.plan.source != PanelSource::kPack;
  // In a plain b the last panel may not be full, but a tile reads whole panels.
  const std::int64_t whole = w.plan.problem.n / w.plan.layout.width;
  const Range inner{panels.begin, w.plan.source == PanelSource::kInRows
                                      ? std::min(panels.end, whole)
                                      : panels.end};
  // A b that would be packed again for every block of rows gets one block of all rows.
  const std::int64_t blocks = in_place ? ceil_div(rows.size(), w.plan.m_block) : 1;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const Range block{rows.begin + part_begin(rows.size(), blocks, i),
                      rows.begin + part_begin(rows.size(), blocks, i + 1)};
    for (std::int64_t begin = inner.begin; begin < inner.end; begin += w.plan.slice_panels) {
      multiply_slice(w, block, {begin, std::min(inner.end, begin + w.plan.slice_panels)}, in_place);
    }
  }
  if (panels.end > inner.end) multiply_slice(w, rows, {whole, panels.end}, false);
}

}  // namespace

void multiply_part(const MatMulPlan& plan, const MatMulOperands& operands, std::int64_t part,
                   float* region) {
  float* const packed_a = region + plan.packed_b_floats;
  Work w{plan, operands, region, packed_a, packed_a + plan.packed_a_floats};
  const std::int64_t last = part_begin(plan.tasks(), plan.parts, part + 1);
  for (std::int64_t task = part_begin(plan.tasks(), plan.parts, part); task < last; ++task) {
    const std::int64_t n_part = task % plan.n_parts;
    const std::int64_t m_part = task / plan.n_parts % plan.m_parts;
    w.batch = task / plan.n_parts / plan.m_parts;
    multiply_task(w,
                  {part_begin(plan.problem.m, plan.m_parts, m_part),
                   part_begin(plan.problem.m, plan.m_parts, m_part + 1)},
                  {part_begin(plan.panels(), plan.n_parts, n_part),
                   part_begin(plan.panels(), plan.n_parts, n_part + 1)});
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void matmul_part(Simd simd, const MatMulPlan& plan, const MatMulOperands& operands,
                 std::int64_t part, float* region) {
  VOLTA_SIMD_CALL(simd, multiply_part, plan, operands, part, region);
}

}  // namespace volta::cpu
#endif
