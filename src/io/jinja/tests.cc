#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "io/jinja/filters.h"
#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

struct Comparison {
  std::string_view name;
  Operator op;
};
constexpr std::array kComparisons = {
    Comparison{"==", Operator::kEqual},        Comparison{"eq", Operator::kEqual},
    Comparison{"equalto", Operator::kEqual},   Comparison{"!=", Operator::kNotEqual},
    Comparison{"ne", Operator::kNotEqual},     Comparison{">", Operator::kGreater},
    Comparison{"gt", Operator::kGreater},      Comparison{"greaterthan", Operator::kGreater},
    Comparison{">=", Operator::kGreaterEqual}, Comparison{"ge", Operator::kGreaterEqual},
    Comparison{"<", Operator::kLess},          Comparison{"lt", Operator::kLess},
    Comparison{"lessthan", Operator::kLess},   Comparison{"<=", Operator::kLessEqual},
    Comparison{"le", Operator::kLessEqual},    Comparison{"in", Operator::kIn}};

bool is_true(const Value& value, bool wanted) {
  const bool* flag = value.if_bool();
  return flag != nullptr && *flag == wanted;
}
bool is_sequence(const Value& value) {
  if (value.if_text() != nullptr || value.if_dict() != nullptr || value.is_undefined()) return true;
  const Sequence* sequence = value.if_sequence();
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
          sequence->kind == SequenceKind::kRange);
}

struct Simple {
  std::string_view name;
  bool (*holds)(const Value&);
};
// Tests without arguments that no value can make fail.
constexpr std::array kSimple = {
    Simple{"defined", [](const Value& v) { return !v.is_undefined(); }},
    Simple{"undefined", [](const Value& v) { return v.is_undefined(); }},
    Simple{"none", [](const Value& v) { return v.is_none(); }},
    Simple{"boolean", [](const Value& v) { return v.if_bool() != nullptr; }},
    Simple{"true", [](const Value& v) { return is_true(v, true); }},
    Simple{"false", [](const Value& v) { return is_true(v, false); }},
    Simple{"integer", [](const Value& v) { return v.if_int() != nullptr; }},
    Simple{"float", [](const Value& v) { return v.if_double() != nullptr; }},
    Simple{"number", [](const Value& v) { return v.is_number(); }},
    Simple{"string", [](const Value& v) { return v.if_text() != nullptr; }},
    Simple{"mapping", [](const Value& v) { return v.if_dict() != nullptr; }},
    Simple{"iterable", [](const Value& v) { return is_iterable(v) || v.if_loop() != nullptr; }},
    Simple{"sequence", is_sequence},
    Simple{"callable",
           [](const Value& v) {
             return v.if_function() != nullptr || v.is_undefined() || v.if_loop() != nullptr;
           }},
    Simple{"escaped", [](const Value& v) { return v.if_text() != nullptr && v.if_text()->markup; }},
};
constexpr std::array<std::string_view, 8> kOthers = {"odd",   "even",   "divisibleby", "lower",
                                                     "upper", "sameas", "filter",      "test"};

// Whether input % divisor is `rest`.
Result<bool> has_rest(Budget& budget, const Value& input, const Value& divisor, std::int64_t rest) {
  VOLTA_TRY(const Value found, calculate(budget, Operator::kModulo, input, divisor));
  return equal(budget, found, Value(rest));
}

Result<bool> is_same(const Value& a, const Value& b) {
  const auto constant = [](const Value& v) { return v.is_none() || v.if_bool() != nullptr; };
  if (!constant(a) && !constant(b)) {
    return fail(ErrorCode::kUnsupported, "'sameas' is supported for none, true and false only");
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  return a.if_bool() != nullptr && b.if_bool() != nullptr && *a.if_bool() == *b.if_bool();
}

}  // namespace

bool is_test(std::string_view name) {
  return std::ranges::find(kOthers, name) != kOthers.end() ||
         std::ranges::find(kSimple, name, &Simple::name) != kSimple.end() ||
         std::ranges::find(kComparisons, name, &Comparison::name) != kComparisons.end();
}

Result<bool> apply_test(Budget& budget, std::string_view name, const Value& input,
                        const Arguments& arguments) {
  budget.step();
  VOLTA_TRY(budget.check());
  const std::string what = fmt::format("the test '{}'", name);
  const auto* const simple = std::ranges::find(kSimple, name, &Simple::name);
  if (simple != kSimple.end()) {
    VOLTA_TRY(const auto none, Parameters::bind(what, arguments, {}));
    static_cast<void>(none);
    return simple->holds(input);
  }
  const auto* const comparison = std::ranges::find(kComparisons, name, &Comparison::name);
  if (comparison != kComparisons.end()) {
    VOLTA_TRY(const auto p, Parameters::bind(what, arguments, {"other"}, 1));
    return compare_with(budget, comparison->op, input, *p.find(0));
  }
  if (std::ranges::find(kOthers, name) == kOthers.end()) {
    return fail(ErrorCode::kUnsupported, what + " is not supported");
  }
  const bool takes_value = name == "divisibleby" || name == "sameas";
  VOLTA_TRY(const auto p, takes_value ? Parameters::bind(what, arguments, {"other"}, 1)
                                      : Parameters::bind(what, arguments, {}));
  if (name == "odd") return has_rest(budget, input, Value(std::int64_t{2}), 1);
  if (name == "even") return has_rest(budget, input, Value(std::int64_t{2}), 0);
  if (name == "divisibleby") return has_rest(budget, input, *p.find(0), 0);
  if (name == "sameas") return is_same(input, *p.find(0));
  if (name == "lower" || name == "upper") {
    VOLTA_TRY(const Value text, to_text(budget, input));
    budget.scan(text.if_string()->size());
    return name == "lower" ? is_lower(*text.if_string()) : is_upper(*text.if_string());
  }
  const std::string* asked = input.if_string();
  if (asked == nullptr) return fail(ErrorCode::kInvalidFile, what + " takes a name");
  return name == "filter" ? is_filter(*asked) : is_test(*asked);
}

}  // namespace volta::jinja
