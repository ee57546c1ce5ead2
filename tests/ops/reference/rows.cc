// The ops that fold rows, in double: Reduce, Expand, Norm, Softmax, CrossEntropy, their backward
// ops, and Rope.
#include <algorithm>
#include <limits>

#include "ops/reference/reference.h"

namespace volta::reference {

namespace {

constexpr double kU = kUnit;
constexpr double kSubnormal = 0x1p-149;  // Results below it may become 0.

// x as [outer, length, inner] around the axes [begin, end).
struct Fold {
  std::int64_t length, inner;
  Fold(const Shape& shape, int begin, int end)
      : length(shape.product(begin, end)), inner(shape.product(end, shape.rank())) {}
  std::int64_t from(std::int64_t out, std::int64_t i) const {
    return (out / inner * length + i) * inner + out % inner;
  }
};

}  // namespace

void compute(const Reduce& op, Call& call) {
  const Fold fold(call.in[0].spec.shape, op.begin, op.end);
  for (std::int64_t out = 0; out < call.out[0].size(); ++out) {
    Sum sum;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < fold.length; ++i) {
      const double x = call.in[0][fold.from(out, i)];
      sum.add(x);
      if (std::isnan(x) || x > largest) largest = x;  // Once NaN, no comparison replaces it.
    }
    const Bounded y = sum.bounded(op.kind == ReduceKind::kMean ? 2 : 0);
    const double n = op.kind == ReduceKind::kMean ? static_cast<double>(fold.length) : 1.0;
    if (op.kind == ReduceKind::kMax) {
      call.out[0].set(out, largest, 0.0);
    } else {
      call.out[0].set(out, y.value / n, y.error / n);
    }
  }
}

void compute(const Expand& op, Call& call) {
  const int added = op.shape.rank() - call.in[0].spec.shape.rank();
  const Fold fold(op.shape, op.begin, op.begin + added);
  for (std::int64_t from = 0; from < call.in[0].size(); ++from) {
    const double y = static_cast<double>(op.scale) * call.in[0][from];
    const double error = op.scale == 1.0f ? 0.0 : kU * std::abs(y);
    for (std::int64_t i = 0; i < fold.length; ++i) call.out[0].set(fold.from(from, i), y, error);
  }
}

// The mean is off by e_m; then x - mean by e_m and a rounding; the mean square of that by
// gamma(n + 4) of itself, twice the mean of |x - mean| e_m, and e_m^2. 1 / sqrt halves the relative
// error and adds three roundings.
void compute(const Norm& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  const bool layer = op.kind == NormKind::kLayer;
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    Sum sum;
    for (std::int64_t i = 0; i < n; ++i) sum.add(call.in[0][row * n + i]);
    const double count = static_cast<double>(n);
    const double mean = layer ? sum.value() / count : 0.0;
    const double mean_error = layer ? sum.bounded(1).error / count : 0.0;
    double variance = 0.0, deviation = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double d = call.in[0][row * n + i] - mean;
      variance += d * d / count;
      deviation += std::abs(d) / count;
    }
    const double variance_error =
        gamma(n + 4) * variance + 2 * deviation * mean_error + mean_error * mean_error;
    const double base = variance + static_cast<double>(op.eps);
    const double inverse = 1.0 / std::sqrt(base);
    const double relative = variance_error / (2 * base) + 4 * kU;
    call.out[1].set(row * 2, mean, mean_error);
    call.out[1].set(row * 2 + 1, inverse, relative * inverse);
    for (std::int64_t i = 0; i < n; ++i) {
      const double d = call.in[0][row * n + i] - mean;
      const double weight = call.in[1][i] + (op.plus_one ? 1.0 : 0.0);  // One rounding more.
      const double scaled = d * inverse * weight;
      const double y = scaled + (op.has_bias ? call.in[2][i] : 0.0);
      const double error = std::abs(inverse * weight) * (mean_error + kU * std::abs(d)) +
                           std::abs(scaled) * (relative + (op.plus_one ? 4 : 3) * kU) +
                           kU * std::abs(y);
      call.out[0].set(row * n + i, y, error);
    }
  }
}

