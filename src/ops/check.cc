// The checks and error messages that the rules share.
#include "ops/check.h"

#include <cmath>

namespace volta::rules {

std::unexpected<Error> Check::reject(std::string_view expected) const {
  std::string inputs;
  for (const TensorSpec& spec : inputs_) {
    if (!inputs.empty()) inputs += ", ";
    inputs += to_string(spec);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} of ({}): expected {}", to_string(op_), inputs, expected));
}

Status Check::that(bool holds, std::string_view expected) const {
  if (holds) return {};
  return reject(expected);
}

Status Check::count(std::size_t wanted, std::string_view names) const {
  if (inputs_.size() == wanted) return {};
  return reject(fmt::format("{} inputs ({}), not {}", wanted, names, inputs_.size()));
}

Status Check::type(std::size_t i, std::string_view name, DType dtype) const {
  if (inputs_[i].dtype == dtype) return {};
  return reject(fmt::format("{} of type {}", name, dtype_name(dtype)));
}

Status Check::floating(std::size_t i, std::string_view name) const {
  if (is_float(inputs_[i].dtype)) return {};
  return reject(fmt::format("{} of type f32, bf16 or f16", name));
}

Status Check::float_rows(std::size_t i, std::string_view name) const {
  VOLTA_TRY(floating(i, name));
  if (inputs_[i].shape.rank() >= 1) return {};
  return reject(fmt::format("{} with at least one axis", name));
}

Status Check::output_type(DType out) const {
  if (is_float(out)) return {};
  return reject("a result of type f32, bf16 or f16");
}

Status Check::is(std::size_t i, std::string_view name, const TensorSpec& spec) const {
  if (inputs_[i] == spec) return {};
  return reject(fmt::format("{} {}", name, to_string(spec)));
}

Status Check::finite(float value, std::string_view name) const {
  if (std::isfinite(value)) return {};
  return reject(fmt::format("a finite {}", name));
}

Status Check::fraction(float value, std::string_view name) const {
  if (value >= 0.0f && value < 1.0f) return {};  // False for NaN.
  return reject(fmt::format("{} in [0, 1)", name));
}

Status Check::not_negative(float value, std::string_view name) const {
  if (std::isfinite(value) && value >= 0.0f) return {};
  return reject(fmt::format("a finite {} of at least 0", name));
}

Status Check::activation(UnaryKind kind) const {
  if (is_activation(kind)) return {};
  return reject("an activation: none, relu, gelu, gelu_tanh or silu");
}

Shape drop_last(const Shape& shape) {
  Shape result;
  for (int i = 0; i + 1 < shape.rank(); ++i) result.push_back(shape[i]);
  return result;
}

bool is_suffix(const Shape& suffix, const Shape& shape) {
  if (suffix.rank() > shape.rank()) return false;
  for (int i = 1; i <= suffix.rank(); ++i) {
    if (suffix[-i] != shape[-i]) return false;
  }
  return true;
}

std::unexpected<Error> not_differentiable(const Op& op, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has no gradient: {}", to_string(op), why));
}

std::unexpected<Error> output_not_differentiable(const Op& op, std::string_view output) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has no gradient through its output '{}', which only its own "
                          "backward op reads",
                          to_string(op), output));
}

Result<ValueId> reshaped(GraphBuilder& graph, ValueId value, Shape shape) {
  if (graph.spec(value).shape == shape) return value;
  return graph.add_one(Reshape{shape}, {value});
}

}  // namespace volta::rules
