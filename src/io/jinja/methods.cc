// The methods of strings, lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/jinja/operators.h"
#include "io/jinja/text.h"

namespace volta::jinja {
namespace {

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::kInvalidFile, std::move(message));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Parts of a string, as a list.
Result<Value> texts(Budget& budget, const Text& whole, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  budget.make_many(parts.size(), 2 * sizeof(Value));
  for (const std::string_view part : parts) {
    budget.make_bytes(part.size());
    VOLTA_TRY(budget.check());
    items.push_back(Value::part(whole, part));
  }
  return make_sequence(budget, SequenceKind::kList, std::move(items));
}

// One call on one string.
class TextMethod {
 public:
  TextMethod(Budget& budget, const Text& text, std::string_view name, const Arguments& arguments)
      : budget_(budget),
        text_(text),
        self_(text.content->text),
        name_(name),
        arguments_(arguments) {}

  Result<Value> call() {
    budget_.scan(self_.size());
    VOLTA_TRY(budget_.check());
    if (is_one_of(name_, {"strip", "lstrip", "rstrip"})) return strip_ends();
    if (is_one_of(name_, {"split", "rsplit"})) return split_at();
    if (is_one_of(name_, {"startswith", "endswith"})) return starts_or_ends();
    if (is_one_of(name_, {"find", "rfind", "index", "rindex", "count"})) return search();
    if (is_one_of(name_, {"removeprefix", "removesuffix"})) return remove();
    if (is_one_of(name_, {"ljust", "rjust", "center", "zfill"})) return pad();
    if (is_one_of(name_, {"partition", "rpartition"})) return partition();
    if (name_ == "replace") return replace();
    if (name_ == "join") return join();
    if (name_ == "splitlines") {
      VOLTA_TRY(const auto p, bind({"keepends"}));
      return texts(budget_, text_, splitlines(budget_, self_, p.flag(0, false)));
    }
    return simple();
  }

 private:
  Result<Parameters> bind(std::initializer_list<std::string_view> names, std::size_t required = 0) {
    return Parameters::bind(fmt::format("str.{}", name_), arguments_, names, required);
  }

  // Those without arguments.
  Result<Value> simple() {
    const auto unknown =
        fail(ErrorCode::kUnsupported, fmt::format("the method str.{} is not supported", name_));
    if (!arguments_.positional.empty() || !arguments_.named.empty()) return unknown;
    if (name_ == "upper") return changed(upper(self_));
    if (name_ == "lower") return changed(lower(self_));
    if (name_ == "title") return changed(title(self_));
    if (name_ == "capitalize") return changed(capitalize(self_));
    if (name_ == "isspace") return Value(all_characters(self_, is_space));
    if (name_ == "isalpha") return Value(all_characters(self_, is_alpha));
    if (name_ == "isdecimal") return Value(all_characters(self_, is_decimal));
    if (name_ == "isupper") return Value(is_upper(self_));
    if (name_ == "islower") return Value(is_lower(self_));
    const bool ascii = std::ranges::all_of(self_, [](char c) { return c >= 0; });
    if (name_ == "isascii") return Value(ascii);
    if (is_one_of(name_, {"isdigit", "isnumeric"}) && ascii) {
      return Value(all_characters(self_, is_decimal));
    }
    if (name_ == "isalnum" && ascii) {
      return Value(all_characters(self_, [](char32_t c) { return is_alpha(c) || is_decimal(c); }));
    }
    return unknown;
  }
  Result<Value> changed(Result<std::string> text) {
    if (!text) return std::unexpected(std::move(text).error());
    return make_changed(budget_, &text_, *text);
  }

  Result<Value> strip_ends() {
    VOLTA_TRY(const auto p, bind({"chars"}));
    VOLTA_TRY(const auto set, p.text(0));
    const bool left = name_ != "rstrip", right = name_ != "lstrip";
    return make_part(budget_, text_,
                     set ? strip(budget_, self_, left, right, *set) : strip(self_, left, right));
  }

