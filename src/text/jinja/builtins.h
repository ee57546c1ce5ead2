// What a template can call, but for macros: global functions, methods of strings and dicts, filters
// (value|name(...)) and tests (value is name(...)). They are rows of tables, which say what
// parameters each has; one function finds a row, puts the arguments into the places of its
// parameters and calls it.
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
  kTextFilter,  ///< Of the text of any value.
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
  /// In their order. One that begins with '!' exists in Python, and using it is not supported; "*"
  /// takes any number of arguments, which the function reads itself.
  std::array<std::string_view, 4> parameters{};
  std::size_t required = 0;  ///< So many of them must be given.
};

/// One call.
struct Call {
  Budget& budget;
  BuiltinKind kind;
  const Builtin& builtin;
  const Value& input;  ///< The object of a method, what a filter or test is applied to.
  const Arguments& arguments;
  const std::tm& now;                   ///< The template's time.
  std::array<const Value*, 4> given{};  ///< In the places of the parameters; null: not given.

  /// For methods and filters of text.
  const Text& text() const { return *input.if_text(); }
  const std::string& string() const { return *input.if_string(); }

  /// The argument at a place. Errors name the function.
  bool has(std::size_t index) const { return given[index] != nullptr && !given[index]->is_none(); }
  bool flag(std::size_t index) const { return given[index] != nullptr && truth(*given[index]); }
  Result<std::int64_t> integer(std::size_t index, std::int64_t fallback) const;
  /// Nothing when it was not given or is none.
  Result<std::optional<std::string_view>> word(std::size_t index) const;

  /// "the filter 'join'", "str.strip", "range".
  std::string what() const;
  std::unexpected<Error> bad(std::string_view message) const;
  std::unexpected<Error> unsupported(std::string_view what_of_it) const;
};

/// The rows of one kind (text_builtins.cc and value_builtins.cc).
std::span<const Builtin> text_methods();
std::span<const Builtin> text_filters();
std::span<const Builtin> filters();
std::span<const Builtin> dict_methods();
std::span<const Builtin> tests();
std::span<const Builtin> functions();

/// kUnsupported for a filter or test that Volta does not have, kInvalidFile for a value that it
/// does not take.
Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments);
Result<Value> apply_test(Budget& budget, std::string_view name, const Value& input,
                         const Arguments& arguments);

/// A global function as a value. Nothing for other names; kUnsupported for those that Jinja gives
/// to every template and Volta does not know.
Result<std::optional<Value>> find_function(std::string_view name);
/// A method of `object` as a value; nothing for those that Volta lacks.
std::optional<Value> find_method(const Value& object, std::string_view name);
/// Calls what one of the two found. kInvalidArgument is raise_exception's.
Result<Value> call_function(Budget& budget, const Function& function, const Arguments& arguments,
                            const std::tm& now);

}  // namespace volta::jinja
