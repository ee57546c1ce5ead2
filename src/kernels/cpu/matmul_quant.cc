// The matrix product with a b of small integers (tensor/encoding.h). Rows of a are first rounded to
// int8 (quantize_rows.cc). Then
//   c = sum over a's blocks of a's scale * sum over b's blocks in it of b's scale * sum of qa qb,
// and after each block of a, the same is added for its rests, 32 steps each. The innermost sum is
// of integers and exact; the others are in f32 and in a fixed order. So neither the size of the
// tile nor the instructions that are used change the bits of a result. In each lane, four bytes of
// a are multiplied by four bytes of b: in one VNNI instruction if there is one, otherwise in a few.
//
// b's bytes are q + 128 (q + 8 with 4 bits), because the instruction needs one unsigned operand. So
// each inner sum begins at its offset: -128 (-8) times the sum of its integers of a. Formats whose
// scales have two levels (Q4_K, Q5_K, Q6_K) have tiles of their own (matmul_k_tile-inl.h).
//
// A product with few rows is limited by memory (b is read once, in memory order), one with many
// rows by the integer units.
#include "kernels/cpu/matmul_quant.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/arithmetic.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quant_rows.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_quant.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_quant_amx-inl.h"
#include "kernels/cpu/matmul_quant_table-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
namespace volta::cpu {

/// With fewer rows, tiles of 16 rows would not be full enough.
inline constexpr std::int64_t kFewestAmxRows = 16;

/// A product, with a as integers.
struct QuantWork {
  const MatMul& op;
  const MatMulProblem& problem;
  const MatMulQuantPlan& plan;
  const MatMulOperands& operands;
};

}  // namespace volta::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// The epilogue on one row's columns whose sums are complete.
void finish_columns(const QuantWork& w, std::int64_t row, std::int64_t column,
                    std::int64_t columns) {
  const float* bias = w.operands.bias == nullptr ? nullptr : w.operands.bias + column;
  const std::int64_t at = row * w.problem.n + column;
  const float* residual = w.operands.residual == nullptr ? nullptr : w.operands.residual + at;
  visit_activation(w.op.activation, [&](auto function) HWY_ATTR {
    finish_row<decltype(function)>(bias, residual, columns, w.operands.c + at);
  });
}

/// A slice of b's panels, and the bytes of the next slice that are not prefetched yet.
struct QuantSlice {
  std::int64_t begin, end;
  const std::uint8_t* next;
  const std::uint8_t* next_end;
};

/// The most rows of a tile.
int most_rows(const QuantWork& w) {
  return w.plan.amx ? 2 * kTileRows : most_quant_rows(w.problem.b_encoding.quant, w.plan.vnni);
}

/// A tile, and the panels that it multiplies.
struct ChosenTile {
  QuantFunction function;
  std::int64_t panels;
};
/// The tile of `rows` rows by as many of `panels` panels as the registers allow.
ChosenTile choose_tile(const QuantWork& w, std::int64_t rows, std::int64_t panels) {
  const Quant quant = w.problem.b_encoding.quant;
#if HWY_TARGET == HWY_AVX3
  if (w.plan.amx) return {&multiply_int8_panel, 1};
#endif
  const auto& kernels = quant_tiles(quant, w.plan.vnni)[static_cast<std::size_t>(rows)];
  std::int64_t taken = std::min<std::int64_t>(kQuantPanels, panels);
  while (kernels[static_cast<std::size_t>(taken)] == nullptr) --taken;
  return {kernels[static_cast<std::size_t>(taken)], taken};
}

