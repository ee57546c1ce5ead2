// The ops at the end of a training step: GlobalNorm, AdamW, Sgd, Accumulate, Fill.
#include <cmath>

#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

constexpr TensorSpec kThree = {DType::kF32, Shape(3)};  // A schedule, or GlobalNorm's stats.

// Checks that inputs [0, count) are f32 and like the first one, and that schedule and stats follow.
Status check_update(const Check& check, Specs inputs, std::size_t count, std::string_view names) {
  VOLTA_TRY(check.count(count + 2, names));
  VOLTA_TRY(check.type(0, "param", DType::kF32));
  for (std::size_t i = 1; i < count; ++i) {
    VOLTA_TRY(check.is(i, "grad and optimizer state like param:", inputs[0]));
  }
  VOLTA_TRY(check.is(count, "schedule", kThree));
  return check.is(count + 1, "stats", kThree);
}

constexpr std::string_view kWrites = "it updates its inputs in place";

}  // namespace

Result<SpecList> infer(const GlobalNorm& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.that(!inputs.empty(), "a loss, then gradients"));
  VOLTA_TRY(check.not_negative(op.max_norm, "max_norm"));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    VOLTA_TRY(check.type(i, i == 0 ? "loss" : "gradients", DType::kF32));
  }
  const Shape& loss = inputs[0].shape;
  VOLTA_TRY(check.that(loss == Shape() || loss == Shape(1), "loss f32[] or f32[1]"));
  return SpecList{kThree};
}

Result<Gradients> gradient(const GlobalNorm& op, const GradientContext&) {
  return not_differentiable(op, "it judges gradients");
}

OpTypes types(const GlobalNorm&) { return kF32Only; }

OpEffects effects(const GlobalNorm&) { return kPure; }
OpCost cost(const GlobalNorm& op, Specs inputs, Specs outputs) {
  double flops = 0;
  for (const TensorSpec& spec : inputs) flops += 2 * elements(spec);
  return estimate(flops, bytes_moved(effects(op), inputs, outputs));
}

Result<SpecList> infer(const AdamW& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.fraction(op.beta1, "beta1"));
  VOLTA_TRY(check.fraction(op.beta2, "beta2"));
  VOLTA_TRY(check.that(std::isfinite(op.eps) && op.eps > 0.0f, "a finite eps above 0"));
  VOLTA_TRY(check.not_negative(op.weight_decay, "weight_decay"));
  VOLTA_TRY(check_update(check, inputs, 4, "param, grad, m, v, schedule, stats"));
  return SpecList{};
}

Result<Gradients> gradient(const AdamW& op, const GradientContext&) {
  return not_differentiable(op, kWrites);
}

OpTypes types(const AdamW&) { return kF32Only; }

// Writes param, m and v.
OpEffects effects(const AdamW&) { return {.writes = 0b1101, .overwrites = 0}; }
OpCost cost(const AdamW& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 14, inputs, outputs);
}

Result<SpecList> infer(const Sgd& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.fraction(op.momentum, "momentum"));
  VOLTA_TRY(check.not_negative(op.weight_decay, "weight_decay"));
  VOLTA_TRY(op.momentum > 0.0f
                ? check_update(check, inputs, 3, "param, grad, velocity, schedule, stats")
                : check_update(check, inputs, 2, "param, grad, schedule, stats"));
  return SpecList{};
}

Result<Gradients> gradient(const Sgd& op, const GradientContext&) {
  return not_differentiable(op, kWrites);
}

OpTypes types(const Sgd&) { return kF32Only; }

OpEffects effects(const Sgd& op) {
  return {.writes = op.momentum > 0.0f ? 0b101u : 0b001u, .overwrites = 0};
}
OpCost cost(const Sgd& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 5, inputs, outputs);
}

Result<SpecList> infer(const Accumulate& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "target, x"));
  VOLTA_TRY(check.type(0, "target", DType::kF32));
  VOLTA_TRY(check.is(1, "x", inputs[0]));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  return SpecList{};
}

Result<Gradients> gradient(const Accumulate& op, const GradientContext&) {
  return not_differentiable(op, kWrites);
}

OpTypes types(const Accumulate&) { return kF32Only; }

OpEffects effects(const Accumulate&) { return {.writes = 0b1, .overwrites = 0}; }
OpCost cost(const Accumulate& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 2, inputs, outputs);
}

Result<SpecList> infer(const Fill& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "target"));
  VOLTA_TRY(check.type(0, "target", DType::kF32));
  return SpecList{};
}

Result<Gradients> gradient(const Fill& op, const GradientContext&) {
  return not_differentiable(op, kWrites);
}

OpTypes types(const Fill&) { return kF32Only; }

OpEffects effects(const Fill&) { return {.writes = 0b1, .overwrites = 0}; }

// The target is written but never read.
OpCost cost(const Fill&, Specs inputs, Specs) { return estimate(0, total_bytes(inputs)); }

}  // namespace volta::rules