// h = (x - mean) inverse, g = dy weight, all off by a few roundings; the two means by gamma of the
// row. dx = inverse (g - mean(g) - h mean(g h)); dweight and dbias are sums over the rows.
void compute(const NormGrad& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  const bool layer = op.kind == NormKind::kLayer;
  std::vector<Sum> dweight(static_cast<std::size_t>(n)), dbias(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    const double mean = call.in[2][row * 2], inverse = call.in[2][row * 2 + 1];
    const auto h = [&](std::int64_t i) { return (call.in[0][row * n + i] - mean) * inverse; };
    const auto g = [&](std::int64_t i) {
      return call.in[3][row * n + i] * (call.in[1][i] + (op.plus_one ? 1.0 : 0.0));
    };
    Sum sum_g, sum_gh;
    for (std::int64_t i = 0; i < n; ++i) {
      sum_g.add(g(i));
      sum_gh.add(g(i) * h(i));
      dweight[static_cast<std::size_t>(i)].add(call.in[3][row * n + i] * h(i));
      dbias[static_cast<std::size_t>(i)].add(call.in[3][row * n + i]);
    }
    const double count = static_cast<double>(n);
    const Bounded mean_g = {layer ? sum_g.value() / count : 0.0,
                            layer ? sum_g.bounded(3).error / count : 0.0};
    const Bounded mean_gh = {sum_gh.value() / count,
                             sum_gh.bounded(op.plus_one ? 7 : 6).error / count};
    for (std::int64_t i = 0; i < n; ++i) {
      const double inner = g(i) - mean_g.value - h(i) * mean_gh.value;
      const double size = std::abs(g(i)) + std::abs(mean_g.value) + std::abs(h(i) * mean_gh.value);
      const int roundings = op.plus_one ? 7 : 6;
      const double error = mean_g.error + std::abs(h(i)) * mean_gh.error + roundings * kU * size;
      call.out[0].set(row * n + i, inverse * inner, std::abs(inverse) * error);
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const Bounded w = dweight[static_cast<std::size_t>(i)].bounded(4);
    call.out[1].set(i, w.value, w.error);
    if (!op.has_bias) continue;
    const Bounded b = dbias[static_cast<std::size_t>(i)].bounded();
    call.out[2].set(i, b.value, b.error);
  }
}

namespace {

// One row of logits z, each off by its own bound.
struct LogSumExp {
  double value = 0.0;
  double sum = 0.0;  ///< Of exp(z - largest).
  double largest = -std::numeric_limits<double>::infinity();
  double sum_error = 0.0;  ///< Of the sum, relative.
  double error = 0.0;      ///< Of the value.
};

// The sum is off by gamma(n) + kExp, and by the errors of the exponents, weighted: the rounding of
// z - largest, and z's own.
template <typename Logit>
LogSumExp log_sum_exp(std::int64_t n, const Logit& logit) {
  LogSumExp row;
  for (std::int64_t i = 0; i < n; ++i) {
    const double z = logit(i).value;
    if (std::isnan(z) || z > row.largest) row.largest = z;  // NaN stays: nothing is larger.
  }
  double exponents = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Bounded z = logit(i);
    const double t = z.value - row.largest, weight = std::exp(t);
    row.sum += weight;
    if (weight > 0) exponents += weight * (kU * std::abs(t) + z.error);
  }
  row.value = row.largest + std::log(row.sum);
  row.sum_error = gamma(n) + kExp + exponents / row.sum;
  row.error = row.sum_error + 4 * kU * std::abs(std::log(row.sum)) + kU * std::abs(row.value);
  return row;
}

}  // namespace

// exp(z - largest) / sum: numerator and sum are off as above, the quotient is rounded twice. What
// `largest` itself is off by does not matter: any shift gives the same quotient.
void compute(const Softmax& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    const auto logit = [&](std::int64_t i) {
      const double z = static_cast<double>(op.scale) * call.in[0][row * n + i];
      return Bounded{z, op.scale == 1.0f ? 0.0 : kU * std::abs(z)};
    };
    const LogSumExp lse = log_sum_exp(n, logit);
    for (std::int64_t i = 0; i < n; ++i) {
      const Bounded z = logit(i);
      const double y = std::exp(z.value - lse.largest) / lse.sum;
      const double exponent = z.error + kU * std::abs(z.value - lse.largest);
      const double relative = lse.sum_error + kExp + exponent + 2 * kU;
      call.out[0].set(row * n + i, y, y > 0 ? y * relative + kSubnormal : 0.0);
    }
  }
}

