// Filters that make text of what they are given.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "io/jinja/filter_use.h"
#include "io/jinja/filters.h"
#include "io/jinja/json_text.h"
#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {

Result<Value> filter_case(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  VOLTA_TRY(const Value value, use.text());
  const std::string& text = *value.if_string();
  if (use.name == "upper") return finish(use, value, upper(text));
  if (use.name == "lower") return finish(use, value, lower(text));
  if (use.name == "title") return finish(use, value, filter_title(text));
  return finish(use, value, capitalize(text));
}

Result<Value> filter_trim(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"chars"}));
  VOLTA_TRY(const auto set, p.text(0));
  VOLTA_TRY(const Value value, use.text());
  const std::string& text = *value.if_string();
  return make_part(use.budget, *value.if_text(),
                   set ? strip(use.budget, text, true, true, *set) : strip(text, true, true));
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
  return Value(Text{text.if_text()->content, true});
}

Result<Value> filter_escape(const Use& use) {
  VOLTA_TRY(const auto none, use.bind({}));
  static_cast<void>(none);
  if (use.is_markup()) return use.input;
  VOLTA_TRY(const Value value, use.text());
  TextBuilder out(use.budget);
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::array kEscapes = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (const char& c : *value.if_string()) {
    const std::size_t special = kSpecial.find(c);
    out.add_changed(value.if_text(), special == std::string_view::npos ? std::string_view(&c, 1)
                                                                       : kEscapes[special]);
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
  return call_method(use.budget, Value(Text{text.if_text()->content}), "replace", arguments);
}

Result<Value> filter_indent(const Use& use) {
  VOLTA_TRY(const auto p, use.bind({"width", "first", "blank"}));
  std::string spaces(4, ' ');
  const Text* given = nullptr;
  if (const Value* width = p.find(0)) {
    given = width->if_text();
    if (given == nullptr) {
      VOLTA_TRY(const std::int64_t count, p.integer(0, 4));
      if (count > 1000) return use.unsupported("by more than 1000 spaces is not supported");
      spaces.assign(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' ');
    }
  }
  if (use.input.if_text() == nullptr) return use.bad("takes a string");
  VOLTA_TRY(const Value value, use.text());
  const std::string_view text = *value.if_string();
  const std::string whole = std::string(text) + "\n";
  TextBuilder out(use.budget);
  const auto indent = [&] { given != nullptr ? out.add(*given) : out.add(spaces); };
  if (p.flag(1, false)) indent();
  bool first = true;
  for (const std::string_view line : splitlines(use.budget, whole)) {
    if (!first) {
      out.add("\n");
      if (!line.empty() || p.flag(2, false)) indent();
    }
    first = false;
    const auto begin = static_cast<std::size_t>(line.data() - whole.data());
    out.add_part(*value.if_text(), text.substr(begin, line.size()));
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
  VOLTA_TRY(Value value, use.text());
  const std::string& text = *value.if_string();
  use.budget.scan(end.size());
  const auto end_size = static_cast<std::int64_t>(count_characters(end));
  if (most < end_size || leeway < 0) return use.bad("has a length shorter than its end");
  const auto size = static_cast<std::int64_t>(count_characters(text));
  if (size <= most || size - most <= leeway) return value;
  std::string_view kept = std::string_view(text).substr(
      0, character_offset(text, static_cast<std::size_t>(most - end_size)));
  if (!p.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  TextBuilder out(use.budget);
  out.add_part(*value.if_text(), kept);
  out.add_changed(p.find(2) == nullptr ? nullptr : p.find(2)->if_text(), end);
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
      if (TextBuilder::is_quoting(indent->if_text())) {
        return use.unsupported("with an indent of a message is not supported");
      }
      use.budget.scan(text->size());
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
    if (TextBuilder::is_quoting(pair->items[0].if_text()) ||
        TextBuilder::is_quoting(pair->items[1].if_text())) {
      return use.unsupported("with separators of a message is not supported");
    }
    style.item_separator = *pair->items[0].if_string();
    style.key_separator = *pair->items[1].if_string();
    use.budget.scan(style.item_separator.size() + style.key_separator.size());
  }
  return to_json(use.budget, use.input, style);
}

}  // namespace volta::jinja
