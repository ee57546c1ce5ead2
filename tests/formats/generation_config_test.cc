// generation_config.json: what it says, what it may not say, and what becomes of it.
#include "formats/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "device/helpers.h"
#include "formats/gguf/convert_paths.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using testing::ElementsAre;

GenerationConfig parse(const std::string& json) {
  const auto config = parse_generation_config(json, "generation_config.json");
  EXPECT_TRUE(config) << config.error().message();
  return config.value_or(GenerationConfig());
}

TEST(GenerationConfig, SaysWhatTheFileSays) {
  EXPECT_EQ(parse("{}"), GenerationConfig());
  EXPECT_EQ(parse(R"({"eos_token_id": null, "temperature": null, "unknown": [1]})"),
            GenerationConfig());
  const GenerationConfig all = parse(R"({"eos_token_id": [5, 6], "bos_token_id": 1,
      "do_sample": true, "temperature": 0.6, "top_k": 50, "top_p": 0.9, "min_p": 0.05,
      "repetition_penalty": 1.05, "max_new_tokens": 64, "max_length": 4096})");
  EXPECT_THAT(all.end_tokens, ElementsAre(5, 6));
  EXPECT_EQ(all.begin_token, 1);
  const SamplingParams params = all.sampling({.frequency_penalty = 0.5f, .seed = 9});
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 50);
  EXPECT_EQ(params.top_p, 0.9f);
  EXPECT_EQ(params.min_p, 0.05f);
  EXPECT_EQ(params.repetition_penalty, 1.05f);
  EXPECT_EQ(params.frequency_penalty, 0.5f);  // Not the file's business.
  EXPECT_EQ(params.seed, 9u);
  EXPECT_EQ(all.new_tokens(4000, 256), 64);
  EXPECT_THAT(parse(R"({"eos_token_id": 7})").end_tokens, ElementsAre(7));
}

TEST(GenerationConfig, FallsBackWhereItIsSilent) {
  const SamplingParams fallback{.temperature = 0.8f, .top_k = 3};
  EXPECT_EQ(parse("{}").sampling(fallback).temperature, 0.8f);
  EXPECT_EQ(parse("{}").sampling(fallback).top_k, 3);
  EXPECT_EQ(parse(R"({"do_sample": true})").sampling(fallback).temperature, 1.0f);
  EXPECT_EQ(parse(R"({"do_sample": false})").sampling(fallback).temperature, 0.0f);
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.5})").sampling({}).temperature, 0.0f);
  EXPECT_EQ(parse(R"({"temperature": 0.5})").sampling(fallback).temperature, 0.5f);
  EXPECT_EQ(parse("{}").new_tokens(10, 256), 256);
  EXPECT_EQ(parse(R"({"max_length": 100})").new_tokens(10, 256), 90);
  EXPECT_EQ(parse(R"({"max_length": 100})").new_tokens(500, 256), 1);
}

TEST(GenerationConfig, HostileFilesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "generation_config.json"},
      {"[]", "expected an object"},
      {R"({"eos_token_id": -1})", "eos_token_id"},
      {R"({"eos_token_id": 2147483648})", "eos_token_id"},
      {R"({"eos_token_id": "</s>"})", "eos_token_id: expected an integer, found a string"},
      {R"({"eos_token_id": [1, null]})", "eos_token_id[1]"},
      {R"({"bos_token_id": 1.5})", "bos_token_id"},
      {R"({"do_sample": 1})", "do_sample: expected a boolean"},
      {R"({"temperature": -1})", "temperature is -1"},
      {R"({"temperature": 1e300})", "temperature"},
      {R"({"top_k": -5})", "top_k"},
      {R"({"top_k": 100000000})", "top_k is 100000000"},
      {R"({"top_p": 0})", "top_p is 0; it must be in (0, 1]"},
      {R"({"min_p": 2})", "min_p is 2"},
      {R"({"repetition_penalty": 0})", "repetition_penalty is 0"},
      {R"({"max_new_tokens": -1})", "max_new_tokens"},
      {R"({"max_length": 1e40})", "max_length"},
      {R"({"top_k": 1, "top_k": 2})", "top_k"}};
  for (const auto& [json, text] : cases) {
    SCOPED_TRACE(json);
    expect_error(parse_generation_config(json, "generation_config.json"), ErrorCode::kInvalidFile,
                 text);
  }
  std::string many = "0";
  for (int i = 0; i < 4096; ++i) many += ",0";
  expect_error(parse_generation_config("{\"eos_token_id\": [" + many + "]}", "g"),
               ErrorCode::kInvalidFile, "4097 ids; at most 4096 make sense");
}

