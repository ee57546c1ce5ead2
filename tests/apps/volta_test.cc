// The command line, run as a user runs it: what it prints, what it leaves behind, how it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "support/alloc_counter.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::Command;
using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::Not;

// Waits until something holds; false when it takes a minute.
template <typename Condition>
bool wait_until(Condition condition) {
  for (int i = 0; i < 30000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class VoltaTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  CommandResult volta(const std::vector<std::string>& arguments,
                      const std::map<std::string, std::string>& environment = {}) const {
    return run_volta(arguments, dir_.path(), environment);
  }
  // The smallest run that learns something.
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train",        "--data",  "text.txt",  "--out",   "run",   "--tokenizer",  "char",
        "--layers",     "1",       "--heads",   "2",       "--dim", "16",           "--context",
        "16",           "--batch", "4",         "--steps", "6",     "--eval-every", "3",
        "--save-every", "3",       "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy dog.\n";
    write("text.txt", text);
  }
  void expect_error(const std::vector<std::string>& arguments, int exit_code,
                    const std::string& words,
                    const std::map<std::string, std::string>& environment = {}) const {
    const CommandResult result = volta(arguments, environment);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  }

  test::TempDir dir_;
};

TEST_F(VoltaTest, TrainsGeneratesEvaluatesAndInspects) {
  const CommandResult trained = volta(train({"--output", "json"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto json = parse_json(trained.out, "train");
  ASSERT_TRUE(json) << trained.out;
  EXPECT_EQ(*JsonRef(*json, "train").get_int("steps"), 6);
  EXPECT_THAT(trained.err, HasSubstr("step 6/6"));
  EXPECT_TRUE(std::filesystem::exists(path("run/loss.svg")));
  EXPECT_TRUE(std::filesystem::exists(path("run/step-6/model.safetensors")));

  const CommandResult generated = volta({"generate", "run", "-p", "the", "-n", "8"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_THAT(generated.out, ::testing::StartsWith("the"));
  EXPECT_EQ(generated.out.size(), 3u + 8u + 1u);

  const CommandResult evaluated = volta({"eval", "run", "--data", "text.txt", "--output", "json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("\"perplexity\":"));

  for (const std::string output : {"text", "json", "csv"}) {
    const CommandResult inspected = volta({"inspect", "run", "--tensors", "--output", output});
    EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
    EXPECT_THAT(inspected.out, HasSubstr("transformer.wte.weight"));
  }
}

TEST_F(VoltaTest, ABatchGivesWhatEachPromptGivesAlone) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const CommandResult batch = volta({"generate", "run", "-p", "the quick", "-p", "lazy", "-n", "12",
                                     "--seed", "5", "--output", "json"});
  const CommandResult alone =
      volta({"generate", "run", "-p", "lazy", "-n", "12", "--seed", "6", "--output", "json"});
  ASSERT_EQ(batch.exit_code, 0) << batch.err;
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(batch.out, HasSubstr(alone.out.substr(0, alone.out.size() - 1)));
}

TEST_F(VoltaTest, GreedyTextIsTheSameWithoutTheCache) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::vector<std::string> arguments = {
      "generate", "run", "--ids", "5,6,7", "-n", "9", "--temperature", "0", "--output", "json"};
  std::vector<std::string> without = arguments;
  without.push_back("--no-kv-cache");
  const CommandResult cached = volta(arguments);
  EXPECT_EQ(cached.exit_code, 0) << cached.err;
  EXPECT_THAT(cached.out, HasSubstr("{\"ids\":[5,6,7,"));
  EXPECT_EQ(volta(without).out, cached.out);
}

TEST_F(VoltaTest, ShowsTheGraphInEveryForm) {
  EXPECT_THAT(volta({"graph"}).out, HasSubstr("CachedAttention"));
  EXPECT_THAT(volta({"graph", "--output", "dot"}).out,
              ::testing::AllOf(HasSubstr("digraph"), HasSubstr("flops"), HasSubstr("arena @")));
  const CommandResult json =
      volta({"graph", "--phase", "train", "--tokens", "8", "--output", "json"});
  EXPECT_TRUE(parse_json(json.out, "graph")) << json.err;
  EXPECT_THAT(json.out, HasSubstr("AdamW"));
  expect_error({"graph", "--phase", "sleep"}, 2, "train, eval, prefill or decode");
  expect_error({"graph", "--phase", "prefill", "--tokens", "65"}, 2,
               "1, 2, 4, 8, 16, 32, 64, 128, 256");
  expect_error({"graph", "--phase", "eval", "--tokens", "513"}, 2, "context is 512");
  // What trains is what the run was told to do.
  ASSERT_EQ(volta(train({"--weight-decay", "0.25", "--accumulate", "1"})).exit_code, 0);
  const CommandResult trained = volta({"graph", "run", "--phase", "train"});
  EXPECT_THAT(trained.out, HasSubstr("0.25")) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("[4, 16]"));
}

TEST_F(VoltaTest, ReadsThePlansThatItWrites) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--phase", "decode"},
        {"--phase", "decode", "--weights", "q8"},
        {"--phase", "decode", "--weights", "q4"},
        {"--phase", "train", "--tokens", "8", "--dtype", "bf16"}}) {
    std::vector<std::string> arguments = {"graph"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const CommandResult text = volta(arguments);
    arguments.insert(arguments.end(), {"--output", "json"});
    const CommandResult json = volta(arguments);
    ASSERT_EQ(json.exit_code, 0) << json.err;
    std::ofstream(path("plan.json")) << json.out;
    EXPECT_EQ(volta({"graph", "plan.json", "--output", "json"}).out, json.out);
    EXPECT_EQ(volta({"graph", "plan.json"}).out, text.out);
  }
  for (const std::string model : {"llama-tiny", "gpt2-tiny", "mistral-tiny-sliding"}) {
    if (!test::has_shared("models/" + model)) continue;
    for (const std::string phase : {"decode", "prefill", "eval", "train"}) {
      const CommandResult json = volta(
          {"graph", test::shared_path("models/" + model), "--phase", phase, "--output", "json"});
      ASSERT_EQ(json.exit_code, 0) << json.err;
      std::ofstream(path("plan.json")) << json.out;
      EXPECT_EQ(volta({"graph", "plan.json", "--output", "json"}).out, json.out);
    }
  }
  expect_error({"graph", "plan.json", "--output", "dot"}, 2, "dot");
  expect_error({"graph", "plan.json", "--phase", "decode"}, 2, "have no effect on the plan");
  expect_error({"graph", "plan.json", "--weights", "q8"}, 2, "--weights has no effect");
  expect_error({"graph", "absent.json"}, 3, "absent.json");
  std::ofstream(path("bad.json")) << R"({"arena_bytes":0,"arena_bytes_unshared":0,"bindings":[],)"
                                  << R"("steps":[{"op":"Sinus","fields":{}}],"outputs":[]})";
  expect_error({"graph", "bad.json"}, 3,
               "bad.json: steps[0].op: expected the name of an op, found Sinus");
}

