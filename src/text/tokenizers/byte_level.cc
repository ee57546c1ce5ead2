#include "text/tokenizers/byte_level.h"

#include "base/text.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// The byte of each character, -1 for other characters. The last one with a byte is U+0143.
constexpr std::array<int, 0x144> kCharacterBytes = [] {
  std::array<int, 0x144> table{};
  for (int& byte : table) byte = -1;
  for (int byte = 0; byte < 256; ++byte) {
    table[kByteCharacters[static_cast<std::size_t>(byte)]] = byte;
  }
  return table;
}();

}  // namespace

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char c : bytes) append_utf8(text, kByteCharacters[static_cast<unsigned char>(c)]);
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Character c = unicode::character_at(text, at);
    if (c.value >= kCharacterBytes.size() || kCharacterBytes[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kCharacterBytes[c.value]);
    at += c.length;
  }
  return bytes;
}

}  // namespace volta::tokenizers
