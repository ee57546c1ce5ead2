#include "text/tokenizers/split_scanner.h"

#include <algorithm>
#include <array>

#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// The kinds of characters that the patterns distinguish: \p{L}, \p{N}, \s, and others.
enum class Kind : std::uint8_t { kOther, kLetter, kNumber, kSpace, kEnd };

constexpr std::array<Kind, 128> kAsciiKinds = [] {
  std::array<Kind, 128> kinds{};
  for (std::size_t c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kinds[c] = Kind::kLetter;
    if (c >= '0' && c <= '9') kinds[c] = Kind::kNumber;
    if (unicode::is_space(static_cast<char32_t>(c))) kinds[c] = Kind::kSpace;
  }
  return kinds;
}();

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(unicode::properties()) {}

  std::size_t end_of_gpt2_word(std::size_t at) const {
    const Look first = look(at);
    if (first.value == '\'') {
      if (const std::size_t length = contraction(at, false)) return at + length;
    }
    if (first.kind != Kind::kSpace) return skip(at + first.length, first.kind);
    if (first.value == ' ') {
      const Look second = look(at + 1);
      if (second.kind != Kind::kSpace && second.kind != Kind::kEnd) {
        return skip(at + 1 + second.length, second.kind);
      }
    }
    return end_of_spaces(at);
  }

  // Llama 3 and Qwen 2 differ only in the maximum number of digits per word.
  std::size_t end_of_llama_word(std::size_t at, int digits) const {
    const Look first = look(at);
    if (first.value == '\'') {
      if (const std::size_t length = contraction(at, true)) return at + length;
    }
    const std::size_t next = at + first.length;
    if (first.kind == Kind::kLetter) return skip(next, Kind::kLetter);
    if (first.kind == Kind::kNumber) return skip(next, Kind::kNumber, digits - 1);
    const Look second = look(next);
    const bool is_line_end = first.value == '\r' || first.value == '\n';
    if (second.kind == Kind::kLetter && !is_line_end) {
      return skip(next + second.length, Kind::kLetter);
    }
    if (first.kind == Kind::kOther) return skip_line_ends(skip(next, Kind::kOther));
    if (first.value == ' ' && second.kind == Kind::kOther) {
      return skip_line_ends(skip(next + second.length, Kind::kOther));
    }
    const std::size_t end = skip(next, Kind::kSpace);
    const std::size_t line_end = text_.substr(at, end - at).find_last_of("\r\n");
    return line_end != std::string_view::npos ? at + line_end + 1 : end_of_spaces(at);
  }

 private:
  struct Look {
    char32_t value;
    Kind kind;
    std::size_t length;
  };

  Look look(std::size_t at) const {
    if (at >= text_.size()) return {0, Kind::kEnd, 0};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 128) return {byte, kAsciiKinds[byte], 1};
    const unicode::Character c = unicode::character_at(text_, at);
    const unicode::Properties p = table_[c.value];
    Kind kind = Kind::kOther;
    if (p.is_letter()) kind = Kind::kLetter;
    if (p.is_number()) kind = Kind::kNumber;
    if (unicode::is_space(c.value)) kind = Kind::kSpace;
    return {c.value, kind, c.length};
  }

  std::size_t skip(std::size_t at, Kind kind) const {
    while (true) {
      while (at < text_.size() && static_cast<unsigned char>(text_[at]) < 128) {
        if (kAsciiKinds[static_cast<unsigned char>(text_[at])] != kind) return at;
        ++at;
      }
      const Look next = look(at);
      if (next.kind != kind) return at;
      at += next.length;
    }
  }
  std::size_t skip(std::size_t at, Kind kind, int most) const {
    for (; most > 0; --most) {
      const Look next = look(at);
      if (next.kind != kind) break;
      at += next.length;
    }
    return at;
  }
  std::size_t skip_line_ends(std::size_t at) const {
    while (at < text_.size() && (text_[at] == '\r' || text_[at] == '\n')) ++at;
    return at;
  }

  // \s+(?!\S)|\s+ : the last space of a run belongs to the next word, unless it is alone.
  std::size_t end_of_spaces(std::size_t at) const {
    const std::size_t end = skip(at, Kind::kSpace);
    if (end == text_.size()) return end;
    const std::size_t last = unicode::character_before(text_, end);
    return last > at ? last : end;
  }

  // The length of 's, 't, 're, 've, 'm, 'll or 'd; 0 when there is none. With `any_case`, capital
  // letters and the long s (U+017F) count, too.
  std::size_t contraction(std::size_t at, bool any_case) const {
    const auto letter = [&](std::size_t i) {
      if (at + i >= text_.size()) return '\0';
      const char c = text_[at + i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? 3 : 0;
      case 'l':
        return letter(2) == 'l' ? 3 : 0;
      default:
        return any_case && text_.substr(at + 1).starts_with("\u017F") ? 3 : 0;
    }
  }

  std::string_view text_;
  const unicode::PropertyTable& table_;
};

}  // namespace

std::string_view pattern_text(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      return kGpt2Pattern;
    case KnownPattern::kLlama3:
      return kLlama3Pattern;
    case KnownPattern::kQwen2:
      return kQwen2Pattern;
  }
  return {};
}

std::optional<KnownPattern> find_known_pattern(std::string_view text) {
  for (const KnownPattern pattern :
       {KnownPattern::kGpt2, KnownPattern::kLlama3, KnownPattern::kQwen2}) {
    if (text == pattern_text(pattern)) return pattern;
  }
  return std::nullopt;
}

Status scan_words(KnownPattern pattern, std::string_view text, std::size_t offset,
                  std::vector<Span>& words, WorkBudget& budget) {
  const Scanner scanner(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end =
        pattern == KnownPattern::kGpt2
            ? scanner.end_of_gpt2_word(at)
            : scanner.end_of_llama_word(at, pattern == KnownPattern::kLlama3 ? 3 : 1);
    VOLTA_TRY(budget.spend(1 + (end - at) / 8, "pre_tokenizer Split"));
    words.push_back({offset + at, offset + end});
    at = end;
  }
  return {};
}

}  // namespace volta::tokenizers
