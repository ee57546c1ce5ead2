// MatMul: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// The sizes of one product. k is the inner size of a, k_of_b that of b; they must be equal.
struct Sizes {
  std::int64_t m = 0, n = 0, k = 0, k_of_b = 0;
};

Sizes sizes(const MatMul& op, const Shape& a, const Shape& b) {
  const std::int64_t a_rows = op.batched ? a[-2] : a.rows();
  const std::int64_t b_rows = op.batched ? b[-2] : b.rows();
  return {op.transpose_a ? a[-1] : a_rows, op.transpose_b ? b_rows : b[-1],
          op.transpose_a ? a_rows : a[-1], op.transpose_b ? b[-1] : b_rows};
}

// The shape of c, for operands whose ranks have been checked.
Shape result_shape(const MatMul& op, const Shape& a, const Sizes& sizes) {
  if (op.transpose_a && !op.batched) return Shape(sizes.m, sizes.n);
  Shape c = a;
  if (op.batched) c.set(-2, sizes.m);
  c.set(-1, sizes.n);
  return c;
}

Status check_operands(const MatMul& op, const Check& check, const Shape& a, const Shape& b) {
  if (op.batched) {
    VOLTA_TRY(check.that(!op.has_bias && !op.has_residual && op.activation == Activation::kNone,
                         "no bias, activation or residual in a batched product"));
    VOLTA_TRY(check.that(a.rank() >= 3 && a.rank() == b.rank(),
                         "a and b of the same rank, at least 3, in a batched product"));
    for (int i = 0; i + 2 < a.rank(); ++i) {
      VOLTA_TRY(check.that(a[i] == b[i], "a and b with the same leading axes"));
    }
    return {};
  }
  VOLTA_TRY(check.that(a.rank() >= 2, "a of rank 2 or more"));
  if (op.transpose_a) return check.that(b.rank() >= 2, "b of rank 2 or more");
  return check.that(b.rank() == 2, "b of rank 2");
}

// The gradient with respect to the sum before the activation. Without an activation it is dc
// itself; otherwise the pre-activation is computed again.
Result<ValueId> pre_activation_grad(const MatMul& op, const GradientContext& context) {
  const ValueId dc = context.output_grads[0];
  if (op.activation == Activation::kNone) return dc;
  MatMul linear = op;
  linear.activation = Activation::kNone;
  linear.has_residual = false;
  const std::size_t count = op.has_bias ? 3 : 2;
  VOLTA_TRY(auto z, context.graph.add(linear, context.inputs.first(count)));
  return context.graph.add_one(UnaryGrad{op.activation}, {z[0], dc});
}

// For C = A B: dA = dC B^T and dB = A^T dC. The gradient of a transposed operand is transposed,
// too.
Result<ValueId> grad_a(const MatMul& op, const GradientContext& context, ValueId dz) {
  GraphBuilder& graph = context.graph;
  const ValueId b = context.inputs[1];
  MatMul product = {.batched = op.batched, .out = context.type(0)};
  if (!op.transpose_a) {
    product.transpose_b = !op.transpose_b;
    return graph.add_one(product, {dz, b});
  }
  product.transpose_a = op.transpose_b;
  product.transpose_b = true;
  VOLTA_TRY(const ValueId da, graph.add_one(product, {b, dz}));
  return reshaped(graph, da, graph.spec(context.inputs[0]).shape);
}

Result<ValueId> grad_b(const MatMul& op, const GradientContext& context, ValueId dz) {
  GraphBuilder& graph = context.graph;
  const ValueId a = context.inputs[0];
  MatMul product = {.batched = op.batched, .out = context.type(1)};
  if (!op.transpose_b) {
    product.transpose_a = !op.transpose_a;
    VOLTA_TRY(const ValueId db, graph.add_one(product, {a, dz}));
    return reshaped(graph, db, graph.spec(context.inputs[1]).shape);
  }
  product.transpose_a = true;
  product.transpose_b = op.transpose_a;
  VOLTA_TRY(const ValueId db, graph.add_one(product, {dz, a}));
  return reshaped(graph, db, graph.spec(context.inputs[1]).shape);
}

}  // namespace

Result<SpecList> infer(const MatMul& op, Specs inputs) {
  const Check check(op, inputs);
  const std::size_t count = 2u + (op.has_bias ? 1u : 0u) + (op.has_residual ? 1u : 0u);
  VOLTA_TRY(check.count(count, "a, b and what the attributes say"));
  VOLTA_TRY(check.floating(0, "a"));
  VOLTA_TRY(check.floating(1, "b"));
  VOLTA_TRY(check.activation(op.activation));
  VOLTA_TRY(check.output_type(op.out));
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  VOLTA_TRY(check_operands(op, check, a, b));
  const Sizes size = sizes(op, a, b);
  VOLTA_TRY(
      check.that(size.k == size.k_of_b,
                 fmt::format("equal inner sizes, not {} in a and {} in b", size.k, size.k_of_b)));
  const TensorSpec c = {op.out, result_shape(op, a, size)};
  if (op.has_bias) VOLTA_TRY(check.is(2, "bias", {DType::kF32, Shape(size.n)}));
  if (op.has_residual) VOLTA_TRY(check.is(count - 1, "residual", c));
  return SpecList{c};
}

Result<Gradients> gradient(const MatMul& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  const std::size_t residual = context.inputs.size() - 1;
  if (op.has_residual && context.wanted[residual]) grads[residual] = context.output_grads[0];
  const bool want_bias = op.has_bias && context.wanted[2];
  if (!context.wanted[0] && !context.wanted[1] && !want_bias) return grads;
  VOLTA_TRY(const ValueId dz, pre_activation_grad(op, context));
  if (context.wanted[0]) {
    VOLTA_TRY(grads[0], grad_a(op, context, dz));
  }
  if (context.wanted[1]) {
    VOLTA_TRY(grads[1], grad_b(op, context, dz));
  }
  if (want_bias) {
    const int rank = context.graph.spec(dz).shape.rank();
    VOLTA_TRY(grads[2], context.graph.add_one(Reduce{ReduceKind::kSum, 0, rank - 1}, {dz}));
  }
  return grads;
}

// The residual is the last input, after the bias.
OpTypes types(const MatMul& op) {
  const std::uint32_t residual = op.has_bias ? 0b1000 : 0b100;
  return {.activations = op.has_residual ? residual : 0, .any = 0b11, .results = 0b1};
}

OpEffects effects(const MatMul&) { return kPure; }

OpCost cost(const MatMul& op, Specs inputs, Specs outputs) {
  const Shape& a = inputs[0].shape;
  const std::int64_t rows = op.batched ? a[-2] : a.rows();
  const double k = static_cast<double>(op.transpose_a ? rows : a[-1]);
  double epilogue = (op.has_bias ? 1.0 : 0.0) + (op.has_residual ? 1.0 : 0.0);
  if (op.activation != UnaryKind::kNone) epilogue += kNonlinear;
  return estimate(elements(outputs[0]) * (2 * k + epilogue),
                  bytes_moved(effects(op), inputs, outputs));
}

}  // namespace volta::rules