TEST_F(VoltaTest, BenchesAndProfiles) {
  const std::vector<std::string> quick = {"--runs",   "1", "--warmup",  "0",
                                          "--tokens", "4", "--lengths", "4,16"};
  std::vector<std::string> arguments = {"--bench-infer"};
  arguments.insert(arguments.end(), quick.begin(), quick.end());
  const CommandResult text = volta(arguments);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("first token"));
  for (const std::string output : {"json", "csv"}) {
    std::vector<std::string> with = {"bench", "infer", "--output", output};
    with.insert(with.end(), quick.begin(), quick.end());
    EXPECT_EQ(volta(with).exit_code, 0);
  }
  ASSERT_EQ(volta(train()).exit_code, 0);
  for (const std::string name : {"p.txt", "p.csv", "p.json", "p.trace.json"}) {
    const CommandResult profiled = volta({"generate", "run", "-n", "4", "--profile", name});
    EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
    const auto profile = read_text_file(path(name));
    ASSERT_TRUE(profile);
    EXPECT_THAT(*profile, HasSubstr("MatMul"));
  }
  write("p.txt", "mine");
  const std::vector<std::string> again = {"generate", "run", "-n", "4", "--profile", "p.txt"};
  expect_error(again, 2, "--profile p.txt: the file is there already");
  EXPECT_EQ(*read_text_file(path("p.txt")), "mine");
  std::vector<std::string> forced = again;
  forced.push_back("--force");
  EXPECT_EQ(volta(forced).exit_code, 0);
  EXPECT_THAT(*read_text_file(path("p.txt")), HasSubstr("MatMul"));
  expect_error({"generate", "run", "-n", "4", "--force"}, 2, "--force has no effect here");
}

