// Unary and UnaryGrad: shapes and gradient.
#include "ops/check.h"

namespace volta::rules {

namespace {

std::string text(UnaryKind kind, float alpha) {
  Attributes text;
  text.word(unary_name(kind));
  if (kind == UnaryKind::kScale) text.value("alpha", alpha);
  return std::move(text).text();
}

}  // namespace

Result<SpecList> infer(const Unary& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.type(0, "x", DType::kF32));
  if (op.kind == UnaryKind::kScale) VOLTA_TRY(check.finite(op.alpha, "alpha"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Unary& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  const ValueId dy = context.output_grads[0];
  if (op.kind == UnaryKind::kScale) {  // Linear: its backward needs no x.
    VOLTA_TRY(grads[0], context.graph.add_one(op, {dy}));
  } else {
    VOLTA_TRY(grads[0], context.graph.add_one(UnaryGrad{op.kind}, {context.inputs[0], dy}));
  }
  return grads;
}

std::string attributes(const Unary& op) { return text(op.kind, op.alpha); }

Result<SpecList> infer(const UnaryGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "x, dy"));
  VOLTA_TRY(check.type(0, "x", DType::kF32));
  VOLTA_TRY(check.is(1, "dy like x:", inputs[0]));
  if (op.kind == UnaryKind::kScale) VOLTA_TRY(check.finite(op.alpha, "alpha"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const UnaryGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

std::string attributes(const UnaryGrad& op) { return text(op.kind, op.alpha); }

}  // namespace volta::rules
