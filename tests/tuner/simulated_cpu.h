// CPUs that exist on paper only: how long a product takes on them is a formula, what a tuner would
// measure is that with the noise of a shared machine. Their formulas share nothing with the model
// that orders the tuner's candidates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/cpu/matmul_parameters.h"
#include "kernels/cpu/matmul_plan.h"

namespace volta::test {

struct SimulatedCpu {
  std::string name;
  double gflops = 100;            ///< Of the best tile.
  double best_accumulators = 24;  ///< Vectors of sums in a tile; fewer and more are slower.
  double row_cost = 0.0;          ///< What each row of a tile beyond 4 costs.
  double l1_bytes = 32e3, l2_bytes = 1e6;
  double l1_miss = 0.1, l2_miss = 0.25;  ///< How much slower when a strip or a slice does not fit.
  double k_entry = 8.0;                  ///< Steps of K that entering a block costs.
  double best_prefetch = 4096, prefetch_gain = 0.1;
  double m_block_gain = 0.0, best_m_block = 96;
  double rugged = 0.01;  ///< Each value of each parameter is off by up to this.
  double noise = 0.01;   ///< Relative, either way.
  double busy = 0.1;     ///< The chance that somebody else takes part of a measurement.

  /// The true seconds of one product.
  double seconds(const cpu::MatMulParameters& p, const cpu::MatMulShape& s, cpu::Simd simd) const {
    const double lanes = static_cast<double>(cpu::panel_width(simd)) / 2;
    const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
               k = static_cast<double>(s.k);
    const double rows = m / std::ceil(m / p.tile.rows);
    const double sums = rows * p.tile.columns / lanes;
    const double k_block = std::min<double>(p.k_block, k), n_block = std::min<double>(p.n_block, n);
    const double m_block = std::min<double>(p.m_block, m);
    double time = 2 * m * n * k / (gflops * 1e9);
    time *= 1 + 0.5 * std::abs(std::log2(sums / std::min(best_accumulators, 12 * m)));
    time *= 1 + row_cost * std::max(0.0, rows - 4);
    time *= 1 + k_entry / k_block;
    time *= 1 + l1_miss * smooth_step(k_block * p.tile.columns * 4 / l1_bytes);
    time *= 1 + l2_miss * smooth_step(k_block * n_block * 4 / l2_bytes);
    time *= 1 + 0.02 * n / n_block / 16;
    if (best_prefetch > 0) {
      const double ahead = std::max(p.prefetch_bytes, 256);
      time *= 1 + prefetch_gain * std::abs(std::log2(ahead / best_prefetch)) / 4;
    } else {
      time *= 1 + prefetch_gain * (p.prefetch_bytes > 0 ? 1 : 0);
    }
    time *= 1 + m_block_gain * std::min(2.0, std::abs(std::log2(m_block / best_m_block))) / 2;
    for (const std::int32_t value : {p.tile.rows * 1000 + p.tile.columns, -p.k_block,
                                     p.m_block * 3 + 1, p.n_block * 5 + 2, p.prefetch_bytes * 7}) {
      time *= 1 + rugged * luck(value);
    }
    return time;
  }

 private:
  static double smooth_step(double fill) { return 1 / (1 + std::exp(-6 * (fill - 1))); }
  double luck(std::int32_t value) const {
    const std::uint64_t bits = hash64(object_bytes(value)) ^ hash64(name);
    return uniform_double(static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits));
  }
};

/// What a tuner sees of such a CPU: its measurements and its clock.
class SimulatedMachine {
 public:
  SimulatedMachine(const SimulatedCpu& cpu, const cpu::MatMulShape& shape, cpu::Simd simd,
                   std::uint64_t seed)
      : cpu_(cpu), shape_(shape), simd_(simd), random_({.seed = seed, .stream = 0, .step = 0}) {}

  double now() const { return now_; }
  double true_seconds(const cpu::MatMulParameters& p) const {
    return cpu_.seconds(p, shape_, simd_);
  }
  /// A measurement: noise either way, somebody else's work now and then, a long interruption
  /// seldom, and a first run that is cold.
  double measure(const cpu::MatMulParameters& p) {
    const Random4 r = random_.next();
    double time = true_seconds(p);
    time *= 1 + cpu_.noise * (uniform_float(r.x) + uniform_float(r.y) - 1);
    if (uniform_float(r.z) < cpu_.busy) time *= 1 + 0.4 * uniform_float(r.w);
    if (uniform_float(r.w) < 0.01f) time *= 10;
    if (now_ == 0) time *= 30;
    now_ += std::max(time, 300e-6);  // Short products are measured in batches.
    return time;
  }

 private:
  const SimulatedCpu& cpu_;
  cpu::MatMulShape shape_;
  cpu::Simd simd_;
  RandomSequence random_;
  double now_ = 0;
};

/// Of every kind that is worth fearing: small and large caches, other favourite tiles, no use for
/// prefetching, much noise.
inline std::vector<SimulatedCpu> simulated_cpus() {
  std::vector<SimulatedCpu> cpus;
  cpus.push_back({.name = "like the default"});
  cpus.push_back({.name = "small caches", .l1_bytes = 24e3, .l2_bytes = 200e3, .l2_miss = 0.4});
  cpus.push_back({.name = "few registers", .best_accumulators = 12, .l1_miss = 0.2});
  cpus.push_back({.name = "slow rows", .row_cost = 0.06});
  cpus.push_back({.name = "far prefetch", .best_prefetch = 8192, .prefetch_gain = 0.6});
  cpus.push_back({.name = "no prefetch", .best_prefetch = 0, .prefetch_gain = 0.15});
  cpus.push_back({.name = "small blocks of rows", .m_block_gain = 0.3, .best_m_block = 64});
  cpus.push_back({.name = "dear blocks of K", .l1_bytes = 200e3, .l2_bytes = 8e6, .k_entry = 40});
  cpus.push_back({.name = "noisy", .l2_bytes = 300e3, .rugged = 0.02, .noise = 0.02, .busy = 0.3});
  return cpus;
}

}  // namespace volta::test
