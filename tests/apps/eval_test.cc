// volta eval: the losses that others find for their models, and how texts and windows add up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;

// What `volta eval --output json` says.
struct Said {
  double loss = 0.0;
  double perplexity = 0.0;
  double bits_per_byte = 0.0;
  std::int64_t tokens = 0;
  std::int64_t windows = 0;
  std::int64_t bytes = 0;
  std::size_t files = 0;
};

Said read_json(const CommandResult& result) {
  Said said;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = parse_json(result.out, "eval");
  if (!json) {
    ADD_FAILURE() << json.error().message();
    return said;
  }
  const JsonRef ref(*json, "eval");
  said.loss = *ref.get_float("loss");
  said.perplexity = *ref.get_float("perplexity");
  said.bits_per_byte = *ref.get_float("bits_per_byte");
  said.tokens = *ref.get_int("tokens");
  said.windows = *ref.get_int("windows");
  said.bytes = *ref.get_int("bytes");
  said.files = ref.member("files")->elements()->size();
  return said;
}

TEST(EvalOfOthers, IsWhatTransformersFinds) {
  VOLTA_NEEDS_SHARED("models");
  const auto text = read_text_file(test::source_path("tests/apps/data/eval_golden.json"));
  ASSERT_TRUE(text);
  const auto json = parse_json(*text, "golden");
  ASSERT_TRUE(json);
  const test::TempDir dir;
  std::size_t cases = 0;
  const auto goldens = JsonRef(*json, "golden").elements();
  ASSERT_TRUE(goldens);
  for (const JsonRef& golden : *goldens) {
    const std::string model = *golden.get_string("model");
    const auto context = *golden.get_int("context");
    const auto stride = *golden.get_int("stride");
    const Said said = read_json(
        run_volta({"eval", test::shared_path("models/" + model), "--data",
                   test::source_path("tests/apps/data/eval_text.txt"), "--context",
                   std::to_string(context), "--stride", std::to_string(stride), "--output", "json"},
                  dir.path()));
    const std::string what = model + " " + std::to_string(context) + "/" + std::to_string(stride);
    EXPECT_NEAR(said.loss, *golden.get_float("loss"), 1e-5) << what;
    EXPECT_NEAR(said.bits_per_byte, *golden.get_float("bits_per_byte"), 1e-5) << what;
    EXPECT_NEAR(said.perplexity, std::exp(said.loss), said.perplexity * 1e-9) << what;
    EXPECT_EQ(said.tokens, *golden.get_int("tokens")) << what;
    EXPECT_EQ(said.windows, *golden.get_int("windows")) << what;
    EXPECT_EQ(said.bytes, 1600) << what;
    ++cases;
  }
  EXPECT_EQ(cases, 16u);
}

TEST(EvalOfOthers, RoundingTheComputationChangesLittle) {
  const test::TempDir dir;
  const auto eval = [&](const std::string& dtype) {
    return run_volta(
        {"eval", test::tiny_llama_path(), "--data",
         test::source_path("tests/apps/data/eval_text.txt"), "--output", "json", "--dtype", dtype},
        dir.path());
  };
  const Said exact = read_json(eval("f32"));
  const Said rounded = read_json(eval("bf16"));
  EXPECT_NE(rounded.loss, exact.loss);
  EXPECT_NEAR(rounded.loss, exact.loss, 0.02 * exact.loss);
  const CommandResult half = eval("f16");
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.err, HasSubstr("--dtype f16: use f32 or bf16"));
}

// A byte model with a context of 16.
class EvalTest : public ::testing::Test {
 protected:
  CommandResult eval(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"eval", "run"});
    return run_volta(arguments, dir_.path());
  }
  Said said(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--output", "json"});
    return read_json(eval(arguments));
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    write("text.txt", text);
    const CommandResult trained = run_volta(
        {"train",    "--data",  "text.txt", "--out",   "run",   "--tokenizer", "byte",
         "--layers", "1",       "--heads",  "2",       "--dim", "16",          "--context",
         "16",       "--batch", "4",        "--steps", "5",     "--threads",   "1"},
        dir_.path());
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }

  test::TempDir dir_;
};

