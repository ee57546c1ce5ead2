#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "device/helpers.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;

TEST(ByteTokenizer, IsTheBytes) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->kind(), "byte");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  const auto ids = tokenizer->encode(std::string_view("a\0\xFF", 3));
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, (std::vector<std::int32_t>{97, 0, 255}));
  EXPECT_EQ(tokenizer->decode(*ids), std::string("a\0\xFF", 3));
  EXPECT_EQ(tokenizer->token_bytes(65), "A");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(256), "");
}

TEST(CharTokenizer, IsTheCharactersInOrder) {
  const auto tokenizer = make_char_tokenizer("b\u00e9a\u20ac\U0001F600ab");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->kind(), "char");
  EXPECT_EQ((*tokenizer)->vocab_size(), 5);
  EXPECT_EQ(*(*tokenizer)->encode("ab\u00e9\u20ac\U0001F600"),
            (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ((*tokenizer)->token_bytes(3), "\u20ac");
  EXPECT_EQ((*tokenizer)->token_bytes(5), "");
  EXPECT_EQ((*tokenizer)->token_bytes(-1), "");
  expect_error((*tokenizer)->encode("abx"), ErrorCode::kInvalidArgument,
               "character 'x' (U+0078) at byte 2 is not in the vocabulary of 5");
  expect_error((*tokenizer)->encode("a\xC3"), ErrorCode::kInvalidArgument, "byte 1");
}

TEST(CharTokenizer, NeedsUtf8Text) {
  expect_error(make_char_tokenizer(""), ErrorCode::kInvalidArgument, "empty");
  expect_error(make_char_tokenizer("ab\x80"), ErrorCode::kInvalidArgument,
               "byte 2 of the text is not UTF-8");
}

TEST(Tokenizer, IsMadeByKind) {
  EXPECT_EQ((*make_tokenizer("byte", ""))->kind(), "byte");
  EXPECT_EQ((*make_tokenizer("char", "x"))->kind(), "char");
  expect_error(make_tokenizer("bpe", "x"), ErrorCode::kInvalidArgument,
               "unknown tokenizer 'bpe'; use byte or char");
}

RC_GTEST_PROP(Tokenizer, RoundTripsAnyBytes, (const std::vector<std::uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  const auto tokenizer = make_byte_tokenizer();
  RC_ASSERT(tokenizer->decode(*tokenizer->encode(text)) == text);
}

RC_GTEST_PROP(Tokenizer, RoundTripsAnyCharactersThroughItsJson, ()) {
  const auto points = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 0x110000)));
  std::string text;
  for (const std::uint32_t point : points) append_utf8(text, static_cast<char32_t>(point));
  const auto tokenizer = make_char_tokenizer(text);
  RC_ASSERT(tokenizer.has_value());
  const auto back = parse_tokenizer((*tokenizer)->to_json(), "json");
  RC_ASSERT(back.has_value());
  RC_ASSERT((*back)->kind() == "char");
  RC_ASSERT(*(*back)->encode(text) == *(*tokenizer)->encode(text));
  RC_ASSERT((*back)->decode(*(*back)->encode(text)) == text);
  RC_ASSERT((*back)->to_json() == (*tokenizer)->to_json());
}

TEST(TokenizerJson, TheByteVocabularyIsReadBack) {
  const auto tokenizer = parse_tokenizer(make_byte_tokenizer()->to_json(), "json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ((*tokenizer)->kind(), "byte");
}

std::string model_json(const std::string& vocab, const std::string& rest = "",
                       const std::string& type = "BPE") {
  return R"({"model":{"type":")" + type + R"(","vocab":)" + vocab + "}" + rest + "}";
}

TEST(TokenizerJson, WhatIsNoTokenizerIsRefused) {
  const auto refuse = [](const std::string& json, const std::string& text) {
    expect_error(parse_tokenizer(json, "t.json"), ErrorCode::kInvalidFile, text);
  };
  refuse("", "t.json");
  refuse("[]", "t.json");
  refuse("{}", "model");
  refuse(R"({"model":{}})", "vocab");
  refuse(R"({"model":{"type":3}})", "type");
}

TEST(TokenizerJson, OnlyWhatVoltaWroteIsACharacterVocabulary) {
  const auto kind = [](const std::string& json) {
    const auto tokenizer = parse_tokenizer(json, "t.json");
    return tokenizer ? std::string((*tokenizer)->kind()) : tokenizer.error().message();
  };
  const std::string fuse = R"(,"decoder":{"type":"Fuse"})";
  EXPECT_EQ(kind(model_json(R"({"a":1,"b":0})", fuse)), "char");
  EXPECT_EQ(kind(model_json(R"({"a":1,"b":0})")), "bpe");
  EXPECT_EQ(kind(model_json(R"({"a":1})", fuse)), "bpe");
  EXPECT_EQ(kind(model_json(R"({"a":0,"b":0})", fuse)),
            "t.json: model.vocab: the tokens 'a' and 'b' both have the id 0; every token needs an "
            "id of its own");
  EXPECT_EQ(kind(model_json(R"({"ab":0})", fuse)), "bpe");
  EXPECT_EQ(kind(model_json("{}", fuse)), "bpe");
  EXPECT_EQ(kind(model_json(R"({"a":0})", fuse + R"(,"pre_tokenizer":{"type":"ByteLevel"})")),
            "bpe");
  EXPECT_EQ(kind(model_json(R"({"a":0})", fuse + R"(,"normalizer":{"type":"NFC"})")), "bpe");
}

TEST(TokenizerJson, IsLoadedFromAFolder) {
  const test::TempDir dir;
  expect_error(load_tokenizer(dir.path()), ErrorCode::kNotFound, "tokenizer.json");
  std::ofstream(dir.file("tokenizer.json")) << make_byte_tokenizer()->to_json();
  const auto tokenizer = load_tokenizer(dir.path());
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->vocab_size(), 256);
}

std::string stream(const std::string& bytes, std::vector<std::string>* pieces = nullptr) {
  StreamDecoder decoder(make_byte_tokenizer());
  std::string out;
  for (const char byte : bytes) {
    const std::string piece = decoder.push(static_cast<unsigned char>(byte));
    if (pieces != nullptr) pieces->push_back(piece);
    out += piece;
  }
  return out + decoder.finish();
}

TEST(StreamDecoder, HoldsUnfinishedCharactersBack) {
  std::vector<std::string> pieces;
  EXPECT_EQ(stream("a\u20ac!", &pieces), "a\u20ac!");
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "", "\u20ac", "!"}));
}

TEST(StreamDecoder, WhatCannotBecomeUtf8IsReplaced) {
  EXPECT_EQ(stream("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(stream("\x80"), "\uFFFD");
  EXPECT_EQ(stream("\xC3"), "\uFFFD");
  EXPECT_EQ(stream("\xC3z"), "\uFFFDz");
  EXPECT_EQ(stream("\xF0\x9Fz"), "\uFFFDz");
  EXPECT_EQ(stream("\xE2\x82"), "\uFFFD");
}

RC_GTEST_PROP(StreamDecoder, ValidTextComesThroughWhole, ()) {
  const auto points =
      *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 0x110000));
  std::string text;
  for (const std::uint32_t point : points) append_utf8(text, static_cast<char32_t>(point));
  RC_ASSERT(stream(text) == text);
}

RC_GTEST_PROP(StreamDecoder, AnyBytesGiveValidText, (const std::vector<std::uint8_t>& bytes)) {
  RC_ASSERT(!find_invalid_utf8(stream(std::string(bytes.begin(), bytes.end()))));
}

}  // namespace
}  // namespace volta
