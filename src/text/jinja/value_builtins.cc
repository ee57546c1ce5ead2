// Filters of all values, methods of dicts, tests, and global functions.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace volta::jinja {
namespace {

Result<Value> iterator(const Call& call, std::vector<Value> items) {
  return make_sequence(call.budget, SequenceKind::kIterator, std::move(items));
}

// --- Filters that make text or a number ----------------------------------------------------------

Result<Value> string_of(const Call& call) { return to_text(call.budget, call.input); }

Result<Value> safe(const Call& call) {
  VOLTA_TRY(const Value text, to_text(call.budget, call.input));
  return Value(Text{text.if_text()->content, true});
}

// tojson as in transformers: Python's json.dumps without escapes for HTML.
Result<Value> tojson(const Call& call) {
  std::optional<std::size_t> indent;
  if (call.has(1)) {
    if (call.given[1]->if_text() != nullptr) return call.unsupported("with a string as indent");
    VOLTA_TRY(const std::int64_t count, call.integer(1, 0));
    if (count > 100) return call.unsupported("with an indent above 100");
    indent = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  }
  return to_json(call.budget, call.input, indent);
}

// Whether the whole text is a decimal integer of 64 bits.
bool read_digits(std::string_view text, std::int64_t& number) {
  const auto* const end = std::to_address(text.end());
  const auto read = std::from_chars(std::to_address(text.begin()), end, number);
  return read.ec == std::errc() && read.ptr == end;
}

// int() of a string of decimal digits; nullopt when it has no digits.
Result<std::optional<Value>> read_integer(const Call& call, std::string_view text) {
  call.budget.scan(text.size());
  text = strip(text, true, true);
  std::int64_t number = 0;
  if (read_digits(text, number)) return Value(number);
  // Jinja reads other text with digits as a real number and truncates it. No template needs that.
  if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;
  return call.unsupported("on text that is not an integer of 64 bits");
}

Result<Value> int_of(const Call& call) {
  Value fallback = call.given[0] == nullptr ? Value(std::int64_t{0}) : *call.given[0];
  std::int64_t number = 0;
  if (call.input.as_int(number)) return Value(number);
  if (call.input.is_undefined()) return undefined_error(call.input);
  if (const std::string* text = call.input.if_string()) {
    VOLTA_TRY(const auto read, read_integer(call, *text));
    return read.value_or(fallback);
  }
  const double* const real = call.input.if_double();
  if (real == nullptr) return fallback;
  if (!(std::abs(*real) < 9.2e18)) return call.unsupported("on a number beyond 64 bits");
  return Value(static_cast<std::int64_t>(*real));
}

// --- Filters of sequences ------------------------------------------------------------------------

// For "a.b.0": the first item of member b of member a.
Result<Value> attribute_of(Budget& budget, Value item, const Value& path) {
  const std::string* names = path.if_string();
  if (names == nullptr) return get_item(budget, item, path);
  budget.scan(names->size());
  for (const std::string_view part : split(budget, *names, ".", -1)) {
    std::int64_t index = 0;
    const bool digits = read_digits(part, index) && !part.starts_with('-');
    VOLTA_TRY(item, get_item(budget, item, digits ? Value(index) : Value::text(part)));
  }
  return item;
}

// Sorts the items by `keys`, with strings in lower case; the sort is stable. Keys that cannot be
// compared are an error.
Result<Value> sorted(const Call& call, const std::vector<Value>& items, std::vector<Value> keys,
                     bool reverse) {
  for (Value& key : keys) {
    const std::string* text = key.if_string();
    if (text == nullptr) continue;
    call.budget.scan(text->size());
    VOLTA_TRY(const std::string small, change_case(*text, Letters::kLower));
    VOLTA_TRY(key, make_changed(call.budget, nullptr, small));
  }
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Status status;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (!status) return false;
    const auto compared = compare(call.budget, keys[reverse ? b : a], keys[reverse ? a : b]);
    if (compared) return *compared == -1;
    status = std::unexpected(compared.error());
    return false;
  });
  VOLTA_TRY(std::move(status));
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(items[i]);
  return make_sequence(call.budget, SequenceKind::kList, std::move(result));
}

Result<Value> sort(const Call& call) {
  VOLTA_TRY(const auto name, call.word(2));
  if (name && name->find(',') != name->npos) return call.unsupported("by several attributes");
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, call.input));
  std::vector<Value> keys = items;
  for (Value& key : keys) {
    if (!call.has(2)) break;
    VOLTA_TRY(key, attribute_of(call.budget, key, *call.given[2]));
  }
  return sorted(call, items, std::move(keys), call.flag(0));
}

