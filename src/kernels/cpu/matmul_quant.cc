// The matrix product with a b of small integers (tensor/encoding.h). Rows of a are rounded to int8,
// in blocks of 32 along K with a scale each (so that one large element spoils few others); then
//   c = sum over b's blocks of b's scale * sum over a's blocks in it of a's scale * sum of qa qb
// (with 4 bits, over blocks of 32 in both), the innermost sum in integers, exact, the others in
// f32, in order: an element's bits depend neither on the tile nor on the instructions that computed
// it. Four bytes of a meet four of b per lane: one VNNI instruction where there is one, a few
// otherwise.
//
// b's bytes are q + 128 (q + 8 with 4 bits), as the instruction wants one operand unsigned: each
// inner sum begins at -128 (-8) times the sum of a's block.
//
// Bound by the memory for few rows (b is read once, as it lies), by the integer units for many.
#include "kernels/cpu/matmul_quant.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_quant.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_quant_tile-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
namespace volta::cpu {

/// A product, with a as integers.
struct QuantWork {
  const MatMul& op;
  const MatMulProblem& problem;
  const MatMulOperands& operands;
  QuantRows a;
  bool vnni;
};

}  // namespace volta::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// One row of K elements to blocks of int8.
template <typename T>
void quantize_row(const T* HWY_RESTRICT x, std::int64_t k, std::int32_t offset,
                  const QuantRows& to) {
  const F32 d;
  const I32 di;
  const hn::Rebind<std::int8_t, F32> d8;
  const std::int64_t width = lanes(d);
  constexpr float kTiny = 0x1p-100f;  // Below it 127 / x is near infinity; it counts as zero.
  for (std::int64_t block = 0; block < to.blocks; ++block) {
    const std::int64_t count = k - block * kRowBlock;
    alignas(64) float values[kRowBlock];
    V32 largest = hn::Zero(d), zeros = hn::Zero(d);
    for (std::int64_t i = 0; i < kRowBlock; i += width) {
      const std::int64_t n = std::clamp<std::int64_t>(count - i, 0, width);
      const T* from = x + block * kRowBlock + i;
      const V32 v = n == width ? load(d, from) : n > 0 ? load_n(d, from, n) : hn::Zero(d);
      hn::Store(v, d, values + i);
      largest = hn::Max(hn::Abs(v), largest);
      zeros = hn::MulAdd(v, hn::Zero(d), zeros);
    }
    const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
    const float zero = hn::GetLane(hn::SumOfLanes(d, zeros));
    if (!(zero == 0.0f)) {
      // NaN and infinity are no numbers to round: they go into the scale, and so into the result.
      std::fill_n(to.q + block * kRowBlock, kRowBlock, std::int8_t{0});
      to.scale[block] = zero;
      to.correction[block] = 0;
      continue;
    }
    const V32 inverse = hn::Set(d, top > kTiny ? 127.0f / top : 0.0f);
    VI sum = hn::Zero(di);
    for (std::int64_t i = 0; i < kRowBlock; i += width) {
      const VI rounded = hn::NearestInt(hn::Mul(hn::Load(d, values + i), inverse));
      sum = hn::Add(sum, rounded);
      hn::StoreU(hn::DemoteTo(d8, rounded), d8, to.q + block * kRowBlock + i);
    }
    to.scale[block] = top / 127.0f;
    to.correction[block] = -offset * hn::GetLane(hn::SumOfLanes(di, sum));
  }
}

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

/// One tile of rows against panels [begin, end), as many at a time as the registers allow.
void multiply_rows(const QuantWork& w, std::int64_t row, std::int64_t rows, std::int64_t begin,
                   std::int64_t end) {
  const MatMulProblem& p = w.problem;
  const Encoding& e = p.b_encoding;
  const auto& kernels = quant_tiles(e.quant, w.vnni)[static_cast<std::size_t>(rows)];
  const bool finish = w.operands.bias != nullptr || w.operands.residual != nullptr ||
                      w.op.activation != Activation::kNone;
  QuantTile t{};
  t.a = w.a.from(row);
  t.panel_stride = e.blocks(p.k) * e.width * e.block_bytes();
  t.row_blocks = e.block / kRowBlock;
  t.c_row = p.n;
  for (std::int64_t panel = begin; panel < end;) {
    std::int64_t taken = std::min<std::int64_t>(kQuantPanels, end - panel);
    while (kernels[static_cast<std::size_t>(taken)] == nullptr) --taken;
    const std::int64_t column = panel * e.width;
    t.b = static_cast<const std::uint8_t*>(w.operands.b) + panel * t.panel_stride;
    t.c = w.operands.c + row * p.n + column;
    t.columns = std::min<std::int64_t>(taken * e.width, p.n - column);
    kernels[static_cast<std::size_t>(taken)](t);
    for (std::int64_t i = 0; finish && i < rows; ++i) finish_columns(w, row + i, column, t.columns);
    panel += taken;
  }
}

}  // namespace

