// Regular expressions: what they mean, by examples and against PCRE2 on the language that both
// share; what is refused; and what they may cost.
#include "text/tokenizers/regex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <vector>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"
#include "base/work_budget.h"
#include "support/regex_cases.h"

namespace volta::tokenizers {
namespace {

using Pieces = std::vector<std::string>;

Result<std::vector<Span>> find(std::string_view pattern, std::string_view text) {
  VOLTA_TRY(const Regex regex, Regex::compile(pattern, "test"));
  WorkBudget budget(text_work_limits(text.size()));
  std::vector<Span> matches;
  VOLTA_TRY(regex.find_all(text, matches, budget));
  return matches;
}

Pieces pieces(std::string_view pattern, std::string_view text) {
  const auto matches = find(pattern, text);
  if (!matches) return {matches.error().message()};
  Pieces out;
  for (const Span& m : *matches) out.emplace_back(text.substr(m.begin, m.end - m.begin));
  return out;
}

std::string error_of(std::string_view pattern, ErrorCode code) {
  const auto regex = Regex::compile(pattern, "tokenizer.json: pattern");
  if (regex) return "not refused";
  EXPECT_EQ(regex.error().code(), code) << pattern;
  return regex.error().message();
}

// All matches by PCRE2; nothing when it refuses the pattern or takes too long.
std::optional<std::vector<Span>> find_by_pcre2(const std::string& pattern,
                                               const std::string& text) {
  const std::vector<PCRE2_UCHAR> p(pattern.begin(), pattern.end());
  const std::vector<PCRE2_UCHAR> t(text.begin(), text.end());
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::shared_ptr<pcre2_code> code(
      pcre2_compile(p.data(), p.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, nullptr),
      pcre2_code_free);
  if (code == nullptr) return std::nullopt;
  const std::shared_ptr<pcre2_match_data> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  const std::shared_ptr<pcre2_match_context> context(pcre2_match_context_create(nullptr),
                                                     pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), 100'000);
  std::vector<Span> matches;
  std::size_t last_end = static_cast<std::size_t>(-1);
  for (std::size_t at = 0; at <= t.size();) {
    const int count = pcre2_match(code.get(), t.data(), t.size(), at, 0, data.get(), context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) return std::nullopt;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const bool is_empty = ends[0] == ends[1];
    if (!is_empty || ends[0] != last_end) matches.push_back({ends[0], ends[1]});
    at = last_end = ends[1];
    if (is_empty) ++at;
    while (at < t.size() && (t[at] & 0xC0) == 0x80) ++at;
  }
  return matches;
}

std::vector<std::uint8_t> random_bytes(std::mt19937& random) {
  std::vector<std::uint8_t> bytes(30 + random() % 60);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Long texts that patterns find hard, and some that they find easy.
std::vector<std::string> long_texts() {
  constexpr std::size_t kSize = 200'000;
  std::vector<std::string> texts;
  for (const std::string_view unit :
       {" ", "\n", "A", "a", "1", "!", "'", " a", "a ", "\r\n ", "Aa", "\u4f60", "\u0301",
        "\u00e9 \u0130", "I'LL go on, 12345 times!\n\n", "\U0001f600 \u3042\u3044 (x) "}) {
    std::string text;
    while (text.size() < kSize) text += unit;
    texts.push_back(text + "x");
  }
  return texts;
}

TEST(Regex, FindsAllMatchesAndSkipsEmptyOnesBehindOthers) {
  const auto matches = find("a*", "baa\u00e9");
  ASSERT_TRUE(matches);
  EXPECT_EQ(*matches, (std::vector<Span>{{0, 0}, {1, 3}, {5, 5}}));
}

TEST(Regex, ClassesAreThoseOfUnicode16) {
  const auto all = [](std::string_view pattern, std::string_view text) {
    return pieces(pattern, text).size();
  };
  EXPECT_EQ(all(R"(\p{L})", "\U000105C0\u0061!"), 2U);  // New in Unicode 16.
  EXPECT_EQ(all(R"([^\p{L}])", "\U000105C0\u0061!"), 1U);
  EXPECT_EQ(all(R"(\P{L})", "\U000105C0\u0061!"), 1U);
  EXPECT_EQ(all(R"(\s)", "\u180E \u0085"), 2U);
  EXPECT_EQ(all(R"(\S)", "\u180E \u0085"), 1U);
  EXPECT_EQ(all(R"(\w)", "\u0301a_\u2070"), 3U);
  EXPECT_EQ(all(R"(\d\\p\p{Han})", "1\\p\u4f60"), 1U);
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  // The whole interval is repeated; {,2} begins at 0; a { alone is a character.
  EXPECT_EQ(pieces(R"(\p{N}{1,3}+)", "12345678"), (Pieces{"12345678"}));
  EXPECT_EQ(pieces("ab{,2}", "abbb"), (Pieces{"abb"}));
  EXPECT_EQ(pieces("a{|b}{x", "a{ b}{x"), (Pieces{"a{", "b}{x"}));
  // (?m) is about . and not about lines; ^ and $ always are.
  EXPECT_EQ(pieces("(?m:a.b)|a.c", "a\nb a\nc"), (Pieces{"a\nb"}));
  EXPECT_EQ(pieces("^a$", "a\na\n"), (Pieces{"a", "a"}));
  EXPECT_EQ(pieces("^", "\n").size(), 1U);
  EXPECT_EQ(pieces(R"(\Aa|a\z)", "aa\na"), (Pieces{"a", "a"}));
  // (?i) reaches to the end of its group, alternatives and all.
  EXPECT_EQ(pieces("a(?i)b|c", "aB aC c"), (Pieces{"aB", "aC"}));
  EXPECT_EQ(pieces("(?:a(?i)b)c|(?-i:D)", "aBc aBC D d"), (Pieces{"aBc", "D"}));
  EXPECT_EQ(pieces("(?i:k(?-i:k)s)", "KkS KKs \u212ak\u017f"), (Pieces{"KkS", "\u212ak\u017f"}));
  EXPECT_EQ(pieces(R"((?i:\p{Lu})|(?i:[\p{Ll}-])|(?i:[^\p{Lu}]))", "aB1"), (Pieces{"a", "B", "1"}));
  EXPECT_EQ(pieces("(?i:\u0130|i)", "iI\u0130\u0131"), (Pieces{"i", "I", "\u0130"}));
  // Classes in classes, what two have in common, and characters that are not special there.
  EXPECT_EQ(pieces("[a[bc]]+", "abcd"), (Pieces{"abc"}));
  EXPECT_EQ(pieces("[a-z&&[^aeiou]&&[^x]]+", "abcxd"), (Pieces{"bc", "d"}));
  EXPECT_EQ(pieces("[^a-c&&b-d]+", "abcd"), (Pieces{"a", "d"}));
  EXPECT_EQ(pieces(R"([]\]^\b-]+)", "a]^-\b"), (Pieces{"]^-\b"}));
  EXPECT_EQ(pieces(R"([\s-.]+|[a-c-e]+)", " -. a-e"), (Pieces{" -. ", "a-e"}));
  EXPECT_EQ(pieces(R"([\P{^L}&&\p{L}]+)", "ab1"), (Pieces{"ab"}));
  EXPECT_EQ(pieces(R"(\x41\x{1F600}\u00e9\t\v\a\e\.\-)", "A\U0001f600\u00e9\t\v\a\x1b.-").size(),
            1U);
  EXPECT_EQ(pieces(R"([\p{greek}\p{han}]+)", "a\u03b1\u4f60b"), (Pieces{"\u03b1\u4f60"}));
  EXPECT_EQ(pieces(R"(\b\w|\B!)", "ab !! c"), (Pieces{"a", "!", "!", "c"}));
}

TEST(Regex, GroupsAndCounts) {
  EXPECT_EQ(pieces("(?:ab|a)(?:bc|c)", "abc abbc"), (Pieces{"abc", "abbc"}));
  EXPECT_EQ(pieces("(?>ab|a)(?:bc|c)", "abc abbc"), (Pieces{"abc", "abbc"}));
  EXPECT_EQ(pieces("(?>a|ab)c", "abc ac"), (Pieces{"ac"}));
  EXPECT_EQ(pieces("a*?b|a+?", "aab aa"), (Pieces{"aab", "a", "a"}));
  EXPECT_EQ(pieces("(?:ab){2,3}?", "ababab"), (Pieces{"abab"}));
  EXPECT_EQ(pieces("(?:ab){2}c", "abababc"), (Pieces{"ababc"}));
  EXPECT_EQ(pieces("a{2,}$|x", "aaab xaa"), (Pieces{"x", "aa"}));
  EXPECT_EQ(pieces("a+b", "aac aab ab"), (Pieces{"aab", "ab"}));
  EXPECT_EQ(pieces("a{2,}(?<=aaa)$", "aa aaa"), (Pieces{"aaa"}));
  EXPECT_EQ(pieces("(?:ab?)*+b|b", "abab b"), (Pieces{"b", "b", "b"}));
  EXPECT_EQ(pieces("(?:a*)*b|(?:a|b*)+", "aab"), (Pieces{"aab"}));
  EXPECT_EQ(pieces("(?:(?:){9}){9}a{0}(?:b){0}x", "x"), (Pieces{"x"}));
  EXPECT_EQ(pieces("a(?=b)|b(?!c)|(?<=c)d|(?<!c)e|(?<=ab|x)y", "abcde ce aby xy"),
            (Pieces{"a", "d", "e", "a", "b", "y", "y"}));
  EXPECT_EQ(pieces("(?<=(?:ab){2})c|(?<=(?>a))b|(?<=^)a|(?<=[a-c]{2}(?=d))d", "ababc\nabd"),
            (Pieces{"a", "b", "b", "c", "a", "b", "d"}));
  EXPECT_EQ(pieces("(?<=(?:ab|cd)e)x", "abex cdex dex"), (Pieces{"x", "x"}));
  // More alternatives than one branch has.
  std::string many = "(?:x0|x0";
  for (int i = 1; i < 200; ++i) many += "|x" + std::to_string(i) + "y";
  EXPECT_EQ(pieces(many + ")", "x7y x199y x200y x0y"), (Pieces{"x7y", "x199y", "x0"}));
}

// A round that takes nothing is the last. The matches are those that Oniguruma 6.9.8 finds.
TEST(Regex, EmptyRoundsOfGroupsEndTheRepetition) {
  const auto spans = [](std::string_view pattern, std::string_view text) {
    auto matches = find(pattern, text);
    EXPECT_TRUE(matches) << pattern;
    return matches ? *std::move(matches) : std::vector<Span>();
  };
  using Spans = std::vector<Span>;
  EXPECT_EQ(spans("(a*)*b", "aab b"), (Spans{{0, 3}, {4, 5}}));
  EXPECT_EQ(spans("(a|)*c", "aac"), (Spans{{0, 3}}));
  EXPECT_EQ(spans("(|a)*c", "aac"), (Spans{{0, 3}}));
  EXPECT_EQ(spans("(|a)+", "aa"), (Spans{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(spans("(?:)*", "ab"), (Spans{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(spans("(a*){2}", "aab"), (Spans{{0, 2}, {3, 3}}));
  EXPECT_EQ(spans("(a|){3}b", "aaab"), (Spans{{0, 4}}));
  EXPECT_EQ(spans("(|a){2,}b", "aab"), (Spans{{0, 3}}));
  EXPECT_EQ(spans("(a?\?){2,3}b", "aaab"), (Spans{{0, 4}}));
  EXPECT_EQ(spans(R"((\b|a)*b)", "aab"), (Spans{{0, 3}}));
  EXPECT_EQ(spans("((?:b|^)){1}", "ba"), (Spans{{0, 1}}));
  EXPECT_EQ(spans("((?:b|^)){1,2}a", "bba"), (Spans{{0, 3}}));
}

TEST(Regex, AgreesWithPcre2) {
  std::mt19937 random(1);
  int compared = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::vector<std::uint8_t> bytes = random_bytes(random);
    test::RegexGrammar grammar(bytes, false);
    const std::string pattern = grammar.pattern();
    const std::string text = grammar.text();
    // Only to PCRE2, (?i) applies to \p{Lu}, and what it holds depends on the version.
    if (pattern.find("(?i") != std::string::npos && pattern.find(R"(\p{L)") != std::string::npos) {
      continue;
    }
    const auto theirs = find_by_pcre2(pattern, text);
    const auto ours = find(pattern, text);
    if (!theirs || !ours) continue;
    ASSERT_EQ(*ours, *theirs) << pattern << "\non: " << text;
    ++compared;
  }
  EXPECT_GT(compared, 5'000);
}

TEST(Regex, MatchesOfHostilePatternsAreWholeCharactersInOrder) {
  std::mt19937 random(2);
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::vector<std::uint8_t> bytes = random_bytes(random);
    test::RegexGrammar grammar(bytes, true);
    const std::string pattern = grammar.pattern();
    const std::string text = grammar.text();
    const auto matches = find(pattern, text);
    if (!matches) {
      const ErrorCode code = matches.error().code();
      ASSERT_TRUE(code == ErrorCode::kInvalidFile || code == ErrorCode::kUnsupported) << pattern;
      continue;
    }
    ++accepted;
    ASSERT_TRUE(test::are_matches(text, *matches)) << pattern << "\non: " << text;
  }
  EXPECT_GT(accepted, 2'000);
}

TEST(Regex, PatternsOfRealTokenizers) {
  const std::string text =
      "I'll GO  on\n\n 12345 'times'!?\r\n\t\u4f60\u597d\u3042 \u00dcber\u00e9 don\u2019T x\u0301 "
      "\U0001f600\u00a0end ";
  for (const auto& [name, pattern] : test::kRealPatterns) {
    const auto ours = find(pattern, text);
    ASSERT_TRUE(ours) << ours.error().message();
    EXPECT_TRUE(test::are_matches(text, *ours)) << name;
    // Classes in classes are not PCRE2's.
    if (name == "BLOOM" || name == "Kimi K2") continue;
    const auto theirs = find_by_pcre2(std::string(pattern), text);
    ASSERT_TRUE(theirs) << name;
    EXPECT_EQ(*ours, *theirs) << name;
  }
  EXPECT_EQ(pieces(test::real_pattern("BLOOM"), "Go on, (x|y)."), (Pieces{"Go", " on", "x", "y"}));
  EXPECT_EQ(pieces(test::real_pattern("Kimi K2"), "ab\u4f60\u597dCd's"),
            (Pieces{"ab", "\u4f60\u597d", "Cd's"}));
}

TEST(Regex, PatternsOfRealTokenizersStayFarBelowTheBudget) {
  for (const std::string& text : long_texts()) {
    for (const auto& [name, pattern] : test::kRealPatterns) {
      // At every digit, its look-ahead reads all digits that follow: a text of digits alone takes
      // quadratic time.
      if (name == "digits in threes" && text[0] == '1') continue;
      const auto regex = Regex::compile(pattern, name);
      ASSERT_TRUE(regex);
      WorkBudget budget({.steps = 16 * text.size(), .bytes = 0});
      std::vector<Span> matches;
      EXPECT_TRUE(regex->find_all(text, matches, budget)) << name << " on " << text.substr(0, 20);
    }
  }
}

TEST(Regex, TheStepsOfAllMatchesOfATextAreCounted) {
  const std::string letters(20'000, 'a');
  std::string blocks;
  for (int i = 0; i < 2'000; ++i) blocks += std::string(30, 'a') + "b";
  const struct {
    std::string_view pattern;
    const std::string& text;
  } cases[] = {
      {"a*a*b|a", letters},
      {R"((?=(?:(?:a|aa)+c|))[\s\S])", blocks},
      {"(?:a|aa|b?a)*+c|((a+)+)+$x", letters},
      {"(?:a*?a*?)*?b", letters},
      {"(?<=a{1000})b|a", letters},
      {"(?:a|b|ab)*c", blocks},
  };
  for (const auto& [pattern, text] : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const auto found = find(pattern, text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 20) << pattern;  // Half a second, but for the sanitizers.
    if (found) continue;
    EXPECT_EQ(found.error().code(), ErrorCode::kInvalidFile);
    EXPECT_NE(found.error().message().find(std::string("test: the pattern '") +
                                           std::string(pattern) + "'"),
              std::string::npos)
        << found.error().message();
  }
  EXPECT_FALSE(find("a*a*b|a", letters));
  EXPECT_FALSE(find(R"((?=(?:(?:a|aa)+c|))[\s\S])", blocks));
}

TEST(Regex, ChoicesThatTakeTooMuchMemoryEndTheMatch) {
  const auto found = find("(?:a|a)*b", std::string(4'000'000, 'a'));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::kInvalidFile);
  EXPECT_NE(found.error().message().find("takes too much memory"), std::string::npos);
}

TEST(Regex, AsksWhetherItIsInterrupted) {
  const auto regex = Regex::compile("a", "test");
  ASSERT_TRUE(regex);
  WorkBudget budget(text_work_limits(100'000), [] { return true; });
  std::vector<Span> matches;
  const auto found = regex->find_all(std::string(100'000, 'a'), matches, budget);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::kInterrupted);
  EXPECT_LT(matches.size(), 100'000U);
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  for (const std::string_view part :
       {R"(\K)", R"(\c)",   R"(\C)",  R"(\G)",     R"(\Q)",       R"(\E)",     R"(\R)",
        R"(\X)", R"(\h)",   R"(\H)",  R"(\N)",     R"(\O)",       R"(\Z)",     R"(\1)",
        R"(\0)", R"(\k)",   R"(\g)",  R"(\y)",     R"(\pL)",      R"(\p{Xx})", R"(\p{})",
        R"(\q)", R"(\xff)", R"(\x4)", R"(\x{)",    R"(\x{D800})", R"(\u12)",   R"(\x{110000})",
        "(?R",   "(?1",     "(?<n",   "(?P",       "(?(",         "(*",        "(?C",
        "(?#",   "(?|",     "(?x",    "(?s",       "(?~",         "(?'",       "[[:",
        "a**",   "a*??",    "a+++",   "a{2}{3}",   "a{2}?",       "a{,}",      "a{1",
        "^*",    R"(\b+)",  "(?=a)+", "(?<!a){2}", "[a-\\d]",     "[b-a]"}) {
    std::string pattern = "x" + std::string(part);
    const std::string message = error_of(pattern, ErrorCode::kUnsupported);
    EXPECT_NE(message.find("is not supported"), std::string::npos) << part << ": " << message;
    EXPECT_TRUE(message.starts_with("tokenizer.json: pattern: the pattern 'x")) << message;
  }
  EXPECT_EQ(error_of(R"(aa\c\\K)"
                     "\U00100000",
                     ErrorCode::kUnsupported),
            R"(tokenizer.json: pattern: the pattern 'aa\c\\K)"
            "\U00100000"
            R"(': '\c' at byte 2 is not supported)");
  // What Oniguruma makes of these depends on the sizes of its programs.
  for (const std::string_view pattern : {"((?:b|^)){2}", R"((?:\bb?){2})", R"((\b^(b)*){2,})",
                                         "(?:(?=a)b?){2,3}", "(?:(?>a|)){2}", "(?:a*+){2}"}) {
    EXPECT_NE(error_of(pattern, ErrorCode::kUnsupported).find("at some places only"),
              std::string::npos)
        << pattern;
  }
  EXPECT_NE(error_of("(?<=a*)", ErrorCode::kUnsupported).find("without a fixed length"),
            std::string::npos);
  EXPECT_NE(error_of("(?<=(?:a|bc)d)", ErrorCode::kUnsupported).find("without a fixed length"),
            std::string::npos);
  EXPECT_NE(error_of("(?<!a{0,2}|b)", ErrorCode::kUnsupported).find("without a fixed length"),
            std::string::npos);
}

// Parts that emit nothing cost time in every copy of a repetition.
TEST(Regex, RefusesEndlessCopiesOfNothing) {
  std::string pattern = "(?:";
  for (int i = 0; i < 30'000; ++i) pattern += "()";
  pattern += "x){5000}";
  EXPECT_NE(error_of(pattern, ErrorCode::kInvalidFile).find("too large"), std::string::npos);
}

TEST(Regex, RefusesWhatIsNoPattern) {
  const auto invalid = [](std::string_view pattern, std::string_view why) {
    const std::string message = error_of(pattern, ErrorCode::kInvalidFile);
    EXPECT_NE(message.find(why), std::string::npos) << pattern.substr(0, 50) << ": " << message;
  };
  invalid("(", "unclosed (");
  invalid("(?i", "unclosed (");
  invalid("(?i:a", "unclosed (");
  invalid("a)", "unmatched )");
  invalid("[a", "unclosed [");
  invalid("[]", "unclosed [");
  invalid("[a&&", "an empty class");
  invalid("[a[b", "unclosed [");
  invalid("*a", "nothing to repeat");
  invalid("a|+", "nothing to repeat");
  invalid("({2}a)", "nothing to repeat");
  invalid("a{3,1}", "too large or reversed");
  invalid("a{99999999999}", "too large or reversed");
  invalid("a\\", "a backslash at the end");
  invalid("\xff", "invalid UTF-8");
  invalid(std::string(65'537, 'a'), "it has 65537 bytes, at most 65536");
  std::string deep(100, '(');
  invalid(deep + "a" + std::string(100, ')'), "nested too deeply");
  invalid(std::string(100, '['), "nested too deeply");
  // Small patterns that become large.
  invalid("(?:(?:(?:a|b){99}){99}){99}", "too large");
  invalid("(?:" + std::string(5'000, 'a') + "){1000}", "too large");
  std::string classes;
  for (char32_t c = 0x4E00; c < 0x5300; ++c) {
    classes += '[';
    append_utf8(classes, c);
    classes += "a]";
  }
  invalid(classes, "too many classes");
  std::string repeats;
  for (char32_t c = 0x4E00; c < 0x5800; ++c) {
    append_utf8(repeats, c);
    repeats += '*';
  }
  invalid(repeats, "too large");
  std::string branches;
  for (char c = 'a'; c <= 'z'; ++c) {
    for (const char d : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")) {
      branches += std::string("(?:") + c + "x|" + d + "x|y)";
    }
  }
  invalid(branches, "too large");
}

TEST(Regex, ManyPatternsLoadSoon) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2'000; ++i) {
    ASSERT_TRUE(Regex::compile(R"(\p{Lu}[\p{L}\P{N}]+(?i:x))", "test"));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 20);  // A fifth of a second, but for the sanitizers; once 200.
}

}  // namespace
}  // namespace volta::tokenizers
