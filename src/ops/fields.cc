// Makes the keys and the texts of ops from the lists of their fields.
#include "ops/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "ops/rules.h"
#include "tensor/spec.h"

namespace volta {
namespace {

/// Writes texts like "transpose_b, gelu, [2, 3], scale=0.5": flags that are set appear as their
/// names, enums and shapes as their values alone, and other numbers as name=value.
class TextWriter {
 public:
  template <typename T>
  void operator()(std::string_view name, const T& value, bool shown = true) {
    if (!shown) return;
    if constexpr (HasFields<T>) {
      T::fields(value, *this);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (value) add(name);
    } else if constexpr (std::is_enum_v<T>) {
      add(word(value));
    } else if constexpr (std::is_same_v<T, Shape>) {
      add(to_string(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      add(fmt::format("{}={}", name, value));
    } else {
      add(fmt::format("[{}]", fmt::join(value, ", ")));
    }
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::string_view part) {
    if (!text_.empty()) text_ += ", ";
    text_ += part;
  }

  std::string text_;
};

}  // namespace

OpKey key_of(const Op& op) {
  return {op.index(), std::visit([](const auto& any) { return field_key(any); }, op)};
}

std::string to_string(const Op& op) {
  TextWriter writer;
  std::visit([&]<typename T>(const T& any) { T::fields(any, writer); }, op);
  std::string text(op_name(op));
  if (!writer.text().empty()) text += "{" + writer.text() + "}";
  return text;
}

}  // namespace volta
