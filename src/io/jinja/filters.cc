#include "io/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

/// One use of a filter.
struct Use {
  Budget& budget;
  std::string_view name;
  const Value& input;
  const Arguments& arguments;

  Result<Parameters> bind(std::initializer_list<std::string_view> names,
                          std::size_t required = 0) const {
    return Parameters::bind(fmt::format("the filter '{}'", name), arguments, names, required);
  }
  std::unexpected<Error> bad(std::string_view message) const {
    return fail(ErrorCode::kInvalidFile, fmt::format("the filter '{}' {}", name, message));
  }
  std::unexpected<Error> unsupported(std::string_view message) const {
    return fail(ErrorCode::kUnsupported, fmt::format("the filter '{}' {}", name, message));
  }
  bool is_markup() const { return input.if_text() != nullptr && input.if_text()->markup; }
  /// The input as text; markup is refused, because what becomes of it would be markup, too.
  Result<std::string> text() const {
    if (is_markup()) return unsupported("on 'safe' text is not supported");
    VOLTA_TRY(const Value value, to_text(budget, input));
    budget.scan(value.if_string()->size());
    return *value.if_string();
  }
};

Result<Value> finish(const Use& use, Result<std::string> text) {
  if (!text) return std::unexpected(std::move(text).error());
  return make_text(use.budget, *text);
}

// --- Text ----------------------------------------------------------------------------------------

Result<Value> filter_case(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(const std::string text, use.text());
  if (use.name == "upper") return finish(use, upper(text));
  if (use.name == "lower") return finish(use, lower(text));
  if (use.name == "title") return finish(use, filter_title(text));
  return finish(use, capitalize(text));
}

Result<Value> filter_trim(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"chars"}));
  VOLTA_TRY(const auto set, p.text(0));
  VOLTA_TRY(const std::string text, use.text());
  if (set) use.budget.make_many(set->size(), text.size() / 64);
  return make_text(use.budget, strip(text, true, true, set));
}

Result<Value> filter_string(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  return to_text(use.budget, use.input);
}

Result<Value> filter_safe(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(const Value text, to_text(use.budget, use.input));
  return Value(Text{text.if_text()->bytes, true});
}

Result<Value> filter_escape(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (use.is_markup()) return use.input;
  VOLTA_TRY(const std::string text, use.text());
  TextBuilder out(use.budget);
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::array kEscapes = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (const char& c : text) {
    const std::size_t special = kSpecial.find(c);
    out.add(special == std::string_view::npos ? std::string_view(&c, 1) : kEscapes[special]);
  }
  return out.finish(true);
}

Result<Value> filter_replace(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"old", "new", "count"}, 2));
  Arguments arguments;
  for (std::size_t i = 0; i < 2; ++i) {
    VOLTA_TRY(Value text, to_text(use.budget, *p.find(i)));
    arguments.positional.push_back(std::move(text));
  }
  if (p.find(2) != nullptr && !p.find(2)->is_none()) arguments.positional.push_back(*p.find(2));
  VOLTA_TRY(const Value text, to_text(use.budget, use.input));
  return call_method(use.budget, Value(Text{text.if_text()->bytes}), "replace", arguments);
}

Result<Value> filter_indent(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"width", "first", "blank"}));
  std::string indention(4, ' ');
  if (const Value* width = p.find(0)) {
    if (const std::string* text = width->if_string()) {
      indention = *text;
    } else {
      VOLTA_TRY(const std::int64_t count, p.integer(0, 4));
      if (count > 1000) return use.unsupported("by more than 1000 spaces is not supported");
      indention.assign(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' ');
    }
  }
  if (use.input.if_text() == nullptr) return use.bad("takes a string");
  VOLTA_TRY(const std::string text, use.text());
  const std::string whole = text + "\n";
  TextBuilder out(use.budget);
  if (p.flag(1, false)) out.add(indention);
  bool first = true;
  for (const std::string_view line : splitlines(whole)) {
    if (!first) {
      out.add("\n");
      if (!line.empty() || p.flag(2, false)) out.add(indention);
    }
    first = false;
    out.add(line);
  }
  return out.finish();
}

