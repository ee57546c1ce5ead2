// volta logits: the logits of others' models, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/temporary.h"
#include "formats/safetensors.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;

std::vector<float> floats_of(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  if (!file) {
    ADD_FAILURE() << file.error().message();
    return {};
  }
  const auto tensor = file->load("logits");
  EXPECT_TRUE(tensor) << tensor.error().message();
  std::vector<float> out(static_cast<std::size_t>(tensor->elements()));
  EXPECT_TRUE(tensor->read<float>(out));
  return out;
}

// The largest difference of a row, relative to its largest logit; over all rows.
double worst_row(const std::vector<float>& got, const std::vector<float>& wanted,
                 std::size_t vocab) {
  double worst = got.size() == wanted.size() ? 0.0 : INFINITY;
  for (std::size_t row = 0; row + vocab <= std::min(got.size(), wanted.size()); row += vocab) {
    double difference = 0.0;
    double largest = 0.0;
    for (std::size_t i = row; i < row + vocab; ++i) {
      difference = std::max(
          difference, std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
      largest = std::max(largest, std::fabs(static_cast<double>(wanted[i])));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

class LogitsOfOthers : public ::testing::TestWithParam<const char*> {};

TEST_P(LogitsOfOthers, AreTheirs) {
  const std::string folder = std::string("models/") + GetParam();
  VOLTA_NEEDS_SHARED(folder);
  const std::string model = test::shared_path(folder);
  const std::string golden = model + "/golden.safetensors";
  const test::TempDir dir;
  const auto logits = [&](const std::string& dtype) {
    const CommandResult result = run_volta(
        {"logits", model, "--ids", golden, "--out", "out.safetensors", "--dtype", dtype, "--force"},
        dir.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("out.safetensors: logits f32[2, 24, 512]"));
    return floats_of(dir.file("out.safetensors"));
  };
  const std::vector<float> wanted = floats_of(golden);
  EXPECT_LT(worst_row(logits("f32"), wanted, 512), 1e-4);
  const double rounded = worst_row(logits("bf16"), wanted, 512);
  EXPECT_LT(rounded, 0.07);  // PyTorch's bf16 autocast is off by 0.015 to 0.07 here.
  EXPECT_GT(rounded, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, LogitsOfOthers,
                         ::testing::Values("gpt2-tiny", "llama-tiny", "mistral-tiny-sliding",
                                           "qwen2-tiny", "qwen3-tiny"));

// Three shards of bf16, frequencies stretched as Llama 3's. The folder's own golden has rounded
// frequencies (see data/make_llama3_golden.py), which no other model has.
TEST(LogitsOfLlama3, AreThoseThatTransformersLoads) {
  VOLTA_NEEDS_SHARED("models/llama3-tiny-bf16-sharded");
  const std::string model = test::shared_path("models/llama3-tiny-bf16-sharded");
  const test::TempDir dir;
  const CommandResult result = run_volta(
      {"logits", model, "--ids", model + "/golden.safetensors", "--out", "out.safetensors"},
      dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<float> all = floats_of(dir.file("out.safetensors"));
  ASSERT_EQ(all.size(), 2u * 24 * 512);
  std::vector<float> fourths;
  for (std::size_t row = 3; row < 48; row += 4) {
    fourths.insert(fourths.end(), all.begin() + static_cast<std::ptrdiff_t>(row * 512),
                   all.begin() + static_cast<std::ptrdiff_t>((row + 1) * 512));
  }
  const auto wanted = floats_of(test::source_path("tests/apps/data/llama3_logits.safetensors"));
  EXPECT_LT(worst_row(fourths, wanted, 512), 1e-5);
}

// A model of 256 tokens and a context of 16 that was trained for a step.
class LogitsTest : public ::testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  CommandResult logits(const std::string& ids, const std::string& out) const {
    return volta({"logits", "run", "--ids", ids, "--out", out});
  }
  void put_ids(const std::string& name, const Shape& shape,
               const std::vector<std::int64_t>& ids) const {
    ASSERT_TRUE(write_safetensors(dir_.file(name),
                                  {{"input_ids", *Tensor::from_values<std::int64_t>(shape, ids)}}));
  }
  void expect_error(const std::string& ids, const std::string& out, int exit_code,
                    const std::string& words) const {
    const CommandResult result = logits(ids, out);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  }
  void SetUp() override {
    std::ofstream(dir_.file("text.txt")) << std::string(500, 'a') + std::string(500, 'b');
    const CommandResult trained =
        volta({"train",    "--data",  "text.txt", "--out",   "run",   "--tokenizer", "byte",
               "--layers", "1",       "--heads",  "2",       "--dim", "16",          "--context",
               "16",       "--batch", "2",        "--steps", "1",     "--threads",   "1"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    put_ids("ids.safetensors", Shape(2, 3), {1, 2, 3, 4, 5, 255});
  }

  test::TempDir dir_;
};

TEST_F(LogitsTest, WritesAFileAndSaysWhat) {
  const CommandResult result = volta({"logits", "run", "--ids", "ids.safetensors", "--out",
                                      "out.safetensors", "--output", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"out\":\"out.safetensors\",\"batch\":2,\"time\":3,\"vocab\":256}\n");
  const auto file = SafetensorsFile::open(dir_.file("out.safetensors"));
  ASSERT_TRUE(file);
  ASSERT_EQ(file->entries().size(), 1u);
  EXPECT_EQ(to_string(file->entries()[0].spec), "f32[2, 3, 256]");
  const auto names = *list_directory(dir_.path());
  for (const std::string& name : names) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

TEST_F(LogitsTest, AnExistingFileIsReplacedByForceOnly) {
  std::ofstream(dir_.file("out")) << "mine";
  expect_error("ids.safetensors", "out", 2, "replace it with --force");
  EXPECT_EQ(*read_text_file(dir_.file("out")), "mine");
  // Never a file of a model, nor does a profile.
  std::filesystem::copy(dir_.file("run/step-1/config.json"), dir_.file("config.json"));
  const std::string config = *read_text_file(dir_.file("config.json"));
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--out", "config.json"},
                                               {"--out", "o", "--profile", "config.json"}}) {
    std::vector<std::string> command = {"logits", "run", "--ids", "ids.safetensors", "--force"};
    command.insert(command.end(), more.begin(), more.end());
    const CommandResult refused = volta(command);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(" config.json: this is a file of a model or a run"));
    EXPECT_EQ(*read_text_file(dir_.file("config.json")), config);
  }
  const CommandResult forced =
      volta({"logits", "run", "--ids", "ids.safetensors", "--out", "out", "--force"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_TRUE(SafetensorsFile::open(dir_.file("out")));
}

TEST_F(LogitsTest, SaysWhatIsWrongWithTheIds) {
  expect_error(
      "none.safetensors", "out", 3,
      "none.safetensors': No such file or directory; give a safetensors file with input_ids");
  expect_error("text.txt", "out", 3, "text.txt");
  expect_error("run", "out", 3, "is not a regular file");
  ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
  expect_error("pipe", "out", 3, "is not a regular file");
  put_ids("bad.safetensors", Shape(2, 2), {0, 1, 256, 2});
  expect_error("bad.safetensors", "out", 3, "input_ids[1, 0] is 256");
  put_ids("bad.safetensors", Shape(1, 17), std::vector<std::int64_t>(17, 0));
  expect_error("bad.safetensors", "out", 3, "sequences of 17 tokens; the model's context is 16");
  put_ids("bad.safetensors", Shape(0, 3), {});
  expect_error("bad.safetensors", "out", 3, "i64[0, 3]");
  expect_error("run/step-1/model.safetensors", "out", 3, "no tensor 'input_ids'");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("out")));
}

TEST_F(LogitsTest, SaysWhatIsWrongWithThePlace) {
  expect_error("ids.safetensors", "run", 1, "is a folder");
  ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
  expect_error("ids.safetensors", "pipe", 1, "is a device or pipe");
  expect_error("ids.safetensors", "pipe/out.safetensors", 1, "pipe/out.safetensors");
  expect_error("ids.safetensors", "./ids.safetensors", 2, "this is the file of --ids");
  EXPECT_TRUE(std::filesystem::is_fifo(dir_.file("pipe")));
  std::filesystem::create_symlink("elsewhere", dir_.file("link"));
  expect_error("ids.safetensors", "link", 1, "is a symbolic link");
  expect_error("ids.safetensors", "", 2, "--out: give the name");
}

TEST_F(LogitsTest, WeightsThatAreNotNumbersAreAnErrorAndNoFile) {
  const std::string weights = dir_.file("run/step-1/model.safetensors");
  auto tensors = *SafetensorsFile::open(weights)->load_all();
  ASSERT_TRUE(
      tensors.at("transformer.ln_f.weight").write<float>(std::vector<float>(16, std::nanf(""))));
  ASSERT_TRUE(write_safetensors(weights, tensors));
  std::filesystem::remove(dir_.file("run/step-1/manifest.json"));
  const CommandResult result =
      volta({"logits", "run/step-1", "--ids", "ids.safetensors", "--out", "out.safetensors"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the logits of [0, 0] are not finite"));
  EXPECT_FALSE(std::filesystem::exists(dir_.file("out.safetensors")));
  const auto names = *list_directory(dir_.path());
  for (const std::string& name : names) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

}  // namespace
}  // namespace volta
