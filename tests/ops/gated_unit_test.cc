// Cases of GatedUnit and GatedUnitGrad.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

namespace {

constexpr std::pair<const char*, Activation> kActivations[] = {{"none", Activation::kNone},
                                                               {"relu", Activation::kRelu},
                                                               {"gelu", Activation::kGelu},
                                                               {"gelu_tanh", Activation::kGeluTanh},
                                                               {"silu", Activation::kSilu}};

}  // namespace

std::vector<OpCase> cases(const GatedUnit&) {
  std::vector<OpCase> all;
  for (const auto& [name, activation] : kActivations) {
    all.push_back(OpCase(name, GatedUnit{activation})
                      .in(f32({3, 19}), away(0.01, 3))
                      .in(f32({3, 19}))
                      .grad({0, 1})
                      .by_rows({0, 1}));
  }
  all.push_back(OpCase("extremes", GatedUnit{Activation::kSilu})
                    .in(f32({35}), list({0, -80, 80, 1e-30, NAN, 3, 1e20}))
                    .in(f32({35}), list({1, -2, 0, 1e10, 5})));
  all.push_back(OpCase("scalar", GatedUnit{}).in(f32(Shape())).in(f32(Shape())).grad({0, 1}));
  all.push_back(OpCase("many", GatedUnit{})
                    .in(f32({70, 1001}), uniform(-5, 5))
                    .in(f32({70, 1001}))
                    .by_rows({0, 1}));
  return all;
}

std::vector<OpCase> cases(const GatedUnitGrad&) {
  std::vector<OpCase> all;
  for (const auto& [name, activation] : kActivations) {
    all.push_back(OpCase(name, GatedUnitGrad{activation})
                      .in(f32({5, 31}), uniform(-4, 4))
                      .in(f32({5, 31}))
                      .in(f32({5, 31}))
                      .by_rows({0, 1, 2}));
  }
  all.push_back(OpCase("many", GatedUnitGrad{Activation::kGeluTanh})
                    .in(f32({70, 1001}), uniform(-5, 5))
                    .in(f32({70, 1001}))
                    .in(f32({70, 1001}))
                    .by_rows({0, 1, 2}));
  return all;
}

}  // namespace volta::op_test