Result<Value> filter_truncate(const Use& use) {
  if (use.input.if_text() == nullptr)
    return use.unsupported("on anything but text is not supported");
  VOLTA_TRY(const auto p, use.bind({"length", "killwords", "end", "leeway"}));
  VOLTA_TRY(const std::int64_t most, p.integer(0, 255));
  VOLTA_TRY(const std::string_view end, p.text_or(2, "..."));
  std::int64_t leeway = 5;
  if (p.find(3) != nullptr && !p.find(3)->is_none()) {
    VOLTA_TRY(leeway, p.integer(3, 5));
  }
  VOLTA_TRY(const std::string text, use.text());
  const auto end_size = static_cast<std::int64_t>(count_characters(end));
  if (most < end_size || leeway < 0) return use.bad("has a length shorter than its end");
  const auto size = static_cast<std::int64_t>(count_characters(text));
  if (size <= most || size - most <= leeway) return make_text(use.budget, text);
  std::string_view kept = std::string_view(text).substr(
      0, character_offset(text, static_cast<std::size_t>(most - end_size)));
  if (!p.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  TextBuilder out(use.budget);
  out.add(kept);
  out.add(end);
  return out.finish();
}

// tojson as transformers defines it: Python's json.dumps without escapes for HTML.
Result<Value> filter_tojson(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (const Value* indent = p.find(1); indent != nullptr && !indent->is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (const std::string* text = indent->if_string()) {
      style.indent = *text;
    } else {
      VOLTA_TRY(const std::int64_t count, p.integer(1, 0));
      if (count > 100) return use.unsupported("with an indent above 100 is not supported");
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' ');
    }
  }
  if (const Value* separators = p.find(2); separators != nullptr && !separators->is_none()) {
    const Sequence* pair = separators->if_sequence();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].if_string() == nullptr ||
        pair->items[1].if_string() == nullptr) {
      return use.bad("takes two strings as separators");
    }
    style.item_separator = *pair->items[0].if_string();
    style.key_separator = *pair->items[1].if_string();
  }
  return to_json(use.budget, use.input, style);
}

// --- Numbers -------------------------------------------------------------------------------------

// What Python's float() reads; nothing when it is no number.
std::optional<double> read_float(std::string_view text) {
  text = strip(text, true, true);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    plain += text[i];
  }
  std::string_view body = plain;
  if (body.starts_with('+')) body.remove_prefix(1);
  if (body.starts_with("+") || (plain.starts_with('+') && body.starts_with('-'))) return {};
  double value = 0.0;
  const auto* const last = std::to_address(body.end());
  const auto parsed = std::from_chars(body.data(), last, value);
  if (body.empty() || parsed.ptr != last || body.ends_with(')')) return {};
  if (parsed.ec == std::errc()) return value;
  // Out of range: as large or as small as can be.
  const std::size_t exponent = body.find_first_of("eE");
  const bool tiny =
      exponent != std::string_view::npos && body.substr(exponent + 1).starts_with('-');
  const double magnitude = tiny ? 0.0 : HUGE_VAL;
  return body.starts_with('-') ? -magnitude : magnitude;
}

// A double as Python's int() cuts it; nothing when it is no number. An integer beyond 64 bits is
// refused.
Result<std::optional<Value>> whole(const Use& use, double number) {
  if (!std::isfinite(number)) return std::nullopt;
  const double cut = std::trunc(number);
  if (std::abs(cut) >= 9.2e18) return use.unsupported("makes an integer beyond 64 bits");
  return Value(static_cast<std::int64_t>(cut));
}

Result<Value> filter_int(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"default", "base"}));
  VOLTA_TRY(const std::int64_t base, p.integer(1, 10));
  if (base != 10) return use.unsupported("with another base than 10 is not supported");
  const Value fallback = p.find(0) == nullptr ? Value(std::int64_t{0}) : *p.find(0);
  std::int64_t number = 0;
  if (use.input.as_int(number)) return Value(number);
  std::optional<double> real;
  if (const double* given = use.input.if_double()) {
    if (std::isinf(*given)) return use.bad("cannot take an infinity");
    real = *given;
  } else if (const std::string* text = use.input.if_string()) {
    use.budget.scan(text->size());
    real = read_float(*text);
    // Digits that a double would round.
    std::string_view digits = strip(*text, true, true);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto* const last = std::to_address(digits.end());
    const auto parsed = std::from_chars(digits.data(), last, number);
    if (real && parsed.ptr == last && parsed.ec == std::errc()) return Value(number);
    if (real && std::abs(*real) >= 9e15 && digits.find_first_of(".eE") == std::string_view::npos &&
        std::isfinite(*real)) {
      return use.unsupported("on a number of so many digits is not supported");
    }
  } else if (const Undefined* undefined = use.input.if_undefined()) {
    return fail(ErrorCode::kInvalidFile,
                undefined->message == nullptr ? "undefined value" : *undefined->message);
  }
  if (!real) return fallback;
  VOLTA_TRY(const auto cut, whole(use, *real));
  return cut.value_or(fallback);
}

