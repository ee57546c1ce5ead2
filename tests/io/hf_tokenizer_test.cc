// Whole tokenizers against what Hugging Face tokenizers makes of the same texts, and what a
// tokenizer.json may not be.
#include "io/tokenizers/hf_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "device/helpers.h"
#include "io/tokenizer.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using nlohmann::json;
using test::expect_error;
using Ids = std::vector<std::int32_t>;

json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

std::shared_ptr<const Tokenizer> parse(const json& tokenizer, const std::string& config = "") {
  auto parsed = parse_tokenizer(tokenizer.dump(), "tokenizer.json", config);
  if (parsed) return *parsed;
  ADD_FAILURE() << parsed.error().message();
  return make_byte_tokenizer();
}

std::string streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_TRUE(!find_invalid_utf8(piece)) << piece;
    text += piece;
  }
  return text + decoder.finish();
}

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  static json data() {
    return read_json(test::source_path("tests/io/data/" + GetParam() + "_tokenizer.json"));
  }
};

TEST_P(Golden, IdsAndTextAreThoseOfOthers) {
  const json golden = data();
  const auto tokenizer = parse(golden["tokenizer"]);
  for (int round = 0; round < 2; ++round) {  // The second time from the cache.
    for (const json& item : golden["cases"]) {
      const auto text = item["text"].get<std::string>();
      SCOPED_TRACE(text);
      const auto ids = tokenizer->encode(text);
      ASSERT_TRUE(ids) << ids.error().message();
      EXPECT_EQ(*ids, item["ids"].get<Ids>());
      const auto prompt = tokenizer->encode_prompt(text);
      ASSERT_TRUE(prompt);
      EXPECT_EQ(*prompt, item["prompt_ids"].get<Ids>());
      EXPECT_EQ(tokenizer->decode(*prompt), item["decoded"].get<std::string>());
      EXPECT_EQ(tokenizer->decode_all(*prompt), item["decoded_all"].get<std::string>());
      EXPECT_EQ(streamed(tokenizer, *prompt), item["decoded"].get<std::string>());
    }
  }
}

TEST_P(Golden, IsWrittenAsItWasRead) {
  const json golden = data();
  const auto tokenizer = parse(golden["tokenizer"]);
  EXPECT_EQ(json::parse(tokenizer->to_json()), golden["tokenizer"]);
}

TEST_P(Golden, AnyIdsGiveValidText) {
  const auto tokenizer = parse(data()["tokenizer"]);
  rc::check([&](const std::vector<std::uint8_t>& numbers) {
    Ids ids;
    for (const std::uint8_t number : numbers) ids.push_back(number * 2 - 4);
    RC_ASSERT(!find_invalid_utf8(tokenizer->decode(ids)));
    RC_ASSERT(streamed(tokenizer, ids) == tokenizer->decode(ids));
  });
}

TEST_P(Golden, AnyBytesAreTextWithReplacements) {
  const auto tokenizer = parse(data()["tokenizer"]);
  rc::check([&](const std::vector<std::uint8_t>& bytes) {
    const std::string text(bytes.begin(), bytes.end());
    const auto ids = tokenizer->encode(text);
    RC_ASSERT(ids.has_value());
    for (const std::int32_t id : *ids) RC_ASSERT(id >= 0 && id < tokenizer->vocab_size());
  });
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         ::testing::Values("gpt2", "llama3", "llama2", "mistral", "bert", "unigram",
                                           "suffix", "general"),
                         [](const auto& golden) { return golden.param; });

TEST(HfTokenizer, ModelFoldersGiveTheirGoldens) {
  VOLTA_NEEDS_SHARED("models");
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::shared_path("models"))) {
    const std::string folder = entry.path().string();
    if (!std::filesystem::exists(folder + "/golden_tokens.json")) continue;
    SCOPED_TRACE(folder);
    ++folders;
    const auto tokenizer = load_tokenizer(folder);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    for (const json& item : read_json(folder + "/golden_tokens.json")) {
      const auto text = item["text"].get<std::string>();
      const auto ids = item["ids"].get<Ids>();
      EXPECT_EQ(*(*tokenizer)->encode_prompt(text), ids) << text;
      EXPECT_EQ(*(*tokenizer)->encode(text), item["ids_no_special"].get<Ids>()) << text;
      EXPECT_EQ((*tokenizer)->decode(ids), item["decoded"].get<std::string>());
      EXPECT_EQ((*tokenizer)->decode_all(ids), item["decoded_with_special"].get<std::string>());
    }
  }
  EXPECT_GT(folders, 0);
}

