// Cases of GlobalNorm, AdamW, Sgd, Accumulate and Fill.
#include <cmath>

#include "ops/op_case.h"

namespace volta::op_test {

namespace {

const Values kNorm = list({2.5, 0.4, 1});  // {norm, factor, finite}
const Values kNotFinite = list({NAN, 1, 0});
const Values kSchedule = list({0.01, 0.271, 0.003});  // {lr, 1 - beta1^t, 1 - beta2^t}

OpCase adamw(const std::string& name, const AdamW& op, const Shape& shape, const Values& stats) {
  return OpCase(name, op)
      .in(f32(shape))
      .in(f32(shape))
      .in(f32(shape), uniform(-0.1, 0.1))
      .in(f32(shape), uniform(0, 0.01))
      .in(f32({3}), kSchedule)
      .in(f32({3}), stats)
      .by_rows({0, 1, 2, 3});
}

OpCase sgd(const std::string& name, const Sgd& op, const Shape& shape, const Values& stats) {
  OpCase c(name, op);
  c = std::move(c).in(f32(shape)).in(f32(shape));
  c.rows = {0, 1};
  if (op.momentum > 0) {
    c = std::move(c).in(f32(shape));
    c.rows.push_back(2);
  }
  return std::move(c).in(f32({3}), kSchedule).in(f32({3}), stats);
}

}  // namespace

std::vector<OpCase> cases(const GlobalNorm&) {
  std::vector<OpCase> all;
  const auto norm = [](const std::string& name, float max_norm, const Values& loss,
                       const Values& gradients) {
    return OpCase(name, GlobalNorm{max_norm})
        .in(f32(Shape()), loss)
        .in(f32({7, 19}), gradients)
        .in(f32({1}), gradients)
        .in(f32({20001}), gradients);
  };
  all.push_back(norm("clipped", 1.0f, list({3}), uniform(-1, 1)));
  all.push_back(norm("not_reached", 1e6f, list({3}), uniform(-1, 1)));
  all.push_back(norm("off", 0.0f, list({3}), uniform(-1, 1)));
  all.push_back(norm("zero", 1.0f, list({3}), list({0})));
  all.push_back(norm("tiny", 1.0f, list({3}), list({1e-30})));       // Squares underflow in f32.
  all.push_back(norm("huge", 1.0f, list({3}), list({1e30})));        // And overflow.
  all.push_back(norm("beyond_f32", 1.0f, list({3}), list({3e38})));  // Finite, but not their norm.
  all.push_back(norm("nan_loss", 1.0f, list({NAN}), uniform(-1, 1)));
  all.push_back(norm("infinite_loss", 1.0f, list({INFINITY}), uniform(-1, 1)));
  all.push_back(OpCase("loss_only", GlobalNorm{1.0f}).in(f32({1}), list({3})));
  all.push_back(OpCase("nan_gradient", GlobalNorm{0.0f})
                    .in(f32({1}), list({3}))
                    .in(f32({9}), list({1, 2, NAN})));
  all.push_back(OpCase("infinite_gradient", GlobalNorm{0.0f})
                    .in(f32({1}), list({3}))
                    .in(f32({9}), list({1, 2, -INFINITY})));
  return all;
}

std::vector<OpCase> cases(const AdamW&) {
  std::vector<OpCase> all;
  all.push_back(adamw("plain", AdamW{}, Shape(33), kNorm));
  all.push_back(adamw("decay", AdamW{0.9f, 0.99f, 1e-8f, 0.1f}, Shape(5, 7), kNorm));
  all.push_back(adamw("no_memory", AdamW{0.0f, 0.0f, 1e-6f, 0.0f}, Shape(9), kNorm));
  all.push_back(adamw("not_finite", AdamW{}, Shape(19), kNotFinite));
  all.push_back(adamw("many", AdamW{0.9f, 0.95f, 1e-8f, 0.1f}, Shape(70, 1001), kNorm));
  return all;
}

std::vector<OpCase> cases(const Sgd&) {
  std::vector<OpCase> all;
  all.push_back(sgd("plain", Sgd{}, Shape(33), kNorm));
  all.push_back(sgd("momentum", Sgd{0.9f, 0.01f}, Shape(5, 7), kNorm));
  all.push_back(sgd("decay", Sgd{0.0f, 0.1f}, Shape(5, 7), kNorm));
  all.push_back(sgd("not_finite", Sgd{0.9f}, Shape(19), kNotFinite));
  all.push_back(sgd("many", Sgd{0.9f, 0.1f}, Shape(70, 1001), kNorm));
  return all;
}

std::vector<OpCase> cases(const Accumulate&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("sum", Accumulate{}).in(f32({5, 7})).in(f32({5, 7})).by_rows({0, 1}));
  all.push_back(OpCase("scaled", Accumulate{-0.3f}).in(f32({33})).in(f32({33})).by_rows({0, 1}));
  all.push_back(OpCase("scalar", Accumulate{}).in(f32(Shape())).in(f32(Shape())));
  all.push_back(OpCase("many", Accumulate{0.25f}).in(f32({70001})).in(f32({70001})));
  return all;
}

std::vector<OpCase> cases(const Fill&) {
  std::vector<OpCase> all;
  all.push_back(OpCase("zero", Fill{}).in(f32({5, 7})).by_rows({0}));
  all.push_back(OpCase("value", Fill{-1.5f}).in(f32({33})).by_rows({0}));
  all.push_back(OpCase("infinity", Fill{INFINITY}).in(f32(Shape())));
  all.push_back(OpCase("many", Fill{2.0f}).in(f32({70001})));
  return all;
}

}  // namespace volta::op_test