Result<Value> filter_float(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"default"}));
  if (use.input.is_number()) return Value(use.input.as_double());
  if (const Undefined* undefined = use.input.if_undefined()) {
    return fail(ErrorCode::kInvalidFile,
                undefined->message == nullptr ? "undefined value" : *undefined->message);
  }
  if (const std::string* text = use.input.if_string()) {
    use.budget.scan(text->size());
    if (const auto number = read_float(*text)) return Value(*number);
  }
  return p.find(0) == nullptr ? Value(0.0) : *p.find(0);
}

Result<Value> filter_abs(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (!use.input.is_number())
    return use.bad(fmt::format("does not take {}", use.input.type_name()));
  if (const double* real = use.input.if_double()) return Value(std::abs(*real));
  std::int64_t number = 0;
  use.input.as_int(number);
  return number < 0 ? negate(Value(number)) : Result<Value>(Value(number));
}

Result<Value> filter_round(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"precision", "method"}));
  VOLTA_TRY(const std::int64_t precision, p.integer(0, 0));
  VOLTA_TRY(const std::string_view method, p.text_or(1, "common"));
  if (!use.input.is_number())
    return use.bad(fmt::format("does not take {}", use.input.type_name()));
  if (precision < 0 || precision > 15) return use.unsupported("to that precision is not supported");
  const double number = use.input.as_double();
  if (method == "common") {
    std::int64_t integer = 0;
    if (use.input.as_int(integer)) return Value(integer);
    if (!std::isfinite(number) || std::abs(number) >= 1e22) return Value(number);
    std::array<char, 64> digits{};
    const auto written = std::to_chars(digits.begin(), digits.end(), number,
                                       std::chars_format::fixed, static_cast<int>(precision));
    double rounded = 0.0;
    std::from_chars(digits.begin(), written.ptr, rounded);
    return Value(rounded);
  }
  if (method != "ceil" && method != "floor") return use.bad("takes common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = number * scale;
  if (!std::isfinite(scaled)) return use.bad("cannot round that");
  const double cut = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value((cut == 0.0 ? 0.0 : cut) / scale);
}

// --- Sequences -----------------------------------------------------------------------------------

// "a.b.0" of an item; each step that leads nowhere gives `fallback`, if there is one.
Result<Value> attribute_of(Budget& budget, Value item, const Value& path,
                           const Value* fallback = nullptr) {
  const std::string* names = path.if_string();
  const bool replaces = fallback != nullptr && !fallback->is_none();
  if (names == nullptr) {
    VOLTA_TRY(item, get_item(budget, item, path));
    return item.is_undefined() && replaces ? *fallback : item;
  }
  for (const std::string_view part : split(*names, ".", -1)) {
    std::int64_t index = 0;
    const auto* const last = std::to_address(part.end());
    const bool digits =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    const auto parsed = std::from_chars(part.data(), last, index);
    const Value key = digits && parsed.ec == std::errc() ? Value(index) : Value::text(part);
    VOLTA_TRY(item, get_item(budget, item, key));
    if (item.is_undefined() && replaces) item = *fallback;
  }
  return item;
}

// What an item is sorted, compared or grouped by.
Result<Value> key_of(const Use& use, const Value& item, const Value* attribute,
                     bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    VOLTA_TRY(key, attribute_of(use.budget, item, *attribute));
  }
  const std::string* text = key.if_string();
  if (text == nullptr || case_sensitive) return key;
  return finish(use, lower(*text));
}