json small(const std::string& model) { return {{"model", json::parse(model)}}; }

TEST(HfTokenizer, ByteLevelTokensAreBytes) {
  json file =
      small(R"({"type":"BPE","vocab":{"\u00c3":0,"\u00a9":1,"a":2,"\u0120":3},"merges":[]})");
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  file["decoder"] = {{"type", "ByteLevel"}};
  file["added_tokens"] = {{{"id", 4}, {"content", "<x>"}, {"special", true}}};
  const auto tokenizer = parse(file);
  EXPECT_EQ(tokenizer->kind(), "bpe");
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_EQ(*tokenizer->encode("\u00e9 a<x>b"), (Ids{0, 1, 3, 2, 4}));
  EXPECT_EQ(tokenizer->token_bytes(0), "\xC3");
  EXPECT_EQ(tokenizer->token_bytes(4), "<x>");
  EXPECT_EQ(tokenizer->token_bytes(5), "");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.push(1), "\u00e9");
  EXPECT_EQ(decoder.push(4), "");
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(tokenizer->decode_all(Ids{2, 4}), "a<x>");
}

TEST(HfTokenizer, WithoutDecoderTokensAreJoinedBySpaces) {
  const auto tokenizer =
      parse(small(R"({"type":"WordLevel","vocab":{"a":0,"b":7},"unk_token":"a"})"));
  EXPECT_EQ(tokenizer->decode(Ids{0, 7, 3, 0}), "a b a");
  EXPECT_EQ(tokenizer->token_bytes(7), "b");
}

TEST(HfTokenizer, TheConfigBesideItNamesTheEndAndMoreTokens) {
  const json file = small(R"({"type":"BPE","vocab":{"a":0,"</s>":1},"merges":[]})");
  EXPECT_EQ(parse(file)->end_token(), std::nullopt);
  EXPECT_EQ(parse(file, R"({"eos_token":"</s>"})")->end_token(), 1);
  const auto more = parse(file, R"({"eos_token":{"content":"<e>"},
      "added_tokens_decoder":{"5":{"content":"<e>","special":true},"1":{"content":"</s>"}}})");
  EXPECT_EQ(more->end_token(), 5);
  EXPECT_EQ(*more->encode("a<e>"), (Ids{0, 5}));
  const auto refuse = [&](const std::string& config, const std::string& message) {
    expect_error(parse_tokenizer(file.dump(), "t.json", config), ErrorCode::kInvalidFile, message);
  };
  refuse("{", "tokenizer_config.json");
  refuse(R"({"eos_token":3})", "eos_token");
  refuse(R"({"added_tokens_decoder":[]})", "expected an object");
  refuse(R"({"added_tokens_decoder":{"x":{"content":"y"}}})", "'x'");
  refuse(R"({"added_tokens_decoder":{"1":{}}})", "content");
}

TEST(HfTokenizer, IsLoadedWithTheConfigBesideIt) {
  const test::TempDir dir;
  std::ofstream(dir.file("tokenizer.json")) << small(R"({"type":"BPE","vocab":{"ab":0}})").dump();
  std::ofstream(dir.file("tokenizer_config.json")) << R"({"eos_token":"ab"})";
  EXPECT_EQ((*load_tokenizer(dir.path()))->end_token(), 0);
  EXPECT_EQ((*load_tokenizer(dir.file("tokenizer.json")))->end_token(), 0);
}

TEST(HfTokenizer, OneTokenizerServesManyThreads) {
  const json golden = read_json(test::source_path("tests/io/data/gpt2_tokenizer.json"));
  const auto tokenizer = parse(golden["tokenizer"]);
  std::string text;
  for (const json& item : golden["cases"]) text += item["text"].get<std::string>();
  const auto expected = *tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) count += *tokenizer->encode(text) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

