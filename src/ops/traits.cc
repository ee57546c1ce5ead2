// The traits of any op. Each function visits the variant and calls the trait in the op's own file.
#include "ops/traits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "ops/rules.h"

namespace volta {

OpTypes types(const Op& op) {
  return std::visit([](const auto& any) { return rules::types(any); }, op);
}

OpEffects effects(const Op& op) {
  return std::visit([](const auto& any) { return rules::effects(any); }, op);
}

std::uint32_t writes(const Op& op, std::size_t input_count) {
  const std::uint32_t mask = effects(op).writes;
  return input_count >= 32 ? mask : mask & ((std::uint32_t{1} << input_count) - 1);
}

bool may_alias(const Op& op, std::size_t input) {
  return writes_input(effects(op).overwrites, input);
}

OpCost cost(const Op& op, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs) {
  return std::visit([&](const auto& any) { return rules::cost(any, inputs, outputs); }, op);
}

namespace rules {

double total_bytes(std::span<const TensorSpec> specs) {
  double bytes = 0;
  for (const TensorSpec& spec : specs) bytes += static_cast<double>(spec.bytes());
  return bytes;
}

double pointwise_flops(double each, std::span<const TensorSpec> inputs,
                       std::span<const TensorSpec> outputs) {
  double n = inputs.empty() ? 0 : elements(inputs[0]);
  if (!outputs.empty()) n = std::max(n, elements(outputs[0]));
  return each * n;
}

double bytes_moved(const OpEffects& effects, std::span<const TensorSpec> inputs,
                   std::span<const TensorSpec> outputs) {
  double bytes = total_bytes(inputs) + total_bytes(outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (writes_input(effects.writes, i)) bytes += static_cast<double>(inputs[i].bytes());
  }
  return bytes;
}

OpCost estimate(double flops, double bytes) {
  const auto rounded = [](double value) {
    return static_cast<std::int64_t>(std::llround(std::min(value, 0x1p62)));
  };
  return {.flops = rounded(flops), .bytes = rounded(bytes)};
}

double unary_flops(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::kNone:
      return 0;
    case UnaryKind::kScale:
    case UnaryKind::kSquare:
    case UnaryKind::kReciprocal:
    case UnaryKind::kSqrt:
    case UnaryKind::kRelu:
      return kCheap;
    case UnaryKind::kExp:
    case UnaryKind::kLog:
    case UnaryKind::kTanh:
    case UnaryKind::kGelu:
    case UnaryKind::kGeluTanh:
    case UnaryKind::kSilu:
      break;
  }
  return kNonlinear;
}

}  // namespace rules

}  // namespace volta