/// Rows [begin, end) of a as integers.
void quantize_rows(const QuantWork& w, std::int64_t begin, std::int64_t end) {
  const std::int64_t k = w.problem.k;
  const std::int32_t offset = w.problem.b_encoding.quant == Quant::kInt4 ? 8 : 128;
  visit_float(w.problem.a_type, [&](auto element) HWY_ATTR {
    const auto* a = static_cast<const decltype(element)*>(w.operands.a);
    for (std::int64_t i = begin; i < end; ++i) quantize_row(a + i * k, k, offset, w.a.from(i));
  });
}

/// All rows by panels [begin, end).
void multiply_panels(const QuantWork& w, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSliceBytes = 256 * 1024;  // Stays in L2 while the rows pass by.
  const MatMulProblem& p = w.problem;
  const Encoding& e = p.b_encoding;
  const std::int64_t panel_bytes = e.blocks(p.k) * e.width * e.block_bytes();
  const std::int64_t slice = p.m <= kQuantRows
                                 ? end - begin
                                 : std::max<std::int64_t>(kQuantPanels, kSliceBytes / panel_bytes);
  for (std::int64_t first = begin; first < end; first += slice) {
    const std::int64_t last = std::min(end, first + slice);
    const std::int64_t tiles = ceil_div(p.m, kQuantRows);
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t row = part_begin(p.m, tiles, i);
      multiply_rows(w, row, part_begin(p.m, tiles, i + 1) - row, first, last);
    }
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

constexpr std::int64_t round_to_line(std::int64_t bytes) { return ceil_div(bytes, 64) * 64; }

/// Blocks of 32 along K, filled up to whole blocks of b.
std::int64_t row_blocks(const MatMulProblem& p) {
  return p.b_encoding.blocks(p.k) * (p.b_encoding.block / kRowBlock);
}

}  // namespace

bool vnni_available() {
  static const bool available = __builtin_cpu_supports("avx512vnni") != 0;
  return available;
}

std::int64_t matmul_quant_workspace(const MatMulProblem& p) {
  const std::int64_t blocks = p.m * row_blocks(p);
  return round_to_line(blocks * kRowBlock) + 2 * round_to_line(blocks * 4);
}

void matmul_quant(const MatMul& op, const MatMulProblem& p, const MatMulOperands& operands,
                  const Context& context, bool vnni, std::byte* workspace) {
  const std::int64_t blocks = row_blocks(p);
  // SAFETY: three arrays behind each other in the workspace, whose size is their sum; each begins
  // at a cache line.
  std::byte* scales = workspace + round_to_line(p.m * blocks * kRowBlock);
  std::byte* corrections = scales + round_to_line(p.m * blocks * 4);
  const QuantRows rows{reinterpret_cast<std::int8_t*>(workspace), reinterpret_cast<float*>(scales),
                       reinterpret_cast<std::int32_t*>(corrections), blocks};
  const QuantWork work{op, p, operands, rows, vnni};
  split_rows(context, p.m, p.k, [&](std::int64_t begin, std::int64_t end) {
    VOLTA_SIMD_CALL(context.simd, quantize_rows, work, begin, end);
  });
  const std::int64_t panels = ceil_div(p.n, p.b_encoding.width);
  split_rows(context, panels, ceil_div(p.m, 4) * p.k * p.b_encoding.width / 4,
             [&](std::int64_t begin, std::int64_t end) {
               VOLTA_SIMD_CALL(context.simd, multiply_panels, work, begin, end);
             });
}

}  // namespace volta::cpu
#endif
