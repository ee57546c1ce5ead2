// volta tokenize and volta tokenizer train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;

class TokenizeTest : public ::testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the low lower lowest tower\n";
    write("text.txt", text);
    const CommandResult made =
        volta({"tokenizer", "train", "--data", "text.txt", "--vocab", "270", "--out", "bpe"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_THAT(made.err, HasSubstr("bpe/tokenizer.json: 270 tokens"));
  }

  test::TempDir dir_;
};

TEST_F(TokenizeTest, ThereAndBack) {
  const CommandResult ids = volta({"tokenize", "bpe", "the lowest tower"});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  std::string list = ids.out;
  list.pop_back();
  EXPECT_EQ(volta({"tokenize", "bpe/tokenizer.json", "--decode", list}).out, "the lowest tower\n");
  write("prompt.txt", "the lowest tower");
  EXPECT_EQ(volta({"tokenize", "bpe", "--file", "prompt.txt"}).out, ids.out);
}

TEST_F(TokenizeTest, StandardInputWhenNothingIsGiven) {
  write("in.txt", "the lowest tower\nand \xff more");
  test::Command command({"tokenize", "bpe", "--output", "json"}, dir_.path(), {}, "in.txt");
  const CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, volta({"tokenize", "bpe", "--file", "in.txt", "--output", "json"}).out);
  EXPECT_THAT(result.out, testing::StartsWith("{\"ids\":["));
}

TEST_F(TokenizeTest, AsJson) {
  EXPECT_EQ(volta({"tokenize", "bpe", "a<|endoftext|>", "--output", "json"}).out,
            "{\"ids\":[65,0],\"tokens\":[\"a\",\"<|endoftext|>\"]}\n");
  EXPECT_EQ(volta({"tokenize", "bpe", "--decode", "65,0", "--output", "json"}).out,
            "{\"text\":\"a<|endoftext|>\"}\n");
  EXPECT_EQ(volta({"tokenize", "bpe", "--decode", "65,0", "--skip-special"}).out, "a\n");
}

TEST_F(TokenizeTest, SpecialTokensAroundTheText) {
  VOLTA_NEEDS_SHARED("models/llama-tiny");
  const std::string model = test::shared_path("models/llama-tiny");
  const std::string plain = volta({"tokenize", model, "Hi", "--no-special"}).out;
  EXPECT_EQ(volta({"tokenize", model, "Hi"}).out, "1," + plain);
}

TEST_F(TokenizeTest, MistakesAreNamed) {
  EXPECT_EQ(volta({"tokenize", "bpe", "x", "--decode", "1"}).exit_code, 2);
  const CommandResult beyond = volta({"tokenize", "bpe", "--decode", "1,2,999"});
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_THAT(beyond.err, HasSubstr("--decode: 999; the vocabulary has ids 0 to 269"));
  const CommandResult none = volta({"tokenize", "bpe", "--decode", ""});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.out, "\n");
  EXPECT_THAT(volta({"tokenize", "bpe", "--decode", "1,x"}).err, HasSubstr("--decode: 'x'"));
  EXPECT_EQ(volta({"tokenize", "missing.json", "x"}).exit_code, 3);
  EXPECT_EQ(volta({"tokenize", "bpe", "--file", "missing"}).exit_code, 3);
  EXPECT_EQ(
      volta({"tokenizer", "train", "--data", "text.txt", "--vocab", "5", "--out", "b"}).exit_code,
      2);
  EXPECT_EQ(volta({"tokenizer"}).exit_code, 2);
  // Nothing can be learnt from these.
  std::ofstream(dir_.file("empty.txt"));
  std::ofstream(dir_.file("binary")) << "text \xff\xfe";
  for (const auto& [data, why] :
       {std::pair{"empty.txt", "empty.txt is empty"}, {"binary", "binary: byte 5 is not UTF-8"}}) {
    const CommandResult result =
        volta({"tokenizer", "train", "--data", data, "--vocab", "270", "--out", "new"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(dir_.file("new")));
  }
}

TEST_F(TokenizeTest, AnExistingTokenizerIsReplacedByForceOnly) {
  std::vector<std::string> train = {"tokenizer", "train", "--data", "text.txt",
                                    "--vocab",   "260",   "--out",  "bpe"};
  const std::string before = *read_text_file(dir_.file("bpe/tokenizer.json"));
  CommandResult result = volta(train);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--out bpe/tokenizer.json: the file is there already"));
  EXPECT_THAT(result.err, HasSubstr("--force"));
  EXPECT_EQ(*read_text_file(dir_.file("bpe/tokenizer.json")), before);
  train.push_back("--force");
  EXPECT_EQ(volta(train).exit_code, 0);
  EXPECT_NE(*read_text_file(dir_.file("bpe/tokenizer.json")), before);
  // What is read is not replaced.
  train[3] = "bpe/tokenizer.json";
  const CommandResult itself = volta(train);
  EXPECT_EQ(itself.exit_code, 2);
  EXPECT_THAT(itself.err, HasSubstr("this is the file of --data"));
  train[3] = "text.txt";
  // Nor does a model get another tokenizer.
  train[7] = "model";
  train.pop_back();
  for (const char* file : {"config.json", "model-00001-of-00002.safetensors", "run.json"}) {
    std::filesystem::remove_all(dir_.file("model"));
    std::filesystem::create_directory(dir_.file("model"));
    std::ofstream(dir_.file("model/") + file) << "{}";
    for (const bool force : {false, true}) {
      std::vector<std::string> words = train;
      if (force) words.push_back("--force");
      result = volta(words);
      EXPECT_EQ(result.exit_code, 2) << file;
      EXPECT_THAT(result.err, HasSubstr("--out model: the folder holds a model"));
      EXPECT_FALSE(path_exists(dir_.file("model/tokenizer.json")));
    }
  }
}

TEST_F(TokenizeTest, SpecialTokensAreCheckedBeforeTheWork) {
  using Words = std::vector<std::string>;
  for (const auto& [special, why] : {std::pair{Words{"\xff"}, "--special: byte 0 is not UTF-8"},
                                     {Words{"a"}, "--special: 'a' is the token of a byte already"},
                                     {Words{"<s>", "<s>"}, "--special: '<s>' is given twice"}}) {
    Words words = {"tokenizer", "train", "--data", "none.txt", "--vocab", "300", "--out", "new"};
    for (const std::string& token : special) words.insert(words.end(), {"--special", token});
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  }
}

TEST_F(TokenizeTest, ANewTokenizerTrainsAModel) {
  const CommandResult run = volta(
      {"train",     "--data",  "text.txt", "--out",   "run",   "--tokenizer",  "bpe/tokenizer.json",
       "--layers",  "1",       "--heads",  "2",       "--dim", "16",           "--context",
       "16",        "--batch", "4",        "--steps", "2",     "--eval-every", "2",
       "--threads", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const CommandResult text =
      volta({"generate", "run", "-p", "the", "-n", "4", "--temperature", "0"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("the")) << text.out;
}

}  // namespace
}  // namespace volta
