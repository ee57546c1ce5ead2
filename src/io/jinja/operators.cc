#include "io/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

std::unexpected<Error> type_error(std::string message) {
  return fail(ErrorCode::kInvalidFile, std::move(message));
}

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

std::unexpected<Error> undefined_error(const Value& value) {
  const Undefined* undefined = value.if_undefined();
  return type_error(undefined != nullptr && undefined->message != nullptr ? *undefined->message
                                                                          : "undefined value");
}

// base ** exponent of integers; nothing when it leaves 64 bits.
std::optional<std::int64_t> power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

Result<Value> calculate_integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) return type_error("division by zero");
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == -1) {  // The only quotient that can overflow.
        if (op == Operator::kModulo) return Value(std::int64_t{0});
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      result = op == Operator::kFloorDivide ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0);
      break;
    }
    default: {
      if (b < 0) {
        if (a == 0) return type_error("0 cannot be raised to a negative power");
        return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      const auto raised = power(a, b);
      overflow = !raised;
      result = raised.value_or(0);
    }
  }
  if (overflow) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} {} {}: integers beyond 64 bits are not supported", a, symbol(op), b));
  }
  return Value(result);
}

Result<Value> calculate_doubles(Operator op, double a, double b) {
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0.0) return type_error("division by zero");
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      return Value(a / b);
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      // As CPython: the remainder takes the divisor's sign, the quotient is whole.
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0.0 && (b < 0) != (rest < 0)) {
        rest += b;
        quotient -= 1.0;
      }
      if (op == Operator::kModulo) return Value(rest == 0.0 ? std::copysign(0.0, b) : rest);
      if (quotient == 0.0) return Value(std::copysign(0.0, a / b));
      double whole = std::floor(quotient);
      if (quotient - whole > 0.5) whole += 1.0;
      return Value(whole);
    }
    default: {
      if (a == 0.0 && b < 0.0) return type_error("0 cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return fail(ErrorCode::kUnsupported, "complex numbers are not supported");
      }
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) {
        return type_error("the power is too large");
      }
      return Value(result);
    }
  }
}

