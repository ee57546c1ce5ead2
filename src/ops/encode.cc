// Encode: which conversions between encodings exist. It has no gradient: it is for inference only.
#include "ops/check.h"
#include "ops/traits.h"

namespace volta::rules {

Result<SpecList> infer(const Encode& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.that(inputs[0].shape.rank() == 2, "a matrix"));
  const Encoding& from = inputs[0].encoding;
  if (op.to.quantized() && from.quantized()) {
    VOLTA_TRY(check.that(from.packing == Packing::kRows && op.to.quant == from.quant &&
                             op.to.block == from.block && op.to.transposed == from.transposed,
                         "the same integers in the same blocks; from rows"));
  } else {
    VOLTA_TRY(check.that(from.plain() || op.to.plain(),
                         "x in plain rows, or an encoding that is; not one encoding to another"));
  }
  VOLTA_TRY(check.that(!from.plain() || format_info(op.to.quant).from_f32,
                       "integers that Volta rounds to, int8 or int4; others are only read"));
  const bool through_f32 = op.to.quantized() || from.quantized();
  return SpecList{{through_f32 ? DType::kF32 : inputs[0].dtype, inputs[0].shape, op.to}};
}

Result<Gradients> gradient(const Encode& op, const GradientContext&) {
  return not_differentiable(op, "it prepares weights that are not trained");
}

OpTypes types(const Encode&) { return kAnyX; }

OpEffects effects(const Encode&) { return kPure; }
OpCost cost(const Encode& op, Specs inputs, Specs outputs) {
  return pointwise_cost(op, 0, inputs, outputs);
}

}  // namespace volta::rules
