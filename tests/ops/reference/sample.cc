// Argmax and Sample in double. A draw whose uniform number lies within rounding of a border between
// two tokens could go either way; the fixed seeds of the cases keep clear of that.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "ops/reference/reference.h"

namespace volta::reference {

namespace {

std::int64_t argmax(const std::vector<double>& x) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) return static_cast<std::int64_t>(i);
    if (x[i] > x[best]) best = i;
  }
  return static_cast<std::int64_t>(best);
}

struct Params {
  double temperature, top_k, top_p, min_p, repetition, frequency, presence;
};

// The likeliest first; equally likely ones by index.
std::vector<std::size_t> by_likelihood(const std::vector<double>& logits) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  return order;
}

// The weights left after temperature and filters, each token's at most 1.
std::vector<double> weights_of(std::vector<double> logits, const Params& params) {
  const double top = *std::ranges::max_element(logits);
  std::vector<double> weights;
  for (const double x : logits) weights.push_back(std::exp((x - top) / params.temperature));
  const std::vector<std::size_t> order = by_likelihood(logits);
  std::size_t kept = order.size();
  if (params.top_k >= 1) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  if (params.top_p < 1) {
    double total = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < kept; ++i) total += weights[order[i]];
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weights[order[i]];
      if (sum >= params.top_p * total) kept = i + 1;
    }
  }
  for (std::size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0.0;
  for (double& w : weights) w = w < params.min_p ? 0.0 : w;
  return weights;
}

std::int64_t draw(const std::vector<double>& weights, double uniform) {
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<std::int64_t>(i);
  }
  return 0;
}

}  // namespace

void compute(const Argmax&, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.out[0].size(); ++row) {
    const auto first = call.in[0].data.begin() + row * n;
    call.out[0][row] = static_cast<double>(argmax({first, first + n}));
  }
}

void compute(const Sample& op, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.out[0].size(); ++row) {
    const auto sequence = static_cast<std::int64_t>(call.in[4][row]);
    const auto first = call.in[0].data.begin() + row * n;
    const std::vector<double> logits(first, first + n);
    const Array& p = call.in[1];
    const auto param = [&](std::int64_t i) { return p[row * kSampleParams + i]; };
    const Params params = {param(0), param(1), param(2), param(3), param(4), param(5), param(6)};
    if (params.temperature < 0) {  // Skipped.
      call.out[0][row] = -1.0;
      call.out[1].set(row, 0.0, 0.0);
      for (std::int64_t i = 0; i < op.top; ++i) {
        call.out[2][row * op.top + i] = -1.0;
        call.out[3].set(row * op.top + i, 0.0, 0.0);
      }
      continue;
    }
    std::vector<double> penalised = logits;
    for (std::int64_t i = 0; i < n; ++i) {
      const double before = call.in[3][2 * sequence * n + i];
      const double now = call.in[3][(2 * sequence + 1) * n + i];
      double& x = penalised[static_cast<std::size_t>(i)];
      if (before > 0 || now > 0) x = x > 0 ? x / params.repetition : x * params.repetition;
      if (now > 0) x -= params.frequency * now + params.presence;
    }
    std::int64_t token = argmax(penalised);
    if (params.temperature > 0) {
      const Random4 bits = random_bits(
          static_cast<std::uint64_t>(static_cast<std::int64_t>(call.in[2][row * 2])), 0xFFFFFFFFu,
          static_cast<std::uint32_t>(static_cast<std::int64_t>(call.in[2][row * 2 + 1])), 0);
      token = draw(weights_of(penalised, params), uniform_double(bits.x, bits.y));
    }
    call.in[3][(2 * sequence + 1) * n + token] += 1;
    call.out[0][row] = static_cast<double>(token);
    const double top = *std::ranges::max_element(logits);
    double sum = 0.0, exponents = 0.0;
    for (const double x : logits) {
      sum += std::exp(x - top);
      exponents += std::exp(x - top) * std::abs(x - top);
    }
    const double lse = top + std::log(sum);
    const auto set_logprob = [&](Array& out, std::int64_t at, std::size_t chosen) {
      const double logprob = logits[chosen] - lse;
      // As the lse of CrossEntropy, and one more subtraction.
      const double error = gamma(n) + kExp +
                           kUnit * (exponents / sum + 4 * std::abs(std::log(sum)) + std::abs(lse) +
                                    std::abs(logprob));
      out.set(at, logprob, error);
    };
    set_logprob(call.out[1], row, static_cast<std::size_t>(token));
    if (op.top == 0) continue;
    const std::vector<std::size_t> order = by_likelihood(logits);
    for (std::int64_t i = 0; i < op.top; ++i) {
      const std::size_t chosen = order[static_cast<std::size_t>(i)];
      call.out[2][row * op.top + i] = static_cast<double>(chosen);
      set_logprob(call.out[3], row * op.top + i, chosen);
    }
  }
}

}  // namespace volta::reference
