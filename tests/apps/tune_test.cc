// volta tune, as a user runs it: what it finds and keeps, who picks that up, and everything that
// may be wrong with the request, the place or the file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul_plan.h"
#include "support/temp_dir.h"
#include "tuner/kernels_hash.h"
#include "tuner/tuning_cache.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::Not;

class Tune : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.file(name); }
  std::map<std::string, std::string> environment() const {
    return {{"VOLTA_CACHE_DIR", path("cache")}, {"VOLTA_TUNING", "on"}};
  }
  CommandResult volta(const std::vector<std::string>& arguments,
                      const std::map<std::string, std::string>& more = {}) const {
    std::map<std::string, std::string> variables = environment();
    for (const auto& [name, value] : more) variables[name] = value;
    return run_volta(arguments, dir_.path(), variables);
  }
  // The shortest search there is.
  CommandResult tune(std::vector<std::string> more,
                     const std::map<std::string, std::string>& variables = {}) const {
    more.insert(more.begin(), {"tune", "matmul", "--budget", "0.05", "--runs", "3"});
    return volta(more, variables);
  }
  // A small model, two steps, into the folder `name`.
  CommandResult train(const std::string& name, const std::vector<std::string>& more = {},
                      const std::map<std::string, std::string>& variables = {}) const {
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog\n";
    text.close();
    std::vector<std::string> words = {"train",   "--data",   path("text.txt"),
                                      "--out",   path(name), "--layers",
                                      "1",       "--dim",    "32",
                                      "--heads", "2",        "--context",
                                      "32",      "--batch",  "4",
                                      "--steps", "2",        "--warmup",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    return volta(words, variables);
  }
  std::string file() const {
    return path("cache/matmul_tuning/") + tuner::to_string(tuner::cpu_signature()) + "-" +
           std::string(tuner::kernels_hash()) + ".json";
  }

  test::TempDir dir_;
};

