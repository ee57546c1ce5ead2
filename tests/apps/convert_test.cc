// volta convert, and a .gguf file wherever a model is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using nlohmann::json;
using test::CommandResult;
using ::testing::HasSubstr;
using ::testing::Not;

class ConvertCommand : public ::testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return test::run_volta(arguments, dir_.path());
  }
  // A command that must go well.
  std::string out(const std::vector<std::string>& arguments) const {
    const CommandResult result = volta(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  static std::string llama() { return test::source_path("tests/formats/data/gguf_llama.gguf"); }

  test::TempDir dir_;
};

TEST_F(ConvertCommand, GoesBothWays) {
  out({"convert", llama(), "folder"});
  out({"convert", "folder", "again.gguf"});
  out({"convert", "folder", "small.gguf", "--type", "q8_0"});
  const std::vector<std::string> generate = {"--ids",         "3,1,4", "-n",       "8",
                                             "--temperature", "0",     "--output", "json"};
  const auto with = [&](const std::string& model) {
    std::vector<std::string> arguments = {"generate", model};
    arguments.insert(arguments.end(), generate.begin(), generate.end());
    return json::parse(out(arguments))["ids"];
  };
  const json wanted = with(llama());
  EXPECT_EQ(wanted.size(), 11u);
  EXPECT_EQ(with("folder"), wanted);
  EXPECT_EQ(with("again.gguf"), wanted);
  EXPECT_EQ(out({"tokenize", llama(), "the model"}), out({"tokenize", "folder", "the model"}));
  EXPECT_EQ(out({"tokenize", "again.gguf", "the model"}), out({"tokenize", llama(), "the model"}));
  const json inspected = json::parse(out({"inspect", llama(), "--output", "json"}));
  EXPECT_EQ(inspected["parameters"],
            json::parse(out({"inspect", "folder", "--output", "json"}))["parameters"]);
  EXPECT_EQ(inspected["tensors"].size(), 12u);
  out({"convert", llama(), "half", "--dtype", "bf16"});
  EXPECT_THAT(out({"convert", "half", "stored.gguf", "--type", "stored"}), HasSubstr(" as stored"));
  EXPECT_LT(std::filesystem::file_size(dir_.file("stored.gguf")),
            std::filesystem::file_size(dir_.file("again.gguf")));
  EXPECT_LT(std::filesystem::file_size(dir_.file("small.gguf")),
            std::filesystem::file_size(dir_.file("again.gguf")));
}

// The preset is there for this. Models of the others are refused, and the message says what to do.
TEST_F(ConvertCommand, ARunOfTheLlamaPresetBecomesAFile) {
  std::ofstream text(dir_.file("text.txt"));
  for (int i = 0; i < 60; ++i) text << "ROMEO: what light?\nJULIET: It is the east.\n";
  text.close();
  const auto train = [&](const std::string& preset) {
    out({"train", "--preset", preset, "--data", "text.txt", "--steps", "2", "--out", preset});
  };
  train("shakespeare-llama-cpu");
  out({"convert", "shakespeare-llama-cpu", "run.gguf"});
  const auto ids = [&](const std::string& model) {
    return json::parse(out({"generate", model, "-p", "ROMEO", "-n", "8", "--temperature", "0",
                            "--output", "json"}))["ids"];
  };
  EXPECT_EQ(ids("run.gguf"), ids("shakespeare-llama-cpu"));
  // Its matrices consist of whole blocks.
  out({"convert", "shakespeare-llama-cpu", "narrow.gguf", "--type", "q8_0"});
  EXPECT_THAT(out({"inspect", "narrow.gguf", "--output", "json"}), Not(HasSubstr("\"f16\"")));
  train("shakespeare-char-cpu");
  const CommandResult refused = volta({"convert", "shakespeare-char-cpu", "other.gguf"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("the model's activation is the exact GELU"));
  EXPECT_THAT(refused.err, HasSubstr("Train again with --activation gelu_tanh"));
}

// Names from Windows are in upper case, and a file of a cache has a hash for its name.
TEST_F(ConvertCommand, TheNameOfAFileMayBeInUpperCaseOrMissing) {
  std::filesystem::copy_file(llama(), dir_.file("MODEL.GGUF"));
  std::filesystem::copy_file(llama(), dir_.file("blob"));
  const std::string ids = out({"tokenize", llama(), "the model"});
  for (const std::string name : {"MODEL.GGUF", "blob"}) {
    EXPECT_EQ(out({"tokenize", name, "the model"}), ids);
    out({"inspect", name});
    out({"verify", name});
    out({"convert", name, "folder", "--force"});
  }
  out({"convert", "folder", "AGAIN.GGUF"});
  EXPECT_EQ(out({"tokenize", "AGAIN.GGUF", "the model"}), ids);
}

TEST_F(ConvertCommand, WrongUseIsSaid) {
  const auto refuse = [&](const std::vector<std::string>& arguments, int code,
                          const std::string& text) {
    const CommandResult result = volta(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  refuse({"convert", llama(), "b.gguf"}, 2, "one of them must be a .gguf file");
  refuse({"convert", "a", "b"}, 2, "one of them must be a .gguf file");
  refuse({"convert", "a", "b.gguf", "--dtype", "bf16"}, 2, "use --type");
  std::filesystem::create_directories(dir_.file("run/step-2"));
  refuse({"convert", llama(), "run", "--force"}, 2, "the folder of a training run");
  std::ofstream(dir_.file("run/step-2/trainer.safetensors")) << "x";
  refuse({"convert", llama(), "run/step-2", "--force"}, 2, "a checkpoint of a training run");
  refuse({"convert", llama(), ".", "--force"}, 2, "this command was started in it");
  refuse({"verify", "x.gguf"}, 3, "x.gguf");
  refuse({"train", "--init", "x.gguf", "--out", "r"}, 2, "give a model folder");
  refuse({"train", "--weights", "q4", "--out", "r"}, 2, "--weights q4");
  refuse({"convert", llama(), "b", "--type", "f16"}, 2, "--type is for GGUF files");
  refuse({"convert", llama(), "b", "--dtype", "f8"}, 2, "use f32, bf16 or f16");
  refuse({"convert", llama(), "b", "--profile", "p.csv"}, 2, "--profile");
  refuse({"convert", ".", "b.gguf", "--type", "q4_k"}, 2,
         "use stored, f32, f16, bf16, q8_0, q4_0 or q4_1");
  refuse({"convert", "none.gguf", "b"}, 3, "none.gguf");
  refuse({"convert", "none", "b.gguf"}, 3, "none");
  std::ofstream(dir_.file("bad.gguf"), std::ios::binary) << "GGML";
  refuse({"convert", "bad.gguf", "b"}, 3, "this is no GGUF file");
  refuse({"generate", "bad.gguf"}, 3, "this is no GGUF file");
}

TEST_F(ConvertCommand, ATokenizerThatGgufHasNoWordsForIsKept) {
  out({"convert", llama(), "folder"});
  // The bytes as a vocabulary: no split of words, which tokenizer.ggml.pre has no name for.
  json vocab = json::object();
  const json listed = json::parse(std::ifstream(
      test::source_path("tests/text/data/gpt2_tokenizer.json")))["tokenizer"]["model"]["vocab"];
  for (const auto& [token, id] : listed.items()) {
    if (id.get<int>() < 340) vocab[token] = id;
  }
  const json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
                          {"pre_tokenizer", level},
                          {"decoder", level}};
  std::ofstream(dir_.file("folder/tokenizer.json")) << tokenizer.dump();
  const CommandResult made = volta({"convert", "folder", "m.gguf"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("stored as tokenizer.json only"));
  EXPECT_EQ(out({"tokenize", "m.gguf", "abc"}), out({"tokenize", "folder", "abc"}));
}

}  // namespace
}  // namespace volta
