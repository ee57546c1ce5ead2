// Encode: which encodings there are, and that it belongs to inference.
#include "ops/check.h"

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
  const bool through_f32 = op.to.quantized() || from.quantized();
  return SpecList{{through_f32 ? DType::kF32 : inputs[0].dtype, inputs[0].shape, op.to}};
}

Result<Gradients> gradient(const Encode& op, const GradientContext&) {
  return not_differentiable(op, "it prepares weights that are not trained");
}

std::string attributes(const Encode& op) {
  Attributes text;
  if (op.to.plain()) return "rows";
  if (op.to.packing == Packing::kPanels) text.value("panels", op.to.width);
  text.flag(op.to.transposed, "transposed");
  if (op.to.quantized()) {
    text.word(fmt::format("int{} by {}", quant_bits(op.to.quant), op.to.block));
  } else if (op.to.group != 1) {
    text.value("group", op.to.group);
  }
  return std::move(text).text();
}

}  // namespace volta::rules
