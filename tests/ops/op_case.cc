// The list of all cases and their inputs.
#include "ops/op_case.h"

#include <cmath>
#include <variant>

#include "base/rng.h"
#include "ops/rules.h"
#include "support/random.h"
#include "tensor/float16.h"

namespace volta::op_test {

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> list;
#define VOLTA_APPEND_CASES(Name)                    \
  for (const OpCase& c : cases(Name{})) {           \
    list.push_back(c);                              \
    auto narrow = in_sixteen_bits(c, DType::kBF16); \
    if (narrow) list.push_back(*std::move(narrow)); \
  }
    VOLTA_OPS(VOLTA_APPEND_CASES)
#undef VOLTA_APPEND_CASES
    return list;
  }();
  return all;
}

std::string full_name(const OpCase& c) { return std::string(op_name(c.op)) + "_" + c.name; }

std::optional<OpCase> in_sixteen_bits(const OpCase& c, DType dtype) {
  // The cases of conversions name both types.
  const bool converts = std::holds_alternative<Cast>(c.op) || std::holds_alternative<Encode>(c.op);
  if (converts || c.sixteen_bits) return {};
  OpCase narrow = c;
  narrow.name += "_in_" + std::string(dtype_name(dtype));
  narrow.sixteen_bits = true;
  auto* matmul = std::get_if<MatMul>(&narrow.op);
  auto* embedding = std::get_if<Embedding>(&narrow.op);
  if (matmul != nullptr) matmul->out = dtype;
  if (embedding != nullptr) embedding->out = dtype;
  bool changed = matmul != nullptr || embedding != nullptr;
  const OpTypes allowed = types(narrow.op);
  for (std::size_t i = 0; i < narrow.specs.size(); ++i) {
    TensorSpec& spec = narrow.specs[i];
    const bool may = in_mask(allowed.activations | allowed.any, i);
    if (!may || spec.dtype != DType::kF32 || !spec.encoding.plain()) continue;
    spec.dtype = dtype;
    changed = true;
  }
  if (!changed) return {};
  return narrow;
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kBF16:
      return f32_from_bf16(bf16_from_f32(static_cast<float>(value)));
    case DType::kF16:
      return f32_from_f16(f16_from_f32(static_cast<float>(value)));
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return value;
}

namespace {

double draw(const Values& values, RandomSequence& random, std::size_t i) {
  const double at = values.low + (values.high - values.low) * test::next_double(random);
  switch (values.kind) {
    case Values::Kind::kUniform:
      return at;
    case Values::Kind::kAway:
      return test::next_double(random) < 0.5 ? -at : at;
    case Values::Kind::kIntegers:
      return std::floor(at);
    case Values::Kind::kList:
      break;
  }
  return values.list[i % values.list.size()];
}

}  // namespace

std::vector<Array> make_inputs(const OpCase& c) {
  std::uint64_t seed = 14695981039346656037u;  // FNV-1a of the name.
  for (const char letter : full_name(c))
    seed = (seed ^ static_cast<std::uint8_t>(letter)) * 1099511628211u;
  std::vector<Array> inputs;
  for (std::size_t n = 0; n < c.specs.size(); ++n) {
    RandomSequence random({.seed = seed, .stream = static_cast<std::uint32_t>(n)});
    Array& input = inputs.emplace_back(c.specs[n]);
    for (std::size_t i = 0; i < input.data.size(); ++i) {
      input.data[i] = round_to(input.spec.dtype, draw(c.values[n], random, i));
    }
  }
  if (c.prepare) c.prepare(inputs);
  return inputs;
}

void store_rounded(Array& to, const Array& from) {
  for (std::size_t i = 0; i < to.data.size(); ++i) {
    to.data[i] = round_to(to.spec.dtype, from.data[i]);
  }
}

}  // namespace volta::op_test
