// Binary: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// Sums `value` over the axes along which an operand of shape `shape` was repeated.
Result<ValueId> reduced_to(GraphBuilder& graph, ValueId value, Shape shape) {
  const Shape from = graph.spec(value).shape;
  if (from == shape) return value;
  if (from.elements() == shape.elements()) return reshaped(graph, value, shape);
  const int end = shape.elements() == 1 ? from.rank() : from.rank() - shape.rank();
  VOLTA_TRY(const ValueId sum, graph.add_one(Reduce{ReduceKind::kSum, 0, end}, {value}));
  return reshaped(graph, sum, shape);
}

// dz times the derivative of z by y, in the shape of z.
Result<ValueId> grad_y(BinaryKind kind, const GradientContext& context) {
  GraphBuilder& graph = context.graph;
  const ValueId dz = context.output_grads[0];
  switch (kind) {
    case BinaryKind::kAdd:
      break;
    case BinaryKind::kSub:
      return graph.add_one(Unary{UnaryKind::kScale, -1.0f}, {dz});
    case BinaryKind::kMul:
      return graph.add_one(Binary{BinaryKind::kMul}, {dz, context.inputs[0]});
    case BinaryKind::kDiv: {  // d(x / y)/dy = -(x / y) / y = -z / y.
      VOLTA_TRY(const ValueId product,
                graph.add_one(Binary{BinaryKind::kMul}, {dz, context.outputs[0]}));
      VOLTA_TRY(const ValueId ratio,
                graph.add_one(Binary{BinaryKind::kDiv}, {product, context.inputs[1]}));
      return graph.add_one(Unary{UnaryKind::kScale, -1.0f}, {ratio});
    }
  }
  return dz;
}

}  // namespace

Result<SpecList> infer(const Binary& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "x, y"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.type(1, "y", inputs[0].dtype));
  const Shape& y = inputs[1].shape;
  VOLTA_TRY(check.that(y.elements() == 1 || is_suffix(y, inputs[0].shape),
                       "y with the last axes of x, or with one element"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Binary& op, const GradientContext& context) {
  GraphBuilder& graph = context.graph;
  Gradients grads = no_gradients(context);
  const ValueId dz = context.output_grads[0];
  if (context.wanted[0]) {
    if (op.kind == BinaryKind::kAdd || op.kind == BinaryKind::kSub) {
      grads[0] = dz;
    } else {  // dx is dz * y or dz / y: the same op again.
      VOLTA_TRY(grads[0], graph.add_one(op, {dz, context.inputs[1]}));
    }
  }
  if (context.wanted[1]) {
    VOLTA_TRY(const ValueId dy, grad_y(op.kind, context));
    VOLTA_TRY(grads[1], reduced_to(graph, dy, graph.spec(context.inputs[1]).shape));
  }
  return grads;
}

OpTypes types(const Binary&) { return {.activations = 0b11, .any = 0, .results = 0b1}; }

// z may take the memory of x, but not of y, which may have fewer elements.
OpEffects effects(const Binary&) { return {.writes = 0, .overwrites = 0b1}; }
OpCost cost(const Binary& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, kCheap, inputs, outputs);
}

}  // namespace volta::rules
