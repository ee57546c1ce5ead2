// What ops do to memory: which inputs they write, and which may lend theirs to the output.
#include <type_traits>

#include "ops/rules.h"

namespace volta {

namespace {

template <typename AnyOp, typename... Ops>
constexpr bool kIsOneOf = (std::is_same_v<AnyOp, Ops> || ...);

// Most ops write nothing.
template <typename AnyOp>
std::uint32_t written(const AnyOp&) {
  return 0;
}
std::uint32_t written(const KvAppend& op) {
  return op.shape.packed ? 0b0110u : 0b1100u;  // cache_k and cache_v, after qkv or k and v.
}
std::uint32_t written(const AdamW&) { return 0b1101u; }  // param, m, v.
std::uint32_t written(const Sgd& op) { return op.momentum > 0.0f ? 0b101u : 0b001u; }
std::uint32_t written(const Accumulate&) { return 0b1u; }
std::uint32_t written(const Fill&) { return 0b1u; }
std::uint32_t written(const Sample&) { return 0b1000u; }  // counts.

// How many of the first inputs may lend their memory to output 0: each element of them is read for
// the last time before the same element is written (in row ops: as part of its row).
// The op cases prove it for every kernel.
template <typename AnyOp>
constexpr std::size_t lendable_inputs() {
  if constexpr (kIsOneOf<AnyOp, GatedUnitGrad>) {
    return 3;
  } else if constexpr (kIsOneOf<AnyOp, UnaryGrad, GatedUnit, SoftmaxGrad>) {
    return 2;
  } else {
    // y of a Binary may be shorter than z; targets, lse and dloss of CrossEntropyGrad are.
    return kIsOneOf<AnyOp, Unary, Binary, Reshape, Dropout, Softmax, Rope, CrossEntropyGrad> ? 1
                                                                                             : 0;
  }
}

}  // namespace

std::uint32_t writes(const Op& op, std::size_t input_count) {
  const std::uint32_t mask = std::visit([](const auto& any) { return written(any); }, op);
  return input_count >= 32 ? mask : mask & ((std::uint32_t{1} << input_count) - 1);
}

bool may_alias(const Op& op, std::size_t input) {
  return std::visit(
      [&](const auto& any) {
        return input < lendable_inputs<std::remove_cvref_t<decltype(any)>>();
      },
      op);
}

}  // namespace volta
