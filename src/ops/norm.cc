// Norm and NormGrad: shapes and gradient.
#include <cmath>

#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// Checks x t[.., D] and weight f[D], which are inputs 0 and 1 of both ops.
Status check_x_and_weight(const Check& check, Specs inputs) {
  VOLTA_TRY(check.float_rows(0, "x"));
  VOLTA_TRY(check.floating(1, "weight"));
  const Shape row = Shape(inputs[0].shape[-1]);
  return check.that(inputs[1].shape == row, "weight " + to_string(row));
}

Status check_kind(const Check& check, NormKind kind, bool has_bias, bool plus_one) {
  VOLTA_TRY(check.that(kind == NormKind::kLayer || !has_bias, "no bias in an RMS norm"));
  return check.that(kind == NormKind::kRms || !plus_one, "plus_one in an RMS norm only");
}

TensorSpec stats_spec(const TensorSpec& x) { return {DType::kF32, Shape(x.shape.rows(), 2)}; }

}  // namespace

Result<SpecList> infer(const Norm& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_kind(check, op.kind, op.has_bias, op.plus_one));
  VOLTA_TRY(check.that(std::isfinite(op.eps) && op.eps > 0.0f, "a finite eps above 0"));
  VOLTA_TRY(op.has_bias ? check.count(3, "x, weight, bias") : check.count(2, "x, weight"));
  VOLTA_TRY(check_x_and_weight(check, inputs));
  if (op.has_bias) {
    VOLTA_TRY(check.floating(2, "bias"));
    VOLTA_TRY(check.that(inputs[2].shape == inputs[1].shape, "bias shaped like weight"));
  }
  return SpecList{inputs[0], stats_spec(inputs[0])};
}

Result<Gradients> gradient(const Norm& op, const GradientContext& context) {
  if (context.output_grads[1].valid()) return output_not_differentiable(op, "stats");
  const std::array operands = {context.inputs[0], context.inputs[1], context.outputs[1],
                               context.output_grads[0]};
  VOLTA_TRY(auto grads, context.graph.add(NormGrad{op.kind, op.has_bias, op.plus_one}, operands));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!context.wanted[i]) grads[i] = ValueId();
  }
  return grads;
}

OpTypes types(const Norm&) { return {.activations = 0b1, .any = 0b110, .results = 0b1}; }

OpEffects effects(const Norm&) { return kPure; }
// Counts two sums, a subtraction, a square, a scale and a shift per element.
OpCost cost(const Norm& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 7, inputs, outputs);
}

Result<SpecList> infer(const NormGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_kind(check, op.kind, op.has_bias, op.plus_one));
  VOLTA_TRY(check.count(4, "x, weight, stats, dy"));
  VOLTA_TRY(check_x_and_weight(check, inputs));
  VOLTA_TRY(check.is(2, "stats", stats_spec(inputs[0])));
  VOLTA_TRY(check.is(3, "dy", inputs[0]));
  const TensorSpec row = {DType::kF32, inputs[1].shape};
  SpecList outputs = {inputs[0], row};
  if (op.has_bias) outputs.push_back(row);
  return outputs;
}

Result<Gradients> gradient(const NormGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const NormGrad&) { return {.activations = 0b1001, .any = 0b10, .results = 0b1}; }

OpEffects effects(const NormGrad&) { return kPure; }
// Counts two sums over rows, two sums over columns, and the combination of them.
OpCost cost(const NormGrad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 14, inputs, outputs);
}

}  // namespace volta::rules