Result<Value> dictsort(const Call& call) {
  const Dict* dict = call.input.if_dict();
  if (dict == nullptr) return call.bad("takes a dict");
  std::vector<Value> keys;
  for (const auto& member : dict->members) keys.push_back(member.first);
  VOLTA_TRY(const Value view, dict_items(call.budget, *dict));
  return sorted(call, view.if_sequence()->items, std::move(keys), call.flag(2));
}

Result<Value> join(const Call& call) {
  const Value empty = Value::text("");
  VOLTA_TRY(const Value between, to_text(call.budget, call.has(0) ? *call.given[0] : empty));
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, call.input));
  TextBuilder out(call.budget);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(*between.if_text());
    VOLTA_TRY(print(out, items[i]));
  }
  return out.finish();
}

Result<Value> first(const Call& call) {
  if (Sequence* iterator = call.input.if_sequence();
      iterator != nullptr && iterator->kind == SequenceKind::kIterator) {
    if (iterator->next >= iterator->items.size()) return Value::undefined("the sequence was empty");
    return iterator->items[iterator->next++];
  }
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, call.input));
  return items.empty() ? Value::undefined("the sequence was empty") : items.front();
}

Result<Value> last(const Call& call) {
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, call.input));
  return items.empty() ? Value::undefined("the sequence was empty") : items.back();
}

Result<Value> length_of(const Call& call) {
  VOLTA_TRY(const std::int64_t size, length(call.budget, call.input));
  return Value(size);
}

Result<Value> list(const Call& call) {
  VOLTA_TRY(std::vector<Value> items, iterate(call.budget, call.input));
  return make_sequence(call.budget, SequenceKind::kList, std::move(items));
}

// Python has no reverse order for a generator, of which Jinja makes a list.
Result<Value> reverse(const Call& call) {
  const Sequence* sequence = call.input.if_sequence();
  const bool generator = sequence != nullptr && sequence->kind == SequenceKind::kIterator;
  VOLTA_TRY(std::vector<Value> items, iterate(call.budget, call.input));
  std::ranges::reverse(items);
  if (generator) return make_sequence(call.budget, SequenceKind::kList, std::move(items));
  if (call.input.if_text() == nullptr) return iterator(call, std::move(items));
  TextBuilder out(call.budget);
  for (const Value& character : items) out.add(*character.if_text());
  return out.finish();
}

Result<Value> items_of(const Call& call) {
  if (call.input.is_undefined()) return iterator(call, {});
  if (call.input.if_dict() == nullptr) return call.bad("takes a dict");
  VOLTA_TRY(const Value view, dict_items(call.budget, *call.input.if_dict()));
  return iterator(call, view.if_sequence()->items);
}

Result<Value> default_value(const Call& call) {
  const bool missing = call.input.is_undefined() || (call.flag(1) && !truth(call.input));
  if (!missing) return call.input;
  return call.given[0] == nullptr ? Value::text("") : *call.given[0];
}

// map(name of a filter, its arguments) or map(attribute=...)
Result<Value> map(const Call& call) {
  if (!truth(call.input)) return iterator(call, {});
  VOLTA_TRY(std::vector<Value> items, iterate(call.budget, call.input));
  const auto& [positional, named] = call.arguments;
  if (positional.empty()) {
    const bool by_attribute = named.size() == 1 && named.front().first == "attribute";
    if (!by_attribute) return call.unsupported("without a filter's name or attribute=...");
    for (Value& item : items) {
      VOLTA_TRY(item, attribute_of(call.budget, item, named.front().second));
    }
    return iterator(call, std::move(items));
  }
  const std::string* name = positional.front().if_string();
  if (name == nullptr) return call.bad("takes the name of a filter");
  const Arguments rest{.positional = {positional.begin() + 1, positional.end()}, .named = named};
  for (Value& item : items) {
    VOLTA_TRY(item, apply_filter(call.budget, *name, item, rest));
  }
  return iterator(call, std::move(items));
}