TEST_F(VoltaTest, ARunIsReplacedByForceOnly) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error(train(), 2, "holds a run already");
  ASSERT_EQ(volta(train({"--force"})).exit_code, 0);
  EXPECT_TRUE(path_exists(path("run.old/step-6/model.safetensors")));
  expect_error(train({"--force", "--resume"}), 2, "leave one of them out");
  // A model would win over the run beside it.
  expect_error({"train", "--data", "text.txt", "--init", "run/step-6", "--out", "run/step-6"}, 2,
               "holds what the run reads");
  std::filesystem::copy(path("run/step-6"), path("model"));
  expect_error({"train", "--data", "text.txt", "--out", "model"}, 2, "holds a model");
  std::filesystem::copy(path("run/step-3"), path("model/step-3"));
  expect_error({"generate", "model"}, 2, "holds a model of its own and the checkpoints of a run");
  const CommandResult verified = volta({"verify", "model"});
  EXPECT_EQ(verified.exit_code, 6) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("'model' holds a model of its own and the checkpoints of"));
  EXPECT_THAT(verified.out, HasSubstr("model: 1 finding: 16 tensors"));
  EXPECT_THAT(verified.out, HasSubstr("model/step-3: good"));
}

TEST_F(VoltaTest, ARunSaysHowToGoOnWithIt) {
  std::filesystem::create_directory(path("my runs"));
  Command command(train({"--steps", "1000000", "--out", "my runs/a"}), dir_.path());
  ASSERT_TRUE(wait_until([&] { return path_exists(path("my runs/a/step-3")); }));
  command.kill(SIGINT);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_THAT(stopped.err, HasSubstr(": volta train --out 'my runs/a' --resume\n"));
  expect_error({"train", "--out", "my runs/a/step-3", "--resume"}, 2,
               "`volta train --out '" + path("my runs/a") + "' --resume`");
}

