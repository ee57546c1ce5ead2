// Softmax and SoftmaxGrad: shapes and gradient.
#include "ops/check.h"

namespace volta::rules {

Result<SpecList> infer(const Softmax& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(1, "x"));
  VOLTA_TRY(check.f32_rows(0, "x"));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const Softmax& op, const GradientContext& context) {
  Gradients grads = no_gradients(context);
  VOLTA_TRY(grads[0], context.graph.add_one(SoftmaxGrad{op.scale},
                                            {context.outputs[0], context.output_grads[0]}));
  return grads;
}

std::string attributes(const Softmax& op) { return fmt::format("scale={}", op.scale); }

Result<SpecList> infer(const SoftmaxGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check.count(2, "y, dy"));
  VOLTA_TRY(check.f32_rows(0, "y"));
  VOLTA_TRY(check.is(1, "dy", inputs[0]));
  VOLTA_TRY(check.finite(op.scale, "scale"));
  return SpecList{inputs[0]};
}

Result<Gradients> gradient(const SoftmaxGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

std::string attributes(const SoftmaxGrad& op) { return fmt::format("scale={}", op.scale); }

}  // namespace volta::rules
