// What is quoted stays quoted when a text is normalized, what is not does not become so, and the
// time that finding this out takes does not depend on how often a text changes sides.
#include "text/tokenizers/normalized_ranges.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/work_budget.h"
#include "text/quoted_text.h"
#include "text/tokenizers/normalizer.h"

namespace volta::tokenizers {
namespace {

Normalizer normalizer(const std::string& steps) {
  const JsonValue json =
      *parse_json(R"({"type":"Sequence","normalizers":[)" + steps + "]}", "t.json");
  return *Normalizer::parse(JsonRef(json, "t.json"));
}

// A text with its quoted parts in brackets.
QuotedText prompt(const std::string& marked) {
  QuotedText out;
  bool quoted = false;
  for (const char c : marked) {
    if (c == '[' || c == ']') {
      quoted = c == '[';
    } else {
      const std::string text(1, c);
      quoted ? out.append_quoted(text) : out.append(text);
    }
  }
  return out;
}

// The same for what the steps make of one.
std::string normalized(const std::string& steps, const std::string& marked) {
  const Normalizer made = normalizer(steps);
  const QuotedText in = prompt(marked);
  WorkBudget budget(text_work_limits(in.text.size()));
  const std::string text = *made.normalize(in.text, budget);
  const auto ranges = normalized_ranges(made, in.text, text, in.quoted, budget);
  if (!ranges) return ranges.error().message();
  std::string out;
  std::size_t at = 0;
  for (const TextRange& range : *ranges) {
    EXPECT_GE(range.begin, at) << marked;
    EXPECT_GE(range.end, range.begin) << marked;
    out += text.substr(at, range.begin - at) + "[" +
           text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + text.substr(at);
}

const std::string kLlama2 =
    R"({"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"__"})";
const std::string kStrip = R"({"type":"Strip"})";
const std::string kNfc = R"({"type":"NFC"})";
const std::string kJoin = R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})";

TEST(NormalizedRanges, StepsThatSeeOneCharacterKeepAllBorders) {
  EXPECT_EQ(normalized(R"({"type":"Lowercase"})", "A[BC]D[E]F"), "a[bc]d[e]f");
  EXPECT_EQ(normalized(kLlama2, "a [b c] d[ ]"), "_a__[b__c]__d[__]");
  EXPECT_EQ(normalized(kLlama2, "[a] b"), "[_a]__b");
  EXPECT_EQ(normalized(R"({"type":"NFD"})", "\u00e9[\u00e9]\u00e9"), "e\u0301[e\u0301]e\u0301");
}

TEST(NormalizedRanges, WhatIsDroppedAtTheEndsBelongsToNobody) {
  EXPECT_EQ(normalized(kStrip, "  a [ b ] c  "), "a [ b ] c");
  EXPECT_EQ(normalized(kStrip, "  [  a  ]  "), "[a]");
  EXPECT_EQ(normalized(kStrip + "," + kLlama2, "  [  a ]b[ ]"), "[_a__]b[]");
}

// An accent of a message's joins the character before it: neither is the template's any more, but
// all that comes before and after stays so.
TEST(NormalizedRanges, WhatJoinsIsQuoted) {
  EXPECT_EQ(normalized(kNfc, "<s>[a]<e>[\u0338b]<s>[c]<e>"), "<s>[a]<e[\u226Fb]<s>[c]<e>");
  EXPECT_EQ(normalized(kNfc, "<s>[be]\u0301<e>[c]<e>"), "<s>[b\u00e9<e>][c]<e>");
  EXPECT_EQ(normalized(kJoin, "a [ b] <e>[  c]"), "a [b] <e>[ c]");
}

std::uint64_t steps_of(const std::string& steps, const std::string& unit, int count) {
  const Normalizer made = normalizer(steps);
  QuotedText in;
  for (int i = 0; i < count; ++i) {
    in.append("<a>");
    in.append_quoted(unit);
  }
  const WorkLimits limits = text_work_limits(in.text.size());
  WorkBudget budget(limits);
  const std::string text = *made.normalize(in.text, budget);
  const auto ranges = normalized_ranges(made, in.text, text, in.quoted, budget);
  EXPECT_TRUE(ranges);
  EXPECT_EQ(ranges ? ranges->size() : 0, static_cast<std::size_t>(count));
  return limits.steps - budget.steps_left();
}

TEST(NormalizedRanges, ManyRangesTakeLinearTime) {
  for (const std::string& steps : {kLlama2, kNfc, kJoin + "," + kNfc}) {
    for (const std::string unit : {"b", "\u0338", " ", "  "}) {
      const auto few = steps_of(steps, unit, 5'000);
      EXPECT_LT(steps_of(steps, unit, 20'000), 5 * few) << steps << " '" << unit << "'";
      EXPECT_LT(few, 5'000u * (3 + unit.size()) * 64) << steps << " '" << unit << "'";
    }
  }
}

// Borders inside a character, of a caller that counts wrongly, are moved to its ends.
TEST(NormalizedRanges, CharactersAreWhole) {
  const Normalizer made = normalizer(kNfc);
  WorkBudget budget(text_work_limits(10));
  const std::string text = "a\u00e9b";
  const std::vector<TextRange> quoted = {{2, 3}};
  EXPECT_EQ(*normalized_ranges(made, text, text, quoted, budget), (std::vector<TextRange>{{1, 3}}));
  const std::vector<TextRange> half = {{2, 2}};
  EXPECT_EQ(*normalized_ranges(made, text, text, half, budget), (std::vector<TextRange>{{1, 3}}));
}

}  // namespace
}  // namespace volta::tokenizers
