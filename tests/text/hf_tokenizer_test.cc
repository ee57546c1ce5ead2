// Whole tokenizers against what Hugging Face tokenizers makes of the same texts, and what a
// tokenizer.json may not be.
#include "text/tokenizers/hf_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "device/helpers.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

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
    return read_json(test::source_path("tests/text/data/" + GetParam() + "_tokenizer.json"));
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

// The ids of special tokens, and their texts.
std::map<std::int32_t, std::string> special_tokens(const json& tokenizer) {
  std::map<std::int32_t, std::string> tokens;
  for (const json& token : tokenizer["added_tokens"]) {
    if (token["special"]) tokens[token["id"].get<int>()] = token["content"];
  }
  return tokens;
}

// Prompts of own and quoted words: what is quoted never becomes a special token, own ones do, and
// nothing else changes.
TEST_P(Golden, SpecialTokensAreFoundInOwnWordsOnly) {
  const json file = data()["tokenizer"];
  const auto tokenizer = parse(file);
  const auto special = special_tokens(file);
  std::vector<std::string> pieces = {"Hello", " world", "\n", "<", ">", "|", "\u00e9 caf\u00e9"};
  for (const auto& [id, text] : special) {
    pieces.push_back(text);
    pieces.push_back(text);
    pieces.push_back(text.substr(0, 2));
  }
  const auto unknown = [&](std::int32_t id) {
    return special.at(id).contains("unk") || special.at(id).contains("UNK");
  };
  rc::check([&] {
    QuotedText prompt;
    Ids own;
    for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
      const std::string piece = *rc::gen::elementOf(pieces);
      if (*rc::gen::arbitrary<bool>()) {
        prompt.append_quoted(piece);
        continue;
      }
      prompt.append(piece + " ");
      for (const auto& [id, text] : special) {
        if (text == piece && !unknown(id)) own.push_back(id);
      }
    }
    Ids found;
    const auto ids = tokenizer->encode_quoted(prompt);
    RC_ASSERT(ids.has_value());
    for (const std::int32_t id : *ids) {
      if (special.contains(id) && !unknown(id)) found.push_back(id);
    }
    RC_ASSERT(found == own);
    const QuotedText plain{prompt.text, {}};
    const Ids without_quotations = *tokenizer->encode_quoted(plain);
    const Ids expected = *tokenizer->encode(prompt.text);
    RC_ASSERT(without_quotations == expected);
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

// "own" or "quoted" words by turns.
Ids encode_turns(const std::shared_ptr<const Tokenizer>& tokenizer,
                 const std::vector<std::string>& words) {
  QuotedText prompt;
  for (std::size_t i = 0; i < words.size(); ++i) {
    i % 2 == 0 ? prompt.append(words[i]) : prompt.append_quoted(words[i]);
  }
  const auto ids = tokenizer->encode_quoted(prompt);
  if (ids) return *ids;
  ADD_FAILURE() << ids.error().message();
  return {};
}

json letters() {
  json file = small(R"({"type":"BPE","vocab":{"<":0,"|":1,"a":2,">":3,"b":4," ":5},"merges":[]})");
  file["decoder"] = {{"type", "Fuse"}};
  return file;
}

TEST(HfTokenizer, TokensThatControlAModelAreNotQuoted) {
  json file = letters();
  file["added_tokens"] = {{{"id", 10}, {"content", "<|a|>"}},                   // Looks like it.
                          {{"id", 11}, {"content", "<a>"}, {"special", true}},  // Is one.
                          {{"id", 12}, {"content", "<b>"}},                     // Is a word.
                          {{"id", 13}, {"content", "<a>b"}, {"special", true}}};
  const auto tokenizer = parse(file);
  EXPECT_EQ(encode_turns(tokenizer, {"<|a|>", "<|a|>"}), (Ids{10, 0, 1, 2, 1, 3}));
  EXPECT_EQ(encode_turns(tokenizer, {"<a><b>", "<a><b>", "<a>"}), (Ids{11, 12, 0, 2, 3, 12, 11}));
  // Not even a part of one may be quoted; the longest that is not counts.
  EXPECT_EQ(encode_turns(tokenizer, {"<", "a", ">"}), (Ids{0, 2, 3}));
  EXPECT_EQ(encode_turns(tokenizer, {"<a", ">", "<a>"}), (Ids{0, 2, 3, 11}));
  EXPECT_EQ(encode_turns(tokenizer, {"", "<a", ">"}), (Ids{0, 2, 3}));
  EXPECT_EQ(encode_turns(tokenizer, {"<a>", "b"}), (Ids{11, 4}));
  EXPECT_EQ(encode_turns(tokenizer, {"<a>b", "b"}), (Ids{13, 4}));
  EXPECT_EQ(encode_turns(tokenizer, {"", "<b"}), (Ids{0, 4}));
  expect_error(tokenizer->encode_quoted({"a\xFF", {}}), ErrorCode::kInvalidArgument,
               "byte 1 is not UTF-8");
}

// The model's own vocabulary has such tokens, too.
TEST(HfTokenizer, AModelFindsNoControlTokensInQuotedWords) {
  json file = small(R"({"type":"Unigram","unk_id":0,"vocab":[["?",0.0],["<s>",0.0],["<",-5.0],
      ["s",-5.0],[">",-5.0],["a",-5.0],["s>",-6.0]]})");
  file["added_tokens"] = {{{"id", 1}, {"content", "<s>"}, {"special", true}},
                          {{"id", 0}, {"content", "?"}, {"special", true}}};
  const auto tokenizer = parse(file);
  EXPECT_EQ(*tokenizer->encode("a<s>"), (Ids{5, 1}));
  EXPECT_EQ(encode_turns(tokenizer, {"<s>", "<s>a<s>", "<s>"}), (Ids{1, 2, 6, 5, 2, 6, 1}));
  EXPECT_EQ(encode_turns(tokenizer, {"", "<s><s>\u00e9"}), (Ids{2, 6, 2, 6, 0}));  // Unknown.
  EXPECT_EQ(encode_turns(tokenizer, {"", "a\u00e9"}), (Ids{5, 0}));
}

