// Completions: text after a prompt in whole characters, up to a stop string that any number of
// tokens may spell.
#include "io/completion_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "device/helpers.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::expect_error;
using Ints = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

std::shared_ptr<const Tokenizer> tokenizer(const std::string& family) {
  std::ifstream file(test::source_path("tests/io/data/" + family + "_tokenizer.json"));
  const std::string json = nlohmann::json::parse(file)["tokenizer"].dump();
  return parse_tokenizer(json, family).value();
}

// What each token adds, and the end, when `text` is generated after `prompt`.
Strings pieces(const std::shared_ptr<const Tokenizer>& tokenizer, const Ints& prompt,
               const Ints& tokens, const Strings& stops) {
  CompletionStream stream(tokenizer, prompt, stops);
  Strings out;
  for (const std::int32_t id : tokens) {
    if (stream.stopped()) break;
    out.push_back(stream.push(id));
  }
  out.push_back(stream.finish());
  return out;
}

std::string joined(const Strings& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += piece;
  return out;
}

TEST(CompletionStream, NeverGivesHalfACharacterOrHalfAStop) {
  const std::string text = "Hello caf\u00e9 \u4f60\u597d \U0001F600\U0001F601 <|stop> and more";
  for (const std::string family : {"gpt2", "llama2", "llama3", "mistral", "unigram"}) {
    const auto one = tokenizer(family);
    const Ints prompt = one->encode("Say").value();
    const Ints ids = one->encode(text).value();
    const std::string whole = joined(pieces(one, prompt, ids, {}));
    for (const std::string stop :
         {"\u597d", "<|stop>", "\U0001F601 <", "f\u00e9 \u4f60", "nowhere"}) {
      SCOPED_TRACE(family + " " + stop);
      const Strings given = pieces(one, prompt, ids, {stop, "never this"});
      for (const std::string& piece : given) EXPECT_FALSE(find_invalid_utf8(piece)) << piece;
      EXPECT_EQ(joined(given), whole.substr(0, whole.find(stop)));
    }
  }
}

TEST(CompletionStream, TellsThePromptAndFinishesBytesThatAreNoCharacter) {
  const auto bytes = make_byte_tokenizer();
  CompletionStream stream(bytes, Ints{'n', 'o', 0xC3}, Strings{"no", "\u00e9!"});
  EXPECT_EQ(stream.prompt_text(), "no");  // Not searched for stops; its last byte waits.
  EXPECT_EQ(stream.push(0xA9), "");       // May become a stop.
  EXPECT_EQ(stream.push('?'), "\u00e9?");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_FALSE(stream.stopped());
}

TEST(Stops, AreStringsButForSpecialTokensAndIds) {
  const auto llama3 = tokenizer("llama3");
  const auto special = llama3->encode("<|begin_of_text|>").value();
  ASSERT_EQ(special.size(), 1u);
  const Strings texts = {"<|begin_of_text|>", ".", "a stop of many tokens"};
  const Stops stops = parse_stops(texts, llama3.get(), "--stop").value();
  EXPECT_EQ(stops.tokens, special);
  EXPECT_EQ(stops.strings, (Strings{".", "a stop of many tokens"}));
  const Stops ids = parse_stops(Strings{"5", "0"}, nullptr, "--stop").value();
  EXPECT_EQ(ids.tokens, (Ints{5, 0}));
  EXPECT_TRUE(ids.strings.empty());
  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(parse_stops(Strings{"x"}, nullptr, "--stop"), invalid, "--stop: 'x'");
  expect_error(parse_stops(Strings{""}, llama3.get(), "--stop"), invalid, "--stop: an empty");
  expect_error(parse_stops(Strings{"\xFF"}, llama3.get(), "--stop"), invalid, "--stop: not UTF-8");
  // A character that the vocabulary lacks cannot come, which is no error.
  const auto chars = make_char_tokenizer("abc").value();
  EXPECT_EQ(parse_stops(Strings{"X"}, chars.get(), "--stop").value().strings, Strings{"X"});
}

}  // namespace
}  // namespace volta
