#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/text.h"
#include "text/jinja/text.h"
#include "text/tokenizers/unicode.h"

namespace volta::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

// Converts line ends to \n, and removes the last one.
std::string normalize_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (source.substr(i + 1).starts_with('\n')) ++i;
      text += '\n';
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) VOLTA_TRY(outside());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  bool sees(std::string_view what) const { return rest().starts_with(what); }
  void advance(std::size_t count) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(at_, count), '\n'));
    at_ += count;
  }
  void skip_space() {
    while (at_ < text_.size()) {
      const auto c = unicode::character_at(text_, at_);
      if (!is_space(c.value)) return;
      advance(c.length);
    }
  }
  Token& add(TokenKind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::string(text)});
    return tokens_.back();
  }
  std::unexpected<Error> error(std::string_view message,
                               ErrorCode code = ErrorCode::kInvalidFile) const {
    return fail(code, fmt::format("line {}: {}", line_, message));
  }
  std::unexpected<Error> unsupported(std::string_view message) const {
    return error(message, ErrorCode::kUnsupported);
  }

  // Reads the text up to the next bracket, and the bracket.
  Status outside() {
    std::size_t begin = text_.find('{', at_);
    while (begin != std::string_view::npos &&
           text_.substr(begin + 1, 1).find_first_of("{%#") == std::string_view::npos) {
      begin = text_.find('{', begin + 1);
    }
    if (begin == std::string_view::npos) {
      add(TokenKind::kText, rest());
      advance(text_.size() - at_);
      return {};
    }
    const char kind = text_[begin + 1];
    const char sign = begin + 2 < text_.size() ? text_[begin + 2] : ' ';
    const bool signed_begin = sign == '-' || sign == '+';
    const std::string_view before = before_bracket(begin, signed_begin ? sign : ' ', kind != '{');
    if (!before.empty()) add(TokenKind::kText, before);
    advance(begin - at_);
    advance(signed_begin ? 3 : 2);
    if (kind == '#') return comment();
    return inside(kind == '%');
  }

  // The text up to a bracket at `end`, without the white space that the bracket removes.
  std::string_view before_bracket(std::size_t end, char sign, bool is_block) const {
    const std::string_view text = text_.substr(at_, end - at_);
    if (sign == '-') return strip(text, false, true);
    if (sign == '+' || !is_block) return text;
    const std::size_t line_end = text.rfind('\n');
    const bool line_starting = at_ == 0 || text_[at_ - 1] == '\n';
    if (line_end == std::string_view::npos && !line_starting) return text;
    const std::size_t line = line_end == std::string_view::npos ? 0 : line_end + 1;
    return strip(text.substr(line), true, false).empty() ? text.substr(0, line) : text;
  }

  Status comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return error("a comment has no end");
    const bool is_signed = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    advance((is_signed ? end - 1 : end) - at_);
    take_end("#}");
    return {};
  }

  // Consumes the end of a block, if it is here, and the white space that it removes.
  bool take_end(std::string_view bracket) {
    if (sees(bracket)) {
      advance(bracket.size());
      if (bracket != "}}" && sees("\n")) advance(1);
      return true;
    }
    const char sign = at_ < text_.size() ? text_[at_] : ' ';
    const bool known = sign == '-' || (sign == '+' && bracket != "}}");
    if (!known || !text_.substr(at_ + 1).starts_with(bracket)) return false;
    advance(bracket.size() + 1);
    if (sign == '-') skip_space();
    return true;
  }

  Status inside(bool is_tag) {
    add(is_tag ? TokenKind::kTagBegin : TokenKind::kPrintBegin, is_tag ? "{%" : "{{");
    const int begin_line = line_;
    std::string open;
    while (true) {
      skip_space();
      if (at_ >= text_.size()) {
        line_ = begin_line;
        return error(is_tag ? "'{%' has no '%}'" : "'{{' has no '}}'");
      }
      const int line = line_;
      if (open.empty() && take_end(is_tag ? "%}" : "}}")) {
        tokens_.push_back({.kind = is_tag ? TokenKind::kTagEnd : TokenKind::kPrintEnd,
                           .line = line,
                           .text = is_tag ? "%}" : "}}"});
        return {};
      }
      VOLTA_TRY(token(open));
    }
  }

  Status token(std::string& open) {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name(text_[end])) ++end;
      const bool first = tokens_.back().kind == TokenKind::kTagBegin;
      add(TokenKind::kName, text_.substr(at_, end - at_));
      at_ = end;
      // The content of raw must not be split into tokens.
      if (first && tokens_.back().text == "raw") {
        return unsupported("the tag {% raw %} is not supported");
      }
      return {};
    }
    if (c == '\'' || c == '"') return string(c);
    constexpr std::array kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                       "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view name : kOperators) {
      if (!sees(name)) continue;
      VOLTA_TRY(balance(name.front(), open));
      add(TokenKind::kOperator, name);
      at_ += name.size();
      return {};
    }
    const std::size_t length = unicode::character_at(text_, at_).length;
    return error(fmt::format("unexpected character {}", quoted(text_.substr(at_, length))));
  }

  // `open` contains the brackets that are not closed yet.
  Status balance(char c, std::string& open) const {
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(c) != std::string_view::npos) open += c;
    const std::size_t kind = kClosing.find(c);
    if (kind == std::string_view::npos) return {};
    if (open.empty() || open.back() != kOpening[kind]) {
      return error(fmt::format("unexpected '{}'", c));
    }
    open.pop_back();
    return {};
  }

  Status number() {
    std::size_t end = at_;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const std::string_view text = text_.substr(at_, end - at_);
    const bool dot = end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1]);
    const bool letter = end < text_.size() && is_name(text_[end]);
    if (dot || letter || (text.size() > 1 && text.front() == '0')) {
      return unsupported("a number that is no decimal integer is not supported");
    }
    Token& token = add(TokenKind::kInteger, text);
    at_ = end;
    const auto read =
        std::from_chars(std::to_address(text.begin()), std::to_address(text.end()), token.integer);
    if (read.ec == std::errc()) return {};
    return unsupported(fmt::format("the number {} is too large", text));
  }

  Status string(char quote) {
    const int begin_line = line_;
    std::string value;
    advance(1);
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        VOLTA_TRY(escape(value));
      } else {
        value += text_[at_];
        advance(1);
      }
    }
    if (at_ >= text_.size()) {
      line_ = begin_line;
      return error("a string has no end");
    }
    tokens_.push_back({.kind = TokenKind::kString, .line = begin_line, .text = std::move(value)});
    advance(1);
    return {};
  }

  // Reads a backslash and the characters after it, as in Python's unicode_escape.
  Status escape(std::string& value) {
    const char c = text_[at_ + 1];
    constexpr std::string_view kNames = "\\'\"nrt";
    constexpr std::string_view kMeanings = "\\'\"\n\r\t";
    constexpr std::string_view kUnsupported = "abfvNU01234567\n";
    if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
      value += kMeanings[known];
      advance(2);
      return {};
    }
    if (c == 'x' || c == 'u') {
      const std::string_view hex = text_.substr(at_ + 2, c == 'x' ? 2 : 4);
      std::uint32_t code = 0;
      const auto* const end = std::to_address(hex.end());
      const auto read = std::from_chars(std::to_address(hex.begin()), end, code, 16);
      const bool whole = hex.size() == (c == 'x' ? 2 : 4) && read.ptr == end;
      if (!whole || (code >= 0xD800 && code < 0xE000)) return error("no character after '\\'");
      append_utf8(value, code);
      advance(2 + hex.size());
      return {};
    }
    if (kUnsupported.find(c) != std::string_view::npos) {
      return unsupported(fmt::format("'\\{}' in a string is not supported", c == '\n' ? ' ' : c));
    }
    value += '\\';
    advance(1);
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (const auto invalid = find_invalid_utf8(source)) {
    return fail(ErrorCode::kInvalidFile, fmt::format("byte {} is not UTF-8", *invalid));
  }
  const std::string text = normalize_lines(source);
  return Lexer(text).run();
}

}  // namespace volta::jinja