TEST_F(VoltaTest, AnEarlyStopReturnsToTheBestCheckpoint) {
  const CommandResult result =
      volta(train({"--steps", "500", "--lr", "0.5", "--schedule", "constant", "--warmup", "0",
                   "--patience", "3", "--eval-every", "2", "--save-every", "1", "--keep", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(stopped early)\nbest: val_loss "));
  const std::size_t place = result.out.find("model: run/step-");
  ASSERT_NE(place, std::string::npos) << result.out;
  const std::string best = result.out.substr(place + 7, result.out.find('\n', place) - place - 7);
  EXPECT_THAT(result.out, HasSubstr(" after step " + best.substr(9) + "\n"));
  EXPECT_TRUE(path_exists(path(best + "/model.safetensors")));
  // The run's folder is that model.
  const std::vector<std::string> rest = {"-p", "the", "-n", "8", "--temperature", "0"};
  const auto generate = [&](const std::string& model) {
    std::vector<std::string> arguments = {"generate", model};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return volta(arguments).out;
  };
  EXPECT_EQ(generate("run"), generate(best));
}

// The steps of this part, and the best one where it is another than the last.
TEST_F(VoltaTest, AResultCountsItsOwnSteps) {
  ASSERT_EQ(volta(train({"--schedule", "constant"})).exit_code, 0);
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": true"));
  const CommandResult more =
      volta({"train", "--out", "run", "--resume", "--steps", "9", "--no-keep-best"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, testing::StartsWith("3 steps in "));
  EXPECT_THAT(more.out, HasSubstr("(9 in all)"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": false"));
  const CommandResult none = volta(
      {"train", "--out", "run", "--resume", "--no-keep-best", "--keep-best", "--output", "json"});
  EXPECT_THAT(none.out, HasSubstr("\"steps\":9,\"new_steps\":0,"));
  EXPECT_THAT(none.out, HasSubstr("\"best\":{\"step\":"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": true"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"best\": {"));
}

TEST_F(VoltaTest, TellsWhatItIsAndRunsOn) {
  EXPECT_THAT(volta({"version"}).out, HasSubstr("volta 0."));
  EXPECT_TRUE(parse_json(volta({"version", "--output", "json"}).out, "version"));
  EXPECT_THAT(volta({"devices"}).out, HasSubstr("cpu"));
  EXPECT_TRUE(parse_json(volta({"devices", "--output", "json"}).out, "devices"));
  EXPECT_THAT(volta({"train", "--help"}).out, HasSubstr("shakespeare-char-cpu"));
  EXPECT_THAT(volta({"--version"}).out, HasSubstr("volta 0."));
  EXPECT_THAT(volta({"version"}, {{"VOLTA_SIMD", "sse4"}}).out, HasSubstr("(sse4)"));
  expect_error({"version"}, 2, "VOLTA_SIMD", {{"VOLTA_SIMD", "mmx"}});
}

TEST_F(VoltaTest, TheDemoRuns) {
  const std::vector<std::string> arguments = {"--demo", "--text", "text.txt", "--steps",
                                              "4",      "--out",  "demo"};
  const CommandResult demo = volta(arguments);
  EXPECT_EQ(demo.exit_code, 0) << demo.err;
  EXPECT_THAT(demo.out, HasSubstr("What a token costs"));
  expect_error(arguments, 2, "give another folder");
  const CommandResult json =
      volta({"demo", "--text", "text.txt", "--steps", "4", "--out", "other", "--output", "json"});
  EXPECT_TRUE(parse_json(json.out, "demo")) << json.out;
  EXPECT_THAT(json.err, HasSubstr("What a token costs"));
  expect_error({"demo", "--output", "dot"}, 2, "text, json, csv");
  expect_error({"demo", "--dtype", "f8"}, 2, "f32 or bf16");
}

TEST_F(VoltaTest, BenchLengthsMustFitTheContext) {
  ASSERT_EQ(volta(train()).exit_code, 0);  // A context of 16: the usual lengths do not fit.
  const CommandResult usual = volta({"bench", "infer", "run", "--runs", "1", "--output", "csv"});
  EXPECT_EQ(usual.exit_code, 0) << usual.err;
  EXPECT_THAT(usual.out, HasSubstr("\n7,"));
  EXPECT_THAT(usual.err, HasSubstr("room for 9 tokens, not 32"));
  EXPECT_THAT(usual.out, Not(HasSubstr("inf")));
  expect_error({"bench", "infer", "run", "--lengths", "15"}, 2, "at most 14");
  expect_error({"bench", "infer", "--lengths", "600"}, 2, "at most 510");
}

TEST_F(VoltaTest, ProfilesHaveAPlaceBeforeTheWorkBegins) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error({"generate", "run", "--profile", "nowhere/p.txt"}, 1, "nowhere");
  expect_error({"generate", "run", "--profile", "run"}, 1, "it is a folder");
  expect_error({"inspect", "run", "--profile", "p.txt"}, 2, "--profile has no effect");
  expect_error({"version", "--profile", "p.txt"}, 2, "--profile has no effect");
  expect_error({"generate", "run", "--profile", ""}, 2, "--profile");
}

TEST_F(VoltaTest, GenerateSaysWhyItEnds) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const CommandResult full = volta({"generate", "run", "-p", "the", "-n", "200", "-v"});
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr("the context of 16 is full"));
  EXPECT_THAT(full.err, HasSubstr("memory: weights"));
  expect_error({"generate", "run", "-p", std::string(200, 'a')}, 2, "context");
  expect_error({"generate", "run", "--stop", ""}, 2, "--stop");
  Command endless({"generate", "run", "-p", "the", "-n", "100000000", "--no-kv-cache"},
                  dir_.path());
  EXPECT_EQ(endless.wait().exit_code, 0);  // The context ends it.
}

TEST_F(VoltaTest, EvalNamesWhatDoesNotFit) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error({"eval", "run", "--data", "text.txt", "--val-fraction", "nan"}, 2, "nan");
  expect_error({"eval", "run", "--data", "run/step-6/model.safetensors"}, 2, "eval reads text");
}

