// Values as text, as Python's str() and repr() write them.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace volta::jinja {
namespace {

// Prints items between brackets, each with `print_one`.
template <typename Items, typename PrintOne>
Status print_items(TextBuilder& out, std::string_view open, std::string_view close,
                   const Items& items, const PrintOne& print_one) {
  out.add(open);
  for (std::size_t i = 0; i < items.size() && !out.full(); ++i) {
    if (i > 0) out.add(", ");
    VOLTA_TRY(print_one(items[i]));
  }
  out.add(close);
  return {};
}

Status print_sequence(TextBuilder& out, const Value& value) {
  if (!value.is_list()) {
    return unsupported(
        "printing an iterator, a range or a view of a dict is not supported; make a list "
        "of it with |list");
  }
  const Sequence& list = *value.if_sequence();
  const bool tuple = list.kind == SequenceKind::kTuple;
  return print_items(out, tuple ? "(" : "[",
                     !tuple                   ? "]"
                     : list.items.size() == 1 ? ",)"
                                              : ")",
                     list.items, [&out](const Value& item) { return print_repr(out, item); });
}

Status print_dict(TextBuilder& out, const Dict& dict) {
  return print_items(out, "{", "}", dict.members, [&out](const auto& member) -> Status {
    VOLTA_TRY(print_repr(out, member.first));
    out.add(": ");
    return print_repr(out, member.second);
  });
}

}  // namespace

Status print_repr(TextBuilder& out, const Value& value) {
  if (const Text* text = value.if_text()) {
    if (text->markup) return markup_error("printing inside a list");
    // Escapes are slow to make.
    const std::string& bytes = text->content->text;
    if (out.scan(4 * bytes.size())) out.add_changed(text, quoted(bytes));
    return {};
  }
  if (value.is_undefined()) {
    out.add("Undefined");
    return {};
  }
  return print(out, value);
}

Status print(TextBuilder& out, const Value& value) {
  out.scan(0);
  if (const Text* text = value.if_text()) {
    out.add(*text);
  } else if (value.is_none()) {
    out.add("None");
  } else if (const bool* flag = value.if_bool()) {
    out.add(*flag ? "True" : "False");
  } else if (const std::int64_t* number = value.if_int()) {
    out.add(fmt::format("{}", *number));
  } else if (const double* real = value.if_double()) {
    out.add(format_real(*real));
  } else if (value.if_sequence() != nullptr) {
    return print_sequence(out, value);
  } else if (const Dict* dict = value.if_dict()) {
    return print_dict(out, *dict);
  } else if (!value.is_undefined()) {
    return unsupported(fmt::format("printing a {} is not supported", value.type_name()));
  }
  return {};
}

Result<Value> to_text(Budget& budget, const Value& value) {
  if (value.if_text() != nullptr) return value;
  TextBuilder out(budget);
  VOLTA_TRY(print(out, value));
  return out.finish();
}

}  // namespace volta::jinja
