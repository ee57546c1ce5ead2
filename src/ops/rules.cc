// The rules of any op. Each function visits the variant and calls the rule in the op's own file.
#include "ops/rules.h"

#include <algorithm>

#include "ops/check.h"

namespace volta {

namespace {

// Rejects sizes that no kernel should have to handle: negative ones, ones that overflow, and empty
// ones.
Status check_size(const TensorSpec& spec) {
  VOLTA_TRY(check_spec(spec));
  if (spec.shape.elements() > 0) return {};
  return fail(ErrorCode::kInvalidArgument, to_string(spec) + " is empty");
}

}  // namespace

Result<ValueId> GraphBuilder::add_one(const Op& op, std::initializer_list<ValueId> inputs) {
  VOLTA_TRY(auto outputs, add(op, std::span(inputs)));
  if (!outputs.empty()) return outputs.front();
  return fail(ErrorCode::kInternal, to_string(op) + " has no output to return");
}

bool accepts_encoding(const Op& op, std::size_t input, const Encoding& encoding) {
  if (std::holds_alternative<Encode>(op)) return input == 0;
  if (std::holds_alternative<Embedding>(op)) return input == 0 && encoding.transposed;
  const auto* matmul = std::get_if<MatMul>(&op);
  return matmul != nullptr && input == 1 && !matmul->batched && !matmul->transpose_a &&
         matmul->transpose_b == encoding.transposed;
}

Result<std::vector<TensorSpec>> infer(const Op& op, std::span<const TensorSpec> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Status status = check_size(inputs[i]);
    if (!status)
      return rules::Check(op, inputs).reject("inputs of a sane size; " + status.error().message());
    if (!inputs[i].encoding.plain() && !accepts_encoding(op, i, inputs[i].encoding))
      return rules::Check(op, inputs).reject(fmt::format("input {} in plain rows", i));
  }
  VOLTA_TRY(auto outputs,
            std::visit([&](const auto& any) { return rules::infer(any, inputs); }, op));
  for (const TensorSpec& spec : outputs) {
    const Status status = check_size(spec);
    if (!status)
      return rules::Check(op, inputs)
          .reject("a result of a sane size; " + status.error().message());
  }
  return outputs;
}

Result<Gradients> gradient(const Op& op, const GradientContext& context) {
  if (context.wanted.size() != context.inputs.size() ||
      context.output_grads.size() != context.outputs.size()) {
    return fail(ErrorCode::kInternal,
                fmt::format("the gradient of {} needs one flag an input and one gradient an "
                            "output, not {} for {} and {} for {}",
                            to_string(op), context.wanted.size(), context.inputs.size(),
                            context.output_grads.size(), context.outputs.size()));
  }
  const bool needed = std::ranges::any_of(context.output_grads, &ValueId::valid);
  const bool wanted = std::ranges::any_of(context.wanted, std::identity());
  if (!needed || !wanted) return rules::no_gradients(context);
  return std::visit([&](const auto& any) { return rules::gradient(any, context); }, op);
}

}  // namespace volta
