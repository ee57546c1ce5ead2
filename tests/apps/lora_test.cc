// LoRA from the command line: train an adapter, generate and evaluate with it, merge it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using testing::HasSubstr;

class LoraCommands : public testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return test::run_volta(arguments, dir_.path());
  }
  void expect_error(const std::vector<std::string>& arguments, int code, const std::string& text) {
    const CommandResult result = volta(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  static std::vector<std::string> lora(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "train", "--data",   "text.txt", "--init", "base", "--out",        "lora", "--steps",
        "6",     "--warmup", "1",        "--lr",   "0.05", "--save-every", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  double loss(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"eval", "--data", "text.txt", "--output", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = volta(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto json = parse_json(result.out, "eval");
    if (!json) return 0.0;
    return *JsonRef(*json, "eval").get_float("loss");
  }
  void SetUp() override {
    std::ofstream text(dir_.file("text.txt"));
    for (int i = 0; i < 60; ++i) text << "the quick brown fox " << i << " jumps\n";
    text.close();
    const CommandResult base =
        volta({"train", "--data",     "text.txt", "--out",        "base", "--dim",
               "16",    "--layers",   "1",        "--heads",      "2",    "--context",
               "16",    "--batch",    "4",        "--tokenizer",  "char", "--steps",
               "2",     "--position", "rotary",   "--eval-every", "0"});
    ASSERT_EQ(base.exit_code, 0) << base.err;
  }
  test::TempDir dir_;
};

TEST_F(LoraCommands, ARunOfAdaptersIsVerified) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2"})).exit_code, 0);
  const CommandResult good = volta({"verify", "lora"});
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("lora/step-6: good: "));
  EXPECT_THAT(good.out, HasSubstr("an adapter"));
  EXPECT_THAT(good.out, HasSubstr("has the weights that it was trained on"));
  EXPECT_THAT(volta({"verify", "lora/step-3", "--output", "json"}).out,
              HasSubstr("\"adapter\":true"));
  ASSERT_EQ(volta({"train", "--data", "text.txt", "--init", "base", "--out", "base2", "--steps",
                   "1", "--warmup", "0"})
                .exit_code,
            0);
  EXPECT_THAT(volta({"verify", "lora", "--model", "base2"}).out,
              HasSubstr("was trained on other weights"));
  expect_error({"verify", "lora", "--model", "base2"}, 6, "2 findings");
  const auto checked = [&](const std::string& model) {
    return volta({"verify", "lora/step-3", "--model", model, "--output", "json"}).out;
  };
  EXPECT_THAT(checked("base2"), HasSubstr(R"("checked":true,"reason":""})"));
  std::filesystem::create_directory(dir_.file("torn"));
  std::filesystem::copy(dir_.file("base2/step-1/config.json"), dir_.file("torn"));
  EXPECT_THAT(checked("torn"), HasSubstr(R"("checked":false,"reason":"cannot open)"));
  expect_error({"verify", "base", "--model", "base2"}, 2,
               "'base' is not an adapter; leave --model out");
  std::filesystem::rename(dir_.file("base"), dir_.file("elsewhere"));
  const CommandResult absent = volta({"verify", "lora"});
  EXPECT_EQ(absent.exit_code, 0) << absent.err;
  EXPECT_THAT(absent.out, HasSubstr("was not checked: it is not on this machine"));
  EXPECT_EQ(volta({"verify", "lora", "--model", "elsewhere"}).exit_code, 0);
  // Another model, of other sizes, at the recorded place.
  std::string config = *read_text_file(dir_.file("elsewhere/step-2/config.json"));
  const std::string layers = "\"layers\": ";
  ASSERT_NE(config.find(layers), std::string::npos) << config;
  config.replace(config.find(layers) + layers.size(), 1, "2");
  std::filesystem::create_directories(dir_.file("base/step-2"));
  ASSERT_TRUE(write_file_atomic(dir_.file("base/step-2/config.json"), config));
  expect_error({"verify", "lora"}, 6, "2 findings");
  EXPECT_EQ(volta({"verify", "lora", "--model", "elsewhere"}).exit_code, 0);
  std::filesystem::remove_all(dir_.file("base"));
  std::fstream file(dir_.file("lora/step-6/adapter_model.safetensors"),
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('\1');
  file.close();
  expect_error({"verify", "lora"}, 6, "1 finding");
}

TEST_F(LoraCommands, AnAdapterOfNanIsNotMerged) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2"})).exit_code, 0);
  const std::string path = dir_.file("lora/step-6/adapter_model.safetensors");
  auto tensors = *SafetensorsFile::open(path)->load_all();
  for (auto& [name, tensor] : tensors) (*tensor.mutable_values<float>())[0] = NAN;
  std::filesystem::create_directory(dir_.file("nan"));
  ASSERT_TRUE(write_safetensors(dir_.file("nan/adapter_model.safetensors"), tensors, {}));
  std::filesystem::copy(dir_.file("lora/step-6/adapter_config.json"), dir_.file("nan"));
  expect_error({"merge", "base", "--adapter", "nan", "--out", "merged"}, 1, "q_proj");
  EXPECT_FALSE(path_exists(dir_.file("merged")));
  expect_error({"merge", "x.gguf", "--adapter", "nan", "--out", "merged"}, 2,
               "give a model folder");
}

TEST_F(LoraCommands, TrainGenerateEvaluateAndMerge) {
  const CommandResult trained =
      volta(lora({"--lora-rank", "4", "--lora-alpha", "16", "--lora-targets", "all-linear",
                  "--lora-rslora", "--steps", "30", "--lr", "0.01"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("LoRA: rank 4, alpha 16"));
  std::filesystem::create_directories(dir_.file(".tmp-merged/mine"));
  const CommandResult merged =
      volta({"merge", "base", "--adapter", "lora", "--out", "merged", "--output", "json"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_THAT(merged.out, HasSubstr("\"model\":\"merged\""));
  EXPECT_TRUE(is_directory(dir_.file(".tmp-merged/mine")));
  const double before = loss({"base"});
  const double adapted = loss({"base", "--adapter", "lora/step-30"});
  EXPECT_LT(adapted, before - 0.05);
  EXPECT_EQ(loss({"merged"}), adapted);
  const std::vector<std::string> rest = {"-p", "the", "-n", "8", "--temperature", "0"};
  const auto generate = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "generate");
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return volta(arguments).out;
  };
  EXPECT_EQ(generate({"merged"}), generate({"base", "--adapter", "lora"}));
  EXPECT_NE(generate({"merged"}), generate({"base"}));
  EXPECT_EQ(*read_text_file(dir_.file("merged/tokenizer.json")),
            *read_text_file(dir_.file("base/step-2/tokenizer.json")));
  expect_error({"merge", "base", "--adapter", "lora", "--out", "merged"}, 2, "is not empty");
  ASSERT_TRUE(write_file_atomic(dir_.file("merged/config.json"), "{}"));
  ASSERT_TRUE(write_file_atomic(dir_.file("merged/notes.txt"), "mine"));
  ASSERT_EQ(volta({"merge", "base", "--adapter", "lora", "--out", "merged", "--force"}).exit_code,
            0);
  EXPECT_EQ(*read_text_file(dir_.file("merged/notes.txt")), "mine");
  EXPECT_EQ(loss({"merged"}), adapted);
  expect_error({"merge", "base", "--adapter", "lora", "--out", "base", "--force"}, 2,
               "the folder of a training run");
  expect_error({"merge", "merged", "--adapter", "lora", "--out", "merged", "--force"}, 2,
               "is the model that is read");
  std::filesystem::create_directory(dir_.file("variant"));
  std::filesystem::copy(dir_.file("merged/config.json"), dir_.file("variant"));
  std::filesystem::create_symlink("../merged/model.safetensors",
                                  dir_.file("variant/model.safetensors"));
  expect_error({"merge", "variant", "--adapter", "lora", "--out", "merged", "--force"}, 2,
               "weights of the model that is read, which would be lost");
  std::filesystem::create_directory(dir_.file("peft"));
  std::filesystem::copy(dir_.file("lora/step-30/adapter_config.json"), dir_.file("peft"));
  expect_error({"merge", "base", "--adapter", "lora", "--out", "peft", "--force"}, 2,
               "peft' is the folder of an adapter");
  EXPECT_EQ(loss({"merged"}), adapted);
  expect_error({"merge", "base", "--adapter", "lora", "--out", "text.txt"}, 1, "no folder");
  expect_error({"merge", "base", "--adapter", "base", "--out", "x"}, 2, "no adapter");
  expect_error({"merge", "base", "--adapter", "lora", "--out", "text.txt/x"}, 1, "text.txt");
  expect_error({"generate", "lora"}, 2, "also take the base model with --adapter");
  expect_error({"eval", "base", "--adapter", "none", "--data", "text.txt"}, 3, "none");
}

// Another model of the same sizes: no error of shapes would tell.
TEST_F(LoraCommands, AnAdapterIsRefusedOnAnotherBase) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2"})).exit_code, 0);
  const CommandResult other = volta({"train", "--data", "text.txt", "--init", "base", "--out",
                                     "base2", "--steps", "1", "--warmup", "0"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  using Words = std::vector<std::string>;
  const std::string ids = dir_.file("ids.safetensors");
  const std::vector<std::int64_t> values = {1, 2, 3};
  ASSERT_TRUE(write_safetensors(
      ids, {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(1, 3), values)}}));
  // The command, and what it would write.
  const std::vector<std::pair<Words, std::string>> commands = {
      {{"generate", "base2", "-p", "the", "-n", "2"}, "none"},
      {{"eval", "base2", "--data", "text.txt"}, "none"},
      {{"logits", "base2", "--ids", ids, "--out", "out"}, "out"},
      {{"merge", "base2", "--out", "merged"}, "merged"}};
  for (auto [command, result] : commands) {
    command.insert(command.end(), {"--adapter", "lora"});
    expect_error(command, 6, "was trained on other weights");
    EXPECT_FALSE(path_exists(dir_.file(result)));
    command.push_back("--any-base");
    EXPECT_EQ(volta(command).exit_code, 0);
  }
  expect_error({"eval", "base", "--data", "text.txt", "--any-base"}, 2,
               "--any-base goes with --adapter");
}

// The commands that the messages about an adapter's folder name do what they say.
TEST_F(LoraCommands, TheAdviceForAnAdaptersFolderWorks) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2"})).exit_code, 0);
  for (const std::string command : {"inspect", "graph", "chat", "verify"}) {
    const CommandResult result = volta({command, "lora"});
    if (command == "verify") {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      continue;
    }
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("`volta merge " + dir_.file("base/step-2") +
                                      " --adapter lora/step-6 --out DIR`"));
  }
  ASSERT_EQ(
      volta({"merge", dir_.file("base/step-2"), "--adapter", "lora/step-6", "--out", "merged"})
          .exit_code,
      0);
  EXPECT_EQ(volta({"inspect", "merged"}).exit_code, 0);
}

TEST_F(LoraCommands, ResumeNeedsNoOptionsAndTheSameBase) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2", "--lora-dropout", "0.1"})).exit_code, 0);
  std::filesystem::remove_all(dir_.file("lora/step-6"));
  const CommandResult resumed = volta({"train", "--out", "lora", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming from lora/step-3"));
  EXPECT_TRUE(std::filesystem::exists(dir_.file("lora/step-6/adapter_model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(dir_.file("lora/step-6/model.safetensors")));
  // Another model in the base's place.
  const CommandResult other = volta({"train", "--data", "text.txt", "--init", "base", "--out",
                                     "base2", "--steps", "1", "--warmup", "0"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  expect_error({"train", "--out", "lora", "--resume", "--init", "base2"}, 6, "begun on");
}

TEST_F(LoraCommands, UsageErrors) {
  expect_error(lora({"--lora-alpha", "4"}), 2, "--lora-alpha goes with --lora-rank");
  expect_error(lora({"--lora-rank", "0"}), 2, "--lora-rank 0");
  expect_error(lora({"--lora-rank", "2", "--lora-alpha", "0"}), 2, "--lora-alpha 0");
  expect_error(lora({"--lora-rank", "2", "--lora-targets", "c_attn"}), 2, "it has down_proj");
  expect_error(lora({"--lora-rank", "2", "--lora-dropout", "1"}), 2,
               "--lora-dropout 1: it must be at least 0 and below 1 (0.9999999 at most)");
  expect_error({"train", "--data", "text.txt", "--out", "x", "--lora-rank", "2"}, 2, "--init");
  expect_error(lora({"--init", "", "--lora-rank", "2"}), 2, "--init");
  expect_error({"train", "--data", "", "--out", "x"}, 2, "--data: give a value");
  expect_error({"merge", "base", "--adapter", "x", "--out", ""}, 2, "--out");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("lora")));
}

TEST_F(LoraCommands, ChatAndBenchTakeAdapters) {
  ASSERT_EQ(volta(lora({"--lora-rank", "2"})).exit_code, 0);
  ASSERT_EQ(volta({"merge", "base", "--adapter", "lora", "--out", "merged"}).exit_code, 0);
  std::ofstream(dir_.file("t.jinja")) << "{% for m in messages %}{{ m.content }}{% endfor %}";
  const auto chat = [&](const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"chat", model, "--template", "t.jinja",       "-p",
                                      "the",  "-n",  "8",          "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(chat("base", {"--adapter", "lora"}), chat("merged", {}));
  EXPECT_NE(chat("base", {"--adapter", "lora"}), chat("base", {}));
  // The memory that chat shows before it loads anything is what is then taken.
  const auto weights = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--adapter", "lora", "--weights", "q8", "-n", "1", "-v"});
    const CommandResult result = volta(words);
    const std::size_t begin = result.err.find("memory: weights ");
    EXPECT_NE(begin, std::string::npos) << result.err;
    return begin == std::string::npos
               ? ""
               : result.err.substr(begin, result.err.find(',', begin) - begin);
  };
  EXPECT_EQ(weights({"chat", "base", "--template", "t.jinja", "-p", "the"}),
            weights({"generate", "base", "-p", "the"}));
  const CommandResult bench = volta({"bench", "model", "base", "--adapter", "lora", "--prompt", "4",
                                     "--tokens", "2", "--runs", "1", "--warmup", "0"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  expect_error({"bench", "model", "base", "--any-base"}, 2, "--any-base goes with --adapter");
  expect_error({"chat", "base", "--adapter", "missing", "-p", "a", "--template", "t.jinja"}, 3,
               "missing");
}

}  // namespace
}  // namespace volta