// From the start of the process to the end after the first token, at best: the rest is the machine.
TEST_F(VoltaTest, TheFirstTokenComesInFiftyMilliseconds) {
#ifndef NDEBUG
  GTEST_SKIP() << "not optimised";
#endif
  if (!test::can_count_allocations()) GTEST_SKIP() << "sanitizers distort time";
  const std::vector<std::string> demo = {"demo",    "--text", "text.txt",  "--out", "demo",
                                         "--steps", "1",      "--threads", "2"};
  ASSERT_EQ(volta(demo).exit_code, 0);
  double best = 1e9;
  for (int i = 0; i < 20 && best >= 0.05; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(volta({"generate", "demo/run", "-p", "the", "-n", "1"}).exit_code, 0);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count());
  }
  EXPECT_LT(best, 0.05);
}

TEST_F(VoltaTest, GenerationIsInterruptible) {
  std::vector<std::string> arguments = train({"--context", "4096", "--steps", "1", "--eval-every",
                                              "0", "--val-fraction", "0", "--batch", "1"});
  write("text.txt", std::string(5000, 'a') + "b");
  ASSERT_EQ(volta(arguments).exit_code, 0);
  CommandResult stopped;
  for (const int wait_ms : {300, 1000, 3000}) {  // A busy machine may need longer to begin.
    Command command({"generate", "run", "-p", "a", "-n", "4000", "--no-kv-cache", "--output",
                     "json", "--profile", "p.txt", "--threads", "1"},
                    dir_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    command.kill(SIGINT);
    stopped = command.wait();
    if (!stopped.out.empty()) break;
  }
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_TRUE(parse_json(stopped.out, "generate")) << stopped.out;
  EXPECT_THAT(stopped.out, HasSubstr("cancelled"));
}

TEST_F(VoltaTest, InspectChecksTheTensors) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::filesystem::copy(path("run/step-6"), path("model"));
  std::filesystem::remove(path("model/manifest.json"));
  const auto config = read_text_file(path("model/config.json"));
  ASSERT_TRUE(config);
  const CommandResult good = volta({"inspect", "model", "--output", "json"});
  const auto json = parse_json(good.out, "inspect");
  ASSERT_TRUE(json) << good.err;
  const JsonRef root(*json, "inspect");
  EXPECT_EQ(*root.get_int("weight_bytes"), 4 * *root.get_int("parameters"));
  std::string two = *config;
  for (const std::string key : {"\"n_layer\": 1", "\"layers\": 1"}) {
    const auto at = two.find(key);
    ASSERT_NE(at, std::string::npos) << two;
    two[at + key.size() - 1] = '2';
  }
  write("model/config.json", two);
  expect_error({"inspect", "model"}, 3, "no tensor 'transformer.h.1.ln_1.weight'");
}

TEST_F(VoltaTest, InitSaysWhatTheModelIs) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::vector<std::string> fine = {"train", "--data",   "text.txt", "--init", "run/step-6",
                                         "--out", "fine",     "--steps",  "2",      "--context",
                                         "8",     "--warmup", "1"};
  const CommandResult tuned = volta(fine);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  std::vector<std::string> deeper = fine;
  deeper.insert(deeper.end(), {"--layers", "7"});
  expect_error(deeper, 2, "--layers does not go with --init");
}