TEST(HfTokenizer, NormalizedControlTokensAreNotQuoted) {
  json file = letters();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] = {
      {{"id", 10}, {"content", "<A>"}, {"special", true}, {"normalized", true}}};
  const auto tokenizer = parse(file);
  EXPECT_EQ(*tokenizer->encode("b<A>"), (Ids{4, 10}));
  EXPECT_EQ(encode_turns(tokenizer, {"b<A>", "b<A>", "<a>b"}), (Ids{4, 10, 4, 0, 2, 3, 10, 4}));
  // A normalizer that changes what comes before: no token where it cannot be told.
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  file["added_tokens"][0]["content"] = "<a>";
  EXPECT_EQ(encode_turns(parse(file), {"b<a> ", " "}), (Ids{4, 10}));
  EXPECT_EQ(encode_turns(parse(file), {" ", "<a>"}), (Ids{0, 2, 3}));
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
  const json golden = read_json(test::source_path("tests/text/data/gpt2_tokenizer.json"));
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
  const json golden = read_json(test::source_path("tests/text/data/llama2_tokenizer.json"));
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

TEST(HfTokenizer, TwoTokensWithOneIdAreRefused) {
  const auto invalid = ErrorCode::kInvalidFile;
  for (const char* type : {"BPE", "WordPiece", "WordLevel"}) {
    json file = small(R"({"vocab":{"a":0,"b":1,"c":1}})");
    file["model"]["type"] = type;
    refuse(file, invalid,
           "t.json: model.vocab: the tokens 'b' and 'c' both have the id 1; every token needs an "
           "id of its own");
  }
  json file = small(R"({"type":"BPE","vocab":{"a":0,"<s>":1},"merges":[]})");
  file["added_tokens"] = {{{"id", 1}, {"content", "<s>"}}, {{"id", 2}, {"content", "<x>"}}};
  EXPECT_EQ(parse(file)->vocab_size(), 3);  // The vocabulary may have an added token, too.
  file["added_tokens"].push_back({{"id", 2}, {"content", "<x>"}});
  EXPECT_EQ(parse(file)->vocab_size(), 3);
  file["added_tokens"][2]["content"] = "<y>";
  refuse(file, invalid,
         "t.json: added token '<y>' has the id 2, which is the id of the token '<x>'; every token "
         "needs an id of its own");
  file["added_tokens"][2] = {{"id", 0}, {"content", "<y>"}};
  refuse(file, invalid, "added token '<y>' has the id 0, which is the id of the token 'a'");
  file["added_tokens"][2] = {{"id", 0}, {"content", "<s>"}};  // Its id in the vocabulary wins.
  EXPECT_EQ(*parse(file)->encode("<s>"), Ids{1});
  file["added_tokens"].erase(2);
}

TEST(HfTokenizer, TheConfigRenamesReservedTokens) {
  json file = small(R"({"type":"BPE","vocab":{"a":0,"<r1>":1},"merges":[]})");
  file["added_tokens"] = {{{"id", 2}, {"content", "<r2>"}, {"special", true}}};
  const auto tokenizer = parse_tokenizer(
      file.dump(), "t.json",
      R"({"added_tokens_decoder":{"1":{"content":"<im_start>"},"2":{"content":"<im_end>"}}})");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(*(*tokenizer)->encode("<im_start>a<im_end>"), (Ids{1, 0, 2}));
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

// These patterns hide a \K, which moves the start of a match, behind an escape that an earlier
// check misread. A match then ended inside a character, and a table was read beyond its end.
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
