// Which model a folder stands for.
#include "train/run_folder.h"

#include <filesystem>

#include "base/file.h"
#include "support/temp_dir.h"
#include "train/checkpoint_writer.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = Transformer::random(test::small_config(), 1, test::device(1));
    trainer_ = Trainer::create(*model, test::small_options()).value();
    source_ = RandomWindows::create(test::small_tokens(300), 8, 1).value();
    tokenizer_ = make_char_tokenizer("abcdefghijklm").value();
  }
  void advance() { ASSERT_TRUE(trainer_->step(*source_)); }
  Result<std::string> write() {
    return write_checkpoint(dir(), {&*trainer_, tokenizer_.get(), "{}"}, 0);
  }
  const std::string& dir() const { return dir_.path(); }
  std::string file(const std::string& step, const std::string& name) const {
    return dir() + "/" + step + "/" + name;
  }

  test::TempDir dir_;
  std::optional<Trainer> trainer_;
  std::optional<RandomWindows> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(RunFolderTest, AModelFolderIsItselfOrARunsNewest) {
  advance();
  ASSERT_TRUE(write());
  advance();
  VOLTA_ASSERT_OK(const std::string newest, write());
  EXPECT_EQ(*find_model_folder(dir()), newest);
  EXPECT_EQ(*find_model_folder(dir() + "/step-1"), dir() + "/step-1");
  expect_error(find_model_folder(dir() + "/none"), ErrorCode::kNotFound, "no model folder");
  const test::TempDir empty;
  expect_error(find_model_folder(empty.path()), ErrorCode::kNotFound, "neither a config.json");
  expect_error(find_adapter_folder(dir() + "/none"), ErrorCode::kNotFound, "no adapter folder");
  expect_error(find_adapter_folder(empty.path()), ErrorCode::kNotFound, "an adapter_config.json");
}

// What is wrong with a run's folder beside its checkpoints.
TEST_F(RunFolderTest, ACheckTellsWhyCommandsWouldRefuseARun) {
  const auto messages = [&] {
    std::string text;
    const auto errors = check_run_folder(dir());
    EXPECT_TRUE(errors);
    for (const Error& error : *errors) text += error.message() + "\n";
    return text;
  };
  EXPECT_EQ(messages(), "");  // An empty folder is no run.
  RunOptions options;
  options.data = {"text.txt"};
  options.out = dir();
  options.model = complete_sizes(test::small_config()).value();
  options.trainer = test::small_options();
  options.trainer.time = 0;
  VOLTA_ASSERT_STATUS(write_run_file(options, {}));
  EXPECT_THAT(messages(), HasSubstr("is the folder of a run without a checkpoint: `volta train"));
  advance();
  ASSERT_TRUE(write());
  EXPECT_EQ(messages(), "");
  const std::string path = dir() + "/run.json";
  const std::string json = test::get_file(path);
  test::put_file(path, json + "}");
  EXPECT_THAT(messages(), HasSubstr("; to go on with the run, move that file away and give"));
  std::filesystem::resize_file(path, std::uintmax_t{12} << 30);
  EXPECT_THAT(messages(), HasSubstr("more than the 1048576 allowed; to go on with the run, move"));
  std::string zero = json;
  zero.replace(zero.find("\"lr\": "), 6, "\"lr\":-");
  test::put_file(path, zero);
  EXPECT_THAT(messages(), HasSubstr("run.json: training: lr is -"));
  std::string stopped = json;
  stopped.replace(stopped.find("\"stopped_early\": false"), 22, "\"stopped_early\": 12345");
  test::put_file(path, stopped);
  EXPECT_THAT(messages(), HasSubstr("stopped_early"));
  test::put_file(path, json);
  test::put_file(dir() + "/config.json", "{}");
  EXPECT_THAT(messages(), HasSubstr("holds a model of its own and the checkpoints of a run"));
}

// The same damage that makes a run pass a checkpoint over is an error where it is named itself.
TEST_F(RunFolderTest, ADamagedModelFolderIsRefused) {
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  const std::string weights = test::get_file(file("step-1", "model.safetensors"));
  std::string flipped = weights;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  test::put_file(file("step-1", "model.safetensors"), flipped);
  expect_error(find_model_folder(path), ErrorCode::kInvalidFile, "is damaged: its checksum is");
  test::put_file(file("step-1", "model.safetensors"), weights);
  EXPECT_TRUE(find_model_folder(path));
  const std::string manifest = test::get_file(file("step-1", "manifest.json"));
  test::put_file(file("step-1", "manifest.json"), manifest.substr(0, 50));
  expect_error(find_model_folder(path), ErrorCode::kInvalidFile, "manifest.json");
  std::string other = manifest;
  other.replace(other.find("\"format\": 1"), 11, "\"format\": 9");
  test::put_file(file("step-1", "manifest.json"), other);
  expect_error(find_model_folder(path), ErrorCode::kUnsupported, "checkpoint format 9");
  // Files of this name that other tools wrote say nothing of Volta's.
  test::put_file(file("step-1", "manifest.json"), R"({"format": 2, "files": []})");
  EXPECT_EQ(*find_model_folder(path), path);
}

// Neither the model nor the run wins in silence.
TEST_F(RunFolderTest, AModelBesideCheckpointsIsAmbiguous) {
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  test::put_file(dir() + "/config.json", "{}");
  expect_error(
      find_model_folder(dir()), ErrorCode::kInvalidArgument,
      "holds a model of its own and the checkpoints of a run: name one of these ('" + path + "')");
  EXPECT_EQ(*find_model_folder(path), path);
}

TEST_F(RunFolderTest, TheRunFileHoldsOptionsAndProgress) {
  RunOptions options = test::small_run();
  options.data = {"text.txt"};
  options.out = dir();
  options.keep_best = false;
  VOLTA_ASSERT_STATUS(write_run_file(options, {}));
  VOLTA_ASSERT_OK(RunProgress progress, load_run_progress(dir()));
  EXPECT_FALSE(progress.best);
  EXPECT_FALSE(progress.stopped_early);
  VOLTA_ASSERT_STATUS(write_run_file(
      options, {.best = BestEstimate{.step = 7, .val_loss = 0.1 + 0.2}, .stopped_early = true}));
  VOLTA_ASSERT_OK(progress, load_run_progress(dir()));
  EXPECT_EQ(progress.best->step, 7);
  EXPECT_EQ(progress.best->val_loss, 0.1 + 0.2);
  EXPECT_TRUE(progress.stopped_early);
  VOLTA_ASSERT_OK(const RunOptions saved, load_run_options(dir()));
  EXPECT_EQ(saved.data, std::vector<std::string>{"text.txt"});
  EXPECT_FALSE(saved.keep_best);
}

TEST_F(RunFolderTest, AForeignRunFileIsNoProgress) {
  expect_error(load_run_progress(dir()), ErrorCode::kNotFound, "run.json");
  for (const std::string text : {"x", R"({"best": 3})", R"({"best": {"step": -1, "val_loss": 1}})",
                                 R"({"best": {"step": 1}})", R"({"stopped_early": 1})"}) {
    test::put_file(dir() + "/run.json", text);
    expect_error(load_run_progress(dir()), ErrorCode::kInvalidFile, "run.json");
  }
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  EXPECT_EQ(*find_model_folder(dir()), path);
}

}  // namespace
}  // namespace volta
