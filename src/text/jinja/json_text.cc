// to_json(): converts values to JSON text in the format of Python's json.dumps.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "text/jinja/value.h"

namespace volta::jinja {
namespace {

// The escape sequence of a character; empty if it needs none.
std::string escaped(char character) {
  const auto code = static_cast<unsigned char>(character);
  if (code >= 0x20 && character != '"' && character != '\\') return {};
  constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
  constexpr std::array kEscapes = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\f", "\\b"};
  const std::size_t special = kSpecial.find(character);
  if (special != std::string_view::npos) return kEscapes[special];
  return fmt::format("\\u{:04x}", code);
}

class JsonPrinter {
 public:
  JsonPrinter(TextBuilder& out, std::optional<std::size_t> indent) : out_(out), indent_(indent) {}

  Status write(const Value& value) {
    out_.scan(0);
    if (value.is_list()) {
      return brackets("[", "]", value.if_sequence()->items,
                      [this](const Value& item) { return write(item); });
    }
    if (const Dict* dict = value.if_dict()) {
      return brackets("{", "}", dict->members, [this](const auto& member) -> Status {
        const Text* key = member.first.if_text();
        string(key != nullptr ? key->content->text : scalar(member.first), key);
        out_.add(": ");
        return write(member.second);
      });
    }
    if (const Text* text = value.if_text()) {
      string(text->content->text, text);
    } else if (value.is_none() || value.is_number()) {
      out_.add(scalar(value));
    } else {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("tojson: a value of type {} is not JSON", value.type_name()));
    }
    return {};
  }

 private:
  // Writes items between brackets, each with `write_one`.
  template <typename Items, typename WriteOne>
  Status brackets(std::string_view open, std::string_view close, const Items& items,
                  const WriteOne& write_one) {
    out_.add(open);
    ++level_;
    for (std::size_t i = 0; i < items.size() && !out_.full(); ++i) {
      if (i > 0) out_.add(indent_ ? "," : ", ");
      new_line();
      VOLTA_TRY(write_one(items[i]));
    }
    --level_;
    if (!items.empty()) new_line();
    out_.add(close);
    return {};
  }
  void new_line() {
    if (!indent_) return;
    out_.add("\n");
    out_.add(level_ * *indent_, " ");
  }

  // The text of none, a bool or a number.
  static std::string scalar(const Value& value) {
    if (const bool* flag = value.if_bool()) return *flag ? "true" : "false";
    if (const std::int64_t* whole = value.if_int()) return fmt::format("{}", *whole);
    return value.is_none() ? "null" : format_real(value.as_double());
  }

  void string(std::string_view text, const Text* origin) {
    // The text is scanned by character, and escapes are slow to make.
    if (!out_.scan(4 * text.size())) return;
    out_.add("\"");
    std::size_t plain = 0;  // The start of the text without escapes.
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::string escape = escaped(text[at]);
      if (escape.empty()) continue;
      out_.add_changed(origin, text.substr(plain, at - plain));
      out_.add_changed(origin, escape);
      plain = at + 1;
    }
    out_.add_changed(origin, text.substr(plain));
    out_.add("\"");
  }

  TextBuilder& out_;
  std::optional<std::size_t> indent_;
  std::size_t level_ = 0;
};

}  // namespace

Result<Value> to_json(Budget& budget, const Value& value, std::optional<std::size_t> indent) {
  TextBuilder out(budget);
  VOLTA_TRY(JsonPrinter(out, indent).write(value));
  return out.finish();
}

}  // namespace volta::jinja
