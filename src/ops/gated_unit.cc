// GatedUnit and GatedUnitGrad: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const GatedUnit& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "gate, up"));
  VOLTA_TRY(check.activation(op.activation));
  VOLTA_TRY(check.floating(0, "gate"));
  VOLTA_TRY(check.is(1, "up", inputs[0]));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const GatedUnit& op, const GradientContext& context) {
  const std::array operands = {context.inputs[0], context.inputs[1], context.output_grads[0]};
  VOLTA_TRY(auto grads, context.graph.add(GatedUnitGrad{op.activation}, operands));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!context.wanted[i]) grads[i] = ValueId();
  }
  return grads;
}

OpTypes types(const GatedUnit&) { return {.activations = 0b11, .any = 0, .results = 0b1}; }

OpEffects effects(const GatedUnit&) { return {.writes = 0, .overwrites = 0b11}; }
OpCost cost(const GatedUnit& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kNonlinear + 1, inputs, outputs);
}

Result<SpecList> infer(const GatedUnitGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(3, "gate, up, dy"));
  VOLTA_TRY(check.activation(op.activation));
  VOLTA_TRY(check.floating(0, "gate"));
  VOLTA_TRY(check.is(1, "up", inputs[0]));
  VOLTA_TRY(check.is(2, "dy", inputs[0]));
  return SpecList{inputs[0], inputs[0]};
}

Result<Gradients> gradient(const GatedUnitGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const GatedUnitGrad&) { return {.activations = 0b111, .any = 0, .results = 0b11}; }

OpEffects effects(const GatedUnitGrad&) { return {.writes = 0, .overwrites = 0b111}; }
OpCost cost(const GatedUnitGrad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kNonlinear + 5, inputs, outputs);
}

}  // namespace volta::rules