TEST_F(Tune, KeepsWhatItFindsAndTellsIt) {
  const CommandResult first =
      tune({"--dim", "48", "--threads", "1", "--output", "json", "--dtype", "bf16"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto json = parse_json(first.out, "tune");
  ASSERT_TRUE(json);
  const JsonRef root(*json, "tune");
  EXPECT_EQ(*root.get_string("file"), file());
  EXPECT_EQ(*root.get_int("threads"), 1);
  EXPECT_GE(*root.get_float("mean_gain"), 1.0);
  const auto shapes = root.member("shapes")->elements();
  ASSERT_EQ(shapes->size(), 1u);
  const JsonRef& shape = (*shapes)[0];
  EXPECT_EQ(*shape.get_int("m"), 48);
  EXPECT_EQ(*shape.get_string("dtype"), "bf16");
  EXPECT_EQ(*shape.get_string("a_dtype"), "f32");
  EXPECT_FALSE(*shape.get_bool("transpose_a"));
  EXPECT_GT(*shape.get_float("default_s"), 0.0);
  EXPECT_GE(*shape.get_float("default_spread"), 0.0);
  EXPECT_GT(*shape.get_float("tuned_gflops"), 0.0);
  EXPECT_GT(*shape.get_int("measurements"), 5);
  EXPECT_EQ(*shape.get_bool("default_kept"), *shape.get_float("gain") == 1.0);
  EXPECT_THAT(first.err, HasSubstr("[1/1] 48 x 48 x 48 bf16"));

  const CommandResult second = volta({"--tune-matmul", "--m", "2", "--n", "64", "--k", "32",
                                      "--plain", "--budget", "0.05", "--runs", "3"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("2 x 64 x 32 f32 plain"));
  EXPECT_THAT(second.out, HasSubstr("geometric mean"));
  EXPECT_THAT(second.out, HasSubstr("before, after: GFLOP/s; spread: "));
  EXPECT_THAT(second.out, HasSubstr("gain: median ratio of pairs"));
  EXPECT_THAT(second.out, HasSubstr("plain: b is no prepared weight"));
  EXPECT_THAT(second.out, HasSubstr(" bytes"));
  const CommandResult csv = tune({"--dim", "16", "--output", "csv"});
  ASSERT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_THAT(csv.out, HasSubstr("\nf32,f32,true,false,false,"));

  const auto entries = tuner::TuningCache(parent_path(file()), tuner::cpu_signature()).read();
  ASSERT_TRUE(entries);
  EXPECT_EQ(entries->size(), 3u);
}

TEST_F(Tune, ShowsClearsExportsAndImports) {
  EXPECT_THAT(volta({"tune", "show"}).out, HasSubstr("nothing is tuned yet"));
  const CommandResult nothing = volta({"tune", "export", path("out.json")});
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("nothing is tuned yet"));
  ASSERT_EQ(tune({"--dim", "32"}).exit_code, 0);
  const CommandResult shown = volta({"tune", "show"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr(file()));
  EXPECT_THAT(shown.out, HasSubstr("32 x 32 x 32 f32"));
  EXPECT_THAT(shown.out, HasSubstr("default, tuned: GFLOP/s"));
  const std::string all = volta({"tune", "show", "--output", "json"}).out;
  EXPECT_TRUE(tuner::parse_tuning(all, "show", tuner::cpu_signature()));
  EXPECT_THAT(volta({"tune", "show", "--output", "csv"}).out,
              HasSubstr("isa,a_dtype,dtype,packed"));
  ASSERT_EQ(volta({"tune", "export", path("out.json")}).exit_code, 0);
  EXPECT_EQ(*read_text_file(path("out.json")), all);
  ASSERT_TRUE(write_file_atomic(path("out.json"), "mine"));
  EXPECT_EQ(volta({"tune", "export", path("out.json")}).exit_code, 2);
  EXPECT_EQ(*read_text_file(path("out.json")), "mine");
  ASSERT_EQ(volta({"tune", "export", path("out.json"), "--force"}).exit_code, 0);
  EXPECT_EQ(volta({"tune", "export", "-"}).out, *read_text_file(path("out.json")));
  EXPECT_EQ(*read_text_file(path("out.json")), all);
  EXPECT_THAT(volta({"tune", "clear"}).out, HasSubstr("removed"));
  EXPECT_THAT(volta({"tune", "clear"}).out, HasSubstr("was not there"));
  EXPECT_FALSE(path_exists(file()));
  ASSERT_EQ(volta({"tune", "import", path("out.json")}).exit_code, 0);
  EXPECT_EQ(volta({"tune", "show", "--output", "json"}).out, all);
  // These print a line, not a document.
  EXPECT_EQ(volta({"tune", "import", path("out.json"), "--output", "json"}).exit_code, 2);
  EXPECT_EQ(volta({"tune", "export", path("out.json"), "--output", "json"}).exit_code, 2);
  EXPECT_EQ(volta({"tune", "clear", "--output", "json"}).exit_code, 2);
  EXPECT_TRUE(path_exists(file()));
}

TEST_F(Tune, AFolderInPlaceOfTheTableIsNotCleared) {
  ASSERT_TRUE(create_directories(file()));
  ASSERT_TRUE(write_file_atomic(file() + "/mine", "mine"));
  const CommandResult refused = volta({"tune", "clear"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("move it away, or remove it yourself"));
  EXPECT_EQ(*read_text_file(file() + "/mine"), "mine");
}

TEST_F(Tune, WhatCannotBeSeenIsNotAbsent) {
  std::filesystem::create_symlink("loop", path("loop"));
  for (const auto& [command, code] : {std::pair{"show", 3}, {"clear", 1}}) {
    const CommandResult result = volta({"tune", command}, {{"VOLTA_CACHE_DIR", path("loop")}});
    EXPECT_EQ(result.exit_code, code) << command << result.out;
    EXPECT_THAT(result.err, HasSubstr("Too many levels of symbolic links"));
  }
  if (::geteuid() == 0) return;  // Root may search every folder.
  ASSERT_EQ(tune({"--dim", "16"}).exit_code, 0);
  std::filesystem::permissions(path("cache"), std::filesystem::perms::none);
  for (const char* command : {"show", "clear"}) {
    const CommandResult result = volta({"tune", command});
    EXPECT_EQ(result.exit_code, 1) << command << result.out;
    EXPECT_THAT(result.err, HasSubstr("Permission denied"));
  }
  std::filesystem::permissions(path("cache"), std::filesystem::perms::owner_all);
}

TEST_F(Tune, RefusesForeignAndDamagedImports) {
  tuner::CpuSignature other = tuner::cpu_signature();
  other.model += 1;
  ASSERT_TRUE(write_file_atomic(path("other.json"), tuner::tuning_to_json({}, other)));
  ASSERT_TRUE(write_file_atomic(path("bad.json"), "{\"format\":"));
  ASSERT_TRUE(
      write_file_atomic(path("empty.json"), tuner::tuning_to_json({}, tuner::cpu_signature())));
  for (const auto& [name, message] : {std::pair{"other.json", "another CPU"},
                                      {"bad.json", "JSON"},
                                      {"none.json", "none.json"},
                                      {"empty.json", "no shape"}}) {
    const CommandResult result = volta({"tune", "import", path(name)});
    EXPECT_EQ(result.exit_code, 3) << name;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  EXPECT_FALSE(path_exists(file()));
}

TEST_F(Tune, BadRequestsAreUsage) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {},
           {"--dim", "0"},
           {"--dim", "-5"},
           {"--dim", "99999999999999999999"},
           {"--dim", "16777217"},
           {"--dim", "x"},
           {"--dim", "64", "--m", "1", "--n", "1", "--k", "1"},
           {"--m", "4", "--n", "4"},
           {"--dim", "64", "--dtype", "i8"},
           {"--dim", "64", "--budget", "0"},
           {"--dim", "64", "--budget", "nan"},
           {"--dim", "64", "--output", "dot"},
           {"--dim", "64", "--profile", "x.csv"},
           {"--dim", "64", "--phase", "decode"},
           {"--dim", "64", "--batch", "4"},
           {"--dim", "64", "--vocab", "4"},
           {"--dim", "64", "--a-dtype", "i8"},
           {"--dim", "64", "--preset", "tiny"},
           {"--dim", "64", "--device", "cuda"},
           {"--dim", "64", "--device", "abacus"},
           {"--preset", "huge"},
           {"--preset", "tiny", "--model", "x"},
           {"--dim", "64", "--weights", "q8"},
           {"--preset", "tiny", "--phase", "decode", "--batch", "4"},
           {"--preset", "tiny", "--phase", "prompt", "--tokens", "4"},
           {"--preset", "tiny", "--phase", "train", "--weights", "q8"},
           {"--preset", "tiny", "--tokens", "100000"},
           {"--model", "x", "--vocab", "9"},
           {"--model", "x", "--a-dtype", "bf16"},
           {"--model", "x", "--transpose-b"},
           {"--model", "x", "--plain"},
           {"--model", "x", "--phase", "sleep"}}) {
    EXPECT_EQ(tune(words).exit_code, 2) << testing::PrintToString(words);
  }
  const CommandResult zero = volta({"tune", "matmul", "--dim", "64", "--runs", "0"});
  EXPECT_EQ(zero.exit_code, 2);
  EXPECT_THAT(zero.err, HasSubstr("--runs"));
  EXPECT_EQ(tune({"--model", path("nowhere")}).exit_code, 3);
  EXPECT_FALSE(path_exists(file()));
}

TEST_F(Tune, TheEnvironmentsDeviceCountsToo) {
  for (const char* word : {"cuda", "abacus"}) {
    const CommandResult result = tune({"--dim", "16"}, {{"VOLTA_DEVICE", word}});
    EXPECT_EQ(result.exit_code, 2) << word;
    EXPECT_THAT(result.err, HasSubstr("VOLTA_DEVICE"));
    EXPECT_THAT(result.err, HasSubstr(word));
  }
  EXPECT_EQ(tune({"--dim", "16", "--device", "cpu"}, {{"VOLTA_DEVICE", "cuda"}}).exit_code, 0);
  for (const char* word : {"auto", "cpu", ""}) {
    EXPECT_EQ(tune({"--dim", "16"}, {{"VOLTA_DEVICE", word}}).exit_code, 0) << word;
  }
}

TEST_F(Tune, ABudgetIsForTheOperandsAsWell) {
  const CommandResult result = tune({"--m", "1", "--n", "8192", "--k", "8192", "--budget", "0.01"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("more than half of the budget of 0.01 s"));
  EXPECT_FALSE(path_exists(file()));
}

TEST_F(Tune, OfSeveralShapesThoseBeyondTheBudgetAreLeftOut) {
  const CommandResult result = tune({"--preset", "shakespeare-char-gpu", "--phase", "train",
                                     "--threads", "1", "--budget", "0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("16384 f32 plain a^T: left out: a product of"));
  EXPECT_THAT(result.out, HasSubstr("16384 x 1536 x 384 f32 plain"));
  EXPECT_THAT(result.out, Not(HasSubstr("1536 x 384 x 16384")));
}

TEST_F(Tune, TransposedOperandsAndTwoOfBF16) {
  const CommandResult result = tune({"--m", "40", "--n", "48", "--k", "56", "--transpose-a",
                                     "--a-dtype", "bf16", "--dtype", "bf16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("40 x 48 x 56 bf16 * bf16 plain a^T"));
  ASSERT_EQ(tune({"--dim", "32", "--transpose-b"}).exit_code, 0);
  const std::string shown = volta({"tune", "show", "--output", "csv"}).out;
  EXPECT_THAT(shown, HasSubstr(",bf16,bf16,false,true,false,"));
  EXPECT_THAT(shown, HasSubstr(",f32,f32,false,false,true,"));
  EXPECT_THAT(volta({"tune", "show"}).out, HasSubstr("32 x 32 x 32 f32 plain b^T"));
}

TEST_F(Tune, APresetNeedsNoModel) {
  const CommandResult result =
      tune({"--preset", "shakespeare-char-cpu", "--phase", "train", "--batch", "1", "--tokens", "8",
            "--vocab", "65", "--output", "csv", "--budget", "0.02"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto has = [&](const std::string& kind, const std::string& sizes) {
    return std::regex_search(result.out, std::regex("\nf32,f32,false," + kind + ",\\d+," + sizes));
  };
  // The widest layer of its feed-forward part, and the output of as many characters.
  EXPECT_TRUE(has("false,(true|false)", "8,512,128")) << result.out;
  EXPECT_TRUE(has("false,(true|false)", "8,128,512"));
  EXPECT_TRUE(has("true,false", "512,128,8"));
  EXPECT_TRUE(has("false,(true|false)", "8,65,128"));
  const CommandResult decode =
      tune({"--preset", "tiny", "--phase", "decode", "--output", "csv", "--budget", "0.02"});
  ASSERT_EQ(decode.exit_code, 0) << decode.err;
  EXPECT_THAT(decode.out, HasSubstr("\nf32,f32,true,false,false,"));
}

TEST_F(Tune, MemoryThatDoesNotFitIsToldAtOnce) {
  const CommandResult result = tune({"--m", "1", "--n", "16777216", "--k", "16777216"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("this process may use"));
}

TEST_F(Tune, AnAbsentInstructionSetIsToldByName) {
  EXPECT_EQ(tune({"--dim", "16"}, {{"VOLTA_SIMD", "neon"}}).exit_code, 2);
  if (cpu::simd_available(cpu::Simd::kAvx512)) return;
  const CommandResult result = tune({"--dim", "16"}, {{"VOLTA_SIMD", "avx512"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("VOLTA_SIMD"));
}

TEST_F(Tune, EachInstructionSetIsTunedForItself) {
  ASSERT_EQ(tune({"--dim", "16"}, {{"VOLTA_SIMD", "sse4"}}).exit_code, 0);
  EXPECT_THAT(volta({"tune", "show", "--output", "csv"}).out, HasSubstr("\nsse4,f32,f32,"));
}

TEST_F(Tune, NoPlaceForTheResultsEndsBeforeTheWork) {
  ASSERT_TRUE(write_file_atomic(path("file"), ""));
  const CommandResult result = tune({"--dim", "16"}, {{"VOLTA_CACHE_DIR", path("file")}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(path("file")));
  EXPECT_THAT(result.err, Not(HasSubstr("[1/1]")));
  const CommandResult homeless = tune({"--dim", "16"}, {{"VOLTA_CACHE_DIR", ""}, {"HOME", ""}});
  EXPECT_EQ(homeless.exit_code, 1);
  EXPECT_THAT(homeless.err, HasSubstr("set VOLTA_CACHE_DIR"));
  // Others run all the same.
  EXPECT_EQ(volta({"devices"}, {{"VOLTA_CACHE_DIR", path("file")}}).exit_code, 0);
  EXPECT_EQ(volta({"devices"}, {{"VOLTA_CACHE_DIR", ""}, {"HOME", ""}}).exit_code, 0);
  EXPECT_EQ(volta({"devices"}, {{"VOLTA_TUNING", "perhaps"}}).exit_code, 2);
}

TEST_F(Tune, AFullFileEndsBeforeTheWork) {
  const tuner::TuningCache cache(parent_path(file()), tuner::cpu_signature());
  std::vector<tuner::TuningEntry> entries;
  for (int i = 0; i < tuner::kMostTuningEntries; ++i) {
    const cpu::MatMulShape shape = {.threads = 1, .m = 16, .n = 16 + i, .k = 16};
    const cpu::Simd simd = cpu::best_simd();
    entries.push_back({.simd = simd,
                       .shape = shape,
                       .parameters = cpu::default_parameters(simd, shape),
                       .default_gflops = 1,
                       .tuned_gflops = 1});
  }
  ASSERT_TRUE(cache.add(entries));
  const CommandResult full = tune({"--dim", "32", "--threads", "1"});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.err, HasSubstr("`volta tune clear`"));
  EXPECT_THAT(full.err, Not(HasSubstr("[1/1]")));
  // What has its place there is tuned anew.
  EXPECT_EQ(tune({"--dim", "16", "--threads", "1"}).exit_code, 0);
}

TEST_F(Tune, WhatCannotBeKeptAfterAllIsPrinted) {
  test::Command command(
      {"tune", "matmul", "--preset", "tiny", "--phase", "decode", "--budget", "1"}, dir_.path(),
      environment());
  for (int i = 0; i < 3000 && !path_exists(file()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // While the second shape is measured.
  ASSERT_TRUE(write_file_atomic(path("wall"), ""));
  ASSERT_EQ(
      renameat2(AT_FDCWD, path("wall").c_str(), AT_FDCWD, path("cache").c_str(), RENAME_EXCHANGE),
      0);
  const CommandResult ended = command.wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("measured, but not kept: 1 x "));
  EXPECT_THAT(ended.err, HasSubstr(path("cache")));
  EXPECT_GE(std::ranges::count(ended.out, '\n'), 3) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("not all of it is kept"));
}

TEST_F(Tune, ADamagedFileIsReportedAndSetAsideByTheNextTuner) {
  ASSERT_TRUE(create_directories(parent_path(file())));
  ASSERT_TRUE(write_file_atomic(file(), "{\"format\": \"volta-matmul-tuning\", \"vers"));
  EXPECT_EQ(volta({"tune", "show"}).exit_code, 3);
  const CommandResult first = volta({"devices"});
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_THAT(first.err, HasSubstr("products run with default parameters"));
  EXPECT_TRUE(path_exists(file()));
  const CommandResult tuned = tune({"--dim", "16"});
  EXPECT_EQ(tuned.exit_code, 0);
  EXPECT_THAT(tuned.err, HasSubstr("set aside as " + file() + ".bad"));
  const CommandResult second = volta({"devices"});
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_EQ(second.err, "");
}

TEST_F(Tune, TwoAtOnceDoNotMeasureEachOther) {
  const tuner::TuningCache cache(parent_path(file()), tuner::cpu_signature());
  const auto first = cache.lock_for_measuring({});
  ASSERT_TRUE(first);
  const CommandResult second = tune({"--dim", "16"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("in use by process " + std::to_string(::getpid())));
  EXPECT_THAT(second.err, Not(HasSubstr("[1/1]")));
}

TEST_F(Tune, EndsWhenInterrupted) {
  test::Command command({"tune", "matmul", "--dim", "64", "--budget", "600", "--runs", "100000"},
                        dir_.path(), environment());
  const std::string lock = path("cache/matmul_tuning/measuring/.lock");
  for (int i = 0; i < 3000 && !path_exists(lock); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  command.kill(SIGINT);
  const CommandResult ended = command.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("interrupted"));
  EXPECT_FALSE(path_exists(file()));
}

TEST_F(Tune, TunesEveryShapeOfAModelAndItRunsOnThat) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::vector<std::string> generate = {"generate", path("run"), "-p", "the", "-n", "8"};
  const std::string untuned = volta(generate).out;
  const CommandResult tuned = tune({"--model", path("run"), "--output", "csv", "--budget", "0.02"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("\nf32,f32,true,"));   // What runs,
  EXPECT_THAT(tuned.out, HasSubstr("\nf32,f32,false,"));  // and what is trained.
  EXPECT_EQ(volta(generate).out, untuned);                // Not a bit differs.
  const CommandResult narrow = tune({"--model", path("run"), "--phase", "decode", "--dtype", "bf16",
                                     "--output", "csv", "--budget", "0.02"});
  ASSERT_EQ(narrow.exit_code, 0) << narrow.err;
  EXPECT_THAT(narrow.out, HasSubstr("\nbf16,bf16,true,"));
  const CommandResult decode =
      tune({"--model", path("run"), "--phase", "decode", "--output", "csv", "--budget", "0.02"});
  ASSERT_EQ(decode.exit_code, 0) << decode.err;
  EXPECT_LT(decode.out.size(), tuned.out.size());
  // The phases that run a product: the head's single row belongs to prompts, too.
  EXPECT_THAT(tuned.out, HasSubstr("default_kept,use\n"));
  for (const char* use : {",prompt\n", ",prompt+decode\n", ",decode\n", ",train\n"}) {
    EXPECT_THAT(tuned.out, HasSubstr(use));
  }
  EXPECT_THAT(decode.out, Not(HasSubstr("prompt")));
  const CommandResult table = tune({"--model", path("run"), "--budget", "0.02"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("use  before   after spread   gain\n"));
  EXPECT_THAT(table.out, HasSubstr(" prompt+decode "));
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kept in ")) continue;
    EXPECT_LE(line.size(), 80u) << line;
  }
  ASSERT_EQ(volta({"quantize", path("run"), "--weights", "q8", "--out", path("q8")}).exit_code, 0);
  const CommandResult integers = tune({"--model", path("q8"), "--phase", "decode"});
  EXPECT_EQ(integers.exit_code, 2);
  EXPECT_THAT(integers.err, HasSubstr("has no products of floats to tune in phase 'decode'"));
}

// The lines of `volta graph` that show a word.
std::string lines_with(const std::string& word, const std::string& text) {
  std::istringstream lines(text);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(word) != std::string::npos) found += line + "\n";
  }
  return found;
}

TEST_F(Tune, TrainingStartsTunedAndMeasuresNothing) {
  for (const std::string dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const std::vector<std::string> type = {"--dtype", dtype, "--threads", "1"};
    ASSERT_EQ(train("run-" + dtype, type, {{"VOLTA_TUNING", "off"}}).exit_code, 0);
    // A run trains in its own type: nothing else says it here.
    const CommandResult tuned = tune({"--model", path("run-" + dtype), "--phase", "train",
                                      "--threads", "1", "--output", "csv", "--budget", "0.02"});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    for (const char* layout : {",false,false,false,", ",false,true,false,", ",false,false,true,"}) {
      EXPECT_THAT(tuned.out, HasSubstr("\n" + dtype + "," + dtype + layout));
    }
    // What was found may be the default: put in its place what is known not to be.
    const tuner::TuningCache cache(parent_path(file()), tuner::cpu_signature());
    auto entries = cache.read();
    ASSERT_TRUE(entries);
    for (tuner::TuningEntry& entry : *entries) {
      const auto panel = static_cast<std::int32_t>(cpu::panel_width(entry.simd));
      entry.parameters = {.k_block = 8, .m_block = 8, .n_block = panel, .tile = {1, panel}};
    }
    ASSERT_TRUE(cache.add(*entries));
    const std::string before = *read_text_file(file());
    // The plan of another process has room for other blocks, with gradients of either operand,
    const std::vector<std::string> graph = {
        "graph", path("run-" + dtype), "--phase", "train", "--dtype", dtype, "--threads", "1"};
    const std::string on = volta(graph).out;
    const std::string off = volta(graph, {{"VOLTA_TUNING", "off"}}).out;
    for (const char* word : {"transpose_a", "transpose_b"}) {
      EXPECT_NE(lines_with(word, off), "");
      EXPECT_NE(lines_with(word, on), lines_with(word, off)) << word;
    }
    // and not a bit of what it trains differs. It measures nothing, so that it has nothing to keep.
    ASSERT_EQ(train("again-" + dtype, type).exit_code, 0);
    const std::string weights = "/step-2/model.safetensors";
    const auto expected = read_text_file(path("run-" + dtype) + weights);
    ASSERT_TRUE(expected) << expected.error().message();
    EXPECT_EQ(*read_text_file(path("again-" + dtype) + weights), *expected);
    EXPECT_EQ(*read_text_file(file()), before);
  }
}

}  // namespace
}  // namespace volta
