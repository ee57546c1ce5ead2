#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace volta::jinja {
namespace {

const Builtin* find_row(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : std::to_address(found);
}

// The table with the methods of this value's type.
struct Methods {
  BuiltinKind kind;
  std::span<const Builtin> table;
};
Methods methods_of(const Value& object) {
  if (object.if_text() != nullptr) return {BuiltinKind::kTextMethod, text_methods()};
  if (object.if_dict() != nullptr) return {BuiltinKind::kDictMethod, dict_methods()};
  return {BuiltinKind::kDictMethod, {}};
}

// Assigns the arguments to their parameters, as in Python.
Status bind(Call& call) {
  const auto& names = call.builtin.parameters;
  const auto count = static_cast<std::size_t>(std::ranges::find(names, "") - names.begin());
  const auto& positional = call.arguments.positional;
  if (positional.size() > count) {
    return call.bad(fmt::format("takes {} arguments at most, not {}", count, positional.size()));
  }
  for (std::size_t i = 0; i < positional.size(); ++i) call.given[i] = &positional[i];
  for (const auto& [name, value] : call.arguments.named) {
    const auto* const place = std::ranges::find_if(names, [&name](std::string_view parameter) {
      return !parameter.empty() && parameter.substr(parameter.front() == '!' ? 1 : 0) == name;
    });
    if (place == names.end()) return call.bad(fmt::format("has no argument '{}'", name));
    const Value*& slot = call.given[static_cast<std::size_t>(place - names.begin())];
    if (slot != nullptr) return call.bad(fmt::format("was given twice '{}'", name));
    slot = &value;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i < call.builtin.required && call.given[i] == nullptr) {
      return call.bad(fmt::format("lacks its argument '{}'", names[i]));
    }
    const bool refused = names[i].front() == '!' && call.has(i);
    const bool* const flag = refused ? call.given[i]->if_bool() : nullptr;
    if (refused && (flag == nullptr || *flag)) {  // False has the same effect as no argument.
      return call.unsupported(fmt::format("with the argument '{}'", names[i].substr(1)));
    }
  }
  return {};
}

Result<Value> apply(Call call) {
  call.budget.step();
  const bool of_text =
      call.kind == BuiltinKind::kTextMethod || call.kind == BuiltinKind::kTextFilter;
  if (of_text && call.input.is_markup()) return markup_error(call.what());
  if (of_text) call.budget.scan(call.string().size());
  VOLTA_TRY(call.budget.check());
  if (call.builtin.parameters.front() != "*") VOLTA_TRY(bind(call));
  return call.builtin.apply(call);
}

constexpr std::tm kNoTime{};

}  // namespace

std::string Call::what() const {
  switch (kind) {
    case BuiltinKind::kFunction:
      return std::string(builtin.name);
    case BuiltinKind::kTest:
      return fmt::format("the test '{}'", builtin.name);
    case BuiltinKind::kFilter:
    case BuiltinKind::kTextFilter:
      return fmt::format("the filter '{}'", builtin.name);
    default:
      return fmt::format("{}.{}", input.type_name(), builtin.name);
  }
}

std::unexpected<Error> Call::bad(std::string_view message) const {
  return fail(ErrorCode::kInvalidFile, fmt::format("{} {}", what(), message));
}
std::unexpected<Error> Call::unsupported(std::string_view what_of_it) const {
  return jinja::unsupported(fmt::format("{} {} is not supported", what(), what_of_it));
}

Result<std::int64_t> Call::integer(std::size_t index, std::int64_t fallback) const {
  std::int64_t number = fallback;
  if (given[index] == nullptr || given[index]->as_int(number)) return number;
  return bad(fmt::format("takes an integer as '{}', not {}", builtin.parameters[index],
                         given[index]->type_name()));
}

Result<std::optional<std::string_view>> Call::word(std::size_t index) const {
  if (!has(index)) return std::nullopt;
  if (const std::string* text = given[index]->if_string()) return *text;
  return bad(fmt::format("takes a string as '{}', not {}", builtin.parameters[index],
                         given[index]->type_name()));
}

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments) {
  if (const Builtin* row = find_row(filters(), name)) {
    return apply({budget, BuiltinKind::kFilter, *row, input, arguments, kNoTime});
  }
  const Builtin* row = find_row(text_filters(), name);
  if (row == nullptr) {
    return unsupported(fmt::format("the filter '{}' is not supported", name));
  }
  if (name == "indent" && input.if_text() == nullptr) {  // The others take str() of any value.
    return type_error(fmt::format("the filter 'indent' takes a string, not {}", input.type_name()));
  }
  VOLTA_TRY(const Value text, to_text(budget, input));
  return apply({budget, BuiltinKind::kTextFilter, *row, text, arguments, kNoTime});
}

Result<Value> apply_test(Budget& budget, std::string_view name, const Value& input,
                         const Arguments& arguments) {
  const Builtin* row = find_row(tests(), name);
  if (row == nullptr) {
    return unsupported(fmt::format("the test '{}' is not supported", name));
  }
  return apply({budget, BuiltinKind::kTest, *row, input, arguments, kNoTime});
}

Result<std::optional<Value>> find_function(std::string_view name) {
  constexpr std::array<std::string_view, 9> kMissing = {
      "caller", "cycler", "dict", "joiner", "kwargs", "lipsum", "self", "super", "varargs"};
  if (std::ranges::find(kMissing, name) != kMissing.end()) {
    return unsupported(fmt::format("'{}' is not supported", name));
  }
  const Builtin* row = find_row(functions(), name);
  if (row == nullptr) return std::nullopt;
  return Value(std::make_shared<const Function>(Function{.builtin = row}));
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  const Builtin* row = find_row(methods_of(object).table, name);
  if (row == nullptr) return std::nullopt;
  return Value(std::make_shared<const Function>(
      Function{.builtin = row, .self = std::make_shared<const Value>(object)}));
}

Result<Value> call_function(Budget& budget, const Function& function, const Arguments& arguments,
                            const std::tm& now) {
  const Value none;
  const Value& self = function.self == nullptr ? none : *function.self;
  const BuiltinKind kind =
      function.self == nullptr ? BuiltinKind::kFunction : methods_of(self).kind;
  return apply({budget, kind, *function.builtin, self, arguments, now});
}

}  // namespace volta::jinja