TEST(HfTokenizer, LongWordsTakeTheHeap) {
  const json golden = read_json(test::source_path("tests/io/data/llama2_tokenizer.json"));
  const auto tokenizer = parse(golden["tokenizer"]);
  std::string text = "the";
  for (int i = 0; i < 200; ++i) text += " quick brown fox";
  const auto ids = tokenizer->encode(text);
  ASSERT_TRUE(ids);
  EXPECT_EQ(tokenizer->decode(*ids), text);
}

void refuse(const json& file, ErrorCode code, const std::string& message) {
  expect_error(parse_tokenizer(file.dump(), "t.json"), code, message);
}

TEST(HfTokenizer, BrokenModelsAreRefused) {
  const auto invalid = ErrorCode::kInvalidFile;
  const auto bad = [](const std::string& model, ErrorCode code, const std::string& message) {
    refuse(small(model), code, message);
  };
  bad(R"({"type":"Other","vocab":{}})", ErrorCode::kUnsupported, "model Other");
  bad(R"({"type":"BPE"})", invalid, "vocab");
  bad(R"({"type":"BPE","vocab":[]})", invalid, "expected an object");
  bad(R"({"type":"BPE","vocab":{"ab":-1}})", invalid, "the id -1");
  bad(R"({"type":"BPE","vocab":{"ab":4194304}})", invalid, "the id 4194304");
  bad(R"({"type":"BPE","vocab":{"ab":"x"}})", invalid, "token 'ab'");
  bad(R"({"type":"BPE","vocab":{"ab":0},"dropout":0.5})", ErrorCode::kUnsupported, "dropout");
  bad(R"({"type":"BPE","vocab":{"ab":0},"merges":{}})", invalid, "expected an array");
  bad(R"({"type":"BPE","vocab":{"ab":0},"merges":["ab"]})", invalid, "merges[0]");
  bad(R"({"type":"BPE","vocab":{"ab":0},"merges":[["a","b"]]})", invalid, "token 'a'");
  bad(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["#version: 0.2","a b"]})", invalid,
      "token 'ab'");
  bad(R"({"type":"Unigram","vocab":{}})", invalid, "expected an array");
  bad(R"({"type":"Unigram","vocab":[["a"]]})", invalid, "a piece and its score");
  bad(R"({"type":"Unigram","vocab":[["a","b"]]})", invalid, "a piece and its score");
  bad(R"({"type":"Unigram","vocab":[["a",0]],"unk_id":1})", invalid, "unk_id 1");
  bad(R"({"type":"WordPiece","vocab":[]})", invalid, "expected an object");
}

