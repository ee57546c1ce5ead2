// GPT-2's printable characters for bytes. Byte-level vocabularies are written in them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace volta::tokenizers {

/// The character for each byte (Radford et al. 2019, encoder.py): a byte that is a printable
/// Latin-1 character is that character; the other bytes are the code points from 256 on, in order.
inline constexpr std::array<char32_t, 256> kByteCharacters = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    table[byte] = printable ? byte : next++;
  }
  return table;
}();

/// Converts bytes to their characters.
std::string to_byte_characters(std::string_view bytes);
/// Converts the characters of valid UTF-8 to their bytes; nullopt if a character does not represent
/// a byte.
std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace volta::tokenizers
