// The list of all cases and their inputs.
#include "ops/op_case.h"

#include "base/rng.h"
#include "support/random.h"
#include "tensor/float16.h"

namespace volta::op_test {

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> list;
#define VOLTA_APPEND_CASES(Name) \
  for (OpCase & c : cases(Name{})) list.push_back(std::move(c));
    VOLTA_OPS(VOLTA_APPEND_CASES)
#undef VOLTA_APPEND_CASES
    return list;
  }();
  return all;
}

std::string full_name(const OpCase& c) { return std::string(op_name(c.op)) + "_" + c.name; }

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
