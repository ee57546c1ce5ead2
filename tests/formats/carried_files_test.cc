#include "formats/carried_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "device/helpers.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;

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
  for (const char* name : {"vocab.txt", "chat_template.jinja", "model.safetensors"}) {
    std::ofstream(from.file(name), std::ios::binary) << odd;
  }
  const auto files = read_carried_files(from.path());
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(files->size(), 3u);  // The weights are not among them.
  ASSERT_TRUE(write_carried_files(to.path(), *files));
  EXPECT_EQ(*read_text_file(to.file("chat_template.jinja")), odd);
  EXPECT_EQ(*read_text_file(to.file("vocab.txt")), odd);
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

// What a hostile folder would take along: a key, by a link with one of the eleven names.
class CarriedLinks : public testing::Test {
 protected:
  void SetUp() override {
    put("home/key", "-----BEGIN OPENSSH PRIVATE KEY-----");
    put("model/config.json", R"({"model_type": "llama"})");
    fs::create_directories(dir_.file("out"));
  }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(dir_.file(name)).parent_path());
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  void link(const std::string& name, const std::string& target) const {
    fs::remove(dir_.file(name));
    fs::create_symlink(target, dir_.file(name));
  }
  std::string path(const std::string& name) const { return dir_.file(name); }
  bool copied(const std::string& name) const { return fs::exists(dir_.file("out/" + name)); }

  test::TempDir dir_;
};

TEST_F(CarriedLinks, OutOfTheFolderAreRefusedUnderEveryName) {
  std::vector<std::string> names = {"config.json"};
  for (const std::string_view name : carried_file_names()) names.emplace_back(name);
  ASSERT_EQ(names.size(), 12u);
  for (const std::string& name : names) {
    const bool config = name == "config.json";
    if (config) fs::rename(path("model/config.json"), path("model/saved"));
    for (const std::string& target : {path("home/key"), std::string("../home/key")}) {
      link("model/" + name, target);
      for (const std::string& text : {std::string("{}"), std::string("-----BEGIN")}) {
        put("home/key", text);
        expect_error(read_carried_files(path("model")), ErrorCode::kInvalidFile,
                     name + "' is a symbolic link to '");
        expect_error(copy_model_files(path("model"), path("out")), ErrorCode::kInvalidFile,
                     "outside the model folder");
        EXPECT_FALSE(copied(name)) << name;
      }
    }
    fs::remove(path("model/" + name));
    if (config) fs::rename(path("model/saved"), path("model/config.json"));
  }
}

TEST_F(CarriedLinks, InsideTheFolderAreFollowed) {
  put("model/files/words", "a\nb\n");
  link("model/vocab.txt", "files/words");
  fs::create_directory_symlink(path("model"), path("by-another-name"));
  const auto files = read_carried_files(path("by-another-name"));
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(files->at("vocab.txt"), "a\nb\n");
  EXPECT_EQ(files->size(), 2u);
  // One that leads nowhere would be left out without a word.
  link("model/merges.txt", "nothing");
  expect_error(read_carried_files(path("model")), ErrorCode::kInvalidFile,
               "merges.txt' is a symbolic link that leads nowhere");
  fs::remove(path("model/merges.txt"));
  // A folder beside it whose name begins alike is not inside.
  put("model-2/words", "secret");
  link("model/vocab.txt", "../model-2/words");
  expect_error(read_carried_files(path("model")), ErrorCode::kInvalidFile, "outside");
}

TEST_F(CarriedLinks, OfTheHubsCacheAreFollowed) {
  const std::string hub = "hub/models--org--name/";
  put(hub + "blobs/aaaa", R"({"model_type": "llama"})");
  put(hub + "blobs/bbbb", "a\n");
  put(hub + "refs/main", "1234");
  fs::create_directories(path(hub + "snapshots/1234"));
  link(hub + "snapshots/1234/config.json", "../../blobs/aaaa");
  link(hub + "snapshots/1234/vocab.txt", "../../blobs/bbbb");
  const std::string model = path(hub + "snapshots/1234");
  ASSERT_TRUE(copy_model_files(model, path("out")));
  EXPECT_EQ(*read_text_file(path("out/vocab.txt")), "a\n");
  EXPECT_EQ(read_carried_files(model)->size(), 2u);
  fs::create_directory_symlink(model, path("link-to-the-snapshot"));
  EXPECT_TRUE(read_carried_files(path("link-to-the-snapshot")));
  // The hub's layout is no licence for other targets.
  put("hub/models--org--other/blobs/cccc", "of another model");
  for (const std::string target : {"../../../models--org--other/blobs/cccc", "../../refs/main",
                                   "../../../../home/key", "../../../../model/config.json"}) {
    link(hub + "snapshots/1234/vocab.txt", target);
    expect_error(read_carried_files(model), ErrorCode::kInvalidFile, "outside the model folder");
  }
}

TEST_F(CarriedLinks, FilesAreWhatTheirNamesSay) {
  const auto refused = [&](const std::string& name, const std::string& text) {
    put("model/" + name, text);
    const auto files = read_carried_files(path("model"));
    fs::remove(path("model/" + name));
    EXPECT_FALSE(files) << name;
    return files ? ErrorCode::kInternal : files.error().code();
  };
  EXPECT_EQ(refused("tokenizer.json", "no JSON"), ErrorCode::kInvalidFile);
  EXPECT_EQ(refused("special_tokens_map.json", "[1]"), ErrorCode::kInvalidFile);
  EXPECT_EQ(refused("generation_config.json", ""), ErrorCode::kInvalidFile);
  put("model/chat_template.jinja", "");
  fs::resize_file(path("model/chat_template.jinja"), (16 << 20) + 1);
  expect_error(read_carried_files(path("model")), ErrorCode::kInvalidFile, "more than");
}

}  // namespace
}  // namespace volta
