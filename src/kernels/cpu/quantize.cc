// Rounds weights to integers and converts them back (tensor/encoding.h). It runs once per weight,
// when a model is loaded. Rounding uses a lane per column, so that a block's sums go along K in
// order and its integers depend only on its values, not on the layouts or the instruction set. It
// is limited by arithmetic: int4 tries six scales per block. Copying and decoding are plain loops.
#include "kernels/cpu/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "base/arithmetic.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_pack-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;

/// Columns that are rounded together, and the most steps of a block.
inline constexpr std::int64_t kSlab = kPanelVectors * lanes(F32());
inline constexpr std::int64_t kMaxSteps = 256;

/// Reads the steps of a block that begins at step `begin`, of some columns, as f32. Step k is at
/// to[k * kSlab]; the rest of the block is filled with zeros.
// SAFETY: the caller owns these elements of b and kMaxSteps * kSlab of `to`; no others are touched.
void read_block(const View& x, const Encoding& e, std::int64_t column, std::int64_t columns,
                std::int64_t begin, float* to) {
  const std::int64_t k = e.k(x.shape), n = e.n(x.shape);
  const std::int64_t count = std::min<std::int64_t>(e.block, k - begin);
  visit_float(x.dtype, [&](auto element) HWY_ATTR {
    const auto* b = x.as<const decltype(element)>();
    if (e.transposed) {
      pack_panel_transposed(b + column * k + begin, k, count, columns, to);
    } else {
      pack_panels(b + begin * n + column, n, count, columns, 0, to);
    }
  });
  std::fill(to + count * kSlab, to + e.block * kSlab, 0.0f);
}

// Below, x is a vector of columns of such a block.

/// The value of largest magnitude of each column, with its sign; on ties the positive one. Sets
/// `finite` where all values of a column are finite.
HWY_INLINE V32 largest(const float* HWY_RESTRICT x, std::int64_t steps, hn::Mask<F32>& finite) {
  const F32 d;
  const V32 zero = hn::Zero(d);
  V32 low = zero, high = zero, zeros = zero;
  for (std::int64_t k = 0; k < steps; ++k) {
    const V32 v = hn::Load(d, x + k * kSlab);
    low = hn::Min(v, low);  // Of two zeros, both return the second operand, +0.
    high = hn::Max(v, high);
    zeros = hn::MulAdd(v, zero, zeros);
  }
  finite = hn::Eq(zeros, zero);
  return hn::IfThenElse(hn::Gt(hn::Neg(low), high), low, high);
}

HWY_INLINE V32 to_f16_and_back(V32 x) {
  const F32 d;
  alignas(64) F16 half[lanes(F32())];
  store(d, x, half);
  return load(d, half);
}

/// 1 / scale, or 0 if scale is 0.
HWY_INLINE V32 inverse(V32 scale) {
  const F32 d;
  return hn::IfThenZeroElse(hn::Eq(scale, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), scale));
}

/// The best of a few scales by the sum of squared errors; the first one on ties. The lowest of the
/// 16 levels, -8, is at the largest magnitude or near it.
HWY_INLINE V32 int4_scale(const float* HWY_RESTRICT x, std::int64_t steps, V32 top) {
  const F32 d;
  constexpr int kTogether = 3;  // As many as the registers of every instruction set hold.
  constexpr float kSteps[][kTogether] = {{8.0f, 7.0f, 7.5f}, {8.5f, 7.75f, 8.25f}};
  V32 best = hn::Zero(d), best_scale = best;
  for (int part = 0; part < 2; ++part) {
    V32 scale[kTogether], inv[kTogether], error[kTogether];
    for (int c = 0; c < kTogether; ++c) {
      scale[c] = to_f16_and_back(hn::Div(top, hn::Set(d, -kSteps[part][c])));
      inv[c] = inverse(scale[c]);
      error[c] = hn::Zero(d);
    }
    for (std::int64_t k = 0; k < steps; ++k) {
      const V32 v = hn::Load(d, x + k * kSlab);
      for (int c = 0; c < kTogether; ++c) {
        const V32 near = hn::Round(hn::Mul(v, inv[c]));
        const V32 q = hn::Min(hn::Max(near, hn::Set(d, -8.0f)), hn::Set(d, 7.0f));
        const V32 off = hn::Sub(hn::Mul(q, scale[c]), v);
        error[c] = hn::Add(error[c], hn::Mul(off, off));
      }
    }
    for (int c = 0; c < kTogether; ++c) {
      // If the first error is NaN (a scale beyond f16), no other error is less.
      const bool first = part == 0 && c == 0;
      const auto better = hn::Lt(error[c], best);
      best_scale = first ? scale[c] : hn::IfThenElse(better, scale[c], best_scale);
      best = first ? error[c] : hn::IfThenElse(better, error[c], best);
    }
  }
  return best_scale;
}

