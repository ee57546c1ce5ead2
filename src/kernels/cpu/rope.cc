// Rope: rotates pairs of elements of each head by the angle of the row's position. The output may
// be the memory of x. A position outside the table gives a row of zeros and is reported.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

// Rotates (a, b) by the angle with this cosine and sine.
HWY_INLINE void turn(V32 cosine, V32 sine, V32& a, V32& b) {
  const V32 old = a;
  a = hn::NegMulAdd(b, sine, hn::Mul(a, cosine));
  b = hn::MulAdd(b, cosine, hn::Mul(old, sine));
}

// Pairs (i, i + half) of one head. `sign` is -1 to rotate back.
void turn_halves(const float* x, const float* table, float sign, float* y, std::int64_t half) {
  const F32 d;
  const V32 direction = hn::Set(d, sign);
  for_each_vector(half, [&](std::int64_t i, auto extent) HWY_ATTR {
    V32 a = load(d, x + i, extent);
    V32 b = load(d, x + half + i, extent);
    const V32 sine = hn::Mul(direction, load(d, table + half + i, extent));
    turn(load(d, table + i, extent), sine, a, b);
    store(d, a, y + i, extent);
    store(d, b, y + half + i, extent);
  });
}

// Pairs (2i, 2i + 1) of one head, separated through a buffer.
void turn_neighbours(const float* x, const float* table, float sign, float* y, std::int64_t half) {
  const F32 d;
  const V32 direction = hn::Set(d, sign);
  alignas(64) float buffer[2 * hn::MaxLanes(F32())] = {};
  for (std::int64_t i = 0; i < half; i += lanes(d)) {
    const std::int64_t n = half - i < lanes(d) ? half - i : lanes(d);
    for (std::int64_t j = 0; j < 2 * n; ++j) buffer[j] = x[2 * i + j];
    V32 a, b;
    hn::LoadInterleaved2(d, buffer, a, b);
    const V32 sine = hn::Mul(direction, load_n(d, table + half + i, n));
    turn(load_n(d, table + i, n), sine, a, b);
    hn::StoreInterleaved2(a, b, d, buffer);
    for (std::int64_t j = 0; j < 2 * n; ++j) y[2 * i + j] = buffer[j];
  }
}

}  // namespace

// One row: rotates `heads` heads by the table's row. x and y may be the same memory.
void rope_row(const Rope& op, const float* x, const float* table, std::int64_t rotary, float* y) {
  const float sign = op.inverse ? -1.0f : 1.0f;
  for (std::int64_t head = 0; head < op.heads; ++head) {
    const std::int64_t at = head * op.head_dim;
    if (op.interleaved) {
      turn_neighbours(x + at, table, sign, y + at, rotary / 2);
    } else {
      turn_halves(x + at, table, sign, y + at, rotary / 2);
    }
    for (std::int64_t i = at + rotary; i < at + op.head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Rope&, const ArgShapes&, const Context&) { return 0; }

void run(const Rope& op, const Args& args, const Context& context) noexcept {
  const Shape& shape = args.inputs[0].shape;
  const View& table = args.inputs[2];
  const std::int64_t columns = shape.columns();
  const std::int64_t turned = std::int64_t{op.heads} * op.head_dim;
  const std::int64_t rotary = table.shape[1];
  const std::int64_t period = args.inputs[1].shape.elements();
  const auto* positions = args.inputs[1].as<const std::int32_t>();
  split_rows(context, shape.rows(), columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = args.inputs[0].as<const float>() + row * columns;
      float* y = args.outputs[0].as<float>() + row * columns;
      const std::int64_t position = positions[row % period];
      if (position < 0 || position >= table.shape[0]) {
        report_bad_index(context, row % period);
        std::fill_n(y, columns, 0.0f);
        continue;
      }
      VOLTA_SIMD_CALL(context.simd, rope_row, op, x, table.as<const float>() + position * rotary,
                      rotary, y);
      if (x != y) std::copy_n(x + turned, columns - turned, y + turned);
    }
  });
}

}  // namespace volta::cpu
#endif