TEST_F(VoltaTest, UsageErrorsEndWithTwo) {
  EXPECT_EQ(volta({}).exit_code, 2);
  EXPECT_EQ(volta({"dance"}).exit_code, 2);
  EXPECT_EQ(volta({"train", "--wings"}).exit_code, 2);
  EXPECT_EQ(volta({"train", "--steps", "many"}).exit_code, 2);
  expect_error({"train", "--steps", "99999999999999999999"}, 2, "99999999999999999999");
  expect_error({"generate", "run", "--seed", "-1"}, 2, "'-1'");
  expect_error({"bench", "press"}, 2, "press is not known");
  expect_error({"train", "--wings", "3"}, 2, "--wings is not known");
  expect_error({"train", "--data", "text.txt"}, 2, "--out is required");
  expect_error({"train", "--out", "run"}, 2, "--data is required");
  expect_error({"train", "--out", "none", "--resume"}, 2,
               "--out none: there is no run.json, which");
  expect_error({"train", "--preset", "nobody", "--data", "text.txt", "--out", "run"}, 2,
               "shakespeare-char-cpu");
  expect_error(train({"--heads", "3"}), 2, "divide");
  expect_error(train({"--kv-heads", "3"}), 2, "kv_heads");
  expect_error(train({"--tokenizer", "words"}), 2, "byte or char");
  expect_error(train({"--schedule", "zigzag"}), 2, "cosine, linear or constant");
  expect_error(train({"--dtype", "f8"}), 2, "f32 or bf16");
  expect_error(train({"--output", "dot"}), 2, "text, json");
  expect_error(train({"--dropout", "1.5"}), 2, "dropout");
  for (const std::string flag :
       {"--layers", "--dim", "--context", "--batch", "--steps", "--heads"}) {
    for (const std::string value : {"0", "-3", "999999999999"}) {
      const CommandResult result = volta(train({flag, value}));
      EXPECT_EQ(result.exit_code, 2) << flag << " " << value << ": " << result.err;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path("run/metrics.jsonl")));
}

TEST_F(VoltaTest, BadDataIsNamed) {
  expect_error(train({"--data", "nothing.txt"}), 3, "nothing.txt");
  write("empty.txt", "");
  expect_error(train({"--data", "empty.txt"}), 3, "empty");
  write("short.txt", "too short");
  expect_error(train({"--data", "short.txt"}), 2, "context");
  write("latin1.txt", std::string(1000, 'x') + "\xE9" + std::string(1000, 'y'));
  expect_error(train({"--data", "latin1.txt"}), 3, "UTF-8");
  expect_error(train({"--data", "."}), 3, "folder");
  expect_error(train({"--data", "/dev/null"}), 3, "device");
  EXPECT_FALSE(path_exists(path("run")));
  ASSERT_EQ(volta(train()).exit_code, 0);
  for (const std::string data : {"nothing.txt", "empty.txt", "latin1.txt", ".", "/dev/null"}) {
    expect_error({"eval", "run", "--data", data}, 3, data == "." ? "folder" : data);
  }
}

TEST_F(VoltaTest, PlacesThatCannotBeWrittenEndWithOne) {
  expect_error(train({"--out", "text.txt"}), 1, "text.txt");
  expect_error(train({"--out", "text.txt/x"}), 1, "text.txt");
  expect_error(train({"--out", "/proc/volta"}), 1, "/proc/volta");
  const CommandResult unprofiled = volta(train({"--profile", "none/x.json"}));
  EXPECT_EQ(unprofiled.exit_code, 1) << unprofiled.err;
  EXPECT_THAT(unprofiled.err, HasSubstr("none/x.json"));
}

TEST_F(VoltaTest, AResumeTakesWhatIsNotGivenFromItsRun) {
  const std::vector<std::string> tiny = {"--preset", "tiny", "--layers",  "1", "--dim",        "16",
                                         "--heads",  "2",    "--context", "8", "--batch",      "2",
                                         "--steps",  "3",    "--seed",    "9", "--eval-every", "0"};
  std::vector<std::string> first = {"train", "--data", "text.txt", "--out", "fin"};
  first.insert(first.end(), tiny.begin(), tiny.end());
  ASSERT_EQ(volta(first).exit_code, 0);
  std::vector<std::string> again = {"train", "--out", "fin", "--resume", "--output", "json"};
  again.insert(again.end(), tiny.begin(), tiny.end() - 4);
  const CommandResult resumed = volta(again);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("\"loss\":"));
  EXPECT_THAT(resumed.out, Not(HasSubstr("\"loss\":0")));
  expect_error({"train", "--out", "fin", "--resume", "--tokenizer", "char"}, 6,
               "tokenizer is char, the checkpoint has byte");
  expect_error({"train", "--out", "fin", "--resume", "--steps", "4"}, 6,
               "`volta train --init fin/step-3 --data FILE --out NEW`");
  EXPECT_EQ(volta({"train", "--data", "text.txt", "--init", "fin", "--out", "more", "--steps", "2",
                   "--warmup", "0", "--eval-every", "0"})
                .exit_code,
            0);
}

