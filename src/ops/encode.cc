// Encode: which encodings there are, and that it belongs to inference.
#include "ops/check.h"

namespace volta::rules {

Result<SpecList> infer(const Encode& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.floating(0, "x"));
  VOLTA_TRY(check.that(inputs[0].shape.rank() == 2, "a matrix"));
  VOLTA_TRY(check.that(inputs[0].encoding.plain() || op.to.plain(),
                       "x in plain rows, or an encoding that is; not one encoding to another"));
  return SpecList{{inputs[0].dtype, inputs[0].shape, op.to}};
}

Result<Gradients> gradient(const Encode& op, const GradientContext&) {
  return not_differentiable(op, "it prepares weights that are not trained");
}

std::string attributes(const Encode& op) {
  Attributes text;
  if (op.to.plain()) return "rows";
  text.value("panels", op.to.width).flag(op.to.transposed, "transposed");
  if (op.to.group != 1) text.value("group", op.to.group);
  return std::move(text).text();
}

}  // namespace volta::rules
