// volta bench model and gaps: that their numbers fit each other, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kContext = 16, kDim = 16, kVocab = 256;

// A model of bytes, 16 wide, with a context of 16.
class BenchModelTest : public ::testing::Test {
 protected:
  void train(const std::string& run, const std::vector<std::string>& more = {}) const {
    std::ofstream(dir_.file("text.txt")) << std::string(400, 'x');
    std::vector<std::string> arguments = {
        "train",   "--data",  "text.txt", "--out",     run,         "--layers",     "1",
        "--heads", "2",       "--dim",    "16",        "--context", "16",           "--batch",
        "2",       "--steps", "1",        "--threads", "1",         "--eval-every", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = volta(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  CommandResult bench(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench", "model", "--runs", "2", "--tokens", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return volta(arguments);
  }
  JsonValue report(std::vector<std::string> more) const {
    more.insert(more.end(), {"--output", "json"});
    const CommandResult result = bench(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    auto parsed = parse_json(result.out, "report");
    EXPECT_TRUE(parsed) << result.out;
    return parsed ? *std::move(parsed) : JsonValue();
  }
  // weight_bytes - bytes_per_token
  std::int64_t unread(const std::string& run) const {
    const JsonValue json = report({run, "--prompt", "1"});
    const JsonRef root(json, "report");
    return root.get_int("weight_bytes").value_or(-1) - root.get_int("bytes_per_token").value_or(-1);
  }
  test::TempDir dir_;
};

TEST_F(BenchModelTest, RatesFollowFromTheTimes) {
  train("run");
  const JsonValue json = report({"run", "--prompt", "1,8"});
  const JsonRef root(json, "report");
  const double bytes = *root.get_float("bytes_per_token");
  const auto member = root.member("prompts");
  ASSERT_TRUE(member);
  const auto prompts = member->elements();
  ASSERT_TRUE(prompts);
  ASSERT_EQ(prompts->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const JsonRef& prompt = (*prompts)[i];
    const double length = i == 0 ? 1 : 8, rate = *prompt.get_float("decode_tokens_per_s", 1.0);
    EXPECT_EQ(*prompt.get_float("prompt"), length);
    EXPECT_NEAR(*prompt.get_float("prefill_tokens_per_s") * *prompt.get_float("first_token_s"),
                length, 1e-6);
    EXPECT_NEAR(*prompt.get_float("weights_gb_per_s"), bytes * rate * 1e-9, 1e-6);
    // Of six tokens the slowest, which no run's mean exceeds.
    const double slowest = *prompt.get_float("token_p95_s");
    EXPECT_LE(1.0 / rate, slowest * (1.0 + 1e-9));
    EXPECT_LE(*prompt.get_float("token_s", 1e-9), slowest);
  }
  const CommandResult text = bench({"run", "--prompt", "1,8"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("GB/s\n      1 "));
}

TEST_F(BenchModelTest, GapsAreMeasuredWhileAPromptIsRead) {
  train("run");
  const CommandResult result = volta({"bench", "gaps", "run", "--runs", "2", "--requests", "2",
                                      "--prompt", "9", "--output", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = parse_json(result.out, "report");
  ASSERT_TRUE(json);
  const JsonRef root(*json, "report");
  for (const char* key :
       {"gap_s", "gap_p95_s", "gap_beside_s", "gap_beside_p95_s", "first_token_s"}) {
    EXPECT_GT(root.get_float(key).value_or(0.0), 0.0) << key;
  }
  const CommandResult too_long = volta({"bench", "gaps", "run", "--prompt", "1900"});
  EXPECT_EQ(too_long.exit_code, 2);
  EXPECT_THAT(too_long.err, HasSubstr("--prompt 1900: the model's context of 16"));
}

TEST_F(BenchModelTest, ATokenReadsOneRowOfATable) {
  constexpr std::int64_t kPlaces = (kContext - 1) * kDim * 4, kTable = (kVocab - 1) * kDim * 4;
  train("tied");
  EXPECT_EQ(unread("tied"), kPlaces);  // The embedding is the output, too.
  train("untied", {"--untied"});
  EXPECT_EQ(unread("untied"), kPlaces + kTable);
  train("rotary", {"--position", "rotary", "--norm", "rms"});
  EXPECT_EQ(unread("rotary"), 0);
}

TEST_F(BenchModelTest, NarrowWeightsAreFewerBytes) {
  train("run");
  const auto bytes = [&](const std::string& weights) {
    const JsonValue json = report({"run", "--prompt", "1", "--weights", weights});
    return JsonRef(json, "report").get_int("bytes_per_token").value_or(0);
  };
  const std::int64_t full = bytes("stored"), half = bytes("bf16"), integers = bytes("q8");
  EXPECT_LT(half, full);
  EXPECT_LT(integers, half);
  EXPECT_GT(integers, 0);
}

TEST_F(BenchModelTest, IntegersOfAFileAreNamedAsTheyAre) {
  train("run");
  const CommandResult made = volta({"quantize", "run", "--weights", "q8", "--out", "q8"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  // They are not rounded again, but f32 widens them.
  for (const auto& [asked, named] :
       {std::pair{"q4", "q8"}, {"stored", "q8"}, {"bf16", "q8"}, {"f32", "f32"}}) {
    const JsonValue json = report({"q8", "--prompt", "1", "--weights", asked});
    EXPECT_EQ(JsonRef(json, "report").get_string("weights").value_or(""), named);
  }
}

TEST_F(BenchModelTest, BlocksOfAGgufFileStayWhatTheyAre) {
  std::ofstream(dir_.file("text.txt")) << std::string(400, 'x');
  const CommandResult trained =
      volta({"train", "--data",       "text.txt", "--out",        "run",      "--layers",
             "1",     "--heads",      "2",        "--dim",        "64",       "--context",
             "16",    "--batch",      "2",        "--steps",      "1",        "--threads",
             "1",     "--eval-every", "0",        "--activation", "gelu_tanh"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto bytes = [&](const std::string& model, const std::string& weights) {
    const JsonValue json = report({model, "--prompt", "1"});
    EXPECT_EQ(JsonRef(json, "report").get_string("weights").value_or(""), weights);
    return JsonRef(json, "report").get_int("bytes_per_token").value_or(0);
  };
  const std::int64_t wide = bytes("run", "stored");
  for (const auto& [type, weights, most] : {std::tuple{"q8_0", "q8", 0.35}, {"q4_0", "q4", 0.22}}) {
    const std::string file = std::string(weights) + ".gguf";
    const CommandResult made = volta({"convert", "run", file, "--type", type});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(volta({"verify", file}).exit_code, 0);
    const std::int64_t stored = bytes(file, weights);
    EXPECT_GT(stored, 0);
    EXPECT_LT(static_cast<double>(stored), most * static_cast<double>(wide)) << type;
    const JsonValue wider = report({file, "--prompt", "1", "--weights", "f32"});
    EXPECT_EQ(JsonRef(wider, "report").get_string("weights").value_or(""), "f32");
    // Converted, the model has biases, too.
    EXPECT_GE(JsonRef(wider, "report").get_int("bytes_per_token").value_or(0), wide);
    const CommandResult text = volta({"generate", file, "-p", "xx", "-n", "4"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    const CommandResult back = volta({"convert", file, std::string(weights)});
    EXPECT_EQ(back.exit_code, 0) << back.err;
  }
}

// A matrix whose inner size is no multiple of 32 has no blocks of q4_0, and can be q8 beside those.
TEST_F(BenchModelTest, AllFormatsOfAModelAreNamed) {
  std::ofstream(dir_.file("text.txt")) << std::string(400, 'x');
  const CommandResult trained = volta(
      {"train",    "--data",  "text.txt", "--out",     "run", "--layers",     "1",  "--heads",
       "2",        "--dim",   "64",       "--ffn",     "80",  "--context",    "16", "--batch",
       "2",        "--steps", "1",        "--threads", "1",   "--eval-every", "0",  "--activation",
       "gelu_tanh"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const CommandResult made = volta({"convert", "run", "mixed.gguf", "--type", "q4_0"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  for (const auto& [asked, named] : {std::pair{"stored", "q4"}, {"q8", "q4+q8"}}) {
    const JsonValue json = report({"mixed.gguf", "--prompt", "1", "--weights", asked});
    EXPECT_EQ(JsonRef(json, "report").get_string("weights").value_or(""), named);
  }
}

TEST_F(BenchModelTest, PromptsThatDoNotFitAreNamed) {
  train("run");
  const CommandResult usual = bench({"run"});  // Neither 128 nor 512 fits.
  EXPECT_EQ(usual.exit_code, 0) << usual.err;
  EXPECT_THAT(usual.out, HasSubstr("\n      7 "));
  EXPECT_THAT(usual.out, Not(HasSubstr("inf")));
  const CommandResult clipped = bench({"run", "--prompt", "14"});
  EXPECT_EQ(clipped.exit_code, 0) << clipped.err;
  EXPECT_THAT(clipped.err, HasSubstr("room for 2 tokens, not 4"));
  const CommandResult longer = bench({"run", "--prompt", "15"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err, HasSubstr("--prompt 15"));
  EXPECT_THAT(longer.err, HasSubstr("at most 14"));
}

TEST_F(BenchModelTest, AnInterruptEndsIt) {
  train("run");
  test::Command endless({"bench", "model", "run", "--runs", "100000", "--prompt", "14,14,14"},
                        dir_.path());
  // Its note comes once the model is loaded and signals are heard.
  const auto noted = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().extension() != ".err") continue;
      const auto text = read_text_file(entry.path().string());
      if (text && text->find("has room for") != std::string::npos) return true;
    }
    return false;
  };
  for (int i = 0; i < 6000 && !noted(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  endless.kill(SIGINT);
  const CommandResult result = endless.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST_F(BenchModelTest, WhatIsNoModelIsRefused) {
  EXPECT_EQ(bench({}).exit_code, 2);
  EXPECT_EQ(bench({"nowhere"}).exit_code, 3);
  EXPECT_EQ(bench({"nowhere", "--output", "csv"}).exit_code, 2);
  EXPECT_EQ(bench({"nowhere", "--prompt", "0"}).exit_code, 2);
  EXPECT_EQ(bench({"nowhere", "--weights", "q3"}).exit_code, 2);
}

}  // namespace
}  // namespace volta
