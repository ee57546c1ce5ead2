// The Unicode data and functions of tokenizers: general categories, normal forms, lower case, and
// UTF-8 that may be invalid. Agrees with Hugging Face tokenizers 0.23 for every code point (see
// scripts/generate_unicode_data) with all versions of utf8proc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace volta::unicode {

/// The properties of one code point: its general category in Unicode 16, and flags for parts of
/// Hugging Face tokenizers that use older tables.
class Properties {
 public:
  constexpr Properties() = default;
  explicit constexpr Properties(std::uint16_t bits) : bits_(bits) {}

  /// The number of the general category, below 32.
  constexpr int category() const { return bits_ & 31; }
  constexpr bool is_letter() const { return category() >= 1 && category() <= 5; }
  constexpr bool is_mark() const { return category() >= 6 && category() <= 8; }
  constexpr bool is_number() const { return category() >= 9 && category() <= 11; }
  /// Decimal digits and letter-like numbers: Nd and Nl.
  constexpr bool is_word_number() const { return category() == 9 || category() == 10; }
  constexpr bool is_connector() const { return category() == 12; }  // Pc
  /// Whether the general category has this name ("Lu") or first letter ("L").
  constexpr bool has_category(std::string_view name) const {
    constexpr std::string_view kNames =
        "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
    return kNames.substr(static_cast<std::size_t>(category()) * 2, 2).starts_with(name);
  }
  /// General category P of Unicode 8, or an ASCII symbol: BERT splits at these.
  constexpr bool is_bert_punctuation() const { return (bits_ & 1 << 5) != 0; }
  /// Mn of Unicode 8: BERT's strip_accents removes these.
  constexpr bool is_bert_accent() const { return (bits_ & 1 << 6) != 0; }
  /// Controls, formats, private use, U+FFFD: BERT's clean_text removes these.
  constexpr bool is_bert_control() const { return (bits_ & 1 << 7) != 0; }
  /// M of Unicode 9: StripAccents removes these.
  constexpr bool is_combining_mark() const { return (bits_ & 1 << 8) != 0; }
  /// Newer than the tables of the normal forms: not decomposed, composed or reordered.
  constexpr bool is_inert() const { return (bits_ & 1 << 9) != 0; }

 private:
  std::uint16_t bits_ = 0;
};

/// The properties of all code points in a two-stage table: blocks of 128, with equal blocks stored
/// once. Values above U+10FFFF count as unassigned.
class PropertyTable {
 public:
  PropertyTable();
  Properties operator[](char32_t code_point) const {
    if (code_point > 0x10FFFF) [[unlikely]] {
      return {};
    }
    return blocks_[static_cast<std::size_t>(index_[code_point >> 7]) * 128 + (code_point & 127)];
  }

 private:
  std::array<std::uint16_t, 0x110000 / 128> index_{};
  std::vector<Properties> blocks_;
};
const PropertyTable& properties();

/// White_Space, which is the meaning of \s.
constexpr bool is_space(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}
/// The meaning of \w: letters, marks, digits, connectors, and a few more.
bool is_word(char32_t c);
/// General category N of Unicode 17 (Rust's char::is_numeric).
bool is_numeric(char32_t c);

/// A code point of text that must be valid UTF-8, and its number of bytes. For invalid text the
/// value is undefined, but no byte outside of the text is read.
struct Character {
  char32_t value;
  std::size_t length;
};
inline Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const std::size_t left = text.size() - at;
  if (at >= text.size()) [[unlikely]] {
    return {0xFFFD, 1};
  }
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length > left) [[unlikely]] {
    return {0xFFFD, left};
  }
  if (length == 2) return {(lead & 31) << 6 | (byte(1) & 63), 2};
  if (length == 3) return {(lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63), 3};
  return {(lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63), 4};
}
/// The beginning of the character that ends at `end`; requires valid UTF-8 and end > 0.
inline std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

/// The front of text that may be invalid UTF-8: a character, or the longest run of bytes (at least
/// one) that begins a character without completing it. Such a run is replaced by one U+FFFD.
struct Utf8Front {
  std::size_t length;
  bool valid;
  bool unfinished;  ///< Invalid, but more bytes could complete it.
};
Utf8Front utf8_front(std::string_view text);
/// `text` itself if it is valid UTF-8; otherwise a copy in `storage` with U+FFFD for invalid parts.
std::string_view repair_utf8(std::string_view text, std::string& storage);

enum class Form : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };
/// The normal form of valid UTF-8. Linear, except for sorting runs of combining marks.
std::string normalize(std::string_view text, Form form);
/// The lower case of each character, independent of its neighbours.
std::string lowercase(std::string_view text);
/// The common form of all cases of a character, independent of others (simple case folding).
char32_t fold_case(char32_t c);

/// The data behind properties(): (code point << 10 | bits) for the beginning of each run, sorted.
std::span<const std::uint32_t> range_data();

/// The names of scripts ("Han"), and the beginnings of runs of one script: (code point << 8 |
/// number), sorted. The number is the position of the name, counted from 1; 0 is none of them.
std::span<const std::string_view> script_names();
std::span<const std::uint32_t> script_data();

}  // namespace volta::unicode
