// Equality and order of values, and looking for a value in another.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace volta::jinja {
namespace {

// Whether two sequences are of the same kind and have equal items.
bool equal_sequences(Budget& budget, const Sequence& a, const Sequence& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(budget, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::ranges::all_of(a.members, [&](const auto& member) {
    const Value* other = find(budget, b, member.first);
    return other != nullptr && equal(budget, member.second, *other);
  });
}

// -1, 0 or 1. The comparison is exact: a long double can represent every int64. No value is NaN,
// because JSON has none.
int compare_numbers(const Value& a, const Value& b) {
  const auto wide = [](const Value& value) {
    std::int64_t whole = 0;
    return value.as_int(whole) ? static_cast<long double>(whole)
                               : static_cast<long double>(*value.if_double());
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

}  // namespace

bool equal(Budget& budget, const Value& a, const Value& b) {
  if (!budget.step()) return false;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  const std::string* text_a = a.if_string();
  const std::string* text_b = b.if_string();
  if (text_a != nullptr && text_b != nullptr) {
    return text_a->size() == text_b->size() && budget.scan(text_a->size()) && *text_a == *text_b;
  }
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() ? b.is_undefined() : b.is_none();
  }
  const Sequence* list_a = a.if_sequence();
  const Sequence* list_b = b.if_sequence();
  if (list_a != nullptr && list_b != nullptr) {
    return list_a == list_b || equal_sequences(budget, *list_a, *list_b);
  }
  const Dict* dict_a = a.if_dict();
  const Dict* dict_b = b.if_dict();
  if (dict_a != nullptr && dict_b != nullptr) {
    return dict_a == dict_b || equal_dicts(budget, *dict_a, *dict_b);
  }
  const Namespace* names = a.if_namespace();
  return names != nullptr && names == b.if_namespace();
}

Result<int> compare(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  VOLTA_TRY(budget.check());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  const std::string* text_a = a.if_string();
  const std::string* text_b = b.if_string();
  if (text_a != nullptr && text_b != nullptr) {
    budget.scan(std::min(text_a->size(), text_b->size()));
    const int order = text_a->compare(*text_b);  // UTF-8 has the same order as code points.
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_list() && b.is_list()) {
    return unsupported("putting lists in order is not supported");
  }
  for (const Value& value : {a, b}) {
    if (value.is_undefined()) return undefined_error(value);
  }
  return type_error(fmt::format("{} and {} cannot be put in order", a.type_name(), b.type_name()));
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  if (const std::string* text = container.if_string()) {
    const std::string* part = item.if_string();
    if (part == nullptr) {
      return type_error(fmt::format("'in' on a string takes a string, not {}", item.type_name()));
    }
    budget.scan(text->size());
    const bool found = Searcher(budget, *part).find(*text) != std::string::npos;
    VOLTA_TRY(budget.check());
    return found;
  }
  if (const Dict* dict = container.if_dict()) {
    if (item.if_sequence() != nullptr || item.if_dict() != nullptr) {
      return type_error(fmt::format("a {} is no key of a dict", item.type_name()));
    }
    const bool found = find(budget, *dict, item) != nullptr;
    VOLTA_TRY(budget.check());
    return found;
  }
  if (Sequence* sequence = container.if_sequence()) {
    for (std::size_t i = sequence->next; i < sequence->items.size(); ++i) {
      if (sequence->kind == SequenceKind::kIterator) sequence->next = i + 1;
      if (equal(budget, sequence->items[i], item)) return true;
      VOLTA_TRY(budget.check());
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return type_error(fmt::format("'in' cannot look into a value of type {}", container.type_name()));
}

const Value* find(Budget& budget, const Dict& dict, const Value& key) {
  const std::string* name = key.if_string();
  budget.step(1 + dict.members.size() / 8);
  for (const auto& [member, value] : dict.members) {
    if (name != nullptr) {
      const std::string* text = member.if_string();
      if (text == nullptr || text->size() != name->size()) continue;
      if (!budget.step(name->size() / 16)) return nullptr;
      if (*text == *name) return &value;
    } else if (equal(budget, member, key)) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace volta::jinja