/// How one vector of columns is rounded.
struct Rounding {
  V32 inverse, low, high;
  hn::Mask<F32> finite;
  V32 offset;  ///< What bytes hold besides q, plus 1.5 * 2^23: adding it leaves the integer in a
               ///< float's last bits.
};

/// The bytes of four steps, as words.
HWY_INLINE VI round_word(const float* HWY_RESTRICT x, const Rounding& r) {
  const F32 d;
  const I32 di;
  VI byte[4];
  for (int i = 0; i < 4; ++i) {
    const V32 v = hn::Mul(hn::Load(d, x + i * kSlab), r.inverse);
    const V32 q = hn::IfThenElse(r.finite, hn::Min(hn::Max(v, r.low), r.high), hn::Set(d, 1.0f));
    byte[i] = hn::BitCast(di, hn::Add(q, r.offset));  // Rounds to nearest even.
  }
  const VI mask = hn::Set(di, 0xFF);
  const VI low = hn::Or(hn::And(byte[0], mask), hn::ShiftLeft<8>(hn::And(byte[1], mask)));
  return hn::Or(low, hn::ShiftLeft<16>(hn::Or(hn::And(byte[2], mask), hn::ShiftLeft<8>(byte[3]))));
}

/// Rounds one vector of columns of a block to words that are `step` bytes apart, and to scales.
void round_block(const float* HWY_RESTRICT x, const Encoding& e, std::uint8_t* words,
                 std::int64_t step, std::uint8_t* scales) {
  const F32 d;
  const I32 di;
  const bool int4 = e.quant == Quant::kInt4;
  Rounding r;
  const V32 top = largest(x, e.block, r.finite);
  const V32 scale = int4 ? int4_scale(x, e.block, top)
                         : to_f16_and_back(hn::Div(hn::Abs(top), hn::Set(d, 127.0f)));
  r.inverse = inverse(scale);
  r.low = hn::Set(d, int4 ? -8.0f : -127.0f);
  r.high = hn::Set(d, int4 ? 7.0f : 127.0f);
  r.offset = hn::Set(d, 0x1.8p23f + (int4 ? 8.0f : static_cast<float>(panel_flip(e))));
  for (std::int64_t word = 0; word < block_words(e); ++word) {
    const float* at = x + (int4 ? word / 4 * 32 + word % 4 * 4 : word * 4) * kSlab;
    VI bytes = round_word(at, r);
    if (int4) bytes = hn::Or(bytes, hn::ShiftLeft<4>(round_word(at + 16 * kSlab, r)));
    hn::StoreU(bytes, di, reinterpret_cast<std::int32_t*>(words + word * step));
  }
  // A column with a value that is not finite gets a NaN, because it must not look like a number.
  const V32 nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  store(d, hn::IfThenElse(r.finite, scale, nan), reinterpret_cast<F16*>(scales));
}

/// Rounds up to kSlab columns of one block.
void round_slab(const View& x, const Encoding& e, std::int64_t column, std::int64_t columns,
                std::int64_t block, std::uint8_t* to) {
  const std::int64_t width = lanes(F32()), blocks = e.blocks(e.k(x.shape));
  alignas(64) float values[kMaxSteps * kSlab];
  read_block(x, e, column, columns, block * e.block, values);
  if (e.packing == Packing::kPanels && e.width == kSlab && columns == kSlab) {
    const auto place = block_place(to, e, blocks, column, block);
    for (std::int64_t j = 0; j < kSlab; j += width) {
      round_block(values + j, e, place.words + 4 * j, place.step, place.scale + 2 * j);
    }
    return;
  }
  alignas(64) std::uint8_t words[kMaxSteps * kSlab], scales[2 * kSlab];
  for (std::int64_t j = 0; j < kSlab; j += width) {
    round_block(values + j, e, words + 4 * j, 4 * kSlab, scales + 2 * j);
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    const auto place = block_place(to, e, blocks, column + j, block);
    for (std::int64_t word = 0; word < block_words(e); ++word) {
      std::memcpy(place.words + word * place.step, words + (word * kSlab + j) * 4, 4);
    }
    std::memcpy(place.scale, scales + 2 * j, 2);
  }
}

}  // namespace

