// MatMul in double.
#include "ops/reference/reference.h"

namespace volta::reference {

namespace {

struct Operand {
  const Array& array;
  std::int64_t rows, columns;
  bool transposed;

  double at(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    const std::int64_t r = transposed ? j : i, c = transposed ? i : j;
    return array[(batch * rows + r) * columns + c];
  }
};

Operand operand(const Array& array, bool batched, bool transposed) {
  const Shape& shape = array.spec.shape;
  return {array, batched ? shape[-2] : shape.rows(), shape[-1], transposed};
}

}  // namespace

// Products are summed over K and with the bias in any order (gamma of K + 2, each product rounded
// or not); the activation carries that on, times its steepest slope; the residual adds a rounding.
void compute(const MatMul& op, Call& call) {
  const Operand a = operand(call.in[0], op.batched, op.transpose_a);
  const Operand b = operand(call.in[1], op.batched, op.transpose_b);
  const std::int64_t m = op.transpose_a ? a.columns : a.rows;
  const std::int64_t k = op.transpose_a ? a.rows : a.columns;
  const std::int64_t n = op.transpose_b ? b.rows : b.columns;
  Array& c = call.out[0];
  for (std::int64_t at = 0; at < c.size(); ++at) {
    const std::int64_t batch = at / (m * n), i = at / n % m, j = at % n;
    Sum sum;
    for (std::int64_t p = 0; p < k; ++p) sum.add(a.at(batch, i, p) * b.at(batch, p, j));
    if (op.has_bias) sum.add(call.in[2][j]);
    const Bounded z = sum.bounded(1);
    Bounded y = value(op.activation, z.value);
    y.error += (op.activation == Activation::kNone ? 1.0 : kSteepest) * z.error;
    if (op.has_residual) {
      y.value += call.in.back()[at];
      y.error += kUnit * (std::abs(y.value) + y.error);
    }
    c.set(at, y.value, y.error);
  }
}

}  // namespace volta::reference
