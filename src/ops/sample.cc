// The ops that choose tokens: Argmax and Sample.
#include <limits>

#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// Input 0 is f[.., V], and V is at most the largest i32, because an i32 must index it.
Status check_choices(const Check& check, Specs inputs, std::string_view name) {
  VOLTA_TRY(check.float_rows(0, name));
  return check.that(inputs[0].shape[-1] <= std::numeric_limits<std::int32_t>::max(),
                    "a last axis that an i32 can index");
}

}  // namespace

Result<SpecList> infer(const Argmax& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check_choices(check, inputs, "x"));
  return SpecList{{DType::kI32, drop_last(inputs[0].shape)}};
}

Result<Gradients> gradient(const Argmax& op, const GradientContext&) {
  return not_differentiable(op, "it chooses an index");
}

OpTypes types(const Argmax&) { return kAnyX; }

OpEffects effects(const Argmax&) { return kPure; }
OpCost cost(const Argmax& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kCheap, inputs, outputs);
}

Result<SpecList> infer(const Sample& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(5, "logits, params, rng, counts, sequences"));
  VOLTA_TRY(check_choices(check, inputs, "logits"));
  VOLTA_TRY(check.that(inputs[0].shape.rank() == 2, "logits [rows, vocabulary]"));
  const std::int64_t rows = inputs[0].shape[0];
  VOLTA_TRY(check.is(1, "params", {DType::kF32, Shape(rows, kSampleParams)}));
  VOLTA_TRY(check.is(2, "rng", {DType::kI64, Shape(rows, 2)}));
  const std::int64_t tokens = inputs[0].shape[1];
  VOLTA_TRY(check.that(inputs[3].shape.rank() == 3, "counts [sequences, 2, vocabulary]"));
  VOLTA_TRY(check.is(3, "counts", {DType::kI32, Shape(inputs[3].shape[0], 2, tokens)}));
  VOLTA_TRY(check.is(4, "sequences", {DType::kI32, Shape(rows)}));
  VOLTA_TRY(check.that(op.top >= 0 && op.top <= tokens, "top from 0 to the vocabulary"));
  SpecList outputs = {{DType::kI32, Shape(rows)}, {DType::kF32, Shape(rows)}};
  if (op.top > 0) {
    outputs.push_back({DType::kI32, Shape(rows, op.top)});
    outputs.push_back({DType::kF32, Shape(rows, op.top)});
  }
  return outputs;
}

Result<Gradients> gradient(const Sample& op, const GradientContext&) {
  return not_differentiable(op, "it draws a token");
}

OpTypes types(const Sample&) { return kAnyX; }

// Writes counts.
OpEffects effects(const Sample&) { return {.writes = 0b1000, .overwrites = 0}; }

// Each row reads all counts of its sequence, and writes only the count of the new token.
OpCost cost(const Sample&, Specs inputs, Specs outputs) {
  const double counts = 2 * elements(inputs[0]) * static_cast<double>(sizeof(std::int32_t));
  return estimate(
      pointwise_flops(kNonlinear + 4, inputs, outputs),
      total_bytes(inputs.first(3)) + counts + total_bytes(inputs.last(1)) + total_bytes(outputs));
}

}  // namespace volta::rules
