// Reduce and Expand: shapes and gradients. The gradient of each is the other; kMax has none.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// `shape` without the axes [begin, end).
Shape without_axes(const Shape& shape, int begin, int end) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < begin || i >= end) result.push_back(shape[i]);
  }
  return result;
}

}  // namespace

Result<SpecList> infer(const Reduce& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.floating(0, "x"));
  const Shape& x = inputs[0].shape;
  VOLTA_TRY(check.that(op.begin >= 0 && op.begin < op.end && op.end <= x.rank(),
                       "axes 0 <= begin < end <= rank of x"));
  return SpecList{{DType::kF32, without_axes(x, op.begin, op.end)}};
}

Result<Gradients> gradient(const Reduce& op, const GradientContext& context) {
  if (op.kind == ReduceKind::kMax) {
    return not_differentiable(op, "which element is largest is not kept; use softmax");
  }
  const Shape x = context.graph.spec(context.inputs[0]).shape;
  const float scale =
      op.kind == ReduceKind::kMean ? 1.0f / static_cast<float>(x.product(op.begin, op.end)) : 1.0f;
  const Expand expand = {x, static_cast<std::int16_t>(op.begin), scale};
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0], context.graph.add_one(expand, {context.output_grads[0]}));
  return grads;
}

OpTypes types(const Reduce&) { return kAnyX; }

OpEffects effects(const Reduce&) { return kPure; }
OpCost cost(const Reduce& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kCheap, inputs, outputs);
}

Result<SpecList> infer(const Expand& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  const Shape& x = inputs[0].shape;
  const int added = op.shape.rank() - x.rank();
  VOLTA_TRY(check.that(added >= 0 && op.begin >= 0 && op.begin <= x.rank() &&
                           without_axes(op.shape, op.begin, op.begin + added) == x,
                       "x to be the shape without the added axes"));
  return SpecList{{inputs[0].dtype, op.shape}};
}

Result<Gradients> gradient(const Expand& op, const GradientContext& context) {
  GraphBuilder& graph = context.graph;
  const int added = op.shape.rank() - graph.spec(context.inputs[0]).shape.rank();
  ValueId dx = context.output_grads[0];
  if (added > 0) {
    VOLTA_TRY(dx, graph.add_one(Reduce{ReduceKind::kSum, op.begin, op.begin + added}, {dx}));
  }
  if (op.scale != 1.0f) {
    VOLTA_TRY(dx, graph.add_one(Unary{UnaryKind::kScale, op.scale}, {dx}));
  }
  Gradients grads = no_gradients(context);
  grads[0] = dx;
  return grads;
}

OpTypes types(const Expand&) { return kLikeX; }

OpEffects effects(const Expand&) { return kPure; }
OpCost cost(const Expand& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, op.scale == 1.0f ? 0 : kCheap, inputs, outputs);
}

}  // namespace volta::rules
