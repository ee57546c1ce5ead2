#include "text/tokenizers/unicode.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

namespace volta::unicode {
namespace {

TEST(Unicode, EveryNumberHasProperties) {
  for (const char32_t c : {0x10FFFFU, 0x110000U, 0x11007FU, 0x1FFFFFU, 0xFFFFFFFFU}) {
    const Properties p = properties()[c];
    EXPECT_FALSE(p.is_letter() || p.is_number() || p.is_bert_punctuation()) << +c;
    EXPECT_FALSE(is_word(c)) << +c;
  }
  EXPECT_TRUE(properties()[U'a'].is_letter());
}

// Text of exactly as many bytes on the heap, so that AddressSanitizer sees any further one.
TEST(Unicode, NoByteOutsideOfATextIsRead) {
  for (int lead = 0; lead < 256; ++lead) {
    for (std::size_t size = 1; size <= 4; ++size) {
      const auto bytes = std::make_unique<char[]>(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = '\xBF';
      bytes[0] = static_cast<char>(lead);
      const std::string_view text(bytes.get(), size);
      for (std::size_t at = 0; at < size;) {
        const Character c = character_at(text, at);
        ASSERT_GE(c.length, 1U);
        ASSERT_LE(at + c.length, size);
        at += c.length;
      }
      EXPECT_EQ(character_at(text, size).length, 1U);
    }
  }
}

TEST(Unicode, CharactersOfValidText) {
  const std::string_view text = "a\u00e9\u4f60\U0001f600";
  const std::array<char32_t, 4> values{'a', 0xE9, 0x4F60, 0x1F600};
  std::size_t at = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const Character c = character_at(text, at);
    EXPECT_EQ(c.value, values[i]);
    EXPECT_EQ(c.length, i + 1);
    at += c.length;
  }
}

}  // namespace
}  // namespace volta::unicode
