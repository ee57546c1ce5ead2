// Rope: shapes and gradient.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Rope& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(3, "x, positions, table"));
  VOLTA_TRY(check.float_rows(0, "x"));
  VOLTA_TRY(check.type(1, "positions", DType::kI32));
  VOLTA_TRY(check.type(2, "table", DType::kF32));
  const Shape& x = inputs[0].shape;
  VOLTA_TRY(check.that(op.heads >= 1 && op.head_dim >= 1, "heads and head_dim of at least 1"));
  VOLTA_TRY(check.that(x[-1] % op.head_dim == 0 && std::int64_t{op.heads} * op.head_dim <= x[-1],
                       "rows of x that hold whole heads, and at least `heads` of them"));
  VOLTA_TRY(check.that(is_suffix(inputs[1].shape, drop_last(x)),
                       "positions like x without its last axis, or a suffix of that"));
  const Shape& table = inputs[2].shape;
  VOLTA_TRY(check.that(table.rank() == 2 && table[1] % 2 == 0 && table[1] <= op.head_dim,
                       "table [positions, rotary] with an even rotary of at most head_dim"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Rope& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  if (context.wanted[2]) return not_differentiable(op, "its table is fixed");
  if (!context.wanted[0]) return grads;
  Rope back = op;
  back.inverse = !op.inverse;
  VOLTA_TRY(grads[0], context.graph.add_one(
                          back, {context.output_grads[0], context.inputs[1], context.inputs[2]}));
  return grads;
}

OpTypes types(const Rope&) { return kLikeX; }

OpEffects effects(const Rope&) { return {.writes = 0, .overwrites = 0b1}; }
// Four multiplications and two additions per pair of elements.
OpCost cost(const Rope& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 3, inputs, outputs);
}

}  // namespace volta::rules