  Result<Value> split_at() {
    VOLTA_TRY(const auto p, bind({"sep", "maxsplit"}));
    VOLTA_TRY(const auto separator, p.text(0));
    VOLTA_TRY(const auto most, p.integer(1, -1));
    if (separator && separator->empty()) return bad("str.split: the separator is empty");
    return texts(budget_, text_,
                 name_ == "split" ? split(budget_, self_, separator, most)
                                  : rsplit(budget_, self_, separator, most));
  }

  Result<Value> starts_or_ends() {
    VOLTA_TRY(const auto p, bind({"affix", "start", "end"}, 1));
    VOLTA_TRY(const std::string_view range, slice(p));
    const auto fits = [&](const std::string& affix) {
      if (!budget_.scan(std::min(affix.size(), range.size()))) return false;
      return name_ == "startswith" ? range.starts_with(affix) : range.ends_with(affix);
    };
    const Value& affix = *p.find(0);
    if (const std::string* text = affix.if_string()) return Value(fits(*text));
    const Sequence* tuple = affix.if_sequence();
    if (tuple == nullptr || tuple->kind != SequenceKind::kTuple) {
      return bad(fmt::format("str.{} takes a string or a tuple of strings, not {}", name_,
                             affix.type_name()));
    }
    for (const Value& item : tuple->items) {
      const std::string* text = item.if_string();
      if (text == nullptr) return bad(fmt::format("str.{} takes strings", name_));
      if (fits(*text)) return Value(true);
      VOLTA_TRY(budget_.check());
    }
    return Value(false);
  }

  // What the second and third argument leave of the string, as a slice does. A start behind the end
  // leaves a place where not even "" is.
  Result<std::string_view> slice(const Parameters& p) {
    const auto given = [&](std::size_t i) { return p.find(i) != nullptr && !p.find(i)->is_none(); };
    const auto size = static_cast<std::int64_t>(count_characters(self_));
    std::int64_t from = 0, to = size;
    if (given(1)) {
      VOLTA_TRY(from, p.integer(1, 0));
    }
    if (given(2)) {
      VOLTA_TRY(to, p.integer(2, 0));
    }
    if (from < 0) from = std::max<std::int64_t>(from + size, 0);
    if (to < 0) to = std::max<std::int64_t>(to + size, 0);
    if (from > std::min(to, size)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("str.{} with a start behind the end is not supported", name_));
    }
    first_ = from;
    const std::size_t begin = character_offset(self_, static_cast<std::size_t>(from));
    const std::size_t end = character_offset(self_, static_cast<std::size_t>(to));
    return std::string_view(self_).substr(begin, end - begin);
  }

  Result<Value> search() {
    VOLTA_TRY(const auto p, bind({"sub", "start", "end"}, 1));
    VOLTA_TRY(const auto wanted, p.text(0));
    if (!wanted) return bad(fmt::format("str.{} takes a string", name_));
    VOLTA_TRY(const std::string_view range, slice(p));
    if (name_ == "count") return Value(count(range, *wanted));
    budget_.scan(wanted->size());
    VOLTA_TRY(budget_.check());
    std::size_t place = std::string_view::npos;
    if (name_ == "find" || name_ == "index") {
      place = Searcher(budget_, *wanted).find(range);
    } else {
      const std::string needle(wanted->rbegin(), wanted->rend());
      place = Searcher(budget_, needle).find(std::string(range.rbegin(), range.rend()));
      if (place != std::string_view::npos) place = range.size() - place - needle.size();
    }
    VOLTA_TRY(budget_.check());
    if (place != std::string_view::npos) {
      return Value(first_ + static_cast<std::int64_t>(count_characters(range.substr(0, place))));
    }
    if (name_.ends_with("index")) return bad(fmt::format("str.{}: not found", name_));
    return Value(std::int64_t{-1});
  }
  std::int64_t count(std::string_view text, std::string_view wanted) {
    if (wanted.empty()) return static_cast<std::int64_t>(count_characters(text)) + 1;
    const Searcher searcher(budget_, wanted);
    std::int64_t found = 0;
    for (std::size_t at = searcher.find(text); at != std::string_view::npos;
         at = searcher.find(text, at + wanted.size())) {
      ++found;
    }
    return found;
  }

