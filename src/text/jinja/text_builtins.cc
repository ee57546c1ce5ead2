// Methods of strings, and the filters of text.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/text.h"

namespace volta::jinja {
namespace {

template <Letters kLetters>
Result<Value> change(const Call& call) {
  VOLTA_TRY(const std::string changed, change_case(call.string(), kLetters));
  return make_changed(call.budget, call.input.if_text(), changed);
}

template <bool kLeft, bool kRight>
Result<Value> strip_ends(const Call& call) {
  VOLTA_TRY(const auto set, call.word(0));
  const std::string_view text = call.string();
  return make_part(
      call.budget, call.text(),
      set ? strip(call.budget, text, kLeft, kRight, *set) : strip(text, kLeft, kRight));
}

Result<Value> split_text(const Call& call) {
  VOLTA_TRY(const auto separator, call.word(0));
  VOLTA_TRY(const auto most, call.integer(1, -1));
  if (separator && separator->empty()) return call.bad("cannot split: the separator is empty");
  const auto parts = separator ? split(call.budget, call.string(), *separator, most)
                               : split_words(call.budget, call.string(), most);
  std::vector<Value> items;
  call.budget.make_many(parts.size(), 2 * sizeof(Value));
  for (const std::string_view part : parts) {
    call.budget.make_bytes(part.size());
    VOLTA_TRY(call.budget.check());
    items.push_back(Value::part(call.text(), part));
  }
  return make_sequence(call.budget, SequenceKind::kList, std::move(items));
}

Result<Value> find_text(const Call& call) {
  VOLTA_TRY(const auto part, call.word(0));
  if (!part) return call.bad("takes a string, not None");
  const std::string_view text = call.string();
  const std::size_t at = Searcher(call.budget, *part).find(text);
  VOLTA_TRY(call.budget.check());
  if (at == std::string_view::npos) return Value(std::int64_t{-1});
  return Value(static_cast<std::int64_t>(count_characters(text.substr(0, at))));
}

template <bool kStart>
Result<Value> has_affix(const Call& call) {
  const std::string* affix = call.given[0]->if_string();
  if (affix == nullptr) return call.unsupported("with anything but a string");
  call.budget.scan(std::min(affix->size(), call.string().size()));
  VOLTA_TRY(call.budget.check());
  return Value(kStart ? call.string().starts_with(*affix) : call.string().ends_with(*affix));
}

Result<Value> replace(const Call& call) {
  const Text* fresh = call.given[1]->if_text();
  VOLTA_TRY(const auto old, call.word(0));
  VOLTA_TRY(std::int64_t left, call.integer(2, -1));
  if (fresh == nullptr || !old || old->empty()) {
    return call.unsupported("with anything but two strings, the first not empty,");
  }
  TextBuilder out(call.budget);
  const std::string_view text = call.string();
  const Searcher searcher(call.budget, *old);
  std::size_t begin = 0;
  for (; left != 0 && !out.full(); --left) {
    const std::size_t end = searcher.find(text, begin);
    if (end == std::string_view::npos) break;
    out.add_part(call.text(), text.substr(begin, end - begin));
    out.add(*fresh);
    begin = end + old->size();
  }
  out.add_part(call.text(), text.substr(begin));
  return out.finish();
}

Result<Value> join_strings(const Call& call) {
  VOLTA_TRY(const std::vector<Value> items, iterate(call.budget, *call.given[0]));
  TextBuilder out(call.budget);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Text* text = items[i].if_text();
    if (text == nullptr) {
      return call.bad(fmt::format("takes strings, not {}", items[i].type_name()));
    }
    if (i > 0) out.add(call.text());
    out.add(*text);
  }
  return out.finish();
}

Result<Value> indent(const Call& call) {
  if (call.has(0) && call.given[0]->if_text() != nullptr) return call.unsupported("by a string");
  VOLTA_TRY(const std::int64_t width, call.integer(0, 4));
  if (width > 1000) return call.unsupported("by more than 1000 spaces");
  const std::string spaces(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const std::string_view text = call.string();
  const std::string whole = call.string() + "\n";
  TextBuilder out(call.budget);
  if (call.flag(1)) out.add(spaces);
  bool first = true;
  for (const std::string_view line : splitlines(call.budget, whole)) {
    if (!first) {
      out.add("\n");
      if (!line.empty() || call.flag(2)) out.add(spaces);
    }
    first = false;
    const auto begin = static_cast<std::size_t>(line.data() - whole.data());
    out.add_part(call.text(), text.substr(begin, line.size()));
  }
  return out.finish();
}

constexpr std::array kMethods = {
    Builtin{"capitalize", change<Letters::kCapital>},
    Builtin{"endswith", has_affix<false>, {"suffix", "!start", "!end"}, 1},
    Builtin{"find", find_text, {"sub", "!start", "!end"}, 1},
    Builtin{"join", join_strings, {"iterable"}, 1},
    Builtin{"lower", change<Letters::kLower>},
    Builtin{"lstrip", strip_ends<true, false>, {"chars"}},
    Builtin{"replace", replace, {"old", "new", "count"}, 2},
    Builtin{"rstrip", strip_ends<false, true>, {"chars"}},
    Builtin{"split", split_text, {"sep", "maxsplit"}},
    Builtin{"startswith", has_affix<true>, {"prefix", "!start", "!end"}, 1},
    Builtin{"strip", strip_ends<true, true>, {"chars"}},
    Builtin{"title", change<Letters::kTitle>},
    Builtin{"upper", change<Letters::kUpper>},
};
constexpr std::array kTextFilters = {
    Builtin{"capitalize", change<Letters::kCapital>},
    Builtin{"indent", indent, {"width", "first", "blank"}},
    Builtin{"lower", change<Letters::kLower>},
    Builtin{"replace", replace, {"old", "new", "count"}, 2},
    Builtin{"title", change<Letters::kWords>},
    Builtin{"trim", strip_ends<true, true>, {"chars"}},
    Builtin{"upper", change<Letters::kUpper>},
};

}  // namespace

std::span<const Builtin> text_methods() { return kMethods; }
std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace volta::jinja
