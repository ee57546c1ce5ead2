#include "text/tokenizers/bpe_trainer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "device/helpers.h"
#include "text/tokenizer.h"

namespace volta::tokenizers {
namespace {

using nlohmann::json;
using test::expect_error;

json trained(std::string_view text, const BpeTrainingOptions& options) {
  const auto written = train_byte_level_bpe(text, options);
  if (written) return json::parse(*written);
  ADD_FAILURE() << written.error().message();
  return {};
}

TEST(BpeTrainer, MergesTheMostFrequentPairsFirst) {
  const json file = trained("low low low lower lower newest", {.vocab_size = 260});
  // "l o" and "o w" are seen five times each; "l" has the lower id.
  EXPECT_EQ(file["model"]["merges"], json::parse(R"([["l","o"],["lo","w"],["\u0120","low"]])"));
  EXPECT_EQ(file["model"]["vocab"]["<|endoftext|>"], 0);
  EXPECT_EQ(file["model"]["vocab"]["!"], 1);
  EXPECT_EQ(file["model"]["vocab"]["\u0120low"], 259);
}

TEST(BpeTrainer, StopsWhereNoPairIsFrequentEnough) {
  EXPECT_EQ(trained("ab ab", {.vocab_size = 1000})["model"]["merges"].size(), 1U);
  EXPECT_EQ(trained("ab ab", {.vocab_size = 1000, .min_count = 3})["model"]["merges"].size(), 0U);
  EXPECT_EQ(trained("", {.vocab_size = 1000})["model"]["vocab"].size(), 257U);
}

TEST(BpeTrainer, RepeatedSymbolsAreCountedRight) {
  const json file = trained("aaaa aaaa aaaaa", {.vocab_size = 300});
  const json merges = file["model"]["merges"];
  EXPECT_EQ(merges[0], json::parse(R"(["a","a"])"));
  EXPECT_EQ(merges[1], json::parse(R"(["aa","aa"])"));
}

TEST(BpeTrainer, SpecialTokensComeFirst) {
  const json file = trained("x", {.vocab_size = 258, .special_tokens = {"<a>", "<b>"}});
  EXPECT_EQ(file["added_tokens"][1]["content"], "<b>");
  EXPECT_EQ(file["added_tokens"][1]["id"], 1);
  const auto tokenizer = parse_tokenizer(file.dump(), "trained");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->encode("<b>x")->front(), 1);
}

TEST(BpeTrainer, SpecialTokensAreTextsOfTheirOwn) {
  const auto refused = [](std::vector<std::string> tokens, const std::string& message) {
    expect_error(train_byte_level_bpe("x", {.special_tokens = std::move(tokens)}),
                 ErrorCode::kInvalidArgument, message);
  };
  refused({"<a>", "b\xff"}, "byte 1 is not UTF-8");
  refused({"<a>", "<b>", "<a>"}, "'<a>' is given twice");
  refused({"a"}, "'a' is the token of a byte already");
  refused({"\u0120"}, "is the token of a byte already");  // It stands for a space.
  refused({""}, "a special token needs a text");
  EXPECT_TRUE(check_special_tokens(std::vector<std::string>{"ab", " ", "\u4e00"}));
}

TEST(BpeTrainer, TheBytesMustFit) {
  expect_error(train_byte_level_bpe("x", {.vocab_size = 256}), ErrorCode::kInvalidArgument,
               "a vocabulary of 256 tokens; it must have 257");
  expect_error(train_byte_level_bpe("x", {.vocab_size = std::int64_t{1} << 30}),
               ErrorCode::kInvalidArgument, "a vocabulary of 1073741824");
}

RC_GTEST_PROP(BpeTrainer, WhatItLearnsRoundTripsAnyText,
              (const std::vector<std::uint16_t>& points)) {
  std::string text;
  for (const std::uint16_t point : points) append_utf8(text, point);
  const auto written = train_byte_level_bpe(text + text, {.vocab_size = 300});
  RC_ASSERT(written.has_value());
  const auto tokenizer = parse_tokenizer(*written, "trained");
  RC_ASSERT(tokenizer.has_value());
  RC_ASSERT((*tokenizer)->vocab_size() <= 300);
  const auto ids = (*tokenizer)->encode(text);
  RC_ASSERT(ids.has_value());
  RC_ASSERT((*tokenizer)->decode(*ids) == text);
}

// The length that counts is that of the token in the file, where some bytes take two.
TEST(BpeTrainer, NoTokenIsLongerThanReadersAllow) {
  for (const std::string letter : {"a", "\u00e9"}) {
    std::string text;
    for (int line = 0; line < 3; ++line) {
      for (int i = 0; i < 8192; ++i) text += letter;
      text += "\n";
    }
    for (int line = 0; line < 10; ++line) text += "hello world\n";
    const auto written = train_byte_level_bpe(text, {.vocab_size = 300});
    ASSERT_TRUE(written);
    const auto tokenizer = parse_tokenizer(*written, "trained");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    const json vocabulary = json::parse(*written)["model"]["vocab"];
    std::size_t longest = 0;
    for (const auto& [token, id] : vocabulary.items()) {
      longest = std::max(longest, token.size());
    }
    EXPECT_EQ(longest, 4096U);
    // Rarer pairs are still merged.
    EXPECT_TRUE(vocabulary.contains("hello"));
    EXPECT_EQ((*tokenizer)->decode(*(*tokenizer)->encode(text)), text);
  }
}

// A word may be as long as the text.
TEST(BpeTrainer, ALongWordCanBeInterrupted) {
  const std::string word(1'000'000, 'x');
  int most = 0;
  const auto count = [&] {
    ++most;
    return false;
  };
  ASSERT_TRUE(train_byte_level_bpe(word, {.vocab_size = 300, .interrupted = count}));
  EXPECT_GT(most, 500);
  for (int after = 0; after < most; after += 50) {
    int asked = 0;
    const auto stopped = train_byte_level_bpe(
        word, {.vocab_size = 300, .interrupted = [&] { return asked++ == after; }});
    expect_error(stopped, ErrorCode::kInterrupted, "interrupted");
  }
}

}  // namespace
}  // namespace volta::tokenizers
