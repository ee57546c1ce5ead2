// Op cases: one valid call of an op, from which op_case_test.cc makes every check there is: value,
// gradient, equal bits, instruction sets, memory in place, speed. The cases of an op stand in
// tests/ops/<family>_test.cc as `std::vector<OpCase> cases(const TheOp&)`; an op without cases does
// not link.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"
#include "ops/op_texts.h"
#include "ops/reference/reference.h"
#include "tensor/spec.h"

namespace volta::op_test {

using reference::Array;

/// How the elements of an input are made.
struct Values {
  enum class Kind { kUniform, kAway, kIntegers, kList };
  Kind kind = Kind::kUniform;
  double low = -1.0, high = 1.0;
  std::vector<double> list = {};
};
/// Uniform in [low, high).
inline Values uniform(double low, double high) { return {Values::Kind::kUniform, low, high}; }
/// Of either sign, the size uniform in [low, high): for functions with a kink at 0.
inline Values away(double low, double high) { return {Values::Kind::kAway, low, high}; }
/// Whole numbers in [0, end).
inline Values ids(double end) { return {Values::Kind::kIntegers, 0.0, end}; }
/// These, over and over.
inline Values list(std::vector<double> values) {
  return {Values::Kind::kList, 0.0, 0.0, std::move(values)};
}

struct OpCase {
  std::string name;
  Op op;
  std::vector<TensorSpec> specs = {};
  std::vector<Values> values = {};
  /// Inputs whose gradient is checked; none: the gradient is not.
  std::vector<std::size_t> differentiable = {};
  /// Inputs whose first axis are independent rows, along with that of every output and written
  /// input; none: rows are not checked.
  std::vector<std::size_t> rows = {};
  /// Makes inputs from others (statistics, tables); what it leaves is rounded to the input's type.
  std::function<void(std::vector<Array>&)> prepare = {};

  /// Whether in_sixteen_bits() made it.
  bool sixteen_bits = false;

  OpCase(std::string its_name, const Op& its_op) : name(std::move(its_name)), op(its_op) {}
  OpCase in(const TensorSpec& spec, Values its_values = {}) && {
    specs.push_back(spec);
    values.push_back(std::move(its_values));
    return std::move(*this);
  }
  OpCase grad(std::vector<std::size_t> inputs) && {
    differentiable = std::move(inputs);
    return std::move(*this);
  }
  OpCase by_rows(std::vector<std::size_t> inputs) && {
    rows = std::move(inputs);
    return std::move(*this);
  }
  OpCase with(std::function<void(std::vector<Array>&)> its_prepare) && {
    prepare = std::move(its_prepare);
    return std::move(*this);
  }
};

#define VOLTA_DECLARE_CASES(Name) std::vector<OpCase> cases(const Name&);
VOLTA_OPS(VOLTA_DECLARE_CASES)
#undef VOLTA_DECLARE_CASES

/// The cases of all ops, each followed by the same in bf16 where there is such a one.
const std::vector<OpCase>& all_cases();
/// "MatMul_bias_relu"
std::string full_name(const OpCase& c);

/// An f32 case with `dtype` for every f32 operand that may have it, and for the result that an op
/// names; nothing when there is none. Encoded inputs stay as they are.
std::optional<OpCase> in_sixteen_bits(const OpCase& c, DType dtype);

/// The inputs of a case: the same ones every time.
std::vector<Array> make_inputs(const OpCase& c);
/// Rounds to a type, so that a tensor of it can hold the value.
double round_to(DType dtype, double value);

/// Rounds statistics: what a `prepare` computes in double, an op would have got in f32.
void store_rounded(Array& to, const Array& from);

}  // namespace volta::op_test
