// Cases of Unary and UnaryGrad.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

namespace {

struct Kind {
  const char* name;
  UnaryKind kind;
  Values values;
  std::vector<double> extremes;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"none", UnaryKind::kNone, uniform(-3, 3), {0, NAN, INFINITY, -INFINITY, 3e38, 1e-45}},
      {"scale", UnaryKind::kScale, uniform(-3, 3), {0, NAN, INFINITY, -INFINITY, 3e38, 1e-45}},
      {"exp",
       UnaryKind::kExp,
       uniform(-3, 3),
       {0, NAN, INFINITY, -INFINITY, 88.7, 89, -87, -100, -103.9, -104.5, 1e-30}},
      {"log", UnaryKind::kLog, uniform(0.1, 5), {0, NAN, INFINITY, -1, 1e-38, 1, 3e38}},
      {"sqrt", UnaryKind::kSqrt, uniform(0.1, 5), {0, NAN, INFINITY, -1, 1e-38, 1, 3e38}},
      {"square", UnaryKind::kSquare, uniform(-3, 3), {0, NAN, INFINITY, 1e20, 1e-25}},
      {"reciprocal", UnaryKind::kReciprocal, away(0.2, 3), {0, NAN, INFINITY, 1e-39, 1e38}},
      {"tanh",
       UnaryKind::kTanh,
       uniform(-3, 3),
       {0, NAN, INFINITY, -INFINITY, 1e-20, 0.6249, 0.6251, 9, 50, 1e10}},
      {"relu", UnaryKind::kRelu, away(0.01, 3), {0, NAN, INFINITY, -INFINITY, 1e-45}},
      {"gelu", UnaryKind::kGelu, uniform(-3, 3), {0, NAN, INFINITY, 1e-20, 5, 9, 100}},
      {"gelu_tanh", UnaryKind::kGeluTanh, uniform(-3, 3), {0, NAN, 1e-20, 5, 9, 100}},
      {"silu", UnaryKind::kSilu, uniform(-3, 3), {0, NAN, INFINITY, 1e-20, -20, -80, 20, 100}},
  };
  return all;
}

}  // namespace

std::vector<OpCase> cases(const Unary&) {
  std::vector<OpCase> all;
  for (const Kind& kind : kinds()) {
    const Unary op = {kind.kind, -1.7f};
    const std::string name = kind.name;
    all.push_back(OpCase(name, op).in(f32({5, 3, 7}), kind.values).grad({0}).by_rows({0}));
    all.push_back(OpCase(name + "_extremes", op).in(f32({33}), list(kind.extremes)).by_rows({0}));
  }
  all.push_back(OpCase("scalar", Unary{UnaryKind::kExp}).in(f32(Shape())).grad({0}));
  all.push_back(OpCase("many", Unary{UnaryKind::kGelu}).in(f32({70001}), uniform(-6, 6)));
  return all;
}

std::vector<OpCase> cases(const UnaryGrad&) {
  std::vector<OpCase> all;
  for (const Kind& kind : kinds()) {
    const UnaryGrad op = {kind.kind, -1.7f};
    all.push_back(
        OpCase(kind.name, op).in(f32({5, 31}), kind.values).in(f32({5, 31})).by_rows({0, 1}));
  }
  for (const auto& [name, kind] : {std::pair{"relu_at_zero", UnaryKind::kRelu},
                                   {"tanh_flat", UnaryKind::kTanh},
                                   {"silu_tail", UnaryKind::kSilu},
                                   {"gelu_tail", UnaryKind::kGelu},
                                   {"gelu_tanh_tail", UnaryKind::kGeluTanh}}) {
    all.push_back(OpCase(name, UnaryGrad{kind})
                      .in(f32({21}), list({0, 5, -5, 8.5, -8.5, 20, -20, NAN}))
                      .in(f32({21})));
  }
  all.push_back(OpCase("many", UnaryGrad{UnaryKind::kSilu})
                    .in(f32({50, 1001}), uniform(-6, 6))
                    .in(f32({50, 1001}))
                    .by_rows({0, 1}));
  return all;
}

}  // namespace volta::op_test
