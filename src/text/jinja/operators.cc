#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/text.h"

namespace volta::jinja {

std::string_view symbol(Operator op) {
  return std::ranges::find(kOperators, op, &OperatorRow::op)->symbol;
}

namespace {

// Python's // and %: the quotient is rounded down, so that the remainder has the sign of the
// divisor, which must not be 0. Returns true when the result exceeds 64 bits.
bool divide_down(std::int64_t a, std::int64_t b, std::int64_t* result) {
  if (b == -1) return __builtin_sub_overflow(std::int64_t{0}, a, result);
  *result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return false;
}
bool take_rest(std::int64_t a, std::int64_t b, std::int64_t* result) {
  *result = b == -1 ? 0 : a % b;
  if (*result != 0 && (a < 0) != (b < 0)) *result += b;
  return false;
}

// An operator on two integers. It returns true when the result exceeds 64 bits.
using Int = std::int64_t;
struct Arithmetic {
  Operator op;
  bool (*apply)(Int, Int, Int*);
};
constexpr std::array kArithmetic = {
    Arithmetic{Operator::kAdd,
               [](Int a, Int b, Int* r) { return __builtin_add_overflow(a, b, r); }},
    Arithmetic{Operator::kSubtract,
               [](Int a, Int b, Int* r) { return __builtin_sub_overflow(a, b, r); }},
    Arithmetic{Operator::kMultiply,
               [](Int a, Int b, Int* r) { return __builtin_mul_overflow(a, b, r); }},
    Arithmetic{Operator::kFloorDivide, divide_down},
    Arithmetic{Operator::kModulo, take_rest},
};

Result<Value> calculate_numbers(Operator op, const Value& left, const Value& right) {
  const auto* const row = std::ranges::find(kArithmetic, op, &Arithmetic::op);
  std::int64_t a = 0, b = 0, result = 0;
  if (row == kArithmetic.end() || !left.as_int(a) || !right.as_int(b)) {
    return unsupported(
        fmt::format("'{}' with numbers that have a fraction is not supported", symbol(op)));
  }
  if (b == 0 && (op == Operator::kFloorDivide || op == Operator::kModulo)) {
    return type_error("division by zero");
  }
  if (!row->apply(a, b, &result)) return Value(result);
  return unsupported(
      fmt::format("{} {} {}: integers beyond 64 bits are not supported", a, symbol(op), b));
}

Result<Value> repeat(Budget& budget, const Text& text, std::int64_t count) {
  TextBuilder out(budget);
  if (!TextBuilder::is_quoting(&text)) {
    out.add(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), text.content->text);
    return out.finish();
  }
  for (; count > 0 && budget.step() && !out.full(); --count) out.add(text);
  return out.finish();
}

Result<Value> add(Budget& budget, const Value& left, const Value& right) {
  const Text* text_left = left.if_text();
  const Text* text_right = right.if_text();
  if (text_left != nullptr && text_right != nullptr) {
    TextBuilder out(budget);
    out.add(*text_left);
    out.add(*text_right);
    return out.finish();
  }
  const Sequence* list_left = left.if_sequence();
  const Sequence* list_right = right.if_sequence();
  if (left.is_list() && right.is_list() && list_left->kind == list_right->kind) {
    VOLTA_TRY(charge_values(budget, list_left->items.size() + list_right->items.size()));
    std::vector<Value> items = list_left->items;
    items.insert(items.end(), list_right->items.begin(), list_right->items.end());
    return make_sequence(budget, list_left->kind, std::move(items));
  }
  return type_error(
      fmt::format("'+' does not take {} and {}", left.type_name(), right.type_name()));
}

// Python's Markup escapes the other text of a sum. Sums with text that needs escapes are
// unsupported, and so are all other operators.
Result<Value> calculate_markup(Budget& budget, Operator op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    const std::string* text = value->if_string();
    const bool simple = text != nullptr && budget.scan(text->size()) &&
                        (value->is_markup() || text->find_first_of("&<>'\"") == std::string::npos);
    if (op != Operator::kAdd || !simple) return markup_error(fmt::format("'{}'", symbol(op)));
  }
  VOLTA_TRY(const Value sum, add(budget, left, right));
  return Value(Text{.content = sum.if_text()->content, .markup = true});
}

// --- Attributes and items ------------------------------------------------------------------------

Value missing(const Value& object, const Value& key) {
  const std::string* text = key.if_string();
  const std::string name = text == nullptr ? "" : fmt::format(" '{}'", text->substr(0, 80));
  return Value::undefined(
      fmt::format("a value of type {} has no element{}", object.type_name(), name));
}

// The characters of a text from `from` to `to`.
Result<Value> text_part(Budget& budget, const Text& text, std::int64_t from, std::int64_t to) {
  const std::string_view all = text.content->text;
  const std::string_view rest = all.substr(character_offset(all, static_cast<std::size_t>(from)));
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(to - from, 0));
  return make_part(budget, text, rest.substr(0, character_offset(rest, count)));
}