TEST_F(EvalTest, SeveralFilesAddUp) {
  write("a.txt", std::string("the quick brown fox jumps"));
  write("b.txt", std::string("tiny"));
  const Said a = said({"--data", "a.txt"});
  const Said b = said({"--data", "b.txt"});  // Shorter than a window.
  const Said both = said({"--data", "a.txt", "--data", "b.txt"});
  EXPECT_EQ(a.tokens, 24);
  EXPECT_EQ(a.windows, 2);
  EXPECT_EQ(b.tokens, 3);
  EXPECT_EQ(b.windows, 1);
  EXPECT_EQ(both.tokens, 27);
  EXPECT_EQ(both.windows, 3);
  EXPECT_EQ(both.bytes, 29);
  EXPECT_EQ(both.files, 2u);
  EXPECT_NEAR(both.loss, (24 * a.loss + 3 * b.loss) / 27, 1e-9);
  const CommandResult text = eval({"--data", "a.txt", "--data", "b.txt", "--stride", "8"});
  EXPECT_THAT(text.out, HasSubstr("a.txt: loss "));
  EXPECT_THAT(text.out, HasSubstr("over 3 tokens in 1 window of 16"));
  EXPECT_THAT(text.out, HasSubstr("in 2 windows of 16, stride 8\n"));
  EXPECT_THAT(text.out, HasSubstr("\nall: loss "));
  EXPECT_EQ(text.err, "");  // No terminal, no progress.
}

TEST_F(EvalTest, TheBatchChangesNothing) {
  const CommandResult one = eval({"--data", "text.txt", "--stride", "5", "--batch", "1"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(eval({"--data", "text.txt", "--stride", "5", "--batch", "7"}).out, one.out);
  EXPECT_EQ(eval({"--data", "text.txt", "--stride", "5", "--threads", "1"}).out, one.out);
}

TEST_F(EvalTest, TheLastPartAloneCanBeEvaluated) {
  const Said whole = said({"--data", "text.txt"});
  const Said part = said({"--data", "text.txt", "--val-fraction", "0.25"});
  EXPECT_NEAR(static_cast<double>(part.bytes), 0.25 * static_cast<double>(whole.bytes), 1.0);
  EXPECT_EQ(part.tokens, part.bytes - 1);
}

TEST_F(EvalTest, AProfileNamesEveryPartOfTheWork) {
  ASSERT_EQ(eval({"--data", "text.txt", "--profile", "profile.csv"}).exit_code, 0);
  const auto profile = read_text_file(dir_.file("profile.csv"));
  ASSERT_TRUE(profile);
  for (const char* label : {"load", "embed", "head", "loss"}) {
    EXPECT_THAT(*profile, HasSubstr(std::string("\nlabel,,,") + label + ","));
  }
  EXPECT_THAT(*profile, ::testing::Not(HasSubstr("\nlabel,,,,")));  // No work without a label.
}

TEST_F(EvalTest, SaysWhatIsWrong) {
  const auto expect_error = [&](const std::vector<std::string>& arguments, int code,
                                const std::string& words) {
    const CommandResult result = eval(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  };
  write("one.txt", "x");
  write("empty.txt", "");
  expect_error({"--data", "one.txt"}, 3, "one.txt: 1 tokens to evaluate; two are needed");
  expect_error({"--data", "empty.txt"}, 3, "empty.txt is empty");
  expect_error({"--data", "none.txt"}, 3, "none.txt");
  expect_error({"--data", "run"}, 3, "is a folder");
  expect_error({"--data", "/dev/zero"}, 3, "is a device");
  expect_error({"--data", "text.txt", "--val-fraction", "0"}, 2, "above 0 and at most 1");
  expect_error({"--data", "text.txt", "--stride", "17"}, 2, "--stride 17: at most a window's 16");
  expect_error({"--data", "text.txt", "--stride", "0"}, 2, "--stride");
  expect_error({"--data", "text.txt", "--context", "17"}, 2, "--context 17: the model's is 16");
}

TEST_F(EvalTest, ATokenizerOfAnotherModelIsNamed) {
  const std::string folder = dir_.file("run/step-5");
  ASSERT_EQ(
      run_volta({"tokenizer", "train", "--data", "text.txt", "--vocab", "300", "--out", "other"},
                dir_.path())
          .exit_code,
      0);
  std::filesystem::remove(folder + "/manifest.json");
  std::filesystem::copy_file(dir_.file("other/tokenizer.json"), folder + "/tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  const CommandResult result = run_volta({"eval", folder, "--data", "text.txt"}, dir_.path());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("step-5/tokenizer.json has the id "));
  EXPECT_THAT(result.err, HasSubstr("step-5/config.json the ids 0 to "));
}

}  // namespace
}  // namespace volta