TEST_F(VoltaTest, AnEvaluationCanBeInterrupted) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "the quick brown fox jumps over the lazy dog.\n";
  write("long.txt", text);
  CommandResult stopped;
  // On a slow machine the text may still be on its way into tokens at first.
  for (const int wait_ms : {1500, 6000, 20'000}) {
    Command command({"eval", "run", "--data", "long.txt", "--threads", "1"}, dir_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    command.kill(SIGINT);
    stopped = command.wait();
    EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
    if (stopped.err.find("interrupted after") != std::string::npos) break;
  }
  EXPECT_THAT(stopped.err, HasSubstr("interrupted after"));
}

TEST_F(VoltaTest, BadModelsEndWithThree) {
  expect_error({"generate", "nowhere"}, 3, "nowhere");
  std::filesystem::create_directory(path("hollow"));
  expect_error({"generate", "hollow"}, 3, "hollow");
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::filesystem::copy(path("run/step-6"), path("model"));
  std::filesystem::resize_file(path("model/model.safetensors"), 1000);
  for (const std::string command : {"generate", "inspect"}) {
    expect_error({command, "model"}, 3, "the manifest says");
  }
  std::filesystem::remove(path("model/manifest.json"));
  expect_error({"generate", "model"}, 3, "truncated");
  write("model/config.json", "{\"model_type\": \"mamba\"}");
  expect_error({"generate", "model"}, 3, "mamba");
  write("model/config.json", "{");
  expect_error({"inspect", "model"}, 3, "config.json");
}

TEST_F(VoltaTest, BadPromptsEndWithTwo) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error({"generate", "run", "--output", "json", "-p", "QUICK"}, 2, "vocabulary");
  expect_error({"generate", "run", "--output", "json", "--ids", "1,999"}, 2, "999");
  expect_error({"generate", "run", "--output", "json", "--ids", "1,x"}, 2, "--ids");
  expect_error({"generate", "run", "--output", "json", "-p", std::string(200, 'a')}, 2, "context");
  expect_error({"generate", "run", "--output", "json", "--temperature", "-1"}, 2, "temperature");
  expect_error({"generate", "run", "--output", "json", "--top-p", "0"}, 2, "top_p");
}

TEST_F(VoltaTest, DevicesThatAreNotThereEndWithFive) {
  expect_error({"bench", "infer"}, 5, "CUDA", {{"VOLTA_DEVICE", "cuda"}});
  expect_error({"bench", "infer", "--device", "cuda"}, 5, "CUDA");
  expect_error({"bench", "infer", "--device", "cuda:1"}, 5, "CUDA device 1");
  expect_error({"bench", "infer", "--device", "cuda:one"}, 2, "'cuda:one' is no device");
  expect_error({"bench", "infer"}, 2, "VOLTA_DEVICE", {{"VOLTA_DEVICE", "abacus"}});
  expect_error({"bench", "infer"}, 2, "VOLTA_SIMD", {{"VOLTA_SIMD", "mmx"}});
}

TEST_F(VoltaTest, ARunFolderBelongsToOneRun) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  EXPECT_NE(volta(train()).exit_code, 0);  // Holds a run, and --resume is missing.
  Command first(train({"--steps", "1000000", "--out", "busy"}), dir_.path());
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(path("busy/step-3")); }));
  const CommandResult second = volta(train({"--steps", "1000000", "--out", "busy", "--resume"}));
  EXPECT_EQ(second.exit_code, 1) << second.err;
  EXPECT_THAT(second.err, HasSubstr("busy"));
  first.kill(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 130);
}