// The order of the keys, stable; an item whose key cannot be compared is an error.
Result<std::vector<std::size_t>> order_of(const Use& use, const std::vector<Value>& keys,
                                          bool reverse) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Status status;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (!status) return false;
    const auto compared =
        reverse ? compare(use.budget, keys[b], keys[a]) : compare(use.budget, keys[a], keys[b]);
    if (!compared) {
      status = std::unexpected(compared.error());
      return false;
    }
    return *compared == -1;
  });
  VOLTA_TRY(std::move(status));
  return order;
}

Result<Value> sorted(const Use& use, const std::vector<Value>& items,
                     const std::vector<Value>& keys, bool reverse) {
  VOLTA_TRY(const auto order, order_of(use, keys, reverse));
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(items[i]);
  return make_sequence(use.budget, SequenceKind::kList, std::move(result));
}

Result<Value> filter_sort(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"reverse", "case_sensitive", "attribute"}));
  const Value* attribute = p.find(2);
  if (attribute != nullptr && attribute->if_string() != nullptr &&
      attribute->if_string()->find(',') != std::string::npos) {
    return use.unsupported("by several attributes is not supported");
  }
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    VOLTA_TRY(Value key, key_of(use, item, attribute, p.flag(1, false)));
    keys.push_back(std::move(key));
  }
  return sorted(use, items, keys, p.flag(0, false));
}

Result<Value> filter_dictsort(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"case_sensitive", "by", "reverse"}));
  VOLTA_TRY(const std::string_view by, p.text_or(1, "key"));
  const Dict* dict = use.input.if_dict();
  if (dict == nullptr) return use.bad("takes a dict");
  if (by != "key" && by != "value") return use.bad("sorts by \"key\" or \"value\"");
  std::vector<Value> items, keys;
  for (const auto& [name, value] : dict->members) {
    VOLTA_TRY(Value pair, make_sequence(use.budget, SequenceKind::kTuple, {name, value}));
    VOLTA_TRY(Value key, key_of(use, by == "key" ? name : value, nullptr, p.flag(0, false)));
    items.push_back(std::move(pair));
    keys.push_back(std::move(key));
  }
  return sorted(use, items, keys, p.flag(2, false));
}

Result<Value> filter_unique(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"case_sensitive", "attribute"}));
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  std::vector<Value> seen, result;
  for (const Value& item : items) {
    VOLTA_TRY(Value key, key_of(use, item, p.find(1), p.flag(0, false)));
    if (key.if_sequence() != nullptr || key.if_dict() != nullptr) {
      return use.unsupported("on lists and dicts is not supported");
    }
    const bool known = std::ranges::any_of(
        seen, [&](const Value& other) { return equal(use.budget, other, key); });
    VOLTA_TRY(use.budget.check());
    if (known) continue;
    seen.push_back(std::move(key));
    result.push_back(item);
  }
  return make_sequence(use.budget, SequenceKind::kIterator, std::move(result));
}

Result<Value> filter_extreme(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"case_sensitive", "attribute"}));
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  if (items.empty()) return Value::undefined("the sequence was empty");
  const int wanted = use.name == "min" ? -1 : 1;
  std::size_t best = 0;
  Value best_key;
  for (std::size_t i = 0; i < items.size(); ++i) {
    VOLTA_TRY(Value key, key_of(use, items[i], p.find(1), p.flag(0, false)));
    if (i > 0) {
      VOLTA_TRY(const int order, compare(use.budget, key, best_key));
      if (order != wanted) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Result<Value> filter_sum(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"attribute", "start"}));
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  Value total = p.find(1) == nullptr ? Value(std::int64_t{0}) : *p.find(1);
  if (total.if_text() != nullptr) return use.bad("does not add strings; use join");
  for (const Value& item : items) {
    Value part = item;
    if (p.find(0) != nullptr && !p.find(0)->is_none()) {
      VOLTA_TRY(part, attribute_of(use.budget, item, *p.find(0)));
    }
    VOLTA_TRY(total, calculate(use.budget, Operator::kAdd, total, part));
  }
  return total;
}

