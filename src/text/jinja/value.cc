#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "text/jinja/text.h"

namespace volta::jinja {
namespace {

// The limit for nested containers: that of JSON (base/json.h) and a margin.
constexpr int kMaxDepth = 96;

// Whether two sequences are of the same kind and have equal items.
bool equal_sequences(Budget& budget, const Sequence& a, const Sequence& b) {
  const auto same = [&](const Value& x, const Value& y) { return equal(budget, x, y); };
  return a.kind == b.kind && std::ranges::equal(a.items, b.items, same);
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

// Sets `depth` to at least one more than that of the value.
Status grow_depth(const Value& value, int& depth) {
  VOLTA_TRY(check_storable(value));
  depth = std::max(depth, value.depth() + 1);
  if (depth > kMaxDepth) return type_error("values nest too deeply");
  return {};
}

// `part` is a view of the whole.
void append_view(QuotedText& out, const Text& whole, std::string_view part) {
  if (part.empty()) return;
  const auto begin = static_cast<std::size_t>(part.data() - whole.content->text.data());
  out.append_part(*whole.content, begin, part.size());
}

}  // namespace

Value Value::text(std::string_view bytes) {
  return Value(Text{std::make_shared<const QuotedText>(QuotedText{std::string(bytes), {}})});
}
Value Value::quoted(std::string_view bytes) {
  QuotedText content;
  content.append_quoted(bytes);
  return Value(Text{std::make_shared<const QuotedText>(std::move(content))});
}
Value Value::part(const Text& whole, std::string_view part) {
  QuotedText content;
  append_view(content, whole, part);
  return Value(Text{std::make_shared<const QuotedText>(std::move(content))});
}
Value Value::undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

const std::string* Value::if_string() const {
  const Text* text = if_text();
  return text == nullptr ? nullptr : &text->content->text;
}
bool Value::as_int(std::int64_t& out) const {
  if (const bool* flag = if_bool()) {
    out = *flag ? 1 : 0;
    return true;
  }
  if (const std::int64_t* number = if_int()) {
    out = *number;
    return true;
  }
  return false;
}
bool Value::is_number() const {
  return if_bool() != nullptr || if_int() != nullptr || if_double() != nullptr;
}

std::string_view Value::type_name() const {
  constexpr std::array<std::string_view, std::variant_size_v<decltype(data_)>> kNames = {
      "Undefined", "None", "bool",      "int",  "float",   "str",
      "sequence",  "dict", "namespace", "loop", "function"};
  constexpr std::array<std::string_view, 5> kSequences = {"list", "tuple", "range", "iterator",
                                                          "dict view"};
  const Sequence* sequence = if_sequence();
  return sequence == nullptr ? kNames[data_.index()]
                             : kSequences[static_cast<std::size_t>(sequence->kind)];
}

int Value::depth() const {
  if (const Sequence* sequence = if_sequence()) return sequence->depth;
  const Dict* dict = if_dict();
  return dict == nullptr ? 0 : dict->depth;
}

void TextBuilder::add_part(const Text& whole, std::string_view part) {
  // Charges for all quoted ranges, as if all were in this part.
  const std::size_t ranges = std::min(whole.content->quoted.size(), part.size());
  if (!budget_->make_bytes(part.size() + (ranges > 1 ? ranges * sizeof(TextRange) : 0))) return;
  append_view(content_, whole, part);
}

Result<Value> TextBuilder::finish() {
  VOLTA_TRY(budget_->check());
  return Value(Text{std::make_shared<const QuotedText>(std::move(content_))});
}

Result<Value> make_part(Budget& budget, const Text& whole, std::string_view part) {
  TextBuilder builder(budget);
  builder.add_part(whole, part);
  return builder.finish();
}
Result<Value> make_changed(Budget& budget, const Text* origin, std::string_view changed) {
  TextBuilder builder(budget);
  builder.add_changed(origin, changed);
  return builder.finish();
}

Status check_storable(const Value& value) {
  if (value.if_namespace() != nullptr || value.if_function() != nullptr ||
      value.if_loop() != nullptr) {
    return unsupported(
        fmt::format("storing a {} in another value is not supported", value.type_name()));
  }
  return {};
}

Status charge_values(Budget& budget, std::size_t count) {
  budget.make_many(count, sizeof(Value));
  return budget.check();
}

Result<Value> make_sequence(Budget& budget, SequenceKind kind, std::vector<Value> items) {
  VOLTA_TRY(charge_values(budget, items.size() + 1));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) VOLTA_TRY(grow_depth(item, sequence->depth));
  sequence->items = std::move(items);
  return Value(std::move(sequence));
}

Result<Value> make_dict(Budget& budget, std::vector<std::pair<Value, Value>> members) {
  auto dict = std::make_shared<Dict>();
  for (auto& [key, value] : members) {
    budget.make_bytes(2 * sizeof(Value));
    const bool hashable = key.is_none() || key.is_number() || key.if_text() != nullptr;
    if (!hashable) {
      return unsupported(fmt::format("a {} as key of a dict is not supported", key.type_name()));
    }
    VOLTA_TRY(grow_depth(value, dict->depth));
    budget.step(dict->members.size());
    const auto same = std::ranges::find_if(
        dict->members, [&](const auto& member) { return equal(budget, member.first, key); });
    VOLTA_TRY(budget.check());
    if (same != dict->members.end()) {
      same->second = std::move(value);
    } else {
      dict->members.emplace_back(std::move(key), std::move(value));
    }
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Result<Value> dict_items(Budget& budget, const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members) {
    VOLTA_TRY(Value pair, make_sequence(budget, SequenceKind::kTuple, {key, value}));
    items.push_back(std::move(pair));
  }
  return make_sequence(budget, SequenceKind::kView, std::move(items));
}

Result<Value> from_json(const JsonValue& json) {
  if (const bool* flag = json.if_bool()) return Value(*flag);
  if (const std::int64_t* number = json.if_int()) return Value(*number);
  if (const double* number = json.if_double()) return Value(*number);
  if (const std::string* text = json.if_string()) return Value::quoted(*text);
  if (const JsonValue::Array* array = json.if_array()) {
    auto sequence = std::make_shared<Sequence>();
    sequence->items.reserve(array->size());
    for (const JsonValue& item : *array) {
      VOLTA_TRY(Value value, from_json(item));
      VOLTA_TRY(grow_depth(value, sequence->depth));
      sequence->items.push_back(std::move(value));
    }
    return Value(std::move(sequence));
  }
  if (const JsonValue::Object* object = json.if_object()) {
    auto dict = std::make_shared<Dict>();
    dict->members.reserve(object->size());
    for (const auto& [key, item] : *object) {
      VOLTA_TRY(Value value, from_json(item));
      VOLTA_TRY(grow_depth(value, dict->depth));
      dict->members.emplace_back(Value::quoted(key), std::move(value));
    }
    return Value(std::shared_ptr<const Dict>(std::move(dict)));
  }
  return Value(None{});
}

bool truth(const Value& value) {
  if (const bool* flag = value.if_bool()) return *flag;
  if (const std::int64_t* number = value.if_int()) return *number != 0;
  if (const double* number = value.if_double()) return *number != 0.0;
  if (const std::string* text = value.if_string()) return !text->empty();
  if (const Dict* dict = value.if_dict()) return !dict->members.empty();
  if (const Sequence* sequence = value.if_sequence()) {
    return sequence->kind == SequenceKind::kIterator || !sequence->items.empty();
  }
  return !value.is_undefined() && !value.is_none();
}

std::unexpected<Error> undefined_error(const Value& value) {
  const Undefined* undefined = value.if_undefined();
  return type_error(undefined == nullptr || undefined->message == nullptr ? "undefined value"
                                                                          : *undefined->message);
}

std::unexpected<Error> type_error(std::string message) {
  return fail(ErrorCode::kInvalidFile, std::move(message));
}
std::unexpected<Error> unsupported(std::string message) {
  return fail(ErrorCode::kUnsupported, std::move(message));
}
std::unexpected<Error> markup_error(std::string_view what) {
  return unsupported(fmt::format("{} is not supported for 'safe' text", what));
}

Result<std::vector<Value>> iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (Sequence* sequence = value.if_sequence()) {
    VOLTA_TRY(charge_values(budget, sequence->items.size()));
    const auto begin = sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->next);
    items.assign(begin, sequence->items.end());
    if (sequence->kind == SequenceKind::kIterator) sequence->next = sequence->items.size();
  } else if (const Dict* dict = value.if_dict()) {
    VOLTA_TRY(charge_values(budget, dict->members.size()));
    for (const auto& member : dict->members) items.push_back(member.first);
  } else if (const Text* text = value.if_text()) {
    const std::string& bytes = text->content->text;
    budget.scan(bytes.size());
    VOLTA_TRY(charge_values(budget, 2 * bytes.size()));
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t size = character_offset(rest, 1);
      items.push_back(Value::part(*text, rest.substr(0, size)));
      rest.remove_prefix(size);
    }
  } else if (!value.is_undefined()) {
    return type_error(
        fmt::format("a value of type {} has no items to go through", value.type_name()));
  }
  return items;
}

Result<std::int64_t> length(Budget& budget, const Value& value) {
  if (const std::string* text = value.if_string()) {
    budget.scan(text->size());
    return static_cast<std::int64_t>(count_characters(*text));
  }
  if (const Dict* dict = value.if_dict()) return static_cast<std::int64_t>(dict->members.size());
  const Sequence* sequence = value.if_sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::kIterator) {
    return static_cast<std::int64_t>(sequence->items.size());
  }
  if (value.is_undefined()) return 0;
  return type_error(fmt::format("a value of type {} has no length", value.type_name()));
}

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
