// Python's operators, attributes, indices and methods on values.
#pragma once

#include <array>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace volta::jinja {

/// A binary operator: its text and level. Higher levels bind more tightly. "not in" is two words.
struct OperatorRow {
  std::string_view symbol;
  Operator op;
  int level;
};
inline constexpr int kCompareLevel = 0, kConcatLevel = 2, kLevels = 4;
inline constexpr std::array kOperators = {
    OperatorRow{"==", Operator::kEqual, kCompareLevel},
    OperatorRow{"!=", Operator::kNotEqual, kCompareLevel},
    OperatorRow{"<", Operator::kLess, kCompareLevel},
    OperatorRow{"<=", Operator::kLessEqual, kCompareLevel},
    OperatorRow{">", Operator::kGreater, kCompareLevel},
    OperatorRow{">=", Operator::kGreaterEqual, kCompareLevel},
    OperatorRow{"in", Operator::kIn, kCompareLevel},
    OperatorRow{"not in", Operator::kNotIn, kCompareLevel},
    OperatorRow{"+", Operator::kAdd, 1},
    OperatorRow{"-", Operator::kSubtract, 1},
    OperatorRow{"~", Operator::kConcat, kConcatLevel},
    OperatorRow{"*", Operator::kMultiply, 3},
    OperatorRow{"/", Operator::kDivide, 3},
    OperatorRow{"//", Operator::kFloorDivide, 3},
    OperatorRow{"%", Operator::kModulo, 3},
};
std::string_view symbol(Operator op);

/// kInvalidFile for types that the operator does not accept; kUnsupported for integers beyond 64
/// bits, and for text that Python's Markup would escape.
Result<Value> calculate(Budget& budget, Operator op, const Value& left, const Value& right);
Result<bool> compare_with(Budget& budget, Operator op, const Value& left, const Value& right);

/// `object.name`: a method or a member. Undefined when neither exists, and for methods that would
/// change the object; kInvalidFile when the object itself is undefined.
Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name);
/// `object[key]`: a member or a method.
Result<Value> get_item(Budget& budget, const Value& object, const Value& key);
/// `object[begin:end:step]`; each of the three may be none.
Result<Value> get_slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                        const Value& step);

}  // namespace volta::jinja
