#include "io/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace volta::jinja {

Result<Parameters> Parameters::bind(std::string_view what, const Arguments& arguments,
                                    std::initializer_list<std::string_view> names,
                                    std::size_t required) {
  Parameters made;
  made.what_ = what;
  made.names_.assign(names.begin(), names.end());
  made.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} takes {} arguments at most, not {}", what,
                                                     names.size(), arguments.positional.size()));
  }
  std::ranges::copy(arguments.positional, made.values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::ranges::find(made.names_, name);
    const auto index = static_cast<std::size_t>(place - made.names_.begin());
    if (place == made.names_.end() || made.values_[index]) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("{} {} '{}'", what,
                      place == made.names_.end() ? "has no argument" : "was given twice", name));
    }
    made.values_[index] = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (made.values_[i]) continue;
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} lacks its argument '{}'", what, made.names_[i]));
  }
  return made;
}

bool Parameters::flag(std::size_t index, bool fallback) const {
  const Value* value = find(index);
  return value == nullptr ? fallback : truth(*value);
}

Result<std::int64_t> Parameters::integer(std::size_t index, std::int64_t fallback) const {
  const Value* value = find(index);
  if (value == nullptr) return fallback;
  std::int64_t number = 0;
  if (value->as_int(number)) return number;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: '{}' takes an integer, not {}", what_,
                                                   names_[index], value->type_name()));
}

Result<std::optional<std::string_view>> Parameters::text(std::size_t index) const {
  const Value* value = find(index);
  if (value == nullptr || value->is_none()) return std::nullopt;
  const std::string* text = value->if_string();
  if (text != nullptr) return *text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: '{}' takes a string, not {}", what_,
                                                   names_[index], value->type_name()));
}

Result<std::string_view> Parameters::text_or(std::size_t index, std::string_view fallback) const {
  VOLTA_TRY(const auto value, text(index));
  return value.value_or(fallback);
}

}  // namespace volta::jinja
