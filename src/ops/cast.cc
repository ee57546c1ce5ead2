// Cast: types and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Cast& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  const DType from = inputs[0].dtype;
  VOLTA_TRY(
      check.that((is_float(from) && is_float(op.to)) || from == DType::kF32 || op.to == DType::kF32,
                 "a conversion between f32, bf16 and f16, or between an integer and f32"));
  return SpecList{{op.to, inputs[0].shape}};
}

Result<Gradients> gradient(const Cast& op, const GradientContext& context) {
  if (!is_float(op.to)) return not_differentiable(op, "it rounds to integers");
  Gradients grads = no_gradients(context);
  if (!is_float(context.graph.spec(context.inputs[0]).dtype)) return grads;
  grads[0] = context.output_grads[0];
  if (context.graph.spec(grads[0]).dtype != context.type(0)) {
    VOLTA_TRY(grads[0], context.graph.add_one(Cast{context.type(0)}, {grads[0]}));
  }
  return grads;
}

OpTypes types(const Cast&) { return kAnyX; }

OpEffects effects(const Cast&) { return kPure; }
OpCost cost(const Cast& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 0, inputs, outputs);
}

}  // namespace volta::rules