/// Columns [begin, end) of b.
void round_columns(const View& x, const Encoding& to, std::int64_t begin, std::int64_t end,
                   std::uint8_t* y) {
  const std::int64_t blocks = to.blocks(to.k(x.shape));
  for (std::int64_t column = begin; column < end; column += kSlab) {
    const std::int64_t columns = std::min(kSlab, end - column);
    for (std::int64_t block = 0; block < blocks; ++block) {
      round_slab(x, to, column, columns, block, y);
    }
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

/// Copies the same integers into another layout.
void move_columns(const View& x, const View& y, std::int64_t begin, std::int64_t end) {
  const Encoding &from = x.encoding, &to = y.encoding;
  const std::int64_t blocks = to.blocks(to.k(x.shape));
  const std::uint32_t flip = 0x01010101u * (panel_flip(from) ^ panel_flip(to));
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t j = begin; j < end; ++j) {
      const auto source = block_place(x.as<const std::uint8_t>(), from, blocks, j, block);
      const auto target = block_place(y.as<std::uint8_t>(), to, blocks, j, block);
      for (std::int64_t i = 0; i < block_words(to); ++i) {
        std::uint32_t word;
        std::memcpy(&word, source.words + i * source.step, 4);
        word ^= flip;
        std::memcpy(target.words + i * target.step, &word, 4);
      }
      std::memcpy(target.scale, source.scale, 2);
    }
  }
}

/// Copies blocks of Q4_K, Q5_K or Q6_K, unchanged, from rows into panels.
void pack_columns(const View& x, const View& y, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = y.encoding.blocks(y.encoding.k(x.shape));
  WeightBlock taken_apart;
  for (std::int64_t j = begin; j < end; ++j) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      get_block(x.as<const std::uint8_t>(), x.encoding, blocks, j, block, taken_apart);
      put_k_block(taken_apart, y.as<std::uint8_t>(), y.encoding, blocks, j, block);
    }
  }
}

void decode_columns(const View& x, float* y, std::int64_t begin, std::int64_t end) {
  const Encoding& e = x.encoding;
  const std::int64_t k = e.k(x.shape), n = e.n(x.shape), blocks = e.blocks(k);
  // SAFETY: element (i, j) of b lies at i * k_step + j * j_step.
  const std::int64_t k_step = e.transposed ? 1 : n, j_step = e.transposed ? k : 1;
  WeightBlock q;
  std::array<float, kMaxBlock> values{};
  for (std::int64_t j = begin; j < end; ++j) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      get_block(x.as<const std::uint8_t>(), e, blocks, j, block, q);
      const std::int64_t first = block * e.block;
      const std::int64_t count = std::min<std::int64_t>(e.block, k - first);
      const auto decoded = std::span(values).first(static_cast<std::size_t>(count));
      decode_block(e.quant, q, decoded);
      for (std::int64_t i = 0; i < count; ++i) {
        y[(first + i) * k_step + j * j_step] = decoded[static_cast<std::size_t>(i)];
      }
    }
  }
}

}  // namespace

void encode_quantized(const Encode& op, const Args& args, const Context& context) {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  const Encoding& e = op.to.quantized() ? op.to : x.encoding;
  const std::int64_t k = e.k(x.shape), n = e.n(x.shape);
  // A task has the columns of one panel if the integers are in panels.
  constexpr std::int64_t kRowsTask = 32;
  const std::int64_t width = e.packing == Packing::kPanels ? e.width : kRowsTask;
  split_rows(context, ceil_div(n, width), k * width, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * width, end = std::min(n, last * width);
    for (std::int64_t column = begin; column < end && !stops_here(context); column += width) {
      const std::int64_t columns = std::min(width, end - column);
      if (!op.to.quantized()) {
        decode_columns(x, y.as<float>(), column, column + columns);
        continue;
      }
      if (e.packing == Packing::kPanels && columns < width) {
        // The padding columns of the last panel are zeros.
        const std::int64_t bytes = e.blocks(k) * width * e.block_bytes();
        std::fill_n(y.as<std::uint8_t>() + column / width * bytes, bytes, std::uint8_t{0});
      }
      const bool has_k_blocks = format_info(e.quant).scale_steps != 0;
      if (has_k_blocks && e.packing == Packing::kPanels) {
        pack_columns(x, y, column, column + columns);
      } else if (has_k_blocks) {  // The same rows: the columns of b are contiguous.
        const std::int64_t bytes = e.blocks(k) * e.block_bytes();
        std::copy_n(x.as<const std::uint8_t>() + column * bytes, columns * bytes,
                    y.as<std::uint8_t>() + column * bytes);
      } else if (x.encoding.quantized()) {
        move_columns(x, y, column, column + columns);
      } else {
        VOLTA_SIMD_CALL(context.simd, round_columns, x, op.to, column, column + columns,
                        y.as<std::uint8_t>());
      }
    }
  });
}

}  // namespace volta::cpu
#endif
