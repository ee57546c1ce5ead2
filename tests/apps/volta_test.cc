// The command line, run as a user runs it: what it prints, what it leaves behind, how it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/volta_fixture.h"
#include "base/file.h"
#include "base/json.h"
#include "support/alloc_counter.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::Command;
using test::CommandResult;
using test::VoltaTest;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(VoltaTest, TellsWhatItIsAndRunsOn) {
  EXPECT_THAT(volta({"version"}).out, HasSubstr("volta 0."));
  const auto version = parse_json(volta({"version", "--output", "json"}).out, "version");
  ASSERT_TRUE(version);
  const JsonRef built(*version, "version");
  EXPECT_THAT(*built.get_string("compiler"), AnyOf(HasSubstr("g++ 1"), HasSubstr("clang++ 1")));
  EXPECT_THAT(*built.get_string("flags"), HasSubstr("-march="));
  EXPECT_THAT(*built.get_string("flags"), Not(HasSubstr("/")));
  EXPECT_THAT(*built.member("features")->get_string("build_type"),
              AnyOf("Release", "Debug", "RelWithDebInfo", "MinSizeRel"));
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
  expect_error({"generate", "run", "--profile", "text.txt/p.txt"}, 1, "text.txt/p.txt");
  expect_error({"generate", "run", "--profile", "run"}, 1, "it is a folder");
  expect_error({"inspect", "run", "--profile", "p.txt"}, 2, "--profile has no effect");
  expect_error({"version", "--profile", "p.txt"}, 2, "--profile has no effect");
  expect_error({"generate", "run", "--profile", ""}, 2, "--profile");
}

TEST_F(VoltaTest, GenerateSaysWhyItEnds) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const CommandResult full = volta({"generate", "run", "-p", "the", "-n", "200", "-v"});
  EXPECT_EQ(full.exit_code, 0) << full.err;
  // One note before the text is generated, one after it. Prompts are numbered if there are several.
  EXPECT_THAT(full.err, HasSubstr("\nthe context of 16 tokens has room for 14 of the 200 new"));
  EXPECT_THAT(full.err, HasSubstr("\nended after 14 new tokens, the context of 16 is full"));
  const CommandResult two = volta({"generate", "run", "-p", "the", "-p", "quick", "-n", "13"});
  EXPECT_THAT(two.err, HasSubstr("prompt 2: the context of 16 tokens has room for 12 of the 13"));
  EXPECT_THAT(two.err, Not(HasSubstr("prompt 1")));
  EXPECT_EQ(volta({"generate", "run", "-p", "the", "-n", "-1"}).err,
            "ended after 14 new tokens, the context of 16 is full\n");
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

TEST_F(VoltaTest, PlacesThatCannotBeWrittenEndWithOne) {
  expect_error(train({"--out", "text.txt"}), 1, "text.txt");
  expect_error(train({"--out", "text.txt/x"}), 1, "text.txt");
  expect_error(train({"--out", "/proc/volta"}), 1, "/proc/volta");
  const CommandResult unprofiled = volta(train({"--profile", "text.txt/x.json"}));
  EXPECT_EQ(unprofiled.exit_code, 1) << unprofiled.err;
  EXPECT_THAT(unprofiled.err, HasSubstr("text.txt/x.json"));
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
  expect_error({"generate", "run", "--output", "json", "--top-p", "0"}, 2, "--top-p is 0");
}

TEST_F(VoltaTest, DevicesThatAreNotThereEndWithFive) {
  expect_error({"bench", "infer"}, 5, "CUDA", {{"VOLTA_DEVICE", "cuda"}});
  expect_error({"bench", "infer", "--device", "cuda"}, 5, "CUDA");
  expect_error({"bench", "infer", "--device", "cuda:1"}, 5, "CUDA device 1");
  expect_error({"bench", "infer", "--device", "cuda:one"}, 2, "'cuda:one' is no device");
  expect_error({"bench", "infer"}, 2, "VOLTA_DEVICE", {{"VOLTA_DEVICE", "abacus"}});
  expect_error({"bench", "infer"}, 2, "VOLTA_SIMD", {{"VOLTA_SIMD", "mmx"}});
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
