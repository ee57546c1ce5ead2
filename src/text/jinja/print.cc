// Prints values: str() and repr() of Python, and JSON in the format of Python's json.dumps.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace volta::jinja {
namespace {

// The escape sequence of a character in JSON; empty if it needs none.
std::string escaped(char character) {
  const auto code = static_cast<unsigned char>(character);
  if (code >= 0x20 && character != '"' && character != '\\') return {};
  constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
  constexpr std::array kEscapes = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\f", "\\b"};
  const std::size_t special = kSpecial.find(character);
  if (special != std::string_view::npos) return kEscapes[special];
  return fmt::format("\\u{:04x}", code);
}

enum class Style : std::uint8_t { kPython, kJson };

// Prints a value as Python's repr() or as JSON.
class Printer {
 public:
  Printer(TextBuilder& out, Style style, std::optional<std::size_t> indent = std::nullopt)
      : out_(out), json_(style == Style::kJson), indent_(indent) {}

  Status write(const Value& value) {
    out_.scan(0);
    if (value.is_list()) {
      const Sequence& list = *value.if_sequence();
      const bool tuple = list.kind == SequenceKind::kTuple && !json_;
      const std::string_view close = !tuple ? "]" : list.items.size() == 1 ? ",)" : ")";
      return brackets(tuple ? "(" : "[", close, list.items,
                      [this](const Value& item) { return write(item); });
    }
    if (const Dict* dict = value.if_dict()) {
      return brackets("{", "}", dict->members, [this](const auto& member) -> Status {
        VOLTA_TRY(write_key(member.first));
        out_.add(": ");
        return write(member.second);
      });
    }
    if (const Text* text = value.if_text()) return write_text(*text);
    if (value.is_none() || value.is_number() || (value.is_undefined() && !json_)) {
      out_.add(constant(value));
      return {};
    }
    if (json_) {
      return type_error(fmt::format("tojson: a value of type {} is not JSON", value.type_name()));
    }
    return unsupported(
        value.if_sequence() == nullptr
            ? fmt::format("printing a {} is not supported", value.type_name())
            : "printing an iterator, a range or a view of a dict is not supported; make a list "
              "of it with |list");
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

  // The keys of JSON are strings.
  Status write_key(const Value& key) {
    if (!json_ || key.if_text() != nullptr) return write(key);
    out_.add("\"" + constant(key) + "\"");
    return {};
  }

  // The text of none, a bool, a number or an undefined value.
  std::string constant(const Value& value) const {
    if (const std::int64_t* whole = value.if_int()) return fmt::format("{}", *whole);
    if (const double* real = value.if_double()) return format_real(*real);
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return json_ ? "null" : "None";
    return *value.if_bool() ? (json_ ? "true" : "True") : (json_ ? "false" : "False");
  }

  // The text is scanned by character, and escapes are slow to make.
  Status write_text(const Text& text) {
    const std::string_view bytes = text.content->text;
    if (text.markup && !json_) return markup_error("printing inside a list");
    if (!out_.scan(4 * bytes.size())) return {};
    if (!json_) {
      out_.add_changed(&text, quoted(bytes));
      return {};
    }
    out_.add("\"");
    std::size_t plain = 0;  // The start of the text without escapes.
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const std::string escape = escaped(bytes[at]);
      if (escape.empty()) continue;
      out_.add_changed(&text, bytes.substr(plain, at - plain));
      out_.add_changed(&text, escape);
      plain = at + 1;
    }
    out_.add_changed(&text, bytes.substr(plain));
    out_.add("\"");
    return {};
  }

  TextBuilder& out_;
  bool json_;
  std::optional<std::size_t> indent_;
  std::size_t level_ = 0;
};

}  // namespace

Status print(TextBuilder& out, const Value& value) {
  if (const Text* text = value.if_text()) {
    out.scan(0);
    out.add(*text);
    return {};
  }
  return value.is_undefined() ? Status() : Printer(out, Style::kPython).write(value);
}

Result<Value> to_text(Budget& budget, const Value& value) {
  if (value.if_text() != nullptr) return value;
  TextBuilder out(budget);
  VOLTA_TRY(print(out, value));
  return out.finish();
}

Result<Value> to_json(Budget& budget, const Value& value, std::optional<std::size_t> indent) {
  TextBuilder out(budget);
  VOLTA_TRY(Printer(out, Style::kJson, indent).write(value));
  return out.finish();
}

}  // namespace volta::jinja