  Result<Value> remove() {
    VOLTA_TRY(const auto p, bind({"affix"}, 1));
    VOLTA_TRY(const std::string_view affix, p.text_or(0, ""));
    std::string_view text = self_;
    if (name_ == "removeprefix" && text.starts_with(affix)) text.remove_prefix(affix.size());
    if (name_ == "removesuffix" && text.ends_with(affix)) text.remove_suffix(affix.size());
    return make_part(budget_, text_, text);
  }

  Result<Value> pad() {
    VOLTA_TRY(const auto p, bind({"width", "fill"}, 1));
    VOLTA_TRY(const std::int64_t width, p.integer(0, 0));
    VOLTA_TRY(const std::string_view fill, p.text_or(1, name_ == "zfill" ? "0" : " "));
    budget_.scan(fill.size());
    if (count_characters(fill) != 1)
      return bad(fmt::format("str.{}: fill with one character", name_));
    const auto size = static_cast<std::int64_t>(count_characters(self_));
    const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(width - size, 0));
    std::size_t left = 0;
    if (name_ == "rjust" || name_ == "zfill") left = missing;
    // As CPython rounds it.
    if (name_ == "center") left = missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
    std::string_view text = self_;
    TextBuilder out(budget_);
    if (name_ == "zfill" && (text.starts_with('-') || text.starts_with('+'))) {
      out.add_part(text_, text.substr(0, 1));
      text.remove_prefix(1);
    }
    const Text* filling = p.find(1) == nullptr ? nullptr : p.find(1)->if_text();
    const auto add_filling = [&](std::size_t count) {
      if (!TextBuilder::is_quoting(filling)) return out.add(count, fill);
      for (; count > 0 && !out.full(); --count) out.add(*filling);
    };
    add_filling(left);
    out.add_part(text_, text);
    add_filling(missing - left);
    return out.finish();
  }

  Result<Value> partition() {
    VOLTA_TRY(const auto p, bind({"sep"}, 1));
    VOLTA_TRY(const std::string_view separator, p.text_or(0, ""));
    if (separator.empty()) return bad(fmt::format("str.{}: the separator is empty", name_));
    const bool right = name_ == "rpartition";
    budget_.scan(separator.size());
    VOLTA_TRY(budget_.check());
    const auto parts =
        right ? rsplit(budget_, self_, separator, 1) : split(budget_, self_, separator, 1);
    std::vector<std::string_view> three = {self_, "", ""};
    if (parts.size() == 2) {
      three = {parts[0], std::string_view(self_).substr(parts[0].size(), separator.size()),
               parts[1]};
    } else if (right) {
      three = {"", "", self_};
    }
    std::vector<Value> items;
    for (const std::string_view part : three) {
      VOLTA_TRY(Value item, make_part(budget_, text_, part));
      items.push_back(std::move(item));
    }
    return make_sequence(budget_, SequenceKind::kTuple, std::move(items));
  }

  Result<Value> replace() {
    VOLTA_TRY(const auto p, bind({"old", "new", "count"}, 2));
    VOLTA_TRY(const std::string_view old, p.text_or(0, ""));
    VOLTA_TRY(const auto given, p.text(1));
    const Value nothing = given ? Value() : Value::text("");
    const Text& fresh = *(given ? *p.find(1) : nothing).if_text();
    VOLTA_TRY(std::int64_t left, p.integer(2, -1));
    TextBuilder out(budget_);
    const std::string_view text = self_;
    if (old.empty()) {  // Between all characters, and around them.
      for (std::size_t at = 0; at <= text.size() && !out.full();) {
        if (left-- != 0) {
          out.add(fresh);
        } else {
          left = 0;
        }
        const std::size_t length = character_offset(text.substr(at), 1);
        out.add_part(text_, text.substr(at, length));
        at += std::max<std::size_t>(length, 1);
      }
      return out.finish();
    }
    const Searcher searcher(budget_, old);
    std::size_t begin = 0;
    for (; left != 0 && !out.full(); --left) {
      const std::size_t end = searcher.find(text, begin);
      if (end == std::string_view::npos) break;
      out.add_part(text_, text.substr(begin, end - begin));
      out.add(fresh);
      begin = end + old.size();
    }
    out.add_part(text_, text.substr(begin));
    return out.finish();
  }

  Result<Value> join() {
    VOLTA_TRY(const auto p, bind({"iterable"}, 1));
    VOLTA_TRY(const std::vector<Value> items, iterate(budget_, *p.find(0)));
    TextBuilder out(budget_);
    bool first = true;
    for (const Value& item : items) {
      const Text* text = item.if_text();
      if (text == nullptr) {
        return bad(fmt::format("str.join takes strings, not {}", item.type_name()));
      }
      if (!first) out.add(text_);
      first = false;
      out.add(*text);
    }
    return out.finish();
  }

  Budget& budget_;
  const Text& text_;
  const std::string& self_;
  std::string_view name_;
  const Arguments& arguments_;
  std::int64_t first_ = 0;  // Of slice(): its first character.
};

