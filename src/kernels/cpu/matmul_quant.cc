// The matrix product with a b of small integers (tensor/encoding.h). Rows of a are rounded to int8,
// in blocks of 32 along K with a scale each (so that one large element spoils few others); then
//   c = sum over b's blocks of b's scale * sum over a's blocks in it of a's scale * sum of qa qb
// (with 4 bits, over blocks of 32 in both), the innermost sum in integers, exact, the others in
// f32, in order: an element's bits depend neither on the tile nor on the instructions that computed
// it. Four bytes of a meet four of b per
// lane: one VNNI instruction where there is one, a few otherwise.
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
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_TYPES_
namespace volta::cpu {

/// Elements of a that share a scale.
inline constexpr std::int64_t kRowBlock = 32;

/// Some rows of a as integers; all pointers at the first of them.
struct QuantRows {
  std::int8_t* q;            ///< [rows, blocks * 32]
  float* scale;              ///< [rows, blocks]
  std::int32_t* correction;  ///< [rows, blocks]: what an inner sum begins at.
  std::int64_t blocks;

  QuantRows from(std::int64_t row) const {
    return {q + row * blocks * kRowBlock, scale + row * blocks, correction + row * blocks, blocks};
  }
};

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

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;

// ---- rounding a --------------------------------------------------------------------------------

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

// ---- the tile ----------------------------------------------------------------------------------

using D16 = hn::Repartition<std::int16_t, I32>;
using V16 = hn::Vec<D16>;

/// Products of neighbours, added: of 16 bits; and of bytes, b unsigned.
HWY_INLINE VI add_products(V16 a, V16 b) {
#if HWY_TARGET == HWY_AVX3
  return VI{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return VI{_mm_madd_epi16(a.raw, b.raw)};
#endif
}
HWY_INLINE V16 add_byte_products(VI b, VI a) {
#if HWY_TARGET == HWY_AVX3
  return V16{_mm512_maddubs_epi16(b.raw, a.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V16{_mm256_maddubs_epi16(b.raw, a.raw)};
#else
  return V16{_mm_maddubs_epi16(b.raw, a.raw)};
#endif
}

// sum += b * a, four bytes a lane: b unsigned, `a` the four signed bytes that all lanes share.

/// With VNNI by one instruction, for which Highway has no word; else even and odd bytes are widened
/// to 16 bits and multiplied apart.
// SAFETY: the machine has VNNI (vnni_available()) where the template says so.
template <bool Vnni>
HWY_INLINE VI dot(VI sum, VI b, VI a) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (Vnni) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
#endif
  const D16 d16;
  const hn::Repartition<std::uint16_t, I32> du16;
  const auto b16 = hn::BitCast(du16, b);
  const V16 a_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, a)));
  const V16 a_odd = hn::ShiftRight<8>(hn::BitCast(d16, a));
  const V16 b_even = hn::BitCast(d16, hn::And(b16, hn::Set(du16, 0x00FF)));
  const V16 b_odd = hn::BitCast(d16, hn::ShiftRight<8>(b16));
  return hn::Add(sum, hn::Add(add_products(a_even, b_even), add_products(a_odd, b_odd)));
}

/// With b of 4 bits: two products are 2 * 15 * 127 at most, so that the eight pairs that meet in a
/// block of 32 fit into 16 bits.
template <bool Vnni>
HWY_INLINE V16 dot(V16 sum, VI b, VI a) {
  return hn::Add(sum, add_byte_products(b, a));
}

/// Sums that the registers hold twice, in integers and in f32, beside b and the scales; and the
/// widest tile, for one row.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kQuantSums = 12, kQuantPanels = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kQuantSums = 4, kQuantPanels = 2;
#else
inline constexpr int kQuantSums = 4, kQuantPanels = 1;
#endif
inline constexpr int kQuantRows = kQuantSums / kPanelVectors;

/// How far ahead b is asked for: it is often read but once, faster than the hardware foresees.
/// 4 bits, 1 row: 0.85 of the time without; 4 rows: 0.6 (K 8192, N 16384, Zen 5).
inline constexpr std::int64_t kPrefetchBytes = 3072;

