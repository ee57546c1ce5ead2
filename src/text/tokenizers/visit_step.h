// std::visit for steps that contain strings. std::visit itself aborts on a variant without a value.
// That state can only follow an exception, and the library neither throws nor aborts.
#pragma once

#include <optional>
#include <utility>
#include <variant>

namespace volta::tokenizers {

/// Returns visitor(the step's value). All its overloads must return the same type.
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
