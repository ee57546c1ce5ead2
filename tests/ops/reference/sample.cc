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
  double temperature, top_k, top_p, min_p, penalty;
};

// The weights left after temperature and filters, each token's at most 1.
std::vector<double> weights_of(std::vector<double> logits, const Params& params) {
  const double top = *std::ranges::max_element(logits);
  std::vector<double> weights;
  for (const double x : logits) weights.push_back(std::exp((x - top) / params.temperature));
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
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

void compute(const Sample&, Call& call) {
  const std::int64_t n = call.in[0].spec.shape.columns();
  for (std::int64_t row = 0; row < call.out[0].size(); ++row) {
    const auto first = call.in[0].data.begin() + row * n;
    const std::vector<double> logits(first, first + n);
    const Array& p = call.in[1];
    const Params params = {p[row * 5], p[row * 5 + 1], p[row * 5 + 2], p[row * 5 + 3],
                           p[row * 5 + 4]};
    if (params.temperature < 0) {  // Skipped.
      call.out[0][row] = -1.0;
      call.out[1].set(row, 0.0, 0.0);
      continue;
    }
    std::vector<double> penalised = logits;
    for (std::int64_t i = 0; i < n; ++i) {
      if (call.in[3][row * n + i] <= 0) continue;
      double& x = penalised[static_cast<std::size_t>(i)];
      x = x > 0 ? x / params.penalty : x * params.penalty;
    }
    std::int64_t token = argmax(penalised);
    if (params.temperature > 0) {
      const Random4 bits = random_bits(
          static_cast<std::uint64_t>(static_cast<std::int64_t>(call.in[2][row * 2])), 0xFFFFFFFFu,
          static_cast<std::uint32_t>(static_cast<std::int64_t>(call.in[2][row * 2 + 1])), 0);
      token = draw(weights_of(penalised, params), uniform_double(bits.x, bits.y));
    }
    call.in[3][row * n + token] += 1;
    call.out[0][row] = static_cast<double>(token);
    const double top = *std::ranges::max_element(logits);
    double sum = 0.0, exponents = 0.0;
    for (const double x : logits) {
      sum += std::exp(x - top);
      exponents += std::exp(x - top) * std::abs(x - top);
    }
    const double lse = top + std::log(sum);
    const double logprob = logits[static_cast<std::size_t>(token)] - lse;
    // As the lse of CrossEntropy, and one more subtraction.
    const double error =
        gamma(n) + kExp +
        kUnit * (exponents / sum + 4 * std::abs(std::log(sum)) + std::abs(lse) + std::abs(logprob));
    call.out[1].set(row, logprob, error);
  }
}

}  // namespace volta::reference
