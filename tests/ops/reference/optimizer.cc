// GlobalNorm, AdamW, Sgd, Accumulate and Fill in double.
#include <algorithm>
#include <limits>

#include "ops/reference/reference.h"

namespace volta::reference {

namespace {

constexpr double kU = kUnit;

}  // namespace

// A sum of n squares is off by gamma(n + 1), its root by half of that and a rounding. (A kernel
// that sums in f64 is much closer.)
void compute(const GlobalNorm& op, Call& call) {
  Sum squares;
  bool finite = std::isfinite(call.in[0][0]);
  for (std::size_t i = 1; i < call.in.size(); ++i) {
    for (const double g : call.in[i].data) {
      squares.add(g * g);
      finite = finite && std::isfinite(g);
    }
  }
  const double norm = std::sqrt(squares.value());
  const double relative = squares.bounded(1).error / std::max(squares.value(), 1e-300) / 2 + kU;
  call.out[0].set(0, norm, norm > 0 ? norm * relative : 0.0);
  const double factor =
      op.max_norm > 0 ? std::min(1.0, static_cast<double>(op.max_norm) / (norm + 1e-6)) : 1.0;
  call.out[0].set(1, factor, op.max_norm > 0 ? factor * (relative + 3 * kU) : 0.0);
  finite = finite && norm <= static_cast<double>(std::numeric_limits<float>::max());
  call.out[0].set(2, finite ? 1.0 : 0.0, 0.0);
}

// m and v are convex sums of two terms: a few roundings of their sizes. The step lr m / (root +
// eps) carries m's error on, and half of v's relative one; v has no cancellation.
void compute(const AdamW& op, Call& call) {
  if (call.in[5][2] == 0.0) return;
  const double lr = call.in[4][0], m_correction = call.in[4][1], v_correction = call.in[4][2];
  const double factor = call.in[5][1], beta1 = op.beta1, beta2 = op.beta2;
  Array& param = call.in[0];
  Array& m = call.in[2];
  Array& v = call.in[3];
  for (std::int64_t i = 0; i < param.size(); ++i) {
    const double g = factor * call.in[1][i];
    const double m_size = beta1 * std::abs(m[i]) + (1 - beta1) * std::abs(g) + std::abs(m[i] - g);
    const double new_m = beta1 * m[i] + (1 - beta1) * g, m_error = 6 * kU * m_size;
    const double new_v = beta2 * v[i] + (1 - beta2) * g * g, v_error = 8 * kU * new_v;
    const double root = std::sqrt(new_v / v_correction) + static_cast<double>(op.eps);
    const double step = lr * (new_m / m_correction) / root;
    const double decayed = param[i] * (1 - lr * static_cast<double>(op.weight_decay));
    const double error = std::abs(lr / m_correction / root) * m_error + 16 * kU * std::abs(step) +
                         3 * kU * (std::abs(param[i]) + std::abs(step));
    param.set(i, decayed - step, error);
    m.set(i, new_m, m_error);
    v.set(i, new_v, v_error);
  }
}

void compute(const Sgd& op, Call& call) {
  const Array& stats = call.in.back();
  const double lr = call.in[call.in.size() - 2][0];
  if (stats[2] == 0.0) return;
  Array& param = call.in[0];
  for (std::int64_t i = 0; i < param.size(); ++i) {
    Sum sum;
    sum.add(stats[1] * call.in[1][i]);
    sum.add(static_cast<double>(op.weight_decay) * param[i]);
    if (op.momentum > 0) sum.add(static_cast<double>(op.momentum) * call.in[2][i]);
    const Bounded change = sum.bounded(2);
    if (op.momentum > 0) call.in[2].set(i, change.value, change.error);
    const double next = param[i] - lr * change.value;
    const double error =
        lr * (change.error + 2 * kU * std::abs(change.value)) + kU * std::abs(next);
    param.set(i, next, error);
  }
}

void compute(const Accumulate& op, Call& call) {
  Array& target = call.in[0];
  for (std::int64_t i = 0; i < target.size(); ++i) {
    const double term = static_cast<double>(op.scale) * call.in[1][i];
    const double sum = target[i] + term;
    target.set(i, sum, kU * (std::abs(term) + std::abs(sum)));
  }
}

void compute(const Fill& op, Call& call) {
  for (std::int64_t i = 0; i < call.in[0].size(); ++i) call.in[0][i] = op.value;
}

}  // namespace volta::reference
