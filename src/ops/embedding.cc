// Row lookups: Embedding, EmbeddingGrad, GatherRows.
#include "ops/check.h"

namespace volta::rules {

Result<SpecList> infer(const Embedding& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "table, ids"));
  VOLTA_TRY(check.floating(0, "table"));
  VOLTA_TRY(check.that(inputs[0].shape.rank() == 2, "table [rows, columns]"));
  VOLTA_TRY(check.type(1, "ids", DType::kI32));
  Shape y = inputs[1].shape;
  VOLTA_TRY(check.that(y.push_back(inputs[0].shape[1]), "ids of rank 5 at most"));
  return SpecList{{DType::kF32, y}};
}

Result<Gradients> gradient(const Embedding&, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  if (!context.wanted[0]) return grads;
  const std::int64_t rows = context.graph.spec(context.inputs[0]).shape[0];
  VOLTA_TRY(grads[0], context.graph.add_one(EmbeddingGrad{rows},
                                            {context.inputs[1], context.output_grads[0]}));
  return grads;
}

std::string attributes(const Embedding&) { return ""; }

Result<SpecList> infer(const EmbeddingGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "ids, dy"));
  VOLTA_TRY(check.type(0, "ids", DType::kI32));
  VOLTA_TRY(check.f32_rows(1, "dy"));
  const Shape& dy = inputs[1].shape;
  VOLTA_TRY(check.that(drop_last(dy) == inputs[0].shape, "dy with one row an id"));
  VOLTA_TRY(check.that(op.rows >= 1, "at least one row"));
  return SpecList{{DType::kF32, Shape(op.rows, dy[-1])}};
}

Result<Gradients> gradient(const EmbeddingGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

std::string attributes(const EmbeddingGrad& op) { return fmt::format("rows={}", op.rows); }

Result<SpecList> infer(const GatherRows& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "x, index"));
  VOLTA_TRY(check.type(0, "x", DType::kF32));
  const Shape& x = inputs[0].shape;
  VOLTA_TRY(check.that(x.rank() == 3, "x [sequences, rows, columns]"));
  VOLTA_TRY(check.is(1, "index", {DType::kI32, Shape(x[0])}));
  return SpecList{{DType::kF32, Shape(x[0], x[2])}};
}

Result<Gradients> gradient(const GatherRows& op, const GradientContext&) {
  return not_differentiable(op, "it belongs to inference");
}

std::string attributes(const GatherRows&) { return ""; }

}  // namespace volta::rules