Result<Value> filter_join(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"d", "attribute"}));
  const Value empty = Value::text("");
  VOLTA_TRY(const Value between, to_text(use.budget, p.find(0) == nullptr ? empty : *p.find(0)));
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  TextBuilder out(use.budget);
  bool first = true;
  for (const Value& item : items) {
    Value part = item;
    if (p.find(1) != nullptr && !p.find(1)->is_none()) {
      VOLTA_TRY(part, attribute_of(use.budget, item, *p.find(1)));
    }
    if (!first) out.add(*between.if_string());
    first = false;
    VOLTA_TRY(print(out, part));
  }
  return out.finish();
}

Result<Value> filter_first(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (Sequence* iterator = use.input.if_sequence();
      iterator != nullptr && iterator->kind == SequenceKind::kIterator) {
    if (use.name == "last") return use.bad("does not take an iterator; use |list before it");
    if (iterator->next >= iterator->items.size()) return Value::undefined("the sequence was empty");
    return iterator->items[iterator->next++];
  }
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  if (items.empty()) return Value::undefined("the sequence was empty");
  return use.name == "first" ? items.front() : items.back();
}

Result<Value> filter_length(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(const std::int64_t size, length(use.budget, use.input));
  return Value(size);
}

Result<Value> filter_list(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(std::vector<Value> items, iterate(use.budget, use.input));
  return make_sequence(use.budget, SequenceKind::kList, std::move(items));
}

Result<Value> filter_reverse(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(std::vector<Value> items, iterate(use.budget, use.input));
  std::ranges::reverse(items);
  if (use.input.if_text() == nullptr) {
    const Sequence* given = use.input.if_sequence();
    const bool copied = given != nullptr && given->kind == SequenceKind::kIterator;
    return make_sequence(use.budget, copied ? SequenceKind::kList : SequenceKind::kIterator,
                         std::move(items));
  }
  if (use.is_markup()) return use.unsupported("on 'safe' text is not supported");
  TextBuilder out(use.budget);
  for (const Value& item : items) out.add(*item.if_string());
  return out.finish();
}

Result<Value> filter_items(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (use.input.is_undefined()) return make_sequence(use.budget, SequenceKind::kIterator, {});
  if (use.input.if_dict() == nullptr) return use.bad("takes a dict");
  VOLTA_TRY(const Value view, call_method(use.budget, use.input, "items", {}));
  return make_sequence(use.budget, SequenceKind::kIterator, view.if_sequence()->items);
}

Result<Value> filter_batch(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"linecount", "fill_with"}, 1));
  VOLTA_TRY(const std::int64_t count, p.integer(0, 0));
  if (count < 1 || count > 100'000) return use.unsupported("of that size is not supported");
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  std::vector<Value> rows;
  const auto width = static_cast<std::size_t>(count);
  for (std::size_t begin = 0; begin < items.size(); begin += width) {
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Value> row(
        first, first + static_cast<std::ptrdiff_t>(std::min(width, items.size() - begin)));
    if (p.find(1) != nullptr && !p.find(1)->is_none()) row.resize(width, *p.find(1));
    VOLTA_TRY(Value list, make_sequence(use.budget, SequenceKind::kList, std::move(row)));
    rows.push_back(std::move(list));
  }
  return make_sequence(use.budget, SequenceKind::kIterator, std::move(rows));
}

Result<Value> filter_default(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"default_value", "boolean"}));
  const bool missing = use.input.is_undefined() || (p.flag(1, false) && !truth(use.input));
  if (!missing) return use.input;
  return p.find(0) == nullptr ? Value::text("") : *p.find(0);
}

Result<Value> filter_attr(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"name"}, 1));
  VOLTA_TRY(const auto name, p.text(0));
  if (!name) return use.bad("takes a name");
  if (use.input.if_namespace() == nullptr) {
    return use.unsupported("on anything but a namespace is not supported");
  }
  return get_attribute(use.budget, use.input, *name);
}