struct QuantTile {
  QuantRows a;
  const std::uint8_t* b;      ///< The first panel.
  std::int64_t panel_stride;  ///< Bytes.
  std::int64_t row_blocks;    ///< Blocks of 32 in a block of b.
  float* c;
  std::int64_t c_row;
  std::int64_t columns;
};
using QuantFunction = void (*)(const QuantTile&);

/// The four bytes of `a` in every lane.
HWY_INLINE VI four_bytes(const std::int8_t* a) {
  std::int32_t word;
  std::memcpy(&word, a, sizeof(word));
  return hn::Set(I32(), word);
}

/// Adds four steps of b, or of 4 bits eight, to the sums: `a` and `b` at the first of them.
template <Quant Kind, bool Vnni, int Rows, int Panels, class Sum>
HWY_INLINE void add_group(const QuantTile& t, const std::int8_t* HWY_RESTRICT a,
                          const std::uint8_t* HWY_RESTRICT b,
                          Sum (&sum)[Rows][Panels * kPanelVectors]) {
  const I32 di;
  constexpr std::int64_t kBytes = lanes(I32()) * 4;
  VOLTA_UNROLL
  for (int p = 0; p < Panels; ++p) {
    VI low[kPanelVectors], high[kPanelVectors];
    VOLTA_UNROLL
    for (int u = 0; u < kPanelVectors; ++u) {
      const std::uint8_t* bytes = b + p * t.panel_stride + u * kBytes;
      if (u * kBytes % 64 == 0) hwy::Prefetch(bytes + kPrefetchBytes);  // Once a cache line.
      low[u] = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(bytes));
#if HWY_TARGET == HWY_AVX3
      asm("" : "+v"(low[u].raw));  // Stays in its register; g++ 12 would load it for every row.
#endif
      if constexpr (Kind == Quant::kInt4) {
        const VI mask = hn::Set(di, 0x0F0F0F0F);
        high[u] = hn::And(hn::ShiftRight<4>(low[u]), mask);
        low[u] = hn::And(low[u], mask);
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const std::int8_t* row = a + i * t.a.blocks * kRowBlock;
      VOLTA_UNROLL
      for (int u = 0; u < kPanelVectors; ++u) {
        Sum& to = sum[i][p * kPanelVectors + u];
        to = dot<Vnni>(to, low[u], four_bytes(row));
        if constexpr (Kind == Quant::kInt4) to = dot<Vnni>(to, high[u], four_bytes(row + 16));
      }
    }
  }
}

/// The integer sums of one block of 32: `a` and `b` at its first step.
template <Quant Kind, bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_block(const QuantTile& t, const std::int8_t* HWY_RESTRICT a,
                          const std::uint8_t* HWY_RESTRICT b,
                          VI (&sum)[Rows][Panels * kPanelVectors]) {
  constexpr int kGroups = Kind == Quant::kInt4 ? 4 : 8;
  constexpr std::int64_t kGroupBytes = kPanelVectors * lanes(I32()) * 4;
  if constexpr (Vnni) {
    VOLTA_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, sum);
    }
  } else if constexpr (Kind == Quant::kInt8) {
    VOLTA_NO_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, sum);
    }
  } else {
    const D16 d16;
    V16 pairs[Rows][Panels * kPanelVectors];
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Panels * kPanelVectors; ++v) pairs[i][v] = hn::Zero(d16);
    }
    VOLTA_NO_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, pairs);
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Panels * kPanelVectors; ++v) {
        sum[i][v] = hn::Add(sum[i][v], add_products(pairs[i][v], hn::Set(d16, 1)));
      }
    }
  }
}

/// total += part * the columns' scales.
template <int Rows, int Panels>
HWY_INLINE void add_scaled(const QuantTile& t, const std::uint8_t* HWY_RESTRICT scales,
                           const V32 (&part)[Rows][Panels * kPanelVectors],
                           V32 (&total)[Rows][Panels * kPanelVectors]) {
  const F32 d;
  VOLTA_UNROLL
  for (int v = 0; v < Panels * kPanelVectors; ++v) {
    const auto* at = scales + v / kPanelVectors * t.panel_stride + v % kPanelVectors * lanes(d) * 2;
    const V32 scale = load(d, reinterpret_cast<const F16*>(at));
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) total[i][v] = hn::MulAdd(part[i][v], scale, total[i][v]);
  }
}