// `timeout` signals a process and its group: that is one wish, and a checkpoint is to be written.
TEST_F(VoltaTest, ASecondSignalRightAfterTheFirstLosesNothing) {
  Command command(train({"--steps", "1000000", "--save-every", "1000000", "--out", "twice"}),
                  dir_.path());
  // Before the first step has ended there is nothing to save.
  ASSERT_TRUE(wait_until([&] {
    std::error_code error;
    return std::filesystem::file_size(path("twice/metrics.jsonl"), error) > 0 && !error;
  }));
  command.kill(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  command.kill(SIGTERM);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_EQ(volta({"verify", "twice"}).exit_code, 0);
}

TEST_F(VoltaTest, AnInterruptedRunSavesAndResumesToTheSameBits) {
  const std::vector<std::string> steps = {"--steps", "2000",         "--save-every",
                                          "5000",    "--eval-every", "0"};
  std::vector<std::string> whole = steps;
  whole.insert(whole.end(), {"--out", "whole"});
  ASSERT_EQ(volta(train(whole)).exit_code, 0);

  Command command(train(steps), dir_.path());
  const auto lines = [&] {
    const auto text = read_text_file(path("run/metrics.jsonl"));
    return text ? std::count(text->begin(), text->end(), '\n') : 0;
  };
  ASSERT_TRUE(wait_until([&] { return lines() >= 5; }));
  command.kill(SIGINT);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  const CommandResult resumed =
      volta(train({"--steps", "2000", "--save-every", "5000", "--eval-every", "0", "--resume"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto a = read_binary_file(path("whole/step-2000/model.safetensors"));
  const auto b = read_binary_file(path("run/step-2000/model.safetensors"));
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(std::ranges::equal(a->span(), b->span()));
}

// The numbers of closed streams are those of the next files that are opened.
TEST_F(VoltaTest, WhatIsPrintedReachesNoFileOfARun) {
  std::string words;
  for (const std::string& word : train()) words += " " + word;
  const std::string shell = "cd '" + dir_.path() + "' && '" VOLTA_BINARY "'" + words +
                            " <&- 2>&- >'" + path("out.txt") + "'";
  ASSERT_EQ(std::system(shell.c_str()), 0);
  std::ifstream metrics(path("run/metrics.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    EXPECT_TRUE(line.starts_with('{') && line.ends_with('}')) << line;
  }
  EXPECT_GE(lines, 6);
  const std::string closed = "cd '" + dir_.path() + "' && '" VOLTA_BINARY "' version >&- 2>&-";
  EXPECT_EQ(WEXITSTATUS(std::system(closed.c_str())), 1);
}

TEST_F(VoltaTest, AClosedOutputIsAnErrorNotACrash) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::string command = std::string(VOLTA_BINARY) + " generate " + path("run") +
                              " -n 2000 -p the > /dev/full 2> " + path("full.err");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(*read_text_file(path("full.err")), HasSubstr("standard output"));
}

// With this much address space.
int exit_code_within(std::uint64_t bytes, const std::vector<std::string>& arguments) {
  const int pid = ::fork();
  if (pid == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
    std::vector<const char*> argv = {VOLTA_BINARY};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back(nullptr);
    const rlimit limit = {bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    ::execv(VOLTA_BINARY, const_cast<char* const*>(argv.data()));
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Wherever memory ends, initialisers included, the exit code says so.
TEST(OutOfMemory, EndsWithFourFromTheFirstAllocationOn) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "sanitizers need address space";
  constexpr std::uint64_t kStep = std::uint64_t{256} << 10;
  const std::vector<std::vector<std::string>> commands = {
      {"version"},
      {"verify", test::source_path("tests/formats/data/gguf_llama.gguf")},
      {"inspect", test::source_path("tests/formats/data/gguf_llama.gguf"), "--threads", "1"}};
  for (const auto& command : commands) {
    bool loaded = false;  // The system's loader and libraries have had their room.
    bool four = false;
    int code = -1;
    for (std::uint64_t bytes = kStep; code != 0 && bytes < std::uint64_t{1} << 30; bytes += kStep) {
      code = exit_code_within(bytes, command);
      loaded = loaded || code == 4 || code == 0;
      four = four || code == 4;
      const bool loader = code == 127 || code == 128 + SIGSEGV || code == 128 + SIGKILL;
      EXPECT_TRUE(code == 0 || code == 4 || (loader && !loaded))
          << command.front() << " within " << bytes << " bytes ends with " << code;
    }
    EXPECT_EQ(code, 0) << command.front();
    EXPECT_TRUE(four) << command.front();
  }
}

}  // namespace
}  // namespace volta