// map(name, ...) or map(attribute=..., default=...)
Result<Value> filter_map(const Use& use) {
  if (!truth(use.input)) return make_sequence(use.budget, SequenceKind::kIterator, {});
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  std::vector<Value> result;
  if (use.arguments.positional.empty()) {
    VOLTA_TRY(const auto p, use.bind({"attribute", "default"}));
    if (p.find(0) == nullptr) return use.bad("takes the name of a filter, or attribute=...");
    for (const Value& item : items) {
      VOLTA_TRY(Value found, attribute_of(use.budget, item, *p.find(0), p.find(1)));
      result.push_back(std::move(found));
    }
    return make_sequence(use.budget, SequenceKind::kIterator, std::move(result));
  }
  const std::string* name = use.arguments.positional.front().if_string();
  if (name == nullptr) return use.bad("takes the name of a filter");
  Arguments rest = use.arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    VOLTA_TRY(Value mapped, apply_filter(use.budget, *name, item, rest));
    result.push_back(std::move(mapped));
  }
  return make_sequence(use.budget, SequenceKind::kIterator, std::move(result));
}

// select, reject, selectattr, rejectattr: [attribute,] [name of a test, its arguments]
Result<Value> filter_select(const Use& use) {
  if (!truth(use.input)) return make_sequence(use.budget, SequenceKind::kIterator, {});
  const bool by_attribute = use.name.ends_with("attr");
  const bool wanted = use.name.starts_with("select");
  Arguments rest = use.arguments;
  const auto take = [&rest]() -> std::optional<Value> {
    if (rest.positional.empty()) return std::nullopt;
    Value first = std::move(rest.positional.front());
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  std::optional<Value> attribute;
  if (by_attribute) {
    attribute = take();
    if (!attribute) return use.bad("takes the name of an attribute");
  }
  const std::optional<Value> test = take();
  if (test && test->if_string() == nullptr) return use.bad("takes the name of a test");
  VOLTA_TRY(const std::vector<Value> items, iterate(use.budget, use.input));
  std::vector<Value> result;
  for (const Value& item : items) {
    Value subject = item;
    if (attribute) {
      VOLTA_TRY(subject, attribute_of(use.budget, item, *attribute));
    }
    bool holds = truth(subject);
    if (test) {
      VOLTA_TRY(holds, apply_test(use.budget, *test->if_string(), subject, rest));
    }
    if (holds == wanted) result.push_back(item);
  }
  return make_sequence(use.budget, SequenceKind::kIterator, std::move(result));
}

struct Filter {
  std::string_view name;
  Result<Value> (*apply)(const Use&);
};
constexpr std::array kFilters = {
    Filter{"abs", filter_abs},           Filter{"attr", filter_attr},
    Filter{"batch", filter_batch},       Filter{"capitalize", filter_case},
    Filter{"count", filter_length},      Filter{"d", filter_default},
    Filter{"default", filter_default},   Filter{"dictsort", filter_dictsort},
    Filter{"e", filter_escape},          Filter{"escape", filter_escape},
    Filter{"first", filter_first},       Filter{"float", filter_float},
    Filter{"indent", filter_indent},     Filter{"int", filter_int},
    Filter{"items", filter_items},       Filter{"join", filter_join},
    Filter{"last", filter_first},        Filter{"length", filter_length},
    Filter{"list", filter_list},         Filter{"lower", filter_case},
    Filter{"map", filter_map},           Filter{"max", filter_extreme},
    Filter{"min", filter_extreme},       Filter{"reject", filter_select},
    Filter{"rejectattr", filter_select}, Filter{"replace", filter_replace},
    Filter{"reverse", filter_reverse},   Filter{"round", filter_round},
    Filter{"safe", filter_safe},         Filter{"select", filter_select},
    Filter{"selectattr", filter_select}, Filter{"sort", filter_sort},
    Filter{"string", filter_string},     Filter{"sum", filter_sum},
    Filter{"title", filter_case},        Filter{"tojson", filter_tojson},
    Filter{"trim", filter_trim},         Filter{"truncate", filter_truncate},
    Filter{"unique", filter_unique},     Filter{"upper", filter_case},
};

}  // namespace

bool is_filter(std::string_view name) {
  return std::ranges::find(kFilters, name, &Filter::name) != kFilters.end();
}

Result<Value> apply_filter(Budget& budget, std::string_view name, const Value& input,
                           const Arguments& arguments) {
  budget.step();
  VOLTA_TRY(budget.check());
  const auto* const filter = std::ranges::find(kFilters, name, &Filter::name);
  if (filter == kFilters.end()) {
    return fail(ErrorCode::kUnsupported, fmt::format("the filter '{}' is not supported", name));
  }
  return filter->apply({budget, name, input, arguments});
}

}  // namespace volta::jinja
