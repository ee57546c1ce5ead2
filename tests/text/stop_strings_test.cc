// Stop strings: what comes out is the text before the first stop, however it is cut into pieces.
#include "text/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace volta {
namespace {

using Strings = std::vector<std::string>;

// The text that is shown, kept beside the whole text.
class Shown {
 public:
  explicit Shown(const Strings& all) : stops_(all) {}
  // What a piece adds to the shown text.
  std::string push(std::string_view piece) {
    text_ += piece;
    return show(stops_.push(piece));
  }
  std::string finish() { return show(stops_.finish()); }
  bool stopped() const { return stops_.stopped(); }

 private:
  std::string show(std::size_t length) {
    const std::size_t before = std::exchange(shown_, length);
    return text_.substr(before, length - before);
  }
  StopStrings stops_;
  std::string text_;
  std::size_t shown_ = 0;
};

TEST(StopStrings, HoldBackWhatMayBecomeAStop) {
  Shown stops(Strings{"<end>", "\n\n"});
  EXPECT_EQ(stops.push("a <"), "a ");
  EXPECT_EQ(stops.push("en"), "");
  EXPECT_EQ(stops.push("dless> <end"), "<endless> ");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.push(">b"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GiveTheRestAtTheEnd) {
  Shown stops(Strings{"abcd"});
  EXPECT_EQ(stops.push("xabc"), "x");
  EXPECT_EQ(stops.finish(), "abc");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, WithoutAnyTextPassesThrough) {
  for (const Strings& none : {Strings{}, Strings{"", ""}}) {
    Shown stops(none);
    EXPECT_EQ(stops.push("text"), "text");
    EXPECT_EQ(stops.push(""), "");
    EXPECT_EQ(stops.finish(), "");
    EXPECT_FALSE(stops.stopped());
  }
}

TEST(StopStrings, TheFirstToEndCountsAndThenTheLongest) {
  const auto before = [](const Strings& all, const std::string& text) {
    Shown stops(all);
    const std::string out = stops.push(text);
    return out + stops.finish();
  };
  EXPECT_EQ(before({"abcd", "bc"}, "xabcd"), "xa");
  EXPECT_EQ(before({"c", "abc"}, "xabcd"), "x");
  EXPECT_EQ(before({"abd", "b"}, "aab"), "aa");
  EXPECT_EQ(before({"aab"}, "aaaab"), "aa");
  EXPECT_EQ(before({"same", "same"}, "the same"), "the ");
  EXPECT_EQ(before({std::string("\0\xFF", 2)}, std::string("a\0\xFE\0\xFF", 5)),
            std::string("a\0\xFE", 3));
}

// The text before the stop that ends first, found by trying every place.
std::optional<std::string> search(const Strings& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return std::nullopt;
}

RC_GTEST_PROP(StopStrings, EqualASearchHoweverTheTextIsCut, ()) {
  const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const auto all = *rc::gen::container<Strings>(letters);
  const auto pieces = *rc::gen::container<Strings>(letters);
  Shown stops(all);
  std::string text, out;
  for (const std::string& piece : pieces) {
    text += piece;
    out += stops.push(piece);
    // Nothing that turns out to be part of a stop was given.
    const auto wanted = search(all, text);
    RC_ASSERT(stops.stopped() == wanted.has_value());
    if (wanted) RC_ASSERT(out == *wanted);
    RC_ASSERT(text.starts_with(out));
  }
  out += stops.finish();
  RC_ASSERT(out == search(all, text).value_or(text));
}

// A search that starts again at every byte would take 10^12 steps.
TEST(StopStrings, TakeLinearTime) {
  const std::string many(1'000'000, 'a');
  Shown stops(Strings{many + "b", many + "c", std::string(999'999, 'a') + "d"});
  EXPECT_EQ(stops.push(many + many), many);
  EXPECT_EQ(stops.push("ad"), many.substr(0, 1) + "a");
  EXPECT_TRUE(stops.stopped());
}

}  // namespace
}  // namespace volta