Result<Value> repeat(Budget& budget, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (const Text* text = value.if_text()) {
    TextBuilder out(budget);
    if (TextBuilder::is_quoting(text)) {
      for (std::size_t i = 0; i < times && budget.step() && !out.full(); ++i) out.add(*text);
    } else {
      out.add(times, text->content->text);
    }
    return out.finish();
  }
  const Sequence& sequence = *value.if_sequence();
  budget.make_many(times, sequence.items.size() * sizeof(Value));
  VOLTA_TRY(budget.check());
  std::vector<Value> items;
  for (std::size_t i = 0; i < times && !sequence.items.empty(); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(budget, sequence.kind, std::move(items));
}

bool is_list(const Value& value) {
  const Sequence* sequence = value.if_sequence();
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
}

bool is_markup(const Value& value) {
  const Text* text = value.if_text();
  return text != nullptr && text->markup;
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
  if (is_list(left) && is_list(right) && list_left->kind == list_right->kind) {
    budget.make_many(list_left->items.size() + list_right->items.size(), sizeof(Value));
    VOLTA_TRY(budget.check());
    std::vector<Value> items = list_left->items;
    items.insert(items.end(), list_right->items.begin(), list_right->items.end());
    return make_sequence(budget, list_left->kind, std::move(items));
  }
  return type_error(
      fmt::format("'+' does not take {} and {}", left.type_name(), right.type_name()));
}

// --- Attributes and items ------------------------------------------------------------------------

// The methods of Python's types; those that change their object are not to be called.
constexpr std::array<std::string_view, 47> kTextMethods = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::array<std::string_view, 11> kListMethods = {"append", "clear",   "copy",   "count",
                                                           "extend", "index",   "insert", "pop",
                                                           "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 2> kTupleMethods = {"count", "index"};
constexpr std::array<std::string_view, 11> kDictMethods = {
    "clear", "copy",    "fromkeys",   "get",    "items", "keys",
    "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::array<std::string_view, 13> kNumberMembers = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::span<const std::string_view> methods_of(const Value& value) {
  if (value.if_text() != nullptr) return kTextMethods;
  if (value.if_dict() != nullptr) return kDictMethods;
  if (value.is_number()) return kNumberMembers;
  const Sequence* sequence = value.if_sequence();
  if (sequence == nullptr) return {};
  if (sequence->kind == SequenceKind::kList) return kListMethods;
  return kTupleMethods;  // Of the others nothing else is ever asked.
}

// Python's sandbox hides methods that change their object, and what begins with two underscores.
bool is_hidden(const Value& object, std::string_view name) {
  constexpr std::array<std::string_view, 11> kChanging = {
      "append", "clear",   "extend", "insert",     "pop",   "popitem",
      "remove", "reverse", "sort",   "setdefault", "update"};
  return name.starts_with("__") || (has(methods_of(object), name) && has(kChanging, name));
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (is_hidden(object, name)) {
    return Value::undefined(
        fmt::format("{}.{} would not be safe in a template", object.type_name(), name));
  }
  if (!has(methods_of(object), name)) return std::nullopt;
  return Value(
      std::make_shared<const Function>(Function{.kind = Function::Kind::kMethod,
                                                .name = std::string(name),
                                                .self = std::make_shared<const Value>(object)}));
}

Value missing(const Value& object, const Value& key) {
  std::string name = "this";
  std::int64_t number = 0;
  if (const std::string* text = key.if_string()) {
    name = fmt::format("'{}'", text->size() > 80 ? text->substr(0, 80) : *text);
  } else if (key.as_int(number)) {
    name = fmt::format("{}", number);
  }
  return Value::undefined(
      fmt::format("a value of type {} has no element {}", object.type_name(), name));
}

// object[key] without methods: nothing when there is no such element.
Result<std::optional<Value>> find_item(Budget& budget, const Value& object, const Value& key) {
  if (const Dict* dict = object.if_dict()) {
    if (key.if_sequence() != nullptr || key.if_dict() != nullptr) return std::nullopt;
    const Value* value = find(budget, *dict, key);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  std::int64_t index = 0;
  if (!key.as_int(index)) return std::nullopt;
  if (const Text* whole = object.if_text()) {
    const std::string& text = whole->content->text;
    if (is_markup(object)) {
      return fail(ErrorCode::kUnsupported, "an index into 'safe' text is not supported");
    }
    budget.scan(text.size());
    const auto size = static_cast<std::int64_t>(count_characters(text));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    const std::string_view rest =
        std::string_view(text).substr(character_offset(text, static_cast<std::size_t>(index)));
    return Value::part(*whole, rest.substr(0, character_offset(rest, 1)));
  }
  const Sequence* sequence = object.if_sequence();
  if (sequence == nullptr || (!is_list(object) && sequence->kind != SequenceKind::kRange)) {
    return std::nullopt;
  }
  const auto size = static_cast<std::int64_t>(sequence->items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return sequence->items[static_cast<std::size_t>(index)];
}

}  // namespace

Result<Value> calculate(Budget& budget, Operator op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) return undefined_error(*value);
  }
  std::int64_t a = 0, b = 0;
  const bool whole_left = left.as_int(a), whole_right = right.as_int(b);
  if (whole_left && whole_right) return calculate_integers(op, a, b);
  if (left.is_number() && right.is_number()) {
    return calculate_doubles(op, left.as_double(), right.as_double());
  }
  if (is_markup(left) || is_markup(right)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("'{}' on 'safe' text is not supported", symbol(op)));
  }
  if (op == Operator::kAdd) return add(budget, left, right);
  const auto repeats = [](const Value& value) {
    return value.if_text() != nullptr || is_list(value);
  };
  if (op == Operator::kMultiply && repeats(left) && whole_right) return repeat(budget, left, b);
  if (op == Operator::kMultiply && repeats(right) && whole_left) return repeat(budget, right, a);
  if (op == Operator::kModulo && left.if_text() != nullptr) {
    return fail(ErrorCode::kUnsupported, "formatting a string with '%' is not supported");
  }
  return type_error(
      fmt::format("'{}' does not take {} and {}", symbol(op), left.type_name(), right.type_name()));
}