void compute(const SoftmaxGrad& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    Sum dot;
    for (std::int64_t i = 0; i < n; ++i) dot.add(call.in[0][row * n + i] * call.in[1][row * n + i]);
    const Bounded sum = dot.bounded(1);
    for (std::int64_t i = 0; i < n; ++i) {
      const double y = call.in[0][row * n + i], dy = call.in[1][row * n + i];
      const double scale = static_cast<double>(op.scale) * y, dx = scale * (dy - sum.value);
      const double inner = sum.error + kU * (std::abs(dy) + std::abs(sum.value));
      call.out[0].set(row * n + i, dx, std::abs(scale) * inner + 3 * kU * std::abs(dx));
    }
  }
}

void compute(const CrossEntropy&, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    const auto logit = [&](std::int64_t i) { return Bounded{call.in[0][row * n + i], 0.0}; };
    const LogSumExp lse = log_sum_exp(n, logit);
    call.out[1].set(row, lse.value, lse.error);
    const auto target = static_cast<std::int64_t>(call.in[1][row]);
    if (target < 0) continue;
    const double loss = lse.value - call.in[0][row * n + target];
    call.out[0].set(row, loss, lse.error + kU * std::abs(loss));
  }
}

// exp(z - lse) is off by the rounding of its exponent and kExp.
void compute(const CrossEntropyGrad& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.in[0].spec.shape.rows(); ++row) {
    const auto target = static_cast<std::int64_t>(call.in[1][row]);
    if (target < 0) continue;
    const double dloss = call.in[op.with_loss ? 2 : 3][row];
    double lse = 0.0, lse_error = 0.0;  // The error of one that is computed here.
    if (op.with_loss) {
      const auto logit = [&](std::int64_t i) { return Bounded{call.in[0][row * n + i], 0.0}; };
      const LogSumExp own = log_sum_exp(n, logit);
      // Powers of two are summed: without fused multiply-adds x log2(e) is rounded, and so are the
      // constants whose product turns the sum's logarithm back.
      lse = own.value;
      lse_error = own.error + 2 * kU * std::abs(lse);
      const double loss = lse - call.in[0][row * n + target];
      call.out[1].set(row, loss, lse_error + kU * std::abs(loss));
    } else {
      lse = call.in[2][row];
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const double t = call.in[0][row * n + i] - lse, p = std::exp(t);
      const double inner = p - (i == target ? 1.0 : 0.0), dx = dloss * inner;
      const double p_error =
          p > 0 ? p * (kExp + kU * std::abs(t) + std::expm1(lse_error)) + kSubnormal : 0.0;
      call.out[0].set(row * n + i, dx,
                      std::abs(dloss) * (p_error + kU * std::abs(inner)) + kU * std::abs(dx));
    }
  }
}

// Two products and a sum: three roundings of their sizes.
void compute(const Rope& op, Call& call) {
  const Shape& x = call.in[0].spec.shape;
  const std::int64_t width = x.columns(), rotary = call.in[2].spec.shape[1], half = rotary / 2;
  call.out[0].data = call.in[0].data;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const auto position = static_cast<std::int64_t>(call.in[1][row % call.in[1].size()]);
    for (std::int64_t head = 0; head < op.heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double cosine = call.in[2][position * rotary + i];
        const double sine = call.in[2][position * rotary + half + i] * (op.inverse ? -1 : 1);
        const std::int64_t base = row * width + head * op.head_dim;
        const std::int64_t first = base + (op.interleaved ? 2 * i : i);
        const std::int64_t second = base + (op.interleaved ? 2 * i + 1 : i + half);
        const double a = call.in[0][first], b = call.in[0][second];
        call.out[0].set(first, a * cosine - b * sine,
                        3 * kU * (std::abs(a * cosine) + std::abs(b * sine)));
        call.out[0].set(second, b * cosine + a * sine,
                        3 * kU * (std::abs(b * cosine) + std::abs(a * sine)));
      }
    }
  }
}

}  // namespace volta::reference
