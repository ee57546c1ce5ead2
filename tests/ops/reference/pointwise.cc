// Unary, Binary, GatedUnit, Dropout, Cast, Encode and their backward ops in double.
#include <bit>
#include <limits>

#include "ops/reference/reference.h"
#include "tensor/float16.h"

namespace volta::reference {

void compute(const Unary& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const Bounded y = value(op.kind, op.alpha, call.in[0][i]);
    call.out[0].set(i, y.value, y.error);
  }
}

void compute(const UnaryGrad& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const Bounded s = slope(op.kind, op.alpha, call.in[0][i]);
    const double dy = call.in[1][i], dx = dy * s.value;
    call.out[0].set(i, dx, std::abs(dy) * s.error + kUnit * std::abs(dx));
  }
}

void compute(const Binary& op, Call& call) {
  const Array& x = call.in[0];
  const Array& y = call.in[1];
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double a = x[i], b = y[i % y.size()];
    double z = 0;
    switch (op.kind) {
      case BinaryKind::kAdd:
        z = a + b;
        break;
      case BinaryKind::kSub:
        z = a - b;
        break;
      case BinaryKind::kMul:
        z = a * b;
        break;
      case BinaryKind::kDiv:
        z = a / b;
        break;
    }
    call.out[0].set(i, z, kUnit * std::abs(z));
  }
}

void compute(const GatedUnit& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const Bounded f = value(op.activation, call.in[0][i]);
    const double up = call.in[1][i], y = f.value * up;
    call.out[0].set(i, y, std::abs(up) * f.error + kUnit * std::abs(y));
  }
}

void compute(const GatedUnitGrad& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const double gate = call.in[0][i], up = call.in[1][i], dy = call.in[2][i];
    const Bounded f = value(op.activation, gate), s = slope(op.activation, gate);
    const double dgate = dy * up * s.value, dup = dy * f.value;
    call.out[0].set(i, dgate, std::abs(dy * up) * s.error + 2 * kUnit * std::abs(dgate));
    call.out[1].set(i, dup, std::abs(dy) * f.error + kUnit * std::abs(dup));
  }
}

// 1 / (1 - p) is rounded twice, the product once.
void compute(const Dropout& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const double factor = op.p > 0 ? dropout_factor(call.in[1], op.stream, op.p, i) : 1.0;
    const double y = factor == 0 ? 0.0 : factor * call.in[0][i];
    call.out[0].set(i, y, op.p > 0 ? 3 * kUnit * std::abs(y) : 0.0);
  }
}

namespace {

double to_integer(double x, double low, double high) {
  if (std::isnan(x)) return 0;
  return std::min(std::max(std::trunc(x), low), high);
}

}  // namespace

// The same elements, elsewhere.
void compute(const Encode&, Call& call) { call.out[0].data = call.in[0].data; }

// Exact: what a conversion gives is defined to the bit.
void compute(const Cast& op, Call& call) {
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const double x = call.in[0][i];
    double y = x;
    switch (op.to) {
      case DType::kF32:
        y = static_cast<float>(x);
        break;
      case DType::kBF16:
        y = f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
        break;
      case DType::kF16:
        y = f32_from_f16(f16_from_f32(static_cast<float>(x)));
        break;
      case DType::kI8:
        y = to_integer(x, -128, 127);
        break;
      case DType::kU8:
        y = to_integer(x, 0, 255);
        break;
      case DType::kI32:
        y = to_integer(x, -0x1p31, 0x1p31 - 1);
        break;
      case DType::kI64:
        y = to_integer(x, -0x1p63, 0x1p63);
        break;
    }
    call.out[0].set(i, y, 0.0);
  }
}

}  // namespace volta::reference
