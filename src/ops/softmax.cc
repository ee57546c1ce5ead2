// Softmax and SoftmaxGrad: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Softmax& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.float_rows(0, "x"));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Softmax& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0], context.graph.add_one(SoftmaxGrad{op.scale},
                                            {context.outputs[0], context.output_grads[0]}));
  return grads;
}

OpTypes types(const Softmax&) { return kLikeX; }

OpEffects effects(const Softmax&) { return {.writes = 0, .overwrites = 0b1}; }
OpCost cost(const Softmax& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kNonlinear + 3, inputs, outputs);
}

Result<SpecList> infer(const SoftmaxGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "y, dy"));
  VOLTA_TRY(check.float_rows(0, "y"));
  VOLTA_TRY(check.is(1, "dy", inputs[0]));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const SoftmaxGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const SoftmaxGrad&) { return {.activations = 0b11, .any = 0, .results = 0b1}; }

OpEffects effects(const SoftmaxGrad&) { return {.writes = 0, .overwrites = 0b11}; }
OpCost cost(const SoftmaxGrad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 5, inputs, outputs);
}

}  // namespace volta::rules
