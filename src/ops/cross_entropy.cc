// CrossEntropy and CrossEntropyGrad: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// Checks logits f[.., V] and targets i32[..], which are inputs 0 and 1 of both ops. Returns the
// spec of a tensor with one value per row.
Result<TensorSpec> check_logits(const Check& check, Specs inputs) {
  VOLTA_TRY(check.float_rows(0, "logits"));
  const Shape rows = drop_last(inputs[0].shape);
  VOLTA_TRY(check.is(1, "targets", {DType::kI32, rows}));
  return TensorSpec{DType::kF32, rows};
}

}  // namespace

Result<SpecList> infer(const CrossEntropy& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "logits, targets"));
  VOLTA_TRY(const TensorSpec row, check_logits(check, inputs));
  return SpecList{row, row};
}

Result<Gradients> gradient(const CrossEntropy& op, const GradientContext& context) {
  if (context.output_grads[1].valid()) return output_not_differentiable(op, "lse");
  Gradients grads = no_gradients(context);
  if (!context.wanted[0]) return grads;
  VOLTA_TRY(grads[0], context.graph.add_one(CrossEntropyGrad{},
                                            {context.inputs[0], context.inputs[1],
                                             context.outputs[1], context.output_grads[0]}));
  return grads;
}

OpTypes types(const CrossEntropy&) { return kAnyX; }

OpEffects effects(const CrossEntropy&) { return kPure; }
OpCost cost(const CrossEntropy& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kNonlinear + 2, inputs, outputs);
}

Result<SpecList> infer(const CrossEntropyGrad& op, Specs inputs) {
  const Check check(op, inputs);
  if (op.with_loss) {
    VOLTA_TRY(check.count(3, "logits, targets, dloss"));
    VOLTA_TRY(const TensorSpec row, check_logits(check, inputs));
    VOLTA_TRY(check.is(2, "dloss", row));
    return SpecList{inputs[0], row};
  }
  VOLTA_TRY(check.count(4, "logits, targets, lse, dloss"));
  VOLTA_TRY(const TensorSpec row, check_logits(check, inputs));
  VOLTA_TRY(check.is(2, "lse", row));
  VOLTA_TRY(check.is(3, "dloss", row));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const CrossEntropyGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const CrossEntropyGrad&) { return kLikeX; }

// dlogits may take the memory of logits only: the other inputs are smaller.
OpEffects effects(const CrossEntropyGrad&) { return {.writes = 0, .overwrites = 0b1}; }
OpCost cost(const CrossEntropyGrad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, (op.with_loss ? 2 : 1) * (kNonlinear + 2), inputs, outputs);
}

}  // namespace volta::rules
