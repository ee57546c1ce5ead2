// Functions that work on any op through the list of its attributes, `fields` (ops/op.h): keys that
// are equal for equal ops, and the words for the values of enums. The text of an op (ops/rules.h)
// and its JSON (ops/op_json.h) use the same lists. Nothing here depends on a particular op.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ops/op.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/shape.h"

namespace [[gnu::visibility("default")]] volta {

/// The word for a value of an enum in texts and files; "?" for a number that is no value of the
/// enum.
constexpr std::string_view word(DType dtype) { return dtype_name(dtype); }
constexpr std::string_view word(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::kNone:
      return "none";
    case UnaryKind::kScale:
      return "scale";
    case UnaryKind::kExp:
      return "exp";
    case UnaryKind::kLog:
      return "log";
    case UnaryKind::kSqrt:
      return "sqrt";
    case UnaryKind::kSquare:
      return "square";
    case UnaryKind::kReciprocal:
      return "reciprocal";
    case UnaryKind::kTanh:
      return "tanh";
    case UnaryKind::kRelu:
      return "relu";
    case UnaryKind::kGelu:
      return "gelu";
    case UnaryKind::kGeluTanh:
      return "gelu_tanh";
    case UnaryKind::kSilu:
      return "silu";
  }
  return "?";
}
constexpr std::string_view word(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return "add";
    case BinaryKind::kSub:
      return "sub";
    case BinaryKind::kMul:
      return "mul";
    case BinaryKind::kDiv:
      return "div";
  }
  return "?";
}
constexpr std::string_view word(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return "sum";
    case ReduceKind::kMean:
      return "mean";
    case ReduceKind::kMax:
      return "max";
  }
  return "?";
}
constexpr std::string_view word(NormKind kind) {
  switch (kind) {
    case NormKind::kLayer:
      return "layer";
    case NormKind::kRms:
      return "rms";
  }
  return "?";
}
constexpr std::string_view word(Packing packing) {
  switch (packing) {
    case Packing::kRows:
      return "rows";
    case Packing::kPanels:
      return "panels";
  }
  return "?";
}
constexpr std::string_view word(Quant quant) {
  if (quant == Quant::kNone) return "none";
  const FormatInfo& format = format_info(quant);
  return format.quant == quant ? format.elements : "?";
}

/// Takes any field and does nothing.
struct IgnoreFields {
  constexpr void operator()(std::string_view, const auto&, bool = true) const {}
};
/// An op, or a struct that is an attribute of ops.
template <typename T>
concept HasFields = requires(const T& value) { T::fields(value, IgnoreFields()); };

namespace field_count {

/// Converts to the type of any member of a struct; only used unevaluated.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
/// The number of members of an aggregate, which is the number of values that can initialise it in
/// braces.
template <typename T, typename... Values>
consteval std::size_t members() {
  if constexpr (requires { T{Values()..., Anything()}; }) {
    return members<T, Values..., Anything>();
  } else {
    return sizeof...(Values);
  }
}
template <HasFields T>
consteval std::size_t fields() {
  std::size_t count = 0;
  const T value{};
  T::fields(value, [&](std::string_view, const auto&, bool = true) { ++count; });
  return count;
}
template <HasFields T>
inline constexpr bool kComplete = fields<T>() == members<T>();

}  // namespace field_count

/// The attributes as numbers, in order, followed by zeros. Floats are stored as their bits, so that
/// 0 differs from -0 and a NaN equals itself.
using FieldKey = std::array<std::uint64_t, 16>;

/// Visits fields and puts them into a key.
class FieldKeyWriter {
 public:
  constexpr explicit FieldKeyWriter(FieldKey& key) : key_(key) {}
  constexpr void operator()(std::string_view /*name*/, const auto& value, bool /*shown*/ = true) {
    append(value);
  }

 private:
  template <typename T>
  constexpr void append(const T& value) {
    if constexpr (HasFields<T>) {
      T::fields(value, *this);
    } else if constexpr (std::same_as<T, float>) {
      key_[next_++] = std::bit_cast<std::uint32_t>(value);
    } else if constexpr (std::same_as<T, Shape>) {
      append(value.rank());
      for (int axis = 0; axis < kMaxRank; ++axis) append(value[axis]);
    } else if constexpr (std::is_enum_v<T> || std::integral<T>) {
      key_[next_++] = static_cast<std::uint64_t>(value);
    } else {  // An array.
      for (const auto& element : value) append(element);
    }
  }

  FieldKey& key_;
  std::size_t next_ = 0;
};

template <HasFields T>
constexpr FieldKey field_key(const T& value) {
  FieldKey key{};
  T::fields(value, FieldKeyWriter(key));
  return key;
}

/// Ops are equal when all their attributes are.
template <HasFields T>
constexpr bool operator==(const T& a, const T& b) {
  return field_key(a) == field_key(b);
}

/// A key for an op with its attributes, for use in maps: two ops have the same key exactly if they
/// are equal.
struct OpKey {
  std::size_t index = 0;  ///< The index of the op in the list of all ops.
  FieldKey fields{};
  auto operator<=>(const OpKey&) const = default;
};
OpKey key_of(const Op& op);

static_assert(field_count::kComplete<AttentionShape> && field_count::kComplete<Encoding>);
#define VOLTA_CHECK_FIELDS(Name)                                                         \
  static_assert(HasFields<Name>, #Name " in ops/op.h needs a list of its fields");       \
  static_assert(field_count::kComplete<Name>,                                            \
                "the fields of " #Name " in ops/op.h must be all its attributes, once"); \
  static_assert(field_key(Name()) == field_key(Name()));  // The fields fit.
VOLTA_OPS(VOLTA_CHECK_FIELDS)
#undef VOLTA_CHECK_FIELDS

}  // namespace volta
