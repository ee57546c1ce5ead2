// The search on simulated CPUs: finds the optimum of the grid through noise, keeps the default
// where nothing is better, ends in time, and passes on what goes wrong.
#include "tuner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "simulated_cpu.h"

namespace volta::tuner {
namespace {

using cpu::MatMulParameters;
using cpu::MatMulShape;
using cpu::Simd;
using test::SimulatedCpu;
using test::SimulatedMachine;

constexpr CacheSizes kCaches = {.l1d = 32 << 10, .l2 = 1 << 20, .l3 = 32 << 20};

constexpr auto go_on = [](const SearchProgress&) { return true; };

struct Outcome {
  SearchResult result;
  double chosen = 0, fallback = 0, optimum = 0;  // True seconds.
};

Outcome run(const SimulatedCpu& cpu, const MatMulShape& shape, Simd simd, std::uint64_t seed,
            SearchOptions options = {}) {
  SimulatedMachine machine(cpu, shape, simd, seed);
  const std::vector<Candidate> grid = candidates(shape, simd, kCaches);
  const MatMulParameters fallback = cpu::default_parameters(simd, shape);
  options.now = [&] { return machine.now(); };
  const auto result = search(
      grid, fallback,
      [&](const MatMulParameters& p) -> Result<double> { return machine.measure(p); }, options,
      go_on);
  Outcome outcome;
  if (!result) {
    ADD_FAILURE() << result.error().message();
    return outcome;
  }
  outcome.result = *result;
  outcome.chosen = machine.true_seconds(result->chosen);
  outcome.fallback = outcome.optimum = machine.true_seconds(fallback);
  for (const Candidate& candidate : grid) {
    outcome.optimum = std::min(outcome.optimum, machine.true_seconds(candidate.parameters));
  }
  return outcome;
}

MatMulShape shape_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.b_type = DType::kF32, .packed = true, .threads = 1, .m = m, .n = n, .k = k};
}

TEST(Search, FindsTheOptimumOfSimulatedCpusThroughTheirNoise) {
  double product = 1;
  int searches = 0, bad_defaults = 0;
  for (const SimulatedCpu& cpu : test::simulated_cpus()) {
    for (const MatMulShape& shape : {shape_of(512, 512, 512), shape_of(128, 3072, 768),
                                     shape_of(8, 768, 3072), shape_of(1, 4096, 4096)}) {
      for (const Simd simd : {Simd::kAvx512, Simd::kAvx2}) {
        SCOPED_TRACE(cpu.name + ", m " + std::to_string(shape.m) + ", " + cpu::simd_name(simd));
        const Outcome outcome = run(cpu, shape, simd, 7);
        EXPECT_LE(outcome.chosen, 1.01 * outcome.optimum);
        EXPECT_LE(outcome.chosen, 1.002 * outcome.fallback);
        if (outcome.fallback > 1.06 * outcome.optimum) {
          ++bad_defaults;
          EXPECT_GE(outcome.fallback / outcome.chosen, 1.05);
          EXPECT_FALSE(outcome.result.default_kept);
          EXPECT_NEAR(outcome.result.gain, outcome.fallback / outcome.chosen,
                      0.03 * outcome.result.gain);
        }
        product *= outcome.fallback / outcome.chosen;
        ++searches;
      }
    }
  }
  EXPECT_GE(bad_defaults, searches / 4);
  EXPECT_GE(std::pow(product, 1.0 / searches), 1.05);
}

TEST(Search, OtherSeedsOfTheNoiseGiveNoWorseChoices) {
  const std::vector<SimulatedCpu> cpus = test::simulated_cpus();
  int near = 0, searches = 0;
  for (const SimulatedCpu& cpu : {cpus[0], cpus[1], cpus.back()}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed, ++searches) {
      SCOPED_TRACE(cpu.name + ", seed " + std::to_string(seed));
      const Outcome outcome = run(cpu, shape_of(512, 512, 512), Simd::kAvx512, seed);
      near += outcome.chosen <= 1.01 * outcome.optimum ? 1 : 0;
      EXPECT_LE(outcome.chosen, 1.05 * outcome.optimum);
      EXPECT_LE(outcome.chosen, 1.005 * outcome.fallback);
    }
  }
  EXPECT_GE(near, searches * 19 / 20);
}

TEST(Search, KeepsADefaultThatNothingBeats) {
  const MatMulShape shape = shape_of(512, 512, 512);
  const MatMulParameters fallback = cpu::default_parameters(Simd::kAvx512, shape);
  const std::vector<Candidate> grid = candidates(shape, Simd::kAvx512, kCaches);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomSequence random({.seed = seed, .stream = 1, .step = 0});
    double clock = 0;
    const auto result = search(
        grid, fallback,
        [&](const MatMulParameters& p) -> Result<double> {
          clock += 1e-3;  // All alike, give or take 2%.
          return (p == fallback ? 1e-3 : 1.001e-3) * (1 + 0.04 * random.next_float());
        },
        {.now = [&] { return clock; }}, go_on);
    ASSERT_TRUE(result);
    EXPECT_TRUE(result->default_kept) << result->gain;
    EXPECT_EQ(result->chosen, fallback);
    EXPECT_EQ(result->gain, 1.0);
    EXPECT_EQ(result->before.seconds, result->after.seconds);
  }
}

