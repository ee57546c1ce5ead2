// The arguments of a call, and the parameters they are for. Knows no particular function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/jinja/value.h"

namespace volta::jinja {

struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string, Value>> named{};
};

/// Arguments put into the places of a function's parameters, as Python does. Errors are
/// kInvalidFile and name the function.
class Parameters {
 public:
  /// `what` names the function; the first `required` of the parameters must be given.
  static Result<Parameters> bind(std::string_view what, const Arguments& arguments,
                                 std::initializer_list<std::string_view> names,
                                 std::size_t required = 0);

  /// Null when it was not given.
  const Value* find(std::size_t index) const { return values_[index] ? &*values_[index] : nullptr; }
  bool flag(std::size_t index, bool fallback) const;
  Result<std::int64_t> integer(std::size_t index, std::int64_t fallback) const;
  /// A string; nothing when it was not given or is none.
  Result<std::optional<std::string_view>> text(std::size_t index) const;
  Result<std::string_view> text_or(std::size_t index, std::string_view fallback) const;

 private:
  std::string what_;
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace volta::jinja
