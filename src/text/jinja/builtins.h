// The built-in functions of templates: global functions, methods of strings and dicts, filters
// (value|name(...)) and tests (value is name(...)). They are rows of tables that list the
// parameters of each function. One function finds the row, assigns the arguments to the parameters
// and calls it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace volta::jinja {

enum class BuiltinKind : std::uint8_t {
  kFunction,
  kTextMethod,
  kDictMethod,
  kFilter,
  kTextFilter,  ///< Works on the text of any value.
  kTest,
};

struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string, Value>> named{};
};

struct Call;
struct Builtin {
  std::string_view name;
  Result<Value> (*apply)(const Call&);
  /// In their order. A parameter that begins with '!' exists in Python, but its use is unsupported.
  /// "*" accepts any number of arguments, which the function reads itself.
  std::array<std::string_view, 4> parameters{};
  std::size_t required = 0;  ///< How many of them are required.
};

/// One call of a built-in.
struct Call {
  Budget& budget;
  BuiltinKind kind;
  const Builtin& builtin;
  const Value& input;  ///< The object of a method, or the input of a filter or test.
  const Arguments& arguments;
  const std::tm& now;                   ///< The current time for the template.
  std::array<const Value*, 4> given{};  ///< By parameter; null: not given.

  /// For methods and filters of text.
  const Text& text() const { return *input.if_text(); }
  const std::string& string() const { return *input.if_string(); }

  /// The argument of the parameter at `index`. Errors contain the function's name.
  bool has(std::size_t index) const { return given[index] != nullptr && !given[index]->is_none(); }
  bool flag(std::size_t index) const { return given[index] != nullptr && truth(*given[index]); }
  Result<std::int64_t> integer(std::size_t index, std::int64_t fallback) const;
  /// Nullopt when it is not given or none.
  Result<std::optional<std::string_view>> word(std::size_t index) const;

  /// The name for messages: "the filter 'join'", "str.strip", "range".
  std::string what() const;
  std::unexpected<Error> bad(std::string_view message) const;
  std::unexpected<Error> unsupported(std::string_view what_of_it) const;
};

/// The rows of each kind (text_builtins.cc and value_builtins.cc).
std::span<const Builtin> text_methods();
std::span<const Builtin> text_filters();
std::span<const Builtin> filters();
std::span<const Builtin> dict_methods();
std::span<const Builtin> tests();
std::span<const Builtin> functions();

/// kUnsupported for a filter or test that Volta does not have, kInvalidFile for an input that it
/// does not accept.
Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments);
Result<Value> apply_test(Budget& budget, std::string_view name, const Value& input,
                         const Arguments& arguments);

/// A global function as a value; nullopt for other names. kUnsupported for global functions of
/// Jinja that Volta does not have.
Result<std::optional<Value>> find_function(std::string_view name);
/// A method of `object` as a value; nullopt for methods that Volta does not have.
std::optional<Value> find_method(const Value& object, std::string_view name);
/// Calls a function that find_function() or find_method() returned. kInvalidArgument means that the
/// template called raise_exception.
Result<Value> call_function(Budget& budget, const Function& function, const Arguments& arguments,
                            const std::tm& now);

}  // namespace volta::jinja
