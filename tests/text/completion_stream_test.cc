// Completions: text after a prompt in whole characters, up to a stop string that any number of
// tokens may spell.
#include "text/completion_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/text.h"
#include "device/helpers.h"
#include "support/alloc_counter.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"

namespace volta {
namespace {

using test::expect_error;
using Ints = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

std::shared_ptr<const Tokenizer> tokenizer(const std::string& family) {
  std::ifstream file(test::source_path("tests/text/data/" + family + "_tokenizer.json"));
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
    out.emplace_back(stream.push(id));
  }
  out.emplace_back(stream.finish());
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

// The tokenizers of the goldens and of the shared models, by name.
std::vector<std::pair<std::string, std::shared_ptr<const Tokenizer>>> all_tokenizers() {
  std::vector<std::pair<std::string, std::shared_ptr<const Tokenizer>>> list;
  for (const std::string family :
       {"bert", "general", "gpt2", "llama2", "llama3", "mistral", "suffix", "unigram"}) {
    list.emplace_back(family, tokenizer(family));
  }
  for (const std::string model :
       {"gpt2-tiny", "llama-tiny", "llama3-tiny-bf16-sharded", "qwen2-tiny", "qwen3-tiny"}) {
    const std::string path = "models/" + model + "/tokenizer.json";
    if (test::has_shared(path)) {
      list.emplace_back(model, load_tokenizer(test::shared_path(path)).value());
    }
  }
  list.emplace_back("char", make_char_tokenizer("some characters: \u00e9\u4f60\n").value());
  return list;
}

// Ids as models draw them: of the whole vocabulary, of its beginning (special tokens and bytes),
// and the same once more.
Ints random_ids(RandomSequence& random, std::int64_t vocabulary, std::size_t count) {
  Ints ids;
  for (std::size_t i = 0; i < count; ++i) {
    const Random4 r = random.next();
    const bool low = r.x % 2 == 0;
    const std::int64_t range = low ? std::min<std::int64_t>(vocabulary, 262) : vocabulary;
    ids.push_back(r.x % 16 == 1 && !ids.empty() ? ids.back()
                                                : static_cast<std::int32_t>(r.y % range));
  }
  return ids;
}

TEST(CompletionStream, AnAnswerIsTheDecodingOfItsTokensWhateverThePrompt) {
  for (const auto& [name, one] : all_tokenizers()) {
    SCOPED_TRACE(name);
    RandomSequence random({.seed = 7});
    for (int round = 0; round < 40; ++round) {
      const Ints ids = random_ids(random, one->vocab_size(), 24);
      for (std::size_t split = 0; split <= ids.size(); ++split) {
        const Ints prompt(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(split));
        const Ints tokens(ids.begin() + static_cast<std::ptrdiff_t>(split), ids.end());
        const Strings given = pieces(one, prompt, tokens, {});
        for (const std::string& piece : given) ASSERT_FALSE(find_invalid_utf8(piece));
        ASSERT_EQ(joined(given), one->decode(tokens)) << "behind " << split << " tokens";
      }
    }
  }
}

TEST(CompletionStream, AContinuationIsTheAnswerAndTheSpaceBeforeIt) {
  for (const auto& [name, one] : all_tokenizers()) {
    SCOPED_TRACE(name);
    RandomSequence random({.seed = 8});
    for (int round = 0; round < 40; ++round) {
      const Ints ids = random_ids(random, one->vocab_size(), 12);
      for (std::size_t split = 0; split <= ids.size(); ++split) {
        const Ints prompt(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(split));
        const Ints tokens(ids.begin() + static_cast<std::ptrdiff_t>(split), ids.end());
        CompletionStream stream(one, prompt, {}, CompletionText::kContinuation);
        std::string text;
        for (const std::int32_t id : tokens) text += stream.push(id);
        text += stream.finish();
        const std::string before = one->decode(prompt);
        if (before.find("\uFFFD") != std::string::npos) continue;  // Within a character: below.
        ASSERT_EQ(stream.prompt_text(), before);
        const std::string answer = one->decode(tokens);
        if (!answer.starts_with("##")) {  // BERT's mark that a token goes on with a word.
          ASSERT_TRUE(text.ends_with(answer)) << text << " / " << answer;
          const std::string gap = text.substr(0, text.size() - answer.size());
          ASSERT_EQ(gap.find_first_not_of(' '), std::string::npos) << gap;
        }
        const std::string whole = one->decode(ids);
        if (whole.find("\uFFFD") == std::string::npos) {
          ASSERT_EQ(before + text, whole);
        }
      }
    }
  }
}

// The prompts of Llama 2's chats end in tokens of single bytes.
TEST(CompletionStream, BytesAtThePromptsEndAreNoneOfTheAnswers) {
  const auto llama = tokenizer("llama2");
  Ints prompt = llama->encode("Hello").value();
  const Ints lines = llama->encode("x\n\n").value();
  prompt.insert(prompt.end(), lines.end() - 2, lines.end());
  const Ints tokens = llama->encode("the end").value();
  for (const CompletionText text : {CompletionText::kAnswer, CompletionText::kContinuation}) {
    CompletionStream stream(llama, prompt, Strings{"\n"}, text);
    EXPECT_EQ(stream.prompt_text(), "Hello\n\n");
    std::string given;
    for (const std::int32_t id : tokens) given += stream.push(id);
    EXPECT_FALSE(stream.stopped());
    given += stream.finish();
    EXPECT_EQ(given, text == CompletionText::kAnswer ? "the end" : " the end");
  }
}

TEST(CompletionStream, AStopMayBeginWithTheSpaceBeforeAContinuation) {
  const auto llama = tokenizer("llama2");
  const Ints prompt = llama->encode("Hello").value();
  const Ints tokens = llama->encode("the end").value();
  CompletionStream stream(llama, prompt, Strings{" the"}, CompletionText::kContinuation);
  std::string given;
  for (const std::int32_t id : tokens) given += stream.push(id);
  EXPECT_TRUE(stream.stopped());
  given += stream.finish();
  EXPECT_EQ(given, "");
}

TEST(CompletionStream, APromptMayEndWithinACharacter) {
  const auto bytes = make_byte_tokenizer();
  const Ints prompt = {'n', 'o', 0xC3};
  CompletionStream stream(bytes, prompt, Strings{"no", "\u00e9!"}, CompletionText::kContinuation);
  EXPECT_EQ(stream.prompt_text(), "no");  // Not searched for stops; its last byte waits.
  EXPECT_EQ(stream.push(0xA9), "");       // May become a stop.
  EXPECT_EQ(stream.push('?'), "\u00e9?");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_FALSE(stream.stopped());
  CompletionStream broken(bytes, Ints{'a'}, {}, CompletionText::kContinuation);
  EXPECT_EQ(broken.push(0xFF), "\uFFFD");
  EXPECT_EQ(broken.finish(), "");
  // An answer is the decoding of its own bytes.
  CompletionStream answer(bytes, prompt, {});
  EXPECT_EQ(answer.prompt_text(), "no\uFFFD");
  EXPECT_EQ(answer.push(0xA9), "\uFFFD");
  EXPECT_EQ(answer.push('?'), "?");
  EXPECT_EQ(answer.finish(), "");
}

TEST(CompletionStream, ACharacterBegunInByteTokensBelongsToTheContinuation) {
  const auto llama = tokenizer("llama2");
  const Ints ids = llama->encode("Hello\n\u65e5").value();  // The last four are bytes.
  const std::span<const std::int32_t> all = ids;
  const Ints prompt(ids.begin(), ids.end() - 1);
  CompletionStream stream(llama, prompt, {}, CompletionText::kContinuation);
  EXPECT_EQ(stream.prompt_text(), "Hello");
  std::string text(stream.push(all.back()));
  text += stream.finish();
  EXPECT_EQ(text, "\n\u65e5");
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

// A token's text goes into one growing text: it is neither copied nor allocated on its way.
TEST(CompletionStream, ATokenAllocatesNothingOnItsWay) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "this build's malloc cannot be counted";
  constexpr int kWords = 2000;
  std::string text;
  for (int i = 0; i < kWords / 10; ++i)
    text += "The quick brown fox jumps over the lazy dog, again! ";
  auto tokenizers = all_tokenizers();
  // In place of the char tokenizer, which lacks most of these letters.
  tokenizers.back() = {"byte", make_byte_tokenizer()};
  for (const auto& [name, one] : tokenizers) {
    SCOPED_TRACE(name);
    const auto ids = one->encode(text);
    ASSERT_TRUE(ids);
    CompletionStream stream(one, Ints{ids->front()}, Strings{"never", "again? "},
                            CompletionText::kContinuation);
    std::size_t bytes = 0;
    const test::AllocationCounter counter;
    for (const std::int32_t id : *ids) bytes += stream.push(id).size();
    const std::int64_t allocations = counter.count();
    EXPECT_GT(bytes, kWords);
    // The text doubles its memory now and then, and the first text of a continuation is compared
    // with the prompt's. A Replace step lists the places that it replaces: the spaces.
    const bool replaces = one->to_json().find("\"Replace\"") != std::string::npos;
    EXPECT_LT(allocations, 64 + (replaces ? kWords : 0)) << "for " << ids->size() << " tokens";
  }
}

}  // namespace
}  // namespace volta
