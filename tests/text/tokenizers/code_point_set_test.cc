#include "text/tokenizers/code_point_set.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string_view>

#include "text/tokenizers/unicode.h"

namespace volta::unicode {
namespace {

using Range = CodePointSet::Range;

// Ranges near each other, and their members one by one.
rc::Gen<std::vector<Range>> gen_ranges() {
  return rc::gen::container<std::vector<Range>>(rc::gen::map(
      rc::gen::pair(rc::gen::inRange<std::uint32_t>(0, 60), rc::gen::inRange<std::uint32_t>(0, 9)),
      [](const auto& p) {
        return Range{static_cast<char32_t>(p.first), static_cast<char32_t>(p.first + p.second)};
      }));
}
std::set<char32_t> members(const std::vector<Range>& ranges) {
  std::set<char32_t> all;
  for (const Range& range : ranges) {
    for (char32_t c = range.first; c <= range.last; ++c) all.insert(c);
  }
  return all;
}

RC_GTEST_PROP(CodePointSet, ComputesAsSetsDo, ()) {
  const auto first = *gen_ranges();
  const auto second = *gen_ranges();
  const CodePointSet a(first);
  const CodePointSet b(second);
  const CodePointSet both = a.united(b);
  const CodePointSet common = a.intersected(b);
  const CodePointSet others = a.complement();
  for (char32_t c = 0; c < 80; ++c) {
    const bool in_a = members(first).contains(c);
    const bool in_b = members(second).contains(c);
    RC_ASSERT(a.contains(c) == in_a);
    RC_ASSERT(both.contains(c) == (in_a || in_b));
    RC_ASSERT(common.contains(c) == (in_a && in_b));
    RC_ASSERT(others.contains(c) == !in_a);
  }
  RC_ASSERT(others.contains(0x10FFFF));
  RC_ASSERT(others.complement() == a);
  // One form for one set: no range touches the next.
  for (std::size_t i = 1; i < both.ranges().size(); ++i) {
    RC_ASSERT(both.ranges()[i].first > both.ranges()[i - 1].last + 1);
  }
}

TEST(CodePointSet, PropertiesAreThoseOfTheTable) {
  for (const std::string_view name : {"L", "Lu", "N", "Nd", "P", "S", "Sc", "Z", "M", "C", "Cs"}) {
    const auto set = property_set(name);
    ASSERT_TRUE(set) << name;
    for (char32_t c = 0; c < 0x110000; c += 7) {
      ASSERT_EQ(set->contains(c), properties()[c].has_category(name)) << name << " " << +c;
    }
  }
  EXPECT_EQ(property_set("lu"), property_set("Lu"));
  for (const std::string_view name : {"", "X", "Lz", "Klingon", "Lu "}) {
    EXPECT_FALSE(property_set(name)) << name;
  }
}

TEST(CodePointSet, Scripts) {
  const auto han = property_set("Han");
  const auto hiragana = property_set("HIRAGANA");
  ASSERT_TRUE(han && hiragana);
  EXPECT_TRUE(han->contains(0x4E00) && han->contains(0x3400) && han->contains(0x20000));
  EXPECT_FALSE(han->contains(0x3042) || han->contains('a'));
  EXPECT_TRUE(hiragana->contains(0x3042));
  for (const std::string_view name : script_names()) {
    const auto set = property_set(name);
    ASSERT_TRUE(set) << name;
    EXPECT_FALSE(set->empty()) << name;
    EXPECT_TRUE(set->intersected(*han).empty() || name == "Han") << name;
  }
}

TEST(CodePointSet, SpacesWordsAndDigits) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    ASSERT_EQ(space_set().contains(c), is_space(c)) << +c;
    ASSERT_EQ(digit_set().contains(c), properties()[c].has_category("Nd")) << +c;
    // Ruby's words are Rust's, but for the joiners and some numbers of Latin-1.
    const bool differs = c == 0x200C || c == 0x200D || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
                         (c >= 0xBC && c <= 0xBE);
    ASSERT_EQ(word_set().contains(c), is_word(c) != differs) << +c;
  }
}

TEST(CodePointSet, AllCases) {
  const auto cases = [](char32_t c) {
    std::vector<char32_t> all;
    const CodePointSet set = CodePointSet({{c, c}}).with_all_cases();
    for (const Range& range : set.ranges()) {
      for (char32_t d = range.first; d <= range.last; ++d) all.push_back(d);
    }
    return all;
  };
  using All = std::vector<char32_t>;
  EXPECT_EQ(cases('1'), (All{'1'}));
  EXPECT_EQ(cases('a'), (All{'A', 'a'}));
  EXPECT_EQ(cases('S'), (All{'S', 's', 0x17F}));
  EXPECT_EQ(cases(0x212A), (All{'K', 'k', 0x212A}));
  EXPECT_EQ(cases('I'), (All{'I', 'i'}));
  EXPECT_EQ(cases(0x131), (All{0x131}));
  EXPECT_EQ(cases(0x130), (All{0x130}));
  EXPECT_EQ(cases(0x3C3), (All{0x3A3, 0x3C2, 0x3C3}));
  EXPECT_EQ(cases(0x1C5), (All{0x1C4, 0x1C5, 0x1C6}));
  EXPECT_EQ(cases(0x345), (All{0x345, 0x399, 0x3B9, 0x1FBE}));
  EXPECT_EQ(cases(0x24B6), (All{0x24B6, 0x24D0}));
  EXPECT_EQ(cases(0x4E00), (All{0x4E00}));
}

}  // namespace
}  // namespace volta::unicode
