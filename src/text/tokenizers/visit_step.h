// std::visit for steps that hold strings: that one aborts on a variant without value, which needs
// an exception to come about, and the library neither throws nor aborts.
#pragma once

#include <optional>
#include <utility>
#include <variant>

namespace volta::tokenizers {

/// visitor(the step's value); all its overloads return the same type.
template <typename Visitor, typename First, typename... Rest>
auto visit_step(const Visitor& visitor, const std::variant<First, Rest...>& step) {
  std::optional<decltype(visitor(std::declval<const First&>()))> result;
  const auto attempt = [&]<typename T>(const T* value) {
    if (value != nullptr) result.emplace(visitor(*value));
  };
  attempt(std::get_if<First>(&step));
  (attempt(std::get_if<Rest>(&step)), ...);
  return *std::move(result);
}

}  // namespace volta::tokenizers
