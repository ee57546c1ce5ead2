// Cases of Norm and NormGrad.
#include "ops/op_case.h"

namespace volta::op_test {

namespace {

struct Kind {
  const char* name;
  NormKind kind;
  bool has_bias;
  bool plus_one = false;
};
constexpr Kind kKinds[] = {{"layer", NormKind::kLayer, false},
                           {"layer_bias", NormKind::kLayer, true},
                           {"rms", NormKind::kRms, false},
                           {"rms_plus_one", NormKind::kRms, false, true}};

// Gemma's weights lie around 0.
Values weights_of(const Kind& kind) {
  return kind.plus_one ? uniform(-0.5, 0.5) : uniform(0.5, 1.5);
}

OpCase norm(const std::string& name, const Kind& kind, const Shape& shape, const Values& x,
            DType weight) {
  OpCase c(std::string(kind.name) + "_" + name,
           Norm{kind.kind, kind.has_bias, 1e-5f, kind.plus_one});
  const TensorSpec row = {weight, Shape(shape.columns())};
  c = std::move(c).in(f32(shape), x).in(row, weights_of(kind));
  if (kind.has_bias) c = std::move(c).in(row);
  c.rows = {0};
  return c;
}

}  // namespace

std::vector<OpCase> cases(const Norm&) {
  std::vector<OpCase> all;
  for (const Kind& kind : kKinds) {
    for (const std::int64_t columns : {2, 7, 16, 33}) {
      OpCase c =
          norm(std::to_string(columns), kind, Shape(2, 3, columns), uniform(-2, 2), DType::kF32);
      c.differentiable =
          kind.has_bias ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{0, 1};
      all.push_back(std::move(c));
    }
    all.push_back(norm("wide", kind, Shape(37, 1029), uniform(-2, 2), DType::kF32));
    all.push_back(norm("bf16", kind, Shape(5, 40), uniform(-2, 2), DType::kBF16));
    all.push_back(norm("f16", kind, Shape(5, 40), uniform(-2, 2), DType::kF16));
    all.push_back(norm("one_column", kind, Shape(5, 1), uniform(-2, 2), DType::kF32));
    all.push_back(norm("vector", kind, Shape(19), uniform(-2, 2), DType::kF32));
    all.back().rows = {};
    // A mean far larger than the spread: the variance must not be taken as E[x^2] - mean^2.
    all.push_back(norm("far_mean", kind, Shape(4, 64), uniform(1000, 1001), DType::kF32));
    all.push_back(norm("constant", kind, Shape(4, 64), list({3}), DType::kF32));
    all.push_back(norm("tiny", kind, Shape(4, 64), uniform(-1e-6, 1e-6), DType::kF32));
    all.push_back(norm("zero", kind, Shape(4, 64), list({0}), DType::kF32));
  }
  return all;
}

std::vector<OpCase> cases(const NormGrad&) {
  std::vector<OpCase> all;
  for (const Kind& kind : kKinds) {
    for (const Shape& shape : {Shape(1, 1), Shape(2, 3, 7), Shape(5, 33), Shape(140, 517)}) {
      const TensorSpec row = f32(Shape(shape.columns()));
      std::string name = kind.name;
      for (int i = 0; i < shape.rank(); ++i) name += "_" + std::to_string(shape[i]);
      all.push_back(OpCase(name, NormGrad{kind.kind, kind.has_bias, kind.plus_one})
                        .in(f32(shape), uniform(-2, 2))
                        .in(row, weights_of(kind))
                        .in(f32(Shape(shape.rows(), 2)))
                        .in(f32(shape))
                        .with([kind](std::vector<Array>& in) {
                          std::vector<Array> forward = {in[0], in[1]};
                          const auto out = reference::run(Norm{kind.kind}, forward);
                          store_rounded(in[2], out[1]);
                        }));
    }
    all.push_back(
        OpCase(std::string(kind.name) + "_bf16", NormGrad{kind.kind, kind.has_bias, kind.plus_one})
            .in(f32({3, 40}))
            .in(bf16({40}))
            .in(f32({3, 2}), list({kind.kind == NormKind::kRms ? 0.0 : 0.25, 2.0}))
            .in(f32({3, 40})));
  }
  return all;
}

}  // namespace volta::op_test
