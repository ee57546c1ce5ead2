// The names that users give to models.
#include "train/open_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "formats/gguf/gguf_file.h"
#include "formats/model_folder.h"
#include "support/scoped_env.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "train/checkpoint_writer.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

TEST(OpenModel, ARunIsItsNewestCheckpoint) {
  const test::TempDir dir;
  VOLTA_ASSERT_OK(const auto model, Transformer::random(test::small_config(), 1, test::device(1)));
  VOLTA_ASSERT_OK(Trainer trainer, Trainer::create(model, test::small_options()));
  VOLTA_ASSERT_OK(const auto windows, RandomWindows::create(test::small_tokens(300), 8, 1));
  VOLTA_ASSERT_OK(const auto tokenizer, make_char_tokenizer("abcdefghijklm"));
  std::string newest;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(trainer.step(windows));
    VOLTA_ASSERT_OK(newest, write_checkpoint(dir.path(), {&trainer, tokenizer.get(), "{}"}, 0));
  }
  VOLTA_ASSERT_OK(const ModelSource run, open_model(dir.path()));
  EXPECT_EQ(run.path(), newest);
  EXPECT_EQ(*run.config(), test::small_config());
  EXPECT_EQ((*run.tokenizer())->kind(), "char");
  VOLTA_ASSERT_OK(const ModelSource older, open_model(dir.path() + "/step-1"));
  EXPECT_EQ(older.path(), dir.path() + "/step-1");
  // A damaged checkpoint is refused before anything is read from it.
  std::ofstream(older.path() + "/config.json") << "{}";
  expect_error(open_model(older.path()), ErrorCode::kInvalidFile, "config.json");
}

TEST(OpenModel, AGgufFileAndANameInTheHubsCache) {
  VOLTA_ASSERT_OK(const ModelSource gguf,
                  open_model(test::source_path("tests/formats/data/gguf_llama.gguf")));
  EXPECT_NE(gguf.gguf(), nullptr);
  expect_error(open_model("none.gguf"), ErrorCode::kNotFound, "none.gguf");
  const test::TempDir cache;
  const std::string repository = cache.file("models--some--model");
  const std::string snapshot = repository + "/snapshots/0123456789abcdef0123456789abcdef01234567";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(repository + "/refs");
  std::ofstream(repository + "/refs/main") << "0123456789abcdef0123456789abcdef01234567";
  VOLTA_ASSERT_OK(const auto model, Transformer::random(test::small_config(), 1, test::device(1)));
  ASSERT_TRUE(save_model(snapshot, model, nullptr));
  const test::ScopedEnv variable("HF_HUB_CACHE", cache.path().c_str());
  VOLTA_ASSERT_OK(const ModelSource cached, open_model("some/model"));
  EXPECT_EQ(cached.path(), snapshot);
  EXPECT_EQ(*cached.config(), test::small_config());
  expect_error(open_model("some/other"), ErrorCode::kNotFound, "some/other");
}

}  // namespace
}  // namespace volta