/// Multiplies one of `tiles` tiles of rows by a slice.
void multiply_rows(const QuantWork& w, std::int64_t tiles, std::int64_t row, std::int64_t rows,
                   TileConfiguration& registers, QuantSlice& slice) {
  const MatMulProblem& p = w.problem;
  const Encoding& e = p.b_encoding;
  const bool finish = w.operands.bias != nullptr || w.operands.residual != nullptr ||
                      w.op.activation != Activation::kNone;
  QuantTile t{};
  t.a = w.plan.rows.from(row);
  unsigned rests = 0;
  for (std::int64_t i = 0; i < rows * t.a.blocks; ++i) rests |= t.a.rests[i];
  t.rests = rests != 0;
  t.wide = std::any_of(t.a.wide, t.a.wide + rows, [](std::uint8_t wide) { return wide != 0; });
  t.panel_stride = e.blocks(p.k) * e.width * e.block_bytes();
  t.b_block = e.block;
  t.c_row = p.n;
  t.rows = rows;
  t.registers = &registers;
  const std::int64_t groups = t.a.blocks * t.a.block / (e.quant == Quant::kInt4 ? 8 : 4);
  for (std::int64_t panel = slice.begin; panel < slice.end;) {
    const auto [function, taken] = choose_tile(w, rows, slice.end - panel);
    const std::int64_t column = panel * e.width;
    t.b = static_cast<const std::uint8_t*>(w.operands.b) + panel * t.panel_stride;
    t.c = w.operands.c + row * p.n + column;
    t.columns = std::min<std::int64_t>(taken * e.width, p.n - column);
    const bool prefetch = slice.next < slice.next_end;
    t.ahead = prefetch ? QuantAhead{slice.next, ceil_div(taken * t.panel_stride, tiles * groups)}
                       : QuantAhead{t.b, 0};
    function(t);
    if (prefetch) slice.next = t.ahead.next;
    for (std::int64_t i = 0; finish && i < rows; ++i) finish_columns(w, row + i, column, t.columns);
    panel += taken;
  }
}

}  // namespace

/// Multiplies all rows by panels [begin, end).
void multiply_panels(const QuantWork& w, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSliceBytes = 384 * 1024;  // Stays in L2 while all rows use it.
  const MatMulProblem& p = w.problem;
  const Encoding& e = p.b_encoding;
  const std::int64_t panel_bytes = e.blocks(p.k) * e.width * e.block_bytes();
  const std::int64_t most = most_rows(w);
  const auto* b = static_cast<const std::uint8_t*>(w.operands.b);
  const std::int64_t slice =
      p.m <= most ? end - begin : std::max<std::int64_t>(kQuantPanels, kSliceBytes / panel_bytes);
  TileConfiguration registers;
  for (std::int64_t first = begin; first < end; first += slice) {
    const std::int64_t last = std::min(end, first + slice);
    const std::int64_t tiles = ceil_div(p.m, most);
    QuantSlice part{first, last, b + last * panel_bytes,
                    b + std::min(end, last + slice) * panel_bytes};
    for (std::int64_t i = 0; i < tiles; ++i) {
      // With AMX all tiles but the last are full. Otherwise they are about equally high.
      const std::int64_t row = w.plan.amx ? i * most : part_begin(p.m, tiles, i);
      const std::int64_t next =
          w.plan.amx ? std::min(p.m, row + most) : part_begin(p.m, tiles, i + 1);
      multiply_rows(w, tiles, row, next - row, registers, part);
    }
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t matmul_quant_workspace(const MatMulProblem& p) {
  return quant_rows_bytes(p.b_encoding, p.m, p.k);
}

MatMulQuantPlan plan_matmul_quant(const MatMulProblem& p, Simd simd, std::byte* workspace) {
  const bool amx =
      simd == Simd::kAmx && p.b_encoding.quant == Quant::kInt8 && p.m >= kFewestAmxRows;
  return {place_quant_rows(p.b_encoding, p.m, p.k, amx, workspace), has_vnni(simd), amx};
}

void matmul_quant(const MatMul& op, const MatMulProblem& p, const MatMulQuantPlan& plan,
                  const MatMulOperands& operands, const Context& context) {
  quantize_rows(context, p.b_encoding, p.a_type, operands.a, p.m, p.k, plan.rows);
  const QuantWork work{op, p, plan, operands};
  const std::int64_t panels = ceil_div(p.n, p.b_encoding.width);
  split_rows(context, panels, ceil_div(p.m, 4) * p.k * p.b_encoding.width / 4,
             [&](std::int64_t begin, std::int64_t end) {
               VOLTA_SIMD_CALL(context.simd, multiply_panels, work, begin, end);
             });
}

}  // namespace volta::cpu
#endif
