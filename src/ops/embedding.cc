// Row lookups: Embedding, EmbeddingGrad.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Embedding& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.output_type(op.out));
  VOLTA_TRY(check.count(2, "table, ids"));
  VOLTA_TRY(check.floating(0, "table"));
  VOLTA_TRY(check.that(inputs[0].shape.rank() == 2, "table [rows, columns]"));
  VOLTA_TRY(check.type(1, "ids", DType::kI32));
  Shape y = inputs[1].shape;
  VOLTA_TRY(check.that(y.push_back(inputs[0].shape[1]), "ids of rank 5 at most"));
  return SpecList{{op.out, y}};
}

Result<Gradients> gradient(const Embedding&, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  if (!context.wanted[0]) return grads;
  const std::int64_t rows = context.graph.spec(context.inputs[0]).shape[0];
  VOLTA_TRY(grads[0], context.graph.add_one(EmbeddingGrad{rows},
                                            {context.inputs[1], context.output_grads[0]}));
  return grads;
}

OpTypes types(const Embedding&) { return {.activations = 0, .any = 0b1, .results = 0b1}; }

OpEffects effects(const Embedding&) { return kPure; }

// Reads one encoded row of the table per id.
OpCost cost(const Embedding&, Specs inputs, Specs outputs) {
  const TensorSpec& table = inputs[0];
  const double row = static_cast<double>(table.bytes()) /
                     static_cast<double>(std::max<std::int64_t>(table.shape[0], 1));
  return estimate(0,
                  elements(inputs[1]) * row + total_bytes(inputs.last(1)) + total_bytes(outputs));
}

Result<SpecList> infer(const EmbeddingGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "ids, dy"));
  VOLTA_TRY(check.type(0, "ids", DType::kI32));
  VOLTA_TRY(check.float_rows(1, "dy"));
  const Shape& dy = inputs[1].shape;
  VOLTA_TRY(check.that(drop_last(dy) == inputs[0].shape, "dy with one row an id"));
  VOLTA_TRY(check.that(op.rows >= 1, "at least one row"));
  return SpecList{{DType::kF32, Shape(op.rows, dy[-1])}};
}

Result<Gradients> gradient(const EmbeddingGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const EmbeddingGrad&) { return {.activations = 0, .any = 0b10, .results = 0}; }

OpEffects effects(const EmbeddingGrad&) { return kPure; }
OpCost cost(const EmbeddingGrad& op, Specs inputs, Specs outputs) {
  return estimate(elements(inputs[1]), bytes_moved(effects(op), inputs, outputs));
}

}  // namespace volta::rules