Result<bool> compare_with(Budget& budget, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
    case Operator::kNotEqual: {
      const bool same = equal(budget, left, right);
      VOLTA_TRY(budget.check());
      return same == (op == Operator::kEqual);
    }
    case Operator::kIn:
      return contains(budget, right, left);
    case Operator::kNotIn: {
      VOLTA_TRY(const bool found, contains(budget, right, left));
      return !found;
    }
    default:
      break;
  }
  VOLTA_TRY(const int order, compare(budget, left, right));
  if (order == 2) return false;  // Not a number.
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Result<Value> negate(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  std::int64_t number = 0;
  if (value.as_int(number)) return calculate_integers(Operator::kSubtract, 0, number);
  if (const double* real = value.if_double()) return Value(-*real);
  return type_error(fmt::format("'-' does not take {}", value.type_name()));
}

Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  budget.scan(name.size());
  VOLTA_TRY(budget.check());
  if (auto method = find_method(object, name)) return *std::move(method);
  if (const Namespace* names = object.if_namespace()) {
    budget.search(names->members.size(), name.size());
    for (const auto& [member, value] : names->members) {
      if (member == name) return value;
    }
    return Value::undefined(fmt::format("the namespace has no member '{}'", name));
  }
  if (object.if_function() != nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the attribute '{}' of a function is not supported", name));
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
    return fail(ErrorCode::kUnsupported,
                fmt::format("an index into a {} is not supported", object.type_name()));
  }
  if (auto method = find_method(object, *name)) return *std::move(method);
  return missing(object, key);
}

Result<Value> get_slice(Budget& budget, const Value& object, const Value& begin, const Value& end,
                        const Value& step) {
  if (object.is_undefined()) return undefined_error(object);
  const std::string* text = object.if_string();
  const Sequence* sequence = object.if_sequence();
  const bool sliceable = text != nullptr || is_list(object) ||
                         (sequence != nullptr && sequence->kind == SequenceKind::kRange);
  std::int64_t stride = 1, first = 0, last = 0;
  const auto fits = [](const Value& value, std::int64_t& out) {
    return value.is_none() || value.as_int(out);
  };
  if (!sliceable || !fits(step, stride) || !fits(begin, first) || !fits(end, last)) {
    return type_error(fmt::format("a value of type {} has no such slice", object.type_name()));
  }
  if (is_markup(object)) {
    return fail(ErrorCode::kUnsupported, "a slice of 'safe' text is not supported");
  }
  if (stride == 0) return type_error("a slice with step 0");
  VOLTA_TRY(const std::int64_t size, length(budget, object));
  const bool forward = stride > 0;
  // Python's rules: negative places count from the end, what is outside is moved to the border.
  const auto place = [&](const Value& value, std::int64_t at, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    if (at < 0) at = at < -size ? -1 : at + size;
    if (at < 0) return std::int64_t{forward ? 0 : -1};
    return std::min(at, forward ? size : size - 1);
  };
  const std::int64_t from = place(begin, first, forward ? 0 : size - 1);
  const std::int64_t to = place(end, last, forward ? size : -1);
  stride = std::clamp(stride, -size - 1, size + 1);
  if (text != nullptr && stride == 1) {
    if (from >= to) return Value::text("");
    const std::string_view all = *text;
    const std::string_view rest = all.substr(character_offset(all, static_cast<std::size_t>(from)));
    return make_part(budget, *object.if_text(),
                     rest.substr(0, character_offset(rest, static_cast<std::size_t>(to - from))));
  }
  std::vector<Value> letters;
  if (text != nullptr) {
    VOLTA_TRY(letters, iterate(budget, object));
  }
  const std::vector<Value>& items = text != nullptr ? letters : sequence->items;
  std::vector<Value> taken;
  budget.make_many(static_cast<std::size_t>(size), sizeof(Value));
  VOLTA_TRY(budget.check());
  for (std::int64_t i = from; forward ? i < to : i > to; i += stride) {
    taken.push_back(items[static_cast<std::size_t>(i)]);
  }
  if (text == nullptr) return make_sequence(budget, sequence->kind, std::move(taken));
  TextBuilder out(budget);
  for (const Value& letter : taken) out.add(*letter.if_text());
  return out.finish();
}

}  // namespace volta::jinja