Result<Value> dict_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  const Dict& dict = *self.if_dict();
  if (name == "get") {
    VOLTA_TRY(const auto p, Parameters::bind("dict.get", arguments, {"key", "default"}, 1));
    const Value& key = *p.find(0);
    if (key.if_sequence() != nullptr || key.if_dict() != nullptr) {
      return bad(fmt::format("a {} is no key of a dict", key.type_name()));
    }
    const Value* value = find(budget, dict, key);
    if (value != nullptr) return *value;
    return p.find(1) == nullptr ? Value(None{}) : *p.find(1);
  }
  VOLTA_TRY(const auto none, Parameters::bind(fmt::format("dict.{}", name), arguments, {}));
  static_cast<void>(none);
  if (name == "copy") return self;
  std::vector<Value> items;
  if (name != "keys" && name != "values" && name != "items") {
    return fail(ErrorCode::kUnsupported, fmt::format("the method dict.{} is not supported", name));
  }
  for (const auto& [key, value] : dict.members) {
    if (name == "items") {
      VOLTA_TRY(Value pair, make_sequence(budget, SequenceKind::kTuple, {key, value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  return make_sequence(budget,
                       name == "keys"     ? SequenceKind::kKeys
                       : name == "values" ? SequenceKind::kValues
                                          : SequenceKind::kItems,
                       std::move(items));
}

Result<Value> list_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  const Sequence& sequence = *self.if_sequence();
  if (sequence.kind == SequenceKind::kIterator || (name != "count" && name != "index")) {
    if (name == "copy" && sequence.kind == SequenceKind::kList) return self;
    return fail(ErrorCode::kUnsupported,
                fmt::format("the method {}.{} is not supported", self.type_name(), name));
  }
  VOLTA_TRY(const auto p, Parameters::bind(fmt::format("list.{}", name), arguments, {"value"}, 1));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    const bool same = equal(budget, sequence.items[i], *p.find(0));
    VOLTA_TRY(budget.check());
    if (same && name == "index") return Value(static_cast<std::int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") return bad("list.index: not found");
  return Value(count);
}

}  // namespace

Result<Value> call_method(Budget& budget, const Value& self, std::string_view name,
                          const Arguments& arguments) {
  const Text* text = self.if_text();
  if (text != nullptr) {
    if (text->markup) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the method str.{} of 'safe' text is not supported", name));
    }
    return TextMethod(budget, *text, name, arguments).call();
  }
  if (self.if_dict() != nullptr) return dict_method(budget, self, name, arguments);
  if (self.if_sequence() != nullptr) return list_method(budget, self, name, arguments);
  return fail(ErrorCode::kUnsupported,
              fmt::format("the method {}.{} is not supported", self.type_name(), name));
}

}  // namespace volta::jinja
