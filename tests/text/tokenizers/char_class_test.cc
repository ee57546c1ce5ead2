#include "text/tokenizers/char_class.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/text.h"

namespace volta::tokenizers {
namespace {

using unicode::CodePointSet;

TEST(CharClass, HoldsWhatItsSetHolds) {
  const CodePointSet letters = *unicode::property_set("L");
  const CodePointSet upper = *unicode::property_set("Lu");
  std::vector<CodePointSet::Range> scattered;
  for (char32_t c = 0; c < 0x3000; c += 5) scattered.push_back({c, c + 1});
  for (const CodePointSet& set :
       {CodePointSet(), CodePointSet().complement(), CodePointSet({{'a', 'z'}}),
        CodePointSet({{0x7F, 0x80}, {0x10FFFF, 0x10FFFF}}), letters, letters.complement(),
        upper.with_all_cases(), upper.united(CodePointSet({{0xE9, 0xE9}, {0x4E00, 0x9FFF}})),
        unicode::word_set(), unicode::word_set().complement(), CodePointSet(scattered)}) {
    const CharClass char_class(set);
    for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 13) {
      ASSERT_EQ(char_class.contains(c), set.contains(c)) << +c;
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string bytes;
      append_utf8(bytes, c);
      if (set.contains(c)) {
        ASSERT_TRUE(char_class.first_bytes()[static_cast<unsigned char>(bytes[0])]) << +c;
      }
    }
    for (std::size_t byte = 0x80; byte < 0xC0; ++byte) {
      EXPECT_FALSE(char_class.first_bytes()[byte]) << byte;
    }
    for (unsigned char c = 0; c < 128; ++c) {
      EXPECT_EQ(char_class.contains_ascii(c), set.contains(c));
    }
  }
}

}  // namespace
}  // namespace volta::tokenizers