TEST(Search, EndsInTimeHoweverSlowTheProduct) {
  const SimulatedCpu cpu = test::simulated_cpus()[3];
  for (const std::int64_t size : {64, 512, 4096}) {
    const Outcome outcome =
        run(cpu, shape_of(size, size, size), Simd::kAvx512, 1, {.budget_seconds = 3});
    const double once = outcome.fallback;
    // A cold first product, a first round of four, a duel of three pairs: no search does without.
    EXPECT_LE(outcome.result.seconds, 3 * 1.25 + 50 * once) << size;
    EXPECT_GE(outcome.result.measurements, 12);
    EXPECT_GT(outcome.result.tried, 3);
    EXPECT_LE(outcome.result.tried, outcome.result.candidates);
    EXPECT_LE(outcome.chosen, 1.005 * outcome.fallback);
  }
}

TEST(Search, TellsHowItStands) {
  const SimulatedCpu cpu = test::simulated_cpus()[1];
  const MatMulShape shape = shape_of(256, 256, 256);
  SimulatedMachine machine(cpu, shape, Simd::kAvx2, 1);
  const auto grid = candidates(shape, Simd::kAvx2, kCaches);
  std::int64_t calls = 0;
  double part = 0, gain = 0;
  const auto result = search(
      grid, cpu::default_parameters(Simd::kAvx2, shape.m),
      [&](const MatMulParameters& p) -> Result<double> { return machine.measure(p); },
      {.budget_seconds = 1, .now = [&] { return machine.now(); }},
      [&](const SearchProgress& progress) {
        EXPECT_EQ(progress.measured, ++calls);
        EXPECT_GE(progress.part, part);
        EXPECT_LE(progress.part, 1.0);
        part = progress.part;
        gain = std::max(gain, progress.best_gain);
        return true;
      });
  ASSERT_TRUE(result);
  EXPECT_EQ(result->measurements, calls);
  EXPECT_EQ(result->candidates, static_cast<std::int64_t>(grid.size()));
  EXPECT_GT(gain, 1.0);
  EXPECT_GT(result->before.seconds, result->after.seconds);
  EXPECT_GT(result->before.spread, 0.0);
}

TEST(Search, EndsWhenAsked) {
  const auto grid = candidates(shape_of(64, 64, 64), Simd::kAvx2, kCaches);
  for (const std::int64_t most : {1, 2, 30, 400}) {
    double clock = 0;
    const auto result = search(
        grid, cpu::default_parameters(Simd::kAvx2, 64),
        [&](const MatMulParameters&) -> Result<double> {
          clock += 1e-3;
          return 1e-3;
        },
        {.now = [&] { return clock; }},
        [&](const SearchProgress& progress) { return progress.measured < most; });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kInterrupted);
  }
}

TEST(Search, PassesOnWhatGoesWrong) {
  const auto grid = candidates(shape_of(64, 64, 64), Simd::kAvx2, kCaches);
  const MatMulParameters fallback = cpu::default_parameters(Simd::kAvx2, 64);
  const auto code_of = [&](std::span<const Candidate> all, MeasureFunction measure,
                           const SearchOptions& options) {
    const auto result = search(all, fallback, measure, options, go_on);
    EXPECT_FALSE(result);
    return result ? ErrorCode::kNotFound : result.error().code();
  };
  int left = 40;
  const auto failing = [&](const MatMulParameters&) -> Result<double> {
    if (--left < 0) return fail(ErrorCode::kMismatch, "other bits");
    return 1e-3;
  };
  EXPECT_EQ(code_of(grid, failing, {}), ErrorCode::kMismatch);
  for (const double time : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    const auto constant = [&](const MatMulParameters&) -> Result<double> { return time; };
    EXPECT_EQ(code_of(grid, constant, {}), ErrorCode::kInternal);
  }
  const auto fine = [](const MatMulParameters&) -> Result<double> { return 1e-3; };
  EXPECT_EQ(code_of({}, fine, {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(grid, fine, {.budget_seconds = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(grid, fine, {.runs = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(grid, fine, {.entrants = 0}), ErrorCode::kInvalidArgument);
}

TEST(Search, AGridOfTheDefaultAloneKeepsIt) {
  const MatMulParameters fallback = cpu::default_parameters(Simd::kAvx2, 64);
  const std::vector<Candidate> grid = {{fallback, 1.0}};
  double clock = 0;
  const auto result = search(
      grid, fallback, [&](const MatMulParameters&) -> Result<double> { return clock += 0.01; },
      {.now = [&] { return clock; }}, go_on);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->default_kept);
}

TEST(Search, TimingsStandForTheLowerQuartile) {
  const std::vector<double> seconds = {5, 1, 2, 3, 100};
  EXPECT_EQ(timing_of(seconds).seconds, 2.0);
  EXPECT_EQ(timing_of(seconds).spread, 1.5);
  EXPECT_EQ(timing_of({}).seconds, 0.0);
}

}  // namespace
}  // namespace volta::tuner
