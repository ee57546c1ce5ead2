// What holds for all commands alike: the exit code where a place cannot be written, and that no
// option is taken which would have no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// A trained model, an adapter for it, a .gguf file and a tuning file, made once.
class Usage : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<test::TempDir>();
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog\n";
    text.close();
    std::ofstream(path("file")) << "x";
    std::filesystem::create_directories(path("folder"));
    std::ofstream(path("folder/x")) << "x";
    for (const Words& words :
         std::vector<Words>{with(kTrain, {"--out", "run"}),
                            {"train", "--data", "text.txt", "--init", "run", "--lora-rank", "2",
                             "--out", "lora", "--steps", "1", "--batch", "2", "--warmup", "0"},
                            {"convert", "run", "model.gguf"},
                            {"tune", "matmul", "--dim", "16", "--budget", "0.05", "--runs", "3"}}) {
      const CommandResult made = volta(words);
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static std::string path(const std::string& name) { return dir_->file(name); }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static CommandResult volta(const Words& words) {
    return test::run_volta(words, dir_->path(), {{"VOLTA_CACHE_DIR", path("cache")}});
  }
  static void refuse(const Words& words, int code, const std::string& message) {
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, code) << testing::PrintToString(words) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message)) << testing::PrintToString(words);
  }

  inline static const Words kTrain = {
      "train",     "--data",    "text.txt", "--layers", "1", "--dim",   "32", "--heads",
      "2",         "--context", "32",       "--batch",  "4", "--steps", "1",  "--activation",
      "gelu_tanh", "--warmup",  "1"};
  inline static std::unique_ptr<test::TempDir> dir_;
};

TEST_F(Usage, AFolderThatCannotBeMadeIsAFailure) {
  const std::vector<Words> makers = {
      with(kTrain, {"--out"}),
      {"quantize", "run", "--weights", "q8", "--out"},
      {"merge", "run", "--adapter", "lora", "--out"},
      {"convert", "model.gguf"},
      {"tokenizer", "train", "--data", "text.txt", "--vocab", "270", "--out"},
      {"demo", "--text", "text.txt", "--steps", "1", "--out"}};
  for (const Words& maker : makers) {
    for (const std::string place : {"file", "file/x", "/proc/none/x"}) {
      refuse(with(maker, {place}), 1, "cannot create folder");
    }
    refuse(with(maker, {std::string(300, 'a')}), 1, "File name too long");
    refuse(with(maker, {std::string(5000, 'a')}), 1, "");
    refuse(with(maker, {""}), 2, "");
  }
  // Nothing is replaced that somebody may still want.
  for (const std::size_t maker : {1, 2, 3}) refuse(with(makers[maker], {"folder"}), 2, "not empty");
}

TEST_F(Usage, AFileThatCannotBeMadeIsAFailure) {
  std::filesystem::create_directories(path("folder.gguf"));
  const auto gguf = [](const std::string& place) { return place + ".gguf"; };
  for (const std::string place : {"file/x", "/proc/none/x", "none/x", "folder"}) {
    refuse({"tune", "export", place}, 1, "cannot");
    refuse({"eval", "run", "--data", "text.txt", "--profile", place}, 1, "--profile");
    refuse({"convert", "run", gguf(place), "--force"}, 1, "cannot");
  }
  refuse({"tune", "export", ""}, 2, "give the name");
}

TEST_F(Usage, APlaceIsFoundNotToBeWritableBeforeTheWork) {
  std::filesystem::create_symlink("file", path("link"));
  refuse({"eval", "run", "--data", "nowhere", "--profile", "link"}, 1, "a symbolic link");
  // The loss would be told with the reason that the text cannot be read.
  refuse({"quantize", "run", "--weights", "q8", "--data", "nowhere", "--out", "file"}, 1,
         "cannot create folder");
  refuse({"tokenizer", "train", "--data", "text.txt", "--vocab", "1", "--out", "file"}, 1,
         "cannot create folder");
}

// Of a shell variable that is not set.
TEST_F(Usage, EmptyValuesAreRefused) {
  for (const Words& words :
       std::vector<Words>{with(kTrain, {"--out", "x", "--lr", ""}),
                          with(kTrain, {"--out", "x", "--init", ""}),
                          {"merge", "run", "--adapter", "", "--out", "x"},
                          {"generate", "run", "--adapter", ""},
                          {"generate", "run", "--temperature", ""},
                          {"generate", "run", "--device", ""},
                          {"generate", ""},
                          {"quantize", "run", "--weights", "q8", "--out", "x", "--data", ""},
                          {"tune", "matmul", "--dim", "32", "--model", ""},
                          {"bench", "infer", ""},
                          {"graph", ""}}) {
    refuse(words, 2, "give a value");
  }
}

