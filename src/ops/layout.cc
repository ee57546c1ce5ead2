// The ops that move elements without computing: Reshape, Permute, Slice, Pad.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Reshape& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  const TensorSpec y = {inputs[0].dtype, op.shape};
  VOLTA_TRY(check.that(check_spec(y) && op.shape.elements() == inputs[0].shape.elements(),
                       "a shape of as many elements as x"));
  return SpecList{y};
}

Result<Gradients> gradient(const Reshape&, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  const Shape x = context.graph.spec(context.inputs[0]).shape;
  VOLTA_TRY(grads[0], context.graph.add_one(Reshape{x}, {context.output_grads[0]}));
  return grads;
}

OpTypes types(const Reshape&) { return kLikeX; }

OpEffects effects(const Reshape&) { return {.writes = 0, .overwrites = 0b1}; }

// The result is a view of the same bytes.
OpCost cost(const Reshape&, Specs, Specs) { return {.flops = 0, .bytes = 0}; }

Result<SpecList> infer(const Permute& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  const Shape& x = inputs[0].shape;
  TensorSpec y = {inputs[0].dtype, {}};
  std::array<bool, kMaxRank> seen{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.rank()); ++i) {
    const int axis = op.perm[i];
    const bool fresh =
        axis >= 0 && axis < x.rank() && !std::exchange(seen[static_cast<std::size_t>(axis)], true);
    VOLTA_TRY(check.that(fresh, "a permutation of the axes of x"));
    y.shape.push_back(x[axis]);
  }
  return SpecList{y};
}

Result<Gradients> gradient(const Permute& op, const GradientContext& context) {
  const int rank = context.graph.spec(context.inputs[0]).shape.rank();
  Permute inverse;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    inverse.perm[static_cast<std::size_t>(op.perm[i])] = static_cast<std::int8_t>(i);
  }
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0], context.graph.add_one(inverse, {context.output_grads[0]}));
  return grads;
}

OpTypes types(const Permute&) { return kLikeX; }

OpEffects effects(const Permute&) { return kPure; }
OpCost cost(const Permute& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 0, inputs, outputs);
}

Result<SpecList> infer(const Slice& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  TensorSpec y = inputs[0];
  VOLTA_TRY(check.that(op.axis >= 0 && op.axis < y.shape.rank(), "an axis of x"));
  const std::int64_t dim = y.shape[op.axis];
  VOLTA_TRY(
      check.that(op.begin >= 0 && op.length >= 1 && op.length <= dim && op.begin <= dim - op.length,
                 "a range of at least one element inside the axis"));
  y.shape.set(op.axis, op.length);
  return SpecList{y};
}

Result<Gradients> gradient(const Slice& op, const GradientContext& context) {
  const std::int64_t dim = context.graph.spec(context.inputs[0]).shape[op.axis];
  const Pad pad = {op.axis, op.begin, dim - op.begin - op.length};
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0], context.graph.add_one(pad, {context.output_grads[0]}));
  return grads;
}

OpTypes types(const Slice&) { return kLikeX; }

OpEffects effects(const Slice&) { return kPure; }

// Only as many bytes are read as are written, not the whole input.
OpCost cost(const Slice&, Specs, Specs outputs) { return estimate(0, 2 * total_bytes(outputs)); }

Result<SpecList> infer(const Pad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  TensorSpec y = inputs[0];
  VOLTA_TRY(check.that(op.axis >= 0 && op.axis < y.shape.rank(), "an axis of x"));
  VOLTA_TRY(check.that(op.before >= 0 && op.after >= 0 && op.before <= kMaxTensorBytes &&
                           op.after <= kMaxTensorBytes,
                       "sane numbers of zeros, at least 0"));
  y.shape.set(op.axis, op.before + y.shape[op.axis] + op.after);
  return SpecList{y};
}

Result<Gradients> gradient(const Pad& op, const GradientContext& context) {
  const std::int64_t dim = context.graph.spec(context.inputs[0]).shape[op.axis];
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0],
            context.graph.add_one(Slice{op.axis, op.before, dim}, {context.output_grads[0]}));
  return grads;
}

OpTypes types(const Pad&) { return kLikeX; }

OpEffects effects(const Pad&) { return kPure; }
OpCost cost(const Pad& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 0, inputs, outputs);
}

}  // namespace volta::rules