TEST(GenerationConfig, FoldersAddTheEndTokensOfTheModel) {
  const test::TempDir dir;
  const auto write = [&](const std::string& name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(join_path(dir.path(), name), text));
  };
  EXPECT_EQ(test::load_generation_config(dir.path(), 8).value(), GenerationConfig());
  write("config.json", R"({"eos_token_id": 2, "temperature": 5})");
  EXPECT_THAT(test::load_generation_config(dir.path(), 8).value().end_tokens, ElementsAre(2));
  EXPECT_FALSE(test::load_generation_config(dir.path(), 8).value().temperature);
  write("generation_config.json", R"({"eos_token_id": [3, 2], "top_k": 7})");
  const GenerationConfig both = test::load_generation_config(dir.path(), 8).value();
  EXPECT_THAT(both.end_tokens, ElementsAre(3, 2));
  EXPECT_EQ(both.top_k, 7);
  write("config.json", R"({"eos_token_id": {}})");
  expect_error(test::load_generation_config(dir.path(), 8), ErrorCode::kInvalidFile,
               "config.json: eos_token_id");
  write("generation_config.json", "{");
  expect_error(test::load_generation_config(dir.path(), 8), ErrorCode::kInvalidFile,
               "generation_config.json");
}

TEST(GenerationConfig, EndTokensAreOfTheVocabulary) {
  const test::TempDir dir;
  const auto write = [&](const std::string& name, std::string_view text) {
    ASSERT_TRUE(write_file_atomic(join_path(dir.path(), name), text));
  };
  write("config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_THAT(test::load_generation_config(dir.path(), 9).value().end_tokens, ElementsAre(7, 8));
  expect_error(test::load_generation_config(dir.path(), 8), ErrorCode::kInvalidFile,
               "/config.json: eos_token_id is 8; the vocabulary has ids 0 to 7");
  write("generation_config.json", R"({"eos_token_id": 99999})");
  expect_error(test::load_generation_config(dir.path(), 9), ErrorCode::kInvalidFile,
               "generation_config.json: eos_token_id is 99999; the vocabulary has ids 0 to 8");
}

TEST(GenerationConfig, AGgufFileGivesWhatConvertingItWrites) {
  const std::string gguf = test::source_path("tests/formats/data/gguf_llama.gguf");
  const test::TempDir dir;
  const std::string folder = dir.file("folder");
  ASSERT_TRUE(test::gguf_to_folder(gguf, folder, DType::kF32, false,
                                   [](std::size_t, std::size_t) { return true; }));
  const GenerationConfig direct = test::load_generation_config(gguf, 512).value();
  EXPECT_EQ(direct, test::load_generation_config(folder, 512).value());
  EXPECT_THAT(direct.end_tokens, ::testing::Contains(2));
  expect_error(test::load_generation_config(gguf, 2), ErrorCode::kInvalidFile,
               "gguf_llama.gguf: eos_token_id is");
  expect_error(test::load_generation_config(dir.file("none.gguf"), 2), ErrorCode::kNotFound,
               "none.gguf");
}

TEST(GenerationConfig, OfOthersIsRead) {
  VOLTA_NEEDS_SHARED("models/llama-tiny");
  const auto llama =
      test::load_generation_config(test::shared_path("models/llama-tiny"), 512).value();
  EXPECT_THAT(llama.end_tokens, ElementsAre(2));
  EXPECT_EQ(llama.begin_token, 1);
  const auto qwen =
      test::load_generation_config(test::shared_path("models/qwen2-tiny"), 512).value();
  EXPECT_TRUE(qwen.end_tokens.empty());
}

}  // namespace
}  // namespace volta
