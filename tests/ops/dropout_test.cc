// Cases of Dropout, and its share of zeros.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Dropout&) {
  std::vector<OpCase> all;
  const Values rng = list({987654321, 17});
  for (const std::int64_t n : {1, 3, 4, 61}) {
    all.push_back(OpCase("elements_" + std::to_string(n), Dropout{0.4f, 5})
                      .in(f32(Shape(n)))
                      .in(rng_spec(), rng)
                      .grad({0}));
  }
  all.push_back(OpCase("off", Dropout{0.0f, 5}).in(f32({3, 7})).in(rng_spec(), rng).grad({0}));
  all.push_back(OpCase("nearly_all", Dropout{0.99f, 1}).in(f32({300})).in(rng_spec(), rng));
  all.push_back(OpCase("negative_seed", Dropout{0.5f, 0xFFFFFFFFu})
                    .in(f32({100}))
                    .in(rng_spec(), list({-5, 1})));
  all.push_back(OpCase("many", Dropout{0.1f, 3}).in(f32({70, 1001})).in(rng_spec(), rng));
  return all;
}

// Within five standard deviations of p.
TEST(Dropout, ZeroesTheShareItSays) {
  constexpr double kP = 0.3, kCount = 40000;
  const OpCase c = OpCase("share", Dropout{static_cast<float>(kP), 5})
                       .in(f32({static_cast<std::int64_t>(kCount)}), list({1}))
                       .in(rng_spec(), list({7, 7}));
  const OpRun run = run_op(device(cpu::best_simd(), 1), c.op, make_inputs(c));
  const auto zeros = std::ranges::count(to_doubles(run.outputs[0]), 0.0);
  EXPECT_NEAR(static_cast<double>(zeros), kP * kCount, 5 * std::sqrt(kP * (1 - kP) * kCount));
}

}  // namespace volta::op_test