// object[key] without methods; nullopt when there is no such element.
Result<std::optional<Value>> find_item(Budget& budget, const Value& object, const Value& key) {
  if (const Dict* dict = object.if_dict()) {
    if (key.if_sequence() != nullptr || key.if_dict() != nullptr) return std::nullopt;
    const Value* value = find(budget, *dict, key);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  std::int64_t index = 0;
  if (!key.as_int(index) || !object.has_places()) return std::nullopt;
  if (object.is_markup()) return markup_error("an index");
  VOLTA_TRY(const std::int64_t size, length(budget, object));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (const Text* text = object.if_text()) return text_part(budget, *text, index, index + 1);
  return object.if_sequence()->items[static_cast<std::size_t>(index)];
}

}  // namespace

Result<Value> calculate(Budget& budget, Operator op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) return undefined_error(*value);
  }
  if (left.is_number() && right.is_number()) return calculate_numbers(op, left, right);
  if (left.is_markup() || right.is_markup()) return calculate_markup(budget, op, left, right);
  if (op == Operator::kAdd) return add(budget, left, right);
  std::int64_t times = 0;
  if (op == Operator::kMultiply && left.if_text() != nullptr && right.as_int(times)) {
    return repeat(budget, *left.if_text(), times);
  }
  if (op == Operator::kMultiply && (left.is_list() || right.has_places())) {
    return unsupported("'*' is not supported for a list, or with text behind it");
  }
  if (op == Operator::kModulo && left.if_text() != nullptr) {
    return unsupported("formatting a string with '%' is not supported");
  }
  return type_error(
      fmt::format("'{}' does not take {} and {}", symbol(op), left.type_name(), right.type_name()));
}

Result<bool> compare_with(Budget& budget, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kIn || op == Operator::kNotIn) {
    VOLTA_TRY(const bool found, contains(budget, right, left));
    return found == (op == Operator::kIn);
  }
  if (op == Operator::kEqual || op == Operator::kNotEqual) {
    const bool same = equal(budget, left, right);
    VOLTA_TRY(budget.check());
    return same == (op == Operator::kEqual);
  }
  VOLTA_TRY(const int order, compare(budget, left, right));
  if (op == Operator::kLess) return order < 0;
  if (op == Operator::kLessEqual) return order <= 0;
  return op == Operator::kGreater ? order > 0 : order >= 0;
}

Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  budget.scan(name.size());
  VOLTA_TRY(budget.check());
  if (name.starts_with("__")) return missing(object, Value::text(name));
  if (auto method = find_method(object, name)) return *std::move(method);
  if (const Namespace* names = object.if_namespace()) {
    budget.search(names->members.size(), name.size());
    for (const auto& [member, value] : names->members) {
      if (member == name) return value;
    }
    return Value::undefined(fmt::format("the namespace has no member '{}'", name));
  }
  const Dict* dict = object.if_dict();
  const Value key = Value::text(name);
  const Value* value = dict == nullptr ? nullptr : find(budget, *dict, key);
  return value == nullptr ? missing(object, key) : *value;
}

Result<Value> get_item(Budget& budget, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  VOLTA_TRY(auto found, find_item(budget, object, key));
  VOLTA_TRY(budget.check());
  if (found) return *std::move(found);
  const std::string* name = key.if_string();
  if (name == nullptr) return missing(object, key);
  if (object.if_namespace() != nullptr || object.if_function() != nullptr ||
      object.if_loop() != nullptr) {
    return unsupported(fmt::format("an index into a {} is not supported", object.type_name()));
  }
  if (auto method = find_method(object, *name)) return *std::move(method);
  return missing(object, key);
}

Result<Value> get_slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                        const Value& step) {
  if (object.is_undefined()) return undefined_error(object);
  std::int64_t stride = 1, first = 0, last = 0;
  const auto fits = [](const Value& value, std::int64_t& out) {
    return value.is_none() || value.as_int(out);
  };
  if (!object.has_places() || !fits(step, stride) || !fits(begin, first) || !fits(end, last)) {
    return type_error(fmt::format("a value of type {} has no such slice", object.type_name()));
  }
  if (object.is_markup()) return markup_error("a slice");
  if (stride == 0) return type_error("a slice with step 0");
  VOLTA_TRY(const std::int64_t size, length(budget, object));
  const bool forward = stride > 0;
  // As in Python, negative places count from the end, and places outside become the borders.
  const auto place = [&](const Value& value, std::int64_t at, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    if (at < 0) at = at < -size ? -1 : at + size;
    if (at < 0) return std::int64_t{forward ? 0 : -1};
    return std::min(at, forward ? size : size - 1);
  };
  const std::int64_t from = place(begin, first, forward ? 0 : size - 1);
  const std::int64_t to = place(end, last, forward ? size : -1);
  stride = std::clamp(stride, -size - 1, size + 1);
  if (const Text* text = object.if_text()) {
    if (stride == 1) return text_part(budget, *text, from, to);
    return unsupported("a slice of text with a step is not supported");
  }
  const Sequence* sequence = object.if_sequence();
  std::vector<Value> taken;
  VOLTA_TRY(charge_values(budget, static_cast<std::size_t>(size)));
  for (std::int64_t i = from; forward ? i < to : i > to; i += stride) {
    taken.push_back(sequence->items[static_cast<std::size_t>(i)]);
  }
  return make_sequence(budget, sequence->kind, std::move(taken));
}

}  // namespace volta::jinja