// ([attribute,] [name of a test, its arguments]): the items for which the test's result is
// `kWanted`.
template <bool kByAttribute, bool kWanted>
Result<Value> select(const Call& call) {
  if (!truth(call.input)) return iterator(call, {});
  const auto& positional = call.arguments.positional;
  constexpr std::size_t kTest = kByAttribute ? 1 : 0;
  if (positional.size() < kTest) return call.bad("takes the name of an attribute");
  const bool has_test = positional.size() > kTest;
  const std::string* test = has_test ? positional[kTest].if_string() : nullptr;
  if (has_test && test == nullptr) return call.bad("takes the name of a test");
  Arguments rest{.positional = {}, .named = call.arguments.named};
  for (std::size_t i = kTest + 1; i < positional.size(); ++i) {
    rest.positional.push_back(positional[i]);
  }
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, call.input));
  std::vector<Value> result;
  for (const Value& item : items) {
    Value subject = item;
    if (kByAttribute) {
      VOLTA_TRY(subject, attribute_of(call.budget, item, positional.front()));
    }
    if (has_test) {
      VOLTA_TRY(subject, apply_test(call.budget, *test, subject, rest));
    }
    if (truth(subject) == kWanted) result.push_back(item);
  }
  return iterator(call, std::move(result));
}

// --- Methods of dicts ----------------------------------------------------------------------------

Result<Value> get(const Call& call) {
  const Value& key = *call.given[0];
  if (key.if_sequence() != nullptr || key.if_dict() != nullptr) {
    return call.bad(fmt::format("takes no {} as key", key.type_name()));
  }
  const Value* value = find(call.budget, *call.input.if_dict(), key);
  if (value != nullptr) return *value;
  return call.given[1] == nullptr ? Value(None{}) : *call.given[1];
}

Result<Value> items_view(const Call& call) {
  return dict_items(call.budget, *call.input.if_dict());
}

template <bool kKeys>
Result<Value> view(const Call& call) {
  std::vector<Value> items;
  for (const auto& [key, value] : call.input.if_dict()->members) {
    items.push_back(kKeys ? key : value);
  }
  return make_sequence(call.budget, SequenceKind::kView, std::move(items));
}

// --- Tests ---------------------------------------------------------------------------------------

template <bool (*kHolds)(const Value&)>
Result<Value> test(const Call& call) {
  return Value(kHolds(call.input));
}

template <Operator kOperator>
Result<Value> compares(const Call& call) {
  VOLTA_TRY(const bool holds, compare_with(call.budget, kOperator, call.input, *call.given[0]));
  return Value(holds);
}

bool is_sequence(const Value& value) {
  return value.has_places() || value.if_dict() != nullptr || value.is_undefined();
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.if_sequence() != nullptr || value.if_loop() != nullptr;
}
bool is_true(const Value& value) { return value.if_bool() != nullptr && *value.if_bool(); }
bool is_false(const Value& value) { return value.if_bool() != nullptr && !*value.if_bool(); }

Result<Value> is_same(const Call& call) {
  const Value &a = call.input, &b = *call.given[0];
  const auto constant = [](const Value& v) { return v.is_none() || v.if_bool() != nullptr; };
  if (!constant(a) && !constant(b))
    return call.unsupported("for anything but none, true and false");
  const bool both = constant(a) && constant(b);
  return Value(both && a.is_none() == b.is_none() && truth(a) == truth(b));
}

// --- Global functions ----------------------------------------------------------------------------

Result<Value> range(const Call& call) {
  constexpr std::size_t kMaxRange = 100'000;  // As in Jinja's sandbox.
  VOLTA_TRY(const std::int64_t one, call.integer(0, 0));
  VOLTA_TRY(const std::int64_t two, call.integer(1, 0));
  VOLTA_TRY(const std::int64_t step, call.integer(2, 1));
  const bool single = call.given[1] == nullptr;
  const std::int64_t end = single ? one : two;
  if (step == 0) return call.bad("cannot count: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = single ? 0 : one; step > 0 ? i < end : i > end;) {
    if (items.size() == kMaxRange) {
      return call.bad(fmt::format("makes more than {} items", kMaxRange));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_sequence(call.budget, SequenceKind::kRange, std::move(items));
}

Result<Value> make_namespace(const Call& call) {
  if (!call.arguments.positional.empty()) return call.unsupported("of a dict");
  auto names = std::make_shared<Namespace>();
  for (const auto& [name, value] : call.arguments.named) {
    VOLTA_TRY(check_storable(value));
    const auto known =
        std::ranges::find(names->members, name, &std::pair<std::string, Value>::first);
    if (name.starts_with("_") || known != names->members.end()) {
      return call.bad(fmt::format("cannot have the member '{}' (twice)", name));
    }
    call.budget.make_bytes(name.size() + 2 * sizeof(Value));
    names->members.emplace_back(name, value);
  }
  VOLTA_TRY(call.budget.check());
  return Value(std::move(names));
}

Result<Value> raise_exception(const Call& call) {
  VOLTA_TRY(const Value message, to_text(call.budget, *call.given[0]));
  return fail(ErrorCode::kInvalidArgument, *message.if_string());
}

Result<Value> strftime_now(const Call& call) {
  VOLTA_TRY(const auto format, call.word(0));
  const std::string pattern(format.value_or(""));
  if (pattern.size() > 256) return call.bad("takes 256 characters at most");
  if (pattern.empty()) return Value::text("");
  constexpr std::string_view kKnown = "aAbBcdDeFhHIjklmMnpPrRStTuUVwWxXyYGg%-";
  for (std::size_t at = 0; (at = pattern.find('%', at)) < pattern.size() - 1; at += 2) {
    if (kKnown.find(pattern[at + 1]) != std::string_view::npos) continue;
    return call.unsupported(fmt::format("with '%{}'", pattern[at + 1]));
  }
  std::array<char, 4096> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), pattern.c_str(), &call.now);
  return make_changed(call.budget, call.given[0]->if_text(), std::string_view(text.data(), size));
}

