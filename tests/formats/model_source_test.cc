#include "formats/model_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "device/helpers.h"
#include "formats/gguf/convert_paths.h"
#include "formats/gguf/gguf_file.h"
#include "formats/model_config.h"
#include "support/assert_ok.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace volta {
namespace {

using test::expect_error;

std::string gguf_model() { return test::source_path("tests/formats/data/gguf_llama.gguf"); }

class ModelSourceTest : public testing::Test {
 protected:
  void write(std::string_view name, std::string_view text) const {
    ASSERT_TRUE(write_file_atomic(join_path(dir_.path(), name), text));
  }
  test::TempDir dir_;
};

TEST_F(ModelSourceTest, AGgufFileAnswersAsTheFolderThatItConvertsTo) {
  const std::string folder = dir_.file("folder");
  ASSERT_TRUE(test::gguf_to_folder(gguf_model(), folder, DType::kF32, false,
                                   [](std::size_t, std::size_t) { return true; }));
  VOLTA_ASSERT_OK(const ModelSource file, ModelSource::open(gguf_model()));
  VOLTA_ASSERT_OK(const ModelSource converted, ModelSource::open(folder));
  EXPECT_NE(file.gguf(), nullptr);
  EXPECT_EQ(converted.gguf(), nullptr);
  VOLTA_ASSERT_OK(const TransformerConfig config, file.config());
  EXPECT_EQ(config, *converted.config());
  EXPECT_EQ(*file.generation_config(config.vocab_size),
            *converted.generation_config(config.vocab_size));
  VOLTA_ASSERT_OK(const auto tokenizer, file.tokenizer());
  VOLTA_ASSERT_OK(const auto other, converted.tokenizer());
  EXPECT_EQ(*tokenizer->encode_prompt("Hello world"), *other->encode_prompt("Hello world"));
  VOLTA_ASSERT_OK(const ChatTemplate chat, file.chat_template());
  VOLTA_ASSERT_OK(const ChatTemplate same, converted.chat_template());
  const ChatMessage message = {.role = "user", .content = "Hello"};
  EXPECT_EQ(*chat.render({&message, 1}), *same.render({&message, 1}));
  VOLTA_ASSERT_OK(const Transformer model, file.load(test::cpu(1)));
  VOLTA_ASSERT_OK(const Transformer loaded, converted.load(test::cpu(1)));
  EXPECT_EQ(model.weights().size(), loaded.weights().size());
}

// Each answer comes from the file that was opened, or is an error.
TEST_F(ModelSourceTest, AGgufFileThatChangesIsRefused) {
  const std::string path = dir_.file("model.gguf");
  std::filesystem::copy_file(gguf_model(), path);
  VOLTA_ASSERT_OK(const ModelSource source, ModelSource::open(path));
  ASSERT_TRUE(source.config());
  VOLTA_ASSERT_OK(const auto weights, source.weights(*source.config()));
  VOLTA_ASSERT_OK(const std::string text, read_text_file(path));
  write("model.gguf", text + "more");
  expect_error(source.config(), ErrorCode::kInvalidFile, "model.gguf");
  expect_error(source.tokenizer(), ErrorCode::kInvalidFile, "model.gguf");
  expect_error(source.chat_template(), ErrorCode::kInvalidFile, "model.gguf");
  expect_error(source.generation_config(512), ErrorCode::kInvalidFile, "model.gguf");
  expect_error(source.load(test::cpu(1)), ErrorCode::kInvalidFile, "model.gguf");
  expect_error(weights->check_unchanged(), ErrorCode::kInvalidFile, "model.gguf");
}

// The architecture and the end tokens of one config.json belong together.
TEST_F(ModelSourceTest, TheConfigOfAFolderIsReadOnce) {
  TransformerConfig config = tiny_lm_config();
  write("config.json", model_config_json(config));
  VOLTA_ASSERT_OK(const ModelSource source, ModelSource::open(dir_.path()));
  config.vocab_size = 300;
  write("config.json", model_config_json(config));
  EXPECT_EQ(*source.config(), tiny_lm_config());
  VOLTA_ASSERT_OK(const ModelSource again, ModelSource::open(dir_.path()));
  EXPECT_EQ(again.config()->vocab_size, 300);
}

TEST_F(ModelSourceTest, AFolderAnswersForThePartsThatItHas) {
  VOLTA_ASSERT_OK(const ModelSource empty, ModelSource::open(dir_.path()));
  expect_error(empty.config(), ErrorCode::kNotFound, "config.json");
  expect_error(empty.load(test::cpu(1)), ErrorCode::kNotFound, "config.json");
  expect_error(empty.tokenizer(), ErrorCode::kNotFound, "tokenizer.json");
  expect_error(empty.chat_template(), ErrorCode::kNotFound, "has no chat template");
  EXPECT_EQ(*empty.generation_config(8), GenerationConfig());
  write("tokenizer.json", make_byte_tokenizer()->to_json());
  write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}");
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ((*empty.tokenizer())->kind(), "byte");
  const ChatMessage message = {.role = "user", .content = "Hi"};
  EXPECT_EQ(*empty.chat_template()->render({&message, 1}), "<s>Hi");
  write("other.jinja", "[{{ bos_token }}]");
  EXPECT_EQ(*empty.chat_template_from(dir_.file("other.jinja"))->render({&message, 1}), "[<s>]");
}

TEST_F(ModelSourceTest, ADamagedConfigIsAnErrorWhereItIsNeeded) {
  write("config.json", "{");
  write("tokenizer.json", make_byte_tokenizer()->to_json());
  VOLTA_ASSERT_OK(const ModelSource source, ModelSource::open(dir_.path()));
  expect_error(source.config(), ErrorCode::kInvalidFile, "config.json");
  expect_error(source.generation_config(8), ErrorCode::kInvalidFile, "config.json");
  EXPECT_TRUE(source.tokenizer());
  std::filesystem::remove(dir_.file("config.json"));
  std::filesystem::create_directory(dir_.file("config.json"));
  VOLTA_ASSERT_OK(const ModelSource folder, ModelSource::open(dir_.path()));
  expect_error(folder.config(), ErrorCode::kInvalidFile, "config.json");
  expect_error(folder.generation_config(8), ErrorCode::kInvalidFile, "config.json");
}

TEST_F(ModelSourceTest, AGgufFileMustBeOne) {
  expect_error(ModelSource::open(dir_.file("none.gguf")), ErrorCode::kNotFound, "none.gguf");
  write("bad.gguf", "no model");
  expect_error(ModelSource::open(dir_.file("bad.gguf")), ErrorCode::kInvalidFile, "bad.gguf");
}

}  // namespace
}  // namespace volta
