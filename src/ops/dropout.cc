// Dropout: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Dropout& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "x, rng"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.is(1, "rng", kRngSpec));
  VOLTA_TRY(check.fraction(op.p, "p"));
  return SpecList{inputs[0]};
}

// The mask depends on rng and the stream only, so the same op drops the same elements of dy.
Result<Gradients> gradient(const Dropout& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  if (!context.wanted[0]) return grads;
  VOLTA_TRY(grads[0], context.graph.add_one(op, {context.output_grads[0], context.inputs[1]}));
  return grads;
}

OpTypes types(const Dropout&) { return kLikeX; }

OpEffects effects(const Dropout&) { return {.writes = 0, .overwrites = 0b1}; }
OpCost cost(const Dropout& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 2, inputs, outputs);
}

}  // namespace volta::rules