// --- The tables ----------------------------------------------------------------------------------

constexpr std::array kValueFilters = {
    Builtin{"count", length_of},
    Builtin{"d", default_value, {"default_value", "boolean"}},
    Builtin{"default", default_value, {"default_value", "boolean"}},
    Builtin{"dictsort", dictsort, {"!case_sensitive", "!by", "reverse"}},
    Builtin{"first", first},
    Builtin{"int", int_of, {"default", "!base"}},
    Builtin{"items", items_of},
    Builtin{"join", join, {"d", "!attribute"}},
    Builtin{"last", last},
    Builtin{"length", length_of},
    Builtin{"list", list},
    Builtin{"map", map, {"*"}},
    Builtin{"reject", select<false, false>, {"*"}},
    Builtin{"rejectattr", select<true, false>, {"*"}},
    Builtin{"reverse", reverse},
    Builtin{"safe", safe},
    Builtin{"select", select<false, true>, {"*"}},
    Builtin{"selectattr", select<true, true>, {"*"}},
    Builtin{"sort", sort, {"reverse", "!case_sensitive", "attribute"}},
    Builtin{"string", string_of},
    Builtin{"tojson", tojson, {"!ensure_ascii", "indent", "!separators", "!sort_keys"}},
};
constexpr std::array kDictMethods = {
    Builtin{"get", get, {"key", "default"}, 1},
    Builtin{"items", items_view},
    Builtin{"keys", view<true>},
    Builtin{"values", view<false>},
};
constexpr std::array kTests = {
    Builtin{"defined", test<[](const Value& v) { return !v.is_undefined(); }>},
    Builtin{"undefined", test<[](const Value& v) { return v.is_undefined(); }>},
    Builtin{"none", test<[](const Value& v) { return v.is_none(); }>},
    Builtin{"boolean", test<[](const Value& v) { return v.if_bool() != nullptr; }>},
    Builtin{"true", test<is_true>},
    Builtin{"false", test<is_false>},
    Builtin{"integer", test<[](const Value& v) { return v.if_int() != nullptr; }>},
    Builtin{"float", test<[](const Value& v) { return v.if_double() != nullptr; }>},
    Builtin{"number", test<[](const Value& v) { return v.is_number(); }>},
    Builtin{"string", test<[](const Value& v) { return v.if_text() != nullptr; }>},
    Builtin{"mapping", test<[](const Value& v) { return v.if_dict() != nullptr; }>},
    Builtin{"iterable", test<is_iterable>},
    Builtin{"sequence", test<is_sequence>},
    Builtin{"==", compares<Operator::kEqual>, {"other"}, 1},
    Builtin{"eq", compares<Operator::kEqual>, {"other"}, 1},
    Builtin{"equalto", compares<Operator::kEqual>, {"other"}, 1},
    Builtin{"!=", compares<Operator::kNotEqual>, {"other"}, 1},
    Builtin{"ne", compares<Operator::kNotEqual>, {"other"}, 1},
    Builtin{"in", compares<Operator::kIn>, {"other"}, 1},
    Builtin{"sameas", is_same, {"other"}, 1},
};
constexpr std::array kFunctions = {
    Builtin{"namespace", make_namespace, {"*"}},
    Builtin{"raise_exception", raise_exception, {"message"}, 1},
    Builtin{"range", range, {"start", "stop", "step"}, 1},
    Builtin{"strftime_now", strftime_now, {"format"}, 1},
};

}  // namespace

std::span<const Builtin> filters() { return kValueFilters; }
std::span<const Builtin> dict_methods() { return kDictMethods; }
std::span<const Builtin> tests() { return kTests; }
std::span<const Builtin> functions() { return kFunctions; }

}  // namespace volta::jinja
