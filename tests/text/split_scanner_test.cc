// The hand-written scanners against the regular expressions that they stand for.
#include "text/tokenizers/split_scanner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "base/work_budget.h"
#include "text/tokenizers/regex.h"

namespace volta::tokenizers {
namespace {

constexpr auto kPatterns = {KnownPattern::kGpt2, KnownPattern::kLlama3, KnownPattern::kQwen2};

std::vector<std::string> pieces(std::string_view text, const std::vector<Span>& spans) {
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

std::vector<std::string> scanned(KnownPattern pattern, std::string_view text) {
  std::vector<Span> words;
  WorkBudget budget(text_work_limits(text.size()));
  EXPECT_TRUE(scan_words(pattern, text, 0, words, budget));
  return pieces(text, words);
}

std::vector<std::string> matched(KnownPattern pattern, std::string_view text) {
  static const std::vector<Regex> compiled = [] {
    std::vector<Regex> all;
    for (const KnownPattern p : kPatterns) all.push_back(*Regex::compile(pattern_text(p), "test"));
    return all;
  }();
  std::vector<Span> matches;
  WorkBudget budget(text_work_limits(text.size()));
  EXPECT_TRUE(compiled[static_cast<std::size_t>(pattern)].find_all(text, matches, budget));
  return pieces(text, matches);
}

using Words = std::vector<std::string>;

TEST(SplitScanner, Gpt2Words) {
  EXPECT_EQ(
      scanned(KnownPattern::kGpt2, "I'll go  to\n\n42nd 'st!? \n"),
      (Words{"I", "'ll", " go", " ", " to", "\n", "\n", "42", "nd", " '", "st", "!?", " \n"}));
}

TEST(SplitScanner, Llama3Words) {
  EXPECT_EQ(scanned(KnownPattern::kLlama3, "I'LL go\tto \n\n 12345 x?!\r\ny"),
            (Words{"I", "'LL", " go", "\tto", " \n\n", " ", "123", "45", " x", "?!\r\n", "y"}));
}

TEST(SplitScanner, Qwen2Words) {
  EXPECT_EQ(scanned(KnownPattern::kQwen2, "a12  3"), (Words{"a", "1", "2", " ", " ", "3"}));
}

TEST(SplitScanner, KnowsThePatternsByTheirText) {
  for (const KnownPattern pattern : kPatterns) {
    EXPECT_EQ(find_known_pattern(pattern_text(pattern)), pattern);
  }
  EXPECT_EQ(find_known_pattern("x"), std::nullopt);
}

TEST(SplitScanner, AgreesWithThePatternOnEveryCodePoint) {
  for (char32_t block = 0; block < 0x110000; block += 0x400) {
    std::string text;
    for (char32_t c = block; c < block + 0x400; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      for (const std::string_view before : {"a", "1", "!", " ", "\n"}) {
        text += before;
        append_utf8(text, c);
      }
    }
    for (const KnownPattern pattern : kPatterns) {
      ASSERT_EQ(scanned(pattern, text), matched(pattern, text))
          << static_cast<std::uint32_t>(block);
    }
  }
}

rc::Gen<std::string> gen_text() {
  const auto part = rc::gen::weightedOneOf<std::string>({
      {6,
       rc::gen::elementOf(Words{" ",      " ",      "\n",     "\r",        "\t", "'",      "'s",
                                "'S",     "'ll",    "'Re",    "'\u017F",   "a",  "Z",      "\u00e9",
                                "1",      "\u00bd", "\u0663", "!",         "_",  "\u00a0", "\u3000",
                                "\u0085", "\u0301", "\u4f60", "\U0001F600"})},
      {1, rc::gen::map(rc::gen::inRange<std::uint32_t>(0, 0x110000),
                       [](std::uint32_t c) {
                         std::string text;
                         append_utf8(text, static_cast<char32_t>(c));
                         return text;
                       })},
  });
  return rc::gen::map(rc::gen::container<Words>(part), [](const Words& parts) {
    std::string text;
    for (const std::string& p : parts) text += p;
    return text;
  });
}

RC_GTEST_PROP(SplitScanner, AgreesWithThePatternOnRandomText, ()) {
  const std::string text = *gen_text();
  for (const KnownPattern pattern : kPatterns) {
    RC_ASSERT(scanned(pattern, text) == matched(pattern, text));
  }
}

}  // namespace
}  // namespace volta::tokenizers
