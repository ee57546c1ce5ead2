// Unary and UnaryGrad: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Unary& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.floating(0, "x"));
  if (op.kind == UnaryKind::kScale) VOLTA_TRY(check.finite(op.alpha, "alpha"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Unary& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  const ValueId dy = context.output_grads[0];
  if (op.kind == UnaryKind::kScale) {  // Linear, so the gradient does not need x.
    VOLTA_TRY(grads[0], context.graph.add_one(op, {dy}));
  } else {
    VOLTA_TRY(grads[0], context.graph.add_one(UnaryGrad{op.kind}, {context.inputs[0], dy}));
  }
  return grads;
}

OpTypes types(const Unary&) { return kLikeX; }

OpEffects effects(const Unary&) { return {.writes = 0, .overwrites = 0b1}; }
OpCost cost(const Unary& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, unary_flops(op.kind), inputs, outputs);
}

Result<SpecList> infer(const UnaryGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "x, dy"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.is(1, "dy like x:", inputs[0]));
  if (op.kind == UnaryKind::kScale) VOLTA_TRY(check.finite(op.alpha, "alpha"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const UnaryGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const UnaryGrad&) { return {.activations = 0b11, .any = 0, .results = 0b1}; }

OpEffects effects(const UnaryGrad&) { return {.writes = 0, .overwrites = 0b11}; }
OpCost cost(const UnaryGrad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 2 + unary_flops(op.kind), inputs, outputs);
}

}  // namespace volta::rules
