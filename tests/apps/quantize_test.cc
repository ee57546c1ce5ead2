// volta quantize and --weights, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "base/json.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;

class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog\n";
    text.close();
    const CommandResult trained = run_volta({"train",
                                             "--data",
                                             path("text.txt"),
                                             "--out",
                                             path("run"),
                                             "--layers",
                                             "1",
                                             "--dim",
                                             "64",
                                             "--heads",
                                             "2",
                                             "--context",
                                             "32",
                                             "--batch",
                                             "8",
                                             "--steps",
                                             "30",
                                             "--warmup",
                                             "5",
                                             "--activation",
                                             "gelu_tanh"},
                                            dir_.path());
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  std::string path(const std::string& name) const { return dir_.file(name); }
  CommandResult quantize(std::vector<std::string> more) {
    more.insert(more.begin(), {"quantize", path("run")});
    return run_volta(more, dir_.path());
  }

  test::TempDir dir_;
};

TEST_F(Quantize, AContextBeyondTheModelsIsRefused) {
  const CommandResult result = quantize(
      {"--weights", "q8", "--out", path("x"), "--data", path("text.txt"), "--context", "33"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--context 33: the model's is 32"));
}

TEST_F(Quantize, TellsWhatItCostsAndRunsLikeWeightsRoundedWhileLoading) {
  double cost = 0;
  for (const std::string weights : {"q8", "q4"}) {
    const std::string out = path(weights);
    const CommandResult made = quantize(
        {"--weights", weights, "--out", out, "--data", path("text.txt"), "--output", "json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const auto json = parse_json(made.out, "quantize");
    ASSERT_TRUE(json);
    const JsonRef root(*json, "quantize");
    const double before = *root.get_float("loss_before"), after = *root.get_float("loss_after");
    EXPECT_LT(std::abs(after - before), weights == "q8" ? 0.01 : 0.2);
    EXPECT_GE(std::abs(after - before), cost);  // Fewer bits cost more.
    cost = std::abs(after - before);
    EXPECT_LT(*root.get_int("bytes_after"), *root.get_int("bytes_before") / 2);

    const std::vector<std::string> ask = {"-p", "the qu",   "-n",  "12", "--temperature",
                                          "0",  "--output", "json"};
    const CommandResult again = run_volta({"convert", out, path("x.gguf")}, dir_.path());
    EXPECT_EQ(again.exit_code, 3);
    EXPECT_THAT(again.err, HasSubstr("is stored as integers by volta quantize"));
    std::vector<std::string> stored = {"generate", out}, rounded = {"generate", path("run")};
    stored.insert(stored.end(), ask.begin(), ask.end());
    rounded.insert(rounded.end(), ask.begin(), ask.end());
    rounded.insert(rounded.end(), {"--weights", weights});
    const CommandResult a = run_volta(stored, dir_.path()), b = run_volta(rounded, dir_.path());
    EXPECT_EQ(a.exit_code, 0) << a.err;
    EXPECT_EQ(a.out, b.out);
  }
  const CommandResult text = quantize({"--weights", "bf16", "--out", path("bf16")});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(" bf16  "));
  EXPECT_THAT(text.out, HasSubstr("bf16: weights "));
}

TEST_F(Quantize, ATerminalHasRoomForTheTensors) {
  ASSERT_EQ(quantize({"--weights", "q8", "--out", path("q8")}).exit_code, 0);
  const CommandResult listed = run_volta({"inspect", path("q8"), "--tensors"}, dir_.path());
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr(" int8["));
  std::istringstream lines(listed.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(Quantize, TrainingSaysThatItWidensIntegers) {
  ASSERT_EQ(quantize({"--weights", "q8", "--out", path("q8")}).exit_code, 0);
  const std::vector<std::string> words = {"train",    "--data", path("text.txt"), "--lr", "1e-4",
                                          "--steps",  "1",      "--batch",        "1",    "--init",
                                          path("q8"), "--out"};
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{path("tuned")}, {path("lora"), "--lora-rank", "2"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult trained = run_volta(all, dir_.path());
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr(" are stored as integers, and widened to f32"));
  }
}

TEST_F(Quantize, SaysWhatIsMissingOrThere) {
  const CommandResult none = quantize({"--out", path("q")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--weights: what to store them as: q8, q4 or bf16"));
  const CommandResult unknown = quantize({"--out", path("q"), "--weights", "q3"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--weights q3: use stored, f32, bf16, q8 or q4"));
  const CommandResult there = quantize({"--weights", "q8", "--out", path("run/step-30")});
  EXPECT_EQ(there.exit_code, 2);
  EXPECT_THAT(there.err, HasSubstr("is not empty"));
  const CommandResult nowhere = quantize({"--weights", "q8", "--out", "/proc/none/q"});
  EXPECT_EQ(nowhere.exit_code, 1);
  std::ofstream(path("file")) << "x";
  EXPECT_NE(quantize({"--weights", "q8", "--out", path("file")}).exit_code, 0);
}

// What is there is replaced only when asked, and then only a model: never the one that is read, nor
// a run.
TEST_F(Quantize, ForceReplacesTheModelThatIsThere) {
  const std::vector<std::string> q4 = {"--weights", "q4", "--out", path("out")};
  std::vector<std::string> forced = {"--weights", "q8", "--out", path("out"), "--force"};
  ASSERT_EQ(quantize(q4).exit_code, 0);
  std::ofstream(path("out/notes.txt")) << "mine";
  std::ofstream(path("out/chat_template.jinja")) << "of the old model";
  const auto old_size = std::filesystem::file_size(path("out/model.safetensors"));
  const CommandResult refused = quantize(q4);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("use --force to replace the model in it"));
  const CommandResult done = quantize(forced);
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_GT(std::filesystem::file_size(path("out/model.safetensors")), old_size);
  EXPECT_TRUE(std::filesystem::exists(path("out/notes.txt")));
  EXPECT_TRUE(std::filesystem::exists(path("out/chat_template.jinja.old")));
  EXPECT_EQ(run_volta({"verify", path("out")}, dir_.path()).exit_code, 0);

  for (const auto& [out, why] : {std::pair{"run", "the folder of a training run"},
                                 std::pair{"run/step-30", "a checkpoint of a training run"}}) {
    forced[3] = path(out);
    const CommandResult run = quantize(forced);
    EXPECT_EQ(run.exit_code, 2) << out;
    EXPECT_THAT(run.err, HasSubstr(why));
  }
  std::filesystem::copy(path("run/step-30"), path("model"));
  for (const char* name : {"model/manifest.json", "model/trainer.safetensors"}) {
    std::filesystem::remove(path(name));
  }
  const CommandResult itself =
      run_volta({"quantize", path("model"), "--weights", "q8", "--out", path("model/"), "--force"},
                dir_.path());
  EXPECT_EQ(itself.exit_code, 2);
  EXPECT_THAT(itself.err, HasSubstr("is the model that is read"));
  EXPECT_EQ(run_volta({"verify", path("model")}, dir_.path()).exit_code, 0);
  // A source whose weights are a link to a link in the folder that would be replaced.
  std::filesystem::copy(path("model"), path("linked"));
  std::filesystem::rename(path("linked/model.safetensors"), path("weights"));
  std::filesystem::create_symlink("../out/model.safetensors", path("linked/model.safetensors"));
  std::filesystem::remove(path("out/model.safetensors"));
  std::filesystem::create_symlink("../weights", path("out/model.safetensors"));
  const std::vector<std::string> from_linked = {"quantize", path("linked"), "--weights", "q8",
                                                "--out",    path("out"),    "--force"};
  const CommandResult linked = run_volta(from_linked, dir_.path());
  EXPECT_EQ(linked.exit_code, 2);
  EXPECT_THAT(linked.err,
              HasSubstr("out' holds 'model.safetensors', weights of the model that is"));
  const CommandResult misplaced = run_volta(
      {"--force", "quantize", path("model"), "--weights", "q8", "--out", path("x")}, dir_.path());
  EXPECT_EQ(misplaced.exit_code, 2);
  EXPECT_THAT(misplaced.err, HasSubstr("behind the command's name, with train, quantize, merge"));
}

// The folder that a killed --force set aside is the source: it would be removed before it is read.
TEST_F(Quantize, WhatAKilledCommandLeftIsNotReadAndRemoved) {
  std::filesystem::copy(path("run/step-30"), path("out.replaced"));
  std::ofstream(path("out.replaced/.volta-replaced")) << "mark";
  for (const char* force : {"", "--force"}) {
    std::vector<std::string> command = {"quantize", path("out.replaced"), "--weights", "q8",
                                        "--out",    path("out")};
    if (*force != '\0') command.emplace_back(force);
    const CommandResult refused = run_volta(command, dir_.path());
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("give it another name first"));
    EXPECT_TRUE(std::filesystem::exists(path("out.replaced/model.safetensors")));
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  }
}

}  // namespace
}  // namespace volta
