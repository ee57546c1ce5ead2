// GPT-2's printable stand-ins for bytes, in which byte-level vocabularies are written.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace volta::tokenizers {

/// The stand-in of each byte (Radford et al. 2019, encoder.py): printable Latin-1 characters stand
/// for themselves, the others for code points from 256 on, in order.
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

/// Bytes written as their stand-ins.
std::string to_byte_characters(std::string_view bytes);
/// The bytes that the characters of valid UTF-8 stand for; nothing when one stands for none.
std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace volta::tokenizers
