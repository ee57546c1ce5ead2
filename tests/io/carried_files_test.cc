#include "io/carried_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "device/helpers.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;

TEST(CarriedFiles, TheConfigKeepsEveryKeyButTheType) {
  const auto text = config_with_f32_weights(
      R"({"architectures": ["X"], "dtype": "bfloat16", "torch_dtype": "float16", "rope_theta": 500000.0,
          "rms_norm_eps": 1e-05, "eos_token_id": [1, 2], "a": {"b": null, "dtype": "x", "c": false},
          "s": "\u00e9\n"})",
      "config.json");
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, R"({
  "architectures": [
    "X"
  ],
  "dtype": "float32",
  "torch_dtype": "float32",
  "rope_theta": 500000.0,
  "rms_norm_eps": 1e-05,
  "eos_token_id": [
    1,
    2
  ],
  "a": {
    "b": null,
    "dtype": "x",
    "c": false
  },
  "s": "é\n"
}
)");
  EXPECT_EQ(*config_with_f32_weights(*text, "again"), *text);
  expect_error(config_with_f32_weights("[1]", "config.json"), ErrorCode::kInvalidFile,
               "must be a JSON object");
  EXPECT_FALSE(config_with_f32_weights("{", "config.json"));
}

TEST(CarriedFiles, GoAlongByteForByte) {
  const test::TempDir from, to;
  std::ofstream(from.file("config.json")) << R"({"model_type":"llama","dtype":null})";
  const std::string odd("\0\xff chat {{ x }}\r\n", 17);
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja", "model.safetensors"}) {
    std::ofstream(from.file(name), std::ios::binary) << odd;
  }
  const auto files = read_carried_files(from.path());
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(files->size(), 3u);  // The weights are not among them.
  ASSERT_TRUE(write_carried_files(to.path(), *files));
  EXPECT_EQ(*read_text_file(to.file("chat_template.jinja")), odd);
  EXPECT_EQ(*read_text_file(to.file("tokenizer_config.json")), odd);
  EXPECT_EQ(*read_text_file(to.file("config.json")),
            "{\n  \"model_type\": \"llama\",\n  \"dtype\": null\n}\n");
  EXPECT_FALSE(write_carried_files(to.file("none"), *files));
}

TEST(CarriedFiles, NamesWhatCannotBeRead) {
  const test::TempDir from;
  expect_error(read_carried_files(from.path()), ErrorCode::kNotFound, "config.json");
  std::ofstream(from.file("config.json")) << "{}";
  std::filesystem::create_directory(from.file("vocab.json"));
  expect_error(read_carried_files(from.path()), ErrorCode::kInvalidFile, "vocab.json");
}

}  // namespace
}  // namespace volta
