#include "io/jinja/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "io/tokenizers/unicode.h"

namespace volta::jinja {
namespace {

// Writes JSON as Python's json.dumps does.
class JsonPrinter {
 public:
  JsonPrinter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  Status write(const Value& value) {
    out_.scan(0);
    if (value.is_none()) {
      out_.add("null");
    } else if (const bool* flag = value.if_bool()) {
      out_.add(*flag ? "true" : "false");
    } else if (const Text* text = value.if_text()) {
      string(text->content->text, text);
    } else if (value.is_number()) {
      out_.add(number(value));
    } else if (const Sequence* sequence = value.if_sequence();
               sequence != nullptr &&
               (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
      return array(*sequence);
    } else if (const Dict* dict = value.if_dict()) {
      return object(*dict);
    } else {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("tojson: a value of type {} is not JSON", value.type_name()));
    }
    return {};
  }

 private:
  Status array(const Sequence& sequence) {
    if (sequence.items.empty()) {
      out_.add("[]");
      return {};
    }
    out_.add("[");
    ++level_;
    for (std::size_t i = 0; i < sequence.items.size() && !out_.full(); ++i) {
      separate(i == 0);
      VOLTA_TRY(write(sequence.items[i]));
    }
    --level_;
    new_line();
    out_.add("]");
    return {};
  }

  Status object(const Dict& dict) {
    if (dict.members.empty()) {
      out_.add("{}");
      return {};
    }
    struct Member {
      std::string name;
      const Text* origin;  // Null for a key that is no string.
      const Value* value;
    };
    std::vector<Member> members;
    std::size_t key_bytes = 0;
    for (const auto& [key, value] : dict.members) {
      const std::string* text = key.if_string();
      if (!out_.scan(text == nullptr ? 0 : text->size())) return {};
      members.push_back({key_text(key), key.if_text(), &value});
      key_bytes += members.back().name.size();
    }
    if (style_.sort_keys) {
      // In each round of a merge sort every key is compared, in its first one some times.
      const std::size_t rounds = std::bit_width(members.size()) + 8;
      if (!out_.scan(rounds * (key_bytes + 16 * members.size()))) return {};
      std::ranges::stable_sort(members, {}, &Member::name);
    }
    out_.add("{");
    ++level_;
    for (std::size_t i = 0; i < members.size() && !out_.full(); ++i) {
      separate(i == 0);
      string(members[i].name, members[i].origin);
      out_.add(style_.key_separator);
      VOLTA_TRY(write(*members[i].value));
    }
    --level_;
    new_line();
    out_.add("}");
    return {};
  }

  void separate(bool first) {
    if (!first) out_.add(style_.item_separator);
    new_line();
  }
  void new_line() {
    if (!style_.indented) return;
    out_.add("\n");
    out_.add(level_, style_.indent);
  }

  static std::string number(const Value& value) {
    if (const std::int64_t* whole = value.if_int()) return fmt::format("{}", *whole);
    const double d = value.as_double();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return format_real(d);
  }
  // Keys are strings, numbers, booleans or none.
  static std::string key_text(const Value& key) {
    if (const std::string* text = key.if_string()) return *text;
    if (const bool* flag = key.if_bool()) return *flag ? "true" : "false";
    return key.is_none() ? "null" : number(key);
  }

  void string(std::string_view text, const Text* origin) {
    // Character by character, with escapes that are slow to make.
    if (!out_.scan(4 * text.size())) return;
    out_.add("\"");
    std::size_t plain = 0;  // Where what needs no escape begins.
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = unicode::character_at(text, at).length;
      const std::string escape = escaped(text.substr(at, length));
      if (!escape.empty()) {
        out_.add_changed(origin, text.substr(plain, at - plain));
        out_.add_changed(origin, escape);
        plain = at + length;
      }
      at += length;
    }
    out_.add_changed(origin, text.substr(plain));
    out_.add("\"");
  }
  // Empty for a character that stands for itself.
  std::string escaped(std::string_view character) const {
    const auto lead = static_cast<unsigned char>(character.front());
    switch (lead) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    if (lead < 0x20) return fmt::format("\\u{:04x}", lead);
    if (!style_.ensure_ascii || lead < 0x80) return {};
    auto c = static_cast<std::uint32_t>(unicode::character_at(character, 0).value);
    if (c < 0x10000) return fmt::format("\\u{:04x}", c);
    c -= 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (c >> 10), 0xDC00 + (c & 1023));
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  std::size_t level_ = 0;
};

}  // namespace

Result<Value> to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  TextBuilder out(budget);
  VOLTA_TRY(JsonPrinter(out, style).write(value));
  return out.finish();
}

}  // namespace volta::jinja