TEST(HfTokenizer, ModelsWithoutTypeAreKnownByTheirFields) {
  EXPECT_EQ(parse(small(R"({"vocab":{"ab":0},"merges":[]})"))->kind(), "bpe");
  EXPECT_EQ(parse(small(R"({"vocab":[["a",-1.5]]})"))->kind(), "unigram");
  EXPECT_EQ(parse(small(R"({"vocab":{"ab":0},"continuing_subword_prefix":"##"})"))->kind(),
            "wordpiece");
  EXPECT_EQ(parse(small(R"({"vocab":{"ab":0}})"))->kind(), "wordlevel");
}

TEST(HfTokenizer, WhatTheVocabularyLacksIsAnErrorWithoutAnUnknownToken) {
  const auto lacks = [](const std::string& model) {
    expect_error(parse(small(model))->encode("z"), ErrorCode::kInvalidArgument,
                 "is not in the vocabulary");
  };
  lacks(R"({"type":"Unigram","vocab":[["a",0]]})");
  lacks(R"({"type":"WordPiece","vocab":{"ab":0}})");
  lacks(R"({"type":"WordLevel","vocab":{"ab":0}})");
  EXPECT_EQ(*parse(small(R"({"type":"BPE","vocab":{"ab":0}})"))->encode("z"), Ids{});
}

// \c\\ is one escape to PCRE2, and \K behind it once ended a match inside a character.
TEST(HfTokenizer, PatternsThatOnceReadBeyondTheTextAreRefused) {
  for (const std::string_view name : {"oob", "k1"}) {
    const std::string path = "hostile/" + std::string(name) + ".json";
    VOLTA_NEEDS_SHARED(path);
    refuse(read_json(test::shared_path(path)), ErrorCode::kUnsupported,
           R"('\c' at byte )" + std::string(name == "oob" ? "2" : "0"));
  }
}

TEST(HfTokenizer, PatternsThatTakeForeverGiveUp) {
  const std::string path = "hostile/re.json";
  VOLTA_NEEDS_SHARED(path);
  const auto tokenizer = parse(read_json(test::shared_path(path)));
  std::string text;
  for (int i = 0; i < 2'000; ++i) text += std::string(30, 'a') + "b";
  const auto ids = tokenizer->encode(text);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code(), ErrorCode::kInvalidFile);
  EXPECT_NE(ids.error().message().find("pre_tokenizer"), std::string::npos)
      << ids.error().message();
}

TEST(HfTokenizer, BrokenPartsAreRefused) {
  const auto invalid = ErrorCode::kInvalidFile;
  const auto unsupported = ErrorCode::kUnsupported;
  const auto bad = [](const std::string& key, const std::string& part, ErrorCode code,
                      const std::string& message) {
    json file = small(R"({"type":"BPE","vocab":{"ab":0}})");
    file[key] = json::parse(part);
    refuse(file, code, message);
  };
  std::string deep = R"({"type":"NFC"})";
  std::string deep_split = R"({"type":"Whitespace"})";
  std::string deep_decoder = R"({"type":"Fuse"})";
  std::string deep_processor = R"({"type":"ByteLevel"})";
  for (int i = 0; i < 9; ++i) {
    deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
    deep_split = R"({"type":"Sequence","pretokenizers":[)" + deep_split + "]}";
    deep_decoder = R"({"type":"Sequence","decoders":[)" + deep_decoder + "]}";
    deep_processor = R"({"type":"Sequence","processors":[)" + deep_processor + "]}";
  }
  bad("normalizer", deep, invalid, "nested too deeply");
  bad("pre_tokenizer", deep_split, invalid, "nested too deeply");
  bad("decoder", deep_decoder, invalid, "nested too deeply");
  bad("post_processor", deep_processor, invalid, "nested too deeply");
  bad("normalizer", R"({"type":"Precompiled"})", unsupported, "normalizer Precompiled");
  bad("pre_tokenizer", R"({"type":"UnicodeScripts"})", unsupported, "UnicodeScripts");
  bad("decoder", R"({"type":"CTC"})", unsupported, "decoder CTC");
  bad("post_processor", R"({"type":"Other"})", unsupported, "post-processor Other");
  bad("normalizer", R"({"type":"Replace","pattern":{"Regex":"("},"content":""})", invalid,
      "pattern '('");
  bad("normalizer", R"({"type":"Replace","pattern":{"Regex":"a\\Kb"},"content":""})", unsupported,
      R"('\K' at byte 1 is not supported)");
  bad("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\h"},"behavior":"Isolated"})",
      unsupported, "\\h");
  bad("pre_tokenizer",
      R"({"type":"Split","pattern":{"Regex":"[[:alpha:]]"},"behavior":"Isolated"})", unsupported,
      "'[:' at byte 1");
  bad("pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Other"})", invalid,
      "behavior 'Other'");
  bad("pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})", invalid, "not one character");
  bad("pre_tokenizer", R"({"type":"Metaspace","replacement":"a","prepend_scheme":"x"})", invalid,
      "prepend_scheme 'x'");
  bad("decoder", R"({"type":"Strip","content":"ab"})", invalid, "not one character");
  bad("post_processor", R"({"type":"BertProcessing","cls":["a"],"sep":["b",1]})", invalid,
      "a token and its id");
  bad("post_processor", R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],
      "special_tokens":{}})",
      invalid, "'x' is missing");
  bad("added_tokens", R"([{"content":"x","id":-1}])", invalid, "id");
}

}  // namespace
}  // namespace volta