TEST_F(Usage, OptionsWithoutEffectAreRefused) {
  const std::vector<Words> nothing_runs = {
      {"tune", "show"},
      {"tune", "clear"},
      {"tune", "export", "x"},
      {"tune", "import", "x"},
      {"version"},
      {"devices"},
      {"chat", "run", "--render"},
      {"verify", "run"},
      {"tokenize", "run", "a"},
      {"tokenizer", "train", "--data", "text.txt", "--out", "x"}};
  for (const Words& command : nothing_runs) {
    refuse(with(command, {"--profile", "p.csv"}), 2, "--profile has no effect here");
    refuse(with(command, {"--dtype", "bf16"}), 2, "--dtype has no effect here");
    refuse(with(command, {"--weights", "q8"}), 2, "--weights has no effect here");
  }
  struct Case {
    Words words;
    std::string message;
  };
  const Words quantize = {"quantize", "run", "--weights", "q8", "--out", "x"};
  const Words merge = {"merge", "run", "--adapter", "lora", "--out", "x"};
  const Words run = with(kTrain, {"--out", "x"});
  for (const auto& [words, message] : std::vector<Case>{
           {with(quantize, {"--val-fraction", "0.5"}), "--val-fraction requires --data"},
           {with(quantize, {"--context", "8"}), "--context requires --data"},
           {with(quantize, {"--dtype", "bf16"}), "goes with --data"},
           {with(quantize, {"--profile", "p.csv"}), "--profile"},
           {{"quantize", "run", "--out", "x", "--data", "text.txt", "--dtype", "bf16"},
            "what to store them as"},
           {with(merge, {"--weights", "q8"}), "--weights has no effect"},
           {with(merge, {"--dtype", "bf16"}), "--dtype has no effect"},
           {{"convert", "model.gguf", "x", "--weights", "q8"}, "--weights has no effect"},
           {{"convert", "model.gguf", "x", "--profile", "p.csv"}, "--profile has no effect"},
           {{"convert", "model.gguf", "x", "--output", "json"}, "this command writes text"},
           {{"tokenizer", "train", "--data", "text.txt", "--out", "x", "--output", "json"},
            "this command writes text"},
           {{"chat", "run", "--render", "--kv-cache-dtype", "bf16"}, "excludes"},
           {{"tokenize", "run", "a", "--skip-special"}, "--skip-special requires --decode"},
           {{"tokenize", "run", "--decode", "5", "--no-special"}, "excludes"},
           {{"tokenize", "run", "a", "--decode", "5"}, "excludes"},
           {{"tokenize", "run", "a", "--file", "text.txt"}, "excludes"},
           {{"tokenize", "run", "--file", "text.txt", "--decode", "5"}, "excludes"},
           {{"graph", "run", "--tokens", "8"}, "--tokens has no effect on decoding"},
           {{"graph", "run", "--phase", "train", "--weights", "q8"}, "--weights has no effect"},
           {{"graph", "run", "--profile", "p.csv"}, "--profile has no effect"},
           {{"inspect", "run", "--profile", "p.csv"}, "--profile has no effect"},
           {with(run, {"--momentum", "0.9"}), "--momentum goes with --optimizer sgd"},
           {with(run, {"--optimizer", "sgd", "--beta1", "0.9"}), "--optimizer adamw"},
           {with(run, {"--optimizer", "sgd", "--beta2", "0.9"}), "--optimizer adamw"},
           {with(run, {"--schedule", "constant", "--min-lr", "0"}),
            "--schedule cosine or linear"}}) {
    refuse(words, 2, message);
  }
  EXPECT_FALSE(std::filesystem::exists(path("x")));
  // Where they have one, they are taken.
  for (const Words& words :
       std::vector<Words>{{"graph", "run", "--phase", "eval", "--tokens", "8"},
                          {"tokenize", "run", "--decode", "5", "--skip-special"},
                          {"tokenize", "run", "a", "--no-special"},
                          {"graph", "run", "--weights", "q8"}}) {
    EXPECT_EQ(volta(words).exit_code, 0) << testing::PrintToString(words);
  }
}

TEST_F(Usage, UnknownWordsComeWithASuggestion) {
  for (const auto& [words, message] : std::vector<std::pair<Words, std::string>>{
           {{"trian"}, "trian is not known here; did you mean train?"},
           {{"bench", "modle", "run"}, "modle is not known here; did you mean model?"},
           {{"generate", "run", "--temprature", "0"}, "did you mean --temperature?"},
           {{"generate", "run", "--top_k=5"}, "--top_k=5 is not known here; did you mean --top-k?"},
           {{"generate", "run", "--n-predict", "5"}, "did you mean --tokens?"},
           {{"chat", "run", "--max-new-tokens", "5"}, "did you mean --tokens?"},
           {{"train", "--max_iters=5"}, "did you mean --steps?"},
           {{"train", "--n_embd", "5"}, "did you mean --dim?"}}) {
    refuse(words, 2, message);
  }
  // Nothing is near to these, and train has no --tokens.
  for (const Words& words :
       std::vector<Words>{{"qqqqqq"}, {"train", "--xyzzyx"}, {"train", "--n-predict", "5"}}) {
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, testing::Not(HasSubstr("did you mean"))) << words.back();
  }
}

TEST_F(Usage, HelpIsACommandToo) {
  EXPECT_EQ(volta({"help"}).out, volta({"--help"}).out);
  EXPECT_EQ(volta({"help", "bench", "model"}).out, volta({"bench", "model", "--help"}).out);
  EXPECT_THAT(volta({"help", "chat"}).out, HasSubstr("Usage: volta chat"));
}

TEST_F(Usage, NamesOfOtherProgramsAreTaken) {
  const Words words = {"generate", "run", "-n", "3", "-p", "the"};
  const CommandResult ours = volta(with(words, {"--temperature", "0", "--threads", "1"}));
  ASSERT_EQ(ours.exit_code, 0) << ours.err;
  EXPECT_EQ(volta(with(words, {"--temp", "0", "-t", "1"})).out, ours.out);
}

}  // namespace
}  // namespace volta
