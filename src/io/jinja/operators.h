// What Python's operators, attributes, indices and methods do to values.
#pragma once

#include <optional>
#include <string_view>

#include "io/jinja/arguments.h"
#include "io/jinja/ast.h"
#include "io/jinja/value.h"

namespace volta::jinja {

/// kInvalidFile for types that the operator does not take; kUnsupported for integers that leave 64
/// bits, and for text that Python's Markup would escape.
Result<Value> calculate(Budget& budget, Operator op, const Value& left, const Value& right);
Result<bool> compare_with(Budget& budget, Operator op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);

/// `object.name`: a method, or a member. Undefined when there is neither, and for methods that
/// would change the object; kInvalidFile when the object itself is undefined.
Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name);
/// `object[key]`: a member, or a method.
Result<Value> get_item(Budget& budget, const Value& object, const Value& key);
/// `object[begin:end:step]`, each of which may be none.
Result<Value> get_slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                        const Value& step);

/// Calls a method that get_attribute() found. kUnsupported for those that Volta lacks.
Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments);

}  // namespace volta::jinja
