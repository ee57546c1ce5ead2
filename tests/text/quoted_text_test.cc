// Texts of two origins, put together and cut.
#include "text/quoted_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace volta {
namespace {

using Ranges = std::vector<TextRange>;

TEST(QuotedText, KeepsWhatIsQuoted) {
  QuotedText text;
  text.append("<s>");
  text.append_quoted("Hi");
  text.append_quoted(" you");
  text.append_quoted("");
  text.append("</s>");
  EXPECT_EQ(text.text, "<s>Hi you</s>");
  EXPECT_EQ(text.quoted, (Ranges{{3, 9}}));
  QuotedText copy;
  copy.append("x");
  copy.append_part(text, 0, text.text.size());
  copy.append_part(text, 4, 1);
  copy.append_part(text, 8, 3);
  EXPECT_EQ(copy.text, "x<s>Hi you</s>iu</");
  EXPECT_EQ(copy.quoted, (Ranges{{4, 10}, {14, 16}}));
  copy.truncate(15);
  EXPECT_EQ(copy.quoted, (Ranges{{4, 10}, {14, 15}}));
  copy.truncate(14);
  EXPECT_EQ(copy.quoted, (Ranges{{4, 10}}));
  copy.truncate(0);
  EXPECT_TRUE(copy.quoted.empty());
}

// Small letters are quoted, capital ones are not: after any number of operations, too.
RC_GTEST_PROP(QuotedText, EveryByteKeepsItsOrigin, ()) {
  QuotedText text;
  for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
    const std::string letters(*rc::gen::inRange<std::size_t>(0, 4),
                              *rc::gen::elementOf(std::string("abAB")));
    const bool small = !letters.empty() && letters.front() >= 'a';
    if (*rc::gen::arbitrary<bool>()) {
      small ? text.append_quoted(letters) : text.append(letters);
    } else {
      const QuotedText copy = text;
      const auto begin = *rc::gen::inRange<std::size_t>(0, copy.text.size() + 1);
      text.append_part(copy, begin,
                       *rc::gen::inRange<std::size_t>(0, copy.text.size() - begin + 1));
    }
  }
  std::vector<bool> quoted(text.text.size(), false);
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.quoted.size(); ++i) {
    const TextRange& range = text.quoted[i];
    RC_ASSERT(range.begin < range.end);
    RC_ASSERT(i == 0 || range.begin > end);
    end = range.end;
    RC_ASSERT(end <= quoted.size());
    for (std::size_t at = range.begin; at < end; ++at) quoted[at] = true;
  }
  for (std::size_t at = 0; at < quoted.size(); ++at) {
    RC_ASSERT(quoted[at] == (text.text[at] >= 'a'));
  }
}

}  // namespace
}  // namespace volta