/// c[Rows, Panels] = a b.
// SAFETY: the caller owns Rows rows of a, Panels whole panels of b and the valid columns of c.
template <Quant Kind, bool Vnni, int Rows, int Panels>
void quant_tile(const QuantTile& t) {
  constexpr int kVectors = Panels * kPanelVectors;
  constexpr std::int64_t kBytes = Kind == Quant::kInt4 ? 16 : 32;  // Of 32 steps of a column.
  const F32 d;
  const std::int64_t width = lanes(d);
  const std::int64_t panel_width = kPanelVectors * width;
  const std::int64_t scales_at = t.row_blocks * kBytes * panel_width;
  const std::uint8_t* HWY_RESTRICT b = t.b;
  V32 total[Rows][kVectors], part[Rows][kVectors];
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) total[i][v] = hn::Zero(d);
  }
  for (std::int64_t block = 0; block < t.a.blocks; b += scales_at + panel_width * 2) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) part[i][v] = hn::Zero(d);
    }
    const std::int64_t end = block + t.row_blocks;
    for (const std::uint8_t* from = b; block < end; ++block, from += kBytes * panel_width) {
      VI sum[Rows][kVectors];
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const VI begin = hn::Set(I32(), t.a.correction[i * t.a.blocks + block]);
        VOLTA_UNROLL
        for (int v = 0; v < kVectors; ++v) sum[i][v] = begin;
      }
      sum_block<Kind, Vnni, Rows, Panels>(t, t.a.q + block * kRowBlock, from, sum);
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const V32 scale = hn::Set(d, t.a.scale[i * t.a.blocks + block]);
        VOLTA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const V32 exact = hn::ConvertTo(d, sum[i][v]);
          part[i][v] =
              Kind == Quant::kInt4 ? hn::Mul(exact, scale) : hn::MulAdd(exact, scale, part[i][v]);
        }
      }
      // Blocks of 4 bits are of 32: nothing to gain by keeping their parts.
      if (Kind == Quant::kInt4) add_scaled<Rows, Panels>(t, b + scales_at, part, total);
    }
    if (Kind == Quant::kInt8) add_scaled<Rows, Panels>(t, b + scales_at, part, total);
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
      float* c = t.c + i * t.c_row + v * width;
      if (n == width) {
        hn::StoreU(total[i][v], d, c);
      } else {
        store_n(d, total[i][v], c, n);
      }
    }
  }
}

/// The kernels by rows and panels; null where the registers do not suffice.
using QuantTable = std::array<std::array<QuantFunction, kQuantPanels + 1>, kQuantRows + 1>;

template <Quant Kind, bool Vnni, int Rows, int Panels>
constexpr void fill_quant(QuantTable& table) {
  if constexpr (Panels == 1 || Rows * Panels * kPanelVectors <= kQuantSums) {
    table[Rows][Panels] = &quant_tile<Kind, Vnni, Rows, Panels>;
  }
  if constexpr (Panels > 1) {
    fill_quant<Kind, Vnni, Rows, Panels / 2>(table);
  } else if constexpr (Rows > 1) {
    fill_quant<Kind, Vnni, Rows - 1, kQuantPanels>(table);
  }
}
template <Quant Kind, bool Vnni>
constexpr QuantTable make_quant_tiles() {
  QuantTable table{};
  fill_quant<Kind, Vnni, kQuantRows, kQuantPanels>(table);
  return table;
}

constexpr QuantTable kInt8Tiles = make_quant_tiles<Quant::kInt8, false>();
constexpr QuantTable kInt4Tiles = make_quant_tiles<Quant::kInt4, false>();
#if HWY_TARGET == HWY_AVX3
constexpr QuantTable kInt8VnniTiles = make_quant_tiles<Quant::kInt8, true>();
constexpr QuantTable kInt4VnniTiles = make_quant_tiles<Quant::kInt4, true>();
#endif

const QuantTable& quant_tiles(Quant quant, [[maybe_unused]] bool vnni) {
#if HWY_TARGET == HWY_AVX3
  if (vnni) return quant == Quant::kInt8 ? kInt8VnniTiles : kInt4VnniTiles;
#endif
  return quant == Quant::kInt8 ? kInt8Tiles : kInt4Tiles;
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
