// Filters of lists, dicts and what else can be gone through; and those of any value.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "io/jinja/filter_use.h"
#include "io/jinja/filters.h"
#include "io/jinja/json_text.h"
#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

// "a.b.0" of an item; each step that leads nowhere gives `fallback`, if there is one.
Result<Value> attribute_of(Budget& budget, Value item, const Value& path,
                           const Value* fallback = nullptr) {
  const std::string* names = path.if_string();
  const bool replaces = fallback != nullptr && !fallback->is_none();
  if (names == nullptr) {
    VOLTA_TRY(item, get_item(budget, item, path));
    return item.is_undefined() && replaces ? *fallback : item;
  }
  budget.scan(names->size());
  for (const std::string_view part : split(budget, *names, ".", -1)) {
    std::int64_t index = 0;
    const auto* const last = std::to_address(part.end());
    const bool digits =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    const auto parsed = std::from_chars(std::to_address(part.begin()), last, index);
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
  use.budget.scan(text->size());
  VOLTA_TRY(use.budget.check());
  return finish(use, key, lower(*text));
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

}  // namespace

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
    if (!first) out.add(*between.if_text());
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
  for (const Value& item : items) out.add(*item.if_text());
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

}  // namespace volta::jinja
