#include "train/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/temporary.h"
#include "support/alloc_counter.h"
#include "support/damaged_state.h"
#include "support/file_faults.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"
#include "train/checkpoint_writer.h"
#include "train/helpers.h"
#include "train/run_folder.h"

namespace volta {
namespace {

using test::expect_error;
using test::FileCall;
using testing::HasSubstr;

// Collects what the library logs.
class LogCapture {
 public:
  LogCapture() {
    set_log_callback([this](LogLevel, std::string_view message) { text_ += message; });
  }
  ~LogCapture() { set_log_callback({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr std::string_view kRunState = R"({"settings":{},"rows_seen":8,"waited":0})";

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = Transformer::random(test::small_config(), 1, test::device(1));
    trainer_ = Trainer::create(*model, test::small_options()).value();
    source_ = RandomWindows::create(test::small_tokens(300), 8, 1).value();
    tokenizer_ = make_char_tokenizer("abcdefghijklm").value();
  }
  void advance(int steps = 1) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(trainer_->step(*source_));
  }
  Result<std::string> write(std::int64_t keep = 0, std::optional<std::int64_t> best = {}) {
    return write_checkpoint(dir(), {&*trainer_, tokenizer_.get(), std::string(kRunState)}, keep,
                            best);
  }
  const std::string& dir() const { return dir_.path(); }
  std::vector<std::string> names() const { return *list_directory(dir()); }
  std::string file(const std::string& step, const std::string& name) const {
    return dir() + "/" + step + "/" + name;
  }

  test::TempDir dir_;
  std::optional<Trainer> trainer_;
  std::optional<RandomWindows> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(CheckpointTest, HoldsEverythingAndIsAModelFolder) {
  advance(3);
  VOLTA_ASSERT_OK(const std::string path, write());
  EXPECT_EQ(path, dir() + "/step-3");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-3"}));
  EXPECT_EQ(
      *list_directory(path),
      (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors",
                                "tokenizer.json", "tokenizer_config.json", "trainer.safetensors"}));
  // transformers reads the tokenizer with this class, and adds no token of its own.
  const std::string settings = test::get_file(path + "/tokenizer_config.json");
  EXPECT_THAT(settings, HasSubstr(R"("tokenizer_class": "PreTrainedTokenizerFast")"));
  EXPECT_THAT(settings, testing::Not(HasSubstr("_token\"")));
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(path));
  EXPECT_EQ(checkpoint.manifest.step, 3);
  EXPECT_EQ(checkpoint.manifest.format, kCheckpointFormat);
  EXPECT_EQ(checkpoint.manifest.device, trainer_->model().device()->info().id);
  EXPECT_EQ(checkpoint.manifest.isa, trainer_->model().device()->info().isa);
  EXPECT_THAT(checkpoint.manifest.kernels, testing::Contains(HasSubstr("MatMul: ")));
  EXPECT_EQ(checkpoint.manifest.files.size(), 5u);
  VOLTA_ASSERT_OK(const Transformer model,
                  load_checkpoint_model(checkpoint, test::small_config(), test::device(1)));
  EXPECT_EQ(test::bits_of(model.weights()), test::bits_of(trainer_->model().weights()));
  VOLTA_ASSERT_OK(const TrainerState state, load_trainer_state(checkpoint));
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.run_state, kRunState);
  EXPECT_EQ(test::bits_of(state.optimizer), test::bits_of(trainer_->optimizer_state()));
  VOLTA_ASSERT_OK(const auto tokenizer, load_tokenizer(path));
  EXPECT_EQ(tokenizer->to_json(), tokenizer_->to_json());
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  for (int i = 0; i < 4; ++i) {
    advance();
    ASSERT_TRUE(write(2));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-3", "step-4"}));
  advance();
  ASSERT_TRUE(write(0));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-3", "step-4", "step-5"}));
}

TEST_F(CheckpointTest, KeepsTheBest) {
  for (int i = 0; i < 4; ++i) {
    advance();
    ASSERT_TRUE(write(1, 2));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-2", "step-4"}));
  // It is one of the newest: no further one stays for it.
  advance();
  ASSERT_TRUE(write(2, 4));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-4", "step-5"}));
}

// Somebody wrote into a checkpoint: that must not go with it.
TEST_F(CheckpointTest, StaysWhenItHoldsOtherFiles) {
  advance();
  ASSERT_TRUE(write(1));
  ASSERT_TRUE(std::filesystem::create_directory(file("step-1", "mine")));
  for (int i = 0; i < 2; ++i) {
    advance();
    ASSERT_TRUE(write(1));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-1", "step-3"}));
  std::filesystem::remove(file("step-1", "mine"));
  advance();
  ASSERT_TRUE(write(1));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-4"}));
}

// A disk that does not give back what it was given: the only good checkpoint must not go.
TEST_F(CheckpointTest, IsReadBackBeforeAnOlderOneGoes) {
  // Damages a file once the manifest with its checksum is in place.
  class Rotten final : public FileOps {
   public:
    explicit Rotten(std::string name) : name_(std::move(name)) {}
    int rename(const std::string& from, const std::string& to) override {
      const int done = FileOps::rename(from, to);
      if (to.ends_with("/manifest.json")) {
        const std::string victim = parent_path(to) + "/" + name_;
        std::string bytes = test::get_file(victim);
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
        test::put_file(victim, bytes);
      }
      return done;
    }

   private:
    std::string name_;
  };
  advance();
  ASSERT_TRUE(write(1));
  advance();
  for (const std::string name : {"model.safetensors", "trainer.safetensors", "manifest.json"}) {
    Rotten rotten(name);
    const ScopedFileOps scope(rotten);
    expect_error(write(1), ErrorCode::kInvalidFile, "checkpoint of step 2");
    EXPECT_EQ(names(), (std::vector<std::string>{"step-1"}));
  }
  EXPECT_TRUE(open_checkpoint(dir() + "/step-1"));
  EXPECT_TRUE(write(1));
}

TEST_F(CheckpointTest, ItsSizeIsKnownBeforehand) {
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  const std::int64_t bytes =
      *file_size(path + "/model.safetensors") + *file_size(path + "/trainer.safetensors");
  EXPECT_LE(checkpoint_bytes(*trainer_), bytes);
  EXPECT_GT(checkpoint_bytes(*trainer_), bytes - 20000);
}

// After a resume from behind a damaged one: that one neither counts nor goes.
TEST_F(CheckpointTest, KeepDoesNotCountLaterOnes) {
  std::filesystem::create_directory(dir() + "/step-9");
  advance();
  ASSERT_TRUE(write(1));
  advance();
  ASSERT_TRUE(write(1));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-2", "step-9"}));
}

// A folder that could not be resumed from must not push one out that could.
TEST_F(CheckpointTest, KeepDoesNotCountDamagedOnes) {
  for (int i = 0; i < 2; ++i) {
    advance();
    ASSERT_TRUE(write(0));
  }
  advance();
  advance();
  ASSERT_TRUE(write(0));  // step-4
  std::filesystem::create_directory(dir() + "/step-3");
  std::filesystem::resize_file(dir() + "/step-4/model.safetensors", 100);
  advance();
  ASSERT_TRUE(write(2));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-2", "step-3", "step-4", "step-5"}));
}

TEST_F(CheckpointTest, AnUnusableFolderOfTheSameNameMakesRoom) {
  std::filesystem::create_directory(dir() + "/step-1");
  test::put_file(file("step-1", "junk"), "junk");
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  EXPECT_TRUE(open_checkpoint(path));
  EXPECT_FALSE(path_exists(file("step-1", "junk")));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-1"}));
}

TEST_F(CheckpointTest, OnlyStepFoldersAreListedNewestFirst) {
  for (const char* name :
       {"step-2", "step-10", "step-01", "step-", "step-x", "step--1", "steps-3", ".tmp-step-4"}) {
    std::filesystem::create_directory(dir() + "/" + name);
  }
  test::put_file(dir() + "/step-7", "a file");
  VOLTA_ASSERT_OK(const auto places, list_checkpoints(dir()));
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].step, 10);
  EXPECT_EQ(places[1].step, 2);
  EXPECT_TRUE(list_checkpoints(dir() + "/none")->empty());
  EXPECT_FALSE(list_checkpoints(dir() + "/step-7"));
}

// Names that look like those of unfinished checkpoints are anybody's; this program's have a mark.
TEST_F(CheckpointTest, OnlyItsOwnTemporariesAreRemoved) {
  std::string left;
  {
    auto unfinished = TemporaryFolder::create(checkpoint_path(dir(), 4));
    ASSERT_TRUE(unfinished);
    left = unfinished->path();
    unfinished->release();  // As a killed process leaves it.
  }
  const std::string retired = retired_path(checkpoint_path(dir(), 2));
  for (const std::string& path : {retired, dir() + "/.tmp-step-4", dir() + "/.old-step-2"}) {
    std::filesystem::create_directory(path);
    test::put_file(path + "/thesis.txt", "years of work");
  }
  ASSERT_TRUE(path_exists(left));
  remove_abandoned_temporaries(dir());
  EXPECT_THAT(names(), testing::UnorderedElementsAre(".tmp-step-4", ".old-step-2"));
  EXPECT_EQ(test::get_file(dir() + "/.tmp-step-4/thesis.txt"), "years of work");
  advance(4);
  ASSERT_TRUE(write());
  EXPECT_EQ(test::get_file(dir() + "/.tmp-step-4/thesis.txt"), "years of work");
}

TEST_F(CheckpointTest, ALinkOfTheSameNameMakesRoomAndItsTargetStays) {
  std::filesystem::create_directory(dir() + "/elsewhere");
  test::put_file(dir() + "/elsewhere/thesis.txt", "years of work");
  std::filesystem::create_symlink("elsewhere", dir() + "/step-1");
  advance();
  VOLTA_ASSERT_OK(const std::string path, write());
  EXPECT_TRUE(open_checkpoint(path));
  EXPECT_EQ(test::get_file(dir() + "/elsewhere/thesis.txt"), "years of work");
  EXPECT_THAT(names(), testing::UnorderedElementsAre("elsewhere", "step-1"));
}

// Every file, damaged in every way: the checkpoint before is taken, and the log says why.
TEST_F(CheckpointTest, WhatAKilledWriterOfAFileLeftGoesToo) {
  const std::string left = TemporaryFolder::create(dir() + "/loss.svg")->path();
  test::put_file(left, "x");
  const auto being_filled = TemporaryFolder::create(dir() + "/q8");
  ASSERT_TRUE(being_filled);
  for (const char* name : {"a.tmp-12-12", "run.json", "notes.tmp", ".tmp-step-x", ".old-step-"}) {
    test::put_file(dir() + "/" + name, "x");
  }
  remove_abandoned_temporaries(dir());
  EXPECT_THAT(names(),
              testing::UnorderedElementsAre("a.tmp-12-12", "run.json", "notes.tmp", ".tmp-step-x",
                                            ".old-step-", file_name(being_filled->path())));
}

TEST_F(CheckpointTest, ACheckTellsAllThatIsWrong) {
  advance(3);
  VOLTA_ASSERT_OK(const std::string path, write());
  EXPECT_TRUE(check_checkpoint(path)->empty());
  test::put_file(file("step-3", "config.json"), "{}");
  std::filesystem::remove(file("step-3", "tokenizer.json"));
  std::string weights = test::get_file(file("step-3", "model.safetensors"));
  weights.back() = static_cast<char>(weights.back() ^ 1);
  test::put_file(file("step-3", "model.safetensors"), weights);
  const auto errors = *check_checkpoint(path);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].code(), ErrorCode::kMismatch);
  EXPECT_THAT(errors[0].message(), HasSubstr("config.json has 2 bytes, the manifest says"));
  EXPECT_EQ(errors[1].code(), ErrorCode::kMismatch);
  EXPECT_THAT(errors[1].message(), HasSubstr("model.safetensors is damaged"));
  EXPECT_EQ(errors[2].code(), ErrorCode::kNotFound);
  EXPECT_THAT(errors[2].message(), HasSubstr("tokenizer.json"));
  test::put_file(file("step-3", "manifest.json"), "no JSON");
  ASSERT_EQ(check_checkpoint(path)->size(), 1u);
  EXPECT_EQ((*check_checkpoint(path))[0].code(), ErrorCode::kInvalidFile);
  test::put_file(file("step-3", "manifest.json"), "{}");  // Another tool's.
  EXPECT_TRUE(check_checkpoint(path)->empty());
  // Nor is one of this size Volta's; it is not read.
  std::filesystem::resize_file(file("step-3", "manifest.json"), std::uintmax_t{12} << 30);
  EXPECT_TRUE(check_checkpoint(path)->empty());
  std::filesystem::remove(file("step-3", "manifest.json"));
  EXPECT_TRUE(check_checkpoint(path)->empty());
}

TEST_F(CheckpointTest, ACheckCanBeInterrupted) {
  advance(1);
  VOLTA_ASSERT_OK(const std::string path, write());
  std::vector<std::int64_t> told;
  std::int64_t size = 0;
  ASSERT_TRUE(check_checkpoint(path, [&](std::int64_t bytes, std::int64_t all) {
    told.push_back(bytes);
    size = all;
    return true;
  }));
  EXPECT_GE(told.size(), 3u);  // Once a file at least.
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_LT(told.back(), size);
  expect_error(check_checkpoint(path, [](std::int64_t, std::int64_t) { return false; }),
               ErrorCode::kInterrupted, "interrupted reading");
}

// An archive makes such a file from nothing.
TEST_F(CheckpointTest, AnEndlessManifestIsNotRead) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  advance(1);
  VOLTA_ASSERT_OK(const std::string path, write());
  std::filesystem::resize_file(file("step-1", "manifest.json"), std::uintmax_t{12} << 30);
  const test::AllocationCounter counter;
  [[maybe_unused]] const auto found = find_model_folder(path);
  [[maybe_unused]] const auto checked = check_checkpoint(path);
  EXPECT_LT(counter.bytes(), std::int64_t{1} << 20);
}

TEST_F(CheckpointTest, WeightsThatAreNotNumbersAreNeverWritten) {
  advance();
  ASSERT_TRUE(write(1));
  Tensor norm = *trainer_->model().weight("transformer.h.1.ln_2.weight");
  std::vector<float> values = test::values(norm);
  for (const float bad : {std::nanf(""), -INFINITY}) {
    advance();
    values[5] = bad;
    ASSERT_TRUE(norm.write<float>(values));
    const auto written = write(1);
    ASSERT_FALSE(written);
    expect_error(written, ErrorCode::kNonFinite, "weight 'transformer.h.1.ln_2.weight' f32[16]");
    EXPECT_THAT(written.error().message(), HasSubstr("at element 5"));
    EXPECT_EQ(names(), (std::vector<std::string>{"step-1"}));
    values[5] = 1.0f;
    ASSERT_TRUE(norm.write<float>(values));
  }
  EXPECT_TRUE(write(1));
}

TEST_F(CheckpointTest, DamagedOnesAreSkippedWithTheReason) {
  advance();
  ASSERT_TRUE(write());
  advance();
  const std::string path = *write();
  struct Damage {
    std::string name;
    std::function<std::string(std::string)> change;
    std::string reason;
  };
  const auto truncate = [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); };
  const auto extend = [](std::string bytes) { return bytes + "x"; };
  const auto flip = [](std::string bytes) {
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
    return bytes;
  };
  std::vector<Damage> damages;
  for (const std::string name :
       {"config.json", "model.safetensors", "tokenizer.json", "trainer.safetensors"}) {
    damages.push_back({name, truncate, "the manifest says"});
    damages.push_back({name, extend, "the manifest says"});
    damages.push_back({name, flip, "is damaged: its checksum is"});
  }
  damages.push_back({"manifest.json", truncate, "manifest.json"});
  damages.push_back({"manifest.json", [](auto) { return std::string(); }, "manifest.json"});
  const auto replace = [](const std::string& from, const std::string& to) {
    return [from, to](std::string bytes) {
      bytes.replace(bytes.find(from), from.size(), to);
      return bytes;
    };
  };
  damages.push_back({"manifest.json", replace("\"format\": 1", "\"format\": 2"),
                     "checkpoint format 2; this Volta reads format 1"});
  damages.push_back({"manifest.json", replace("\"step\": 2", "\"step\": 3"),
                     "is of step 3; the folder's name says 2"});
  for (const Damage& damage : damages) {
    const std::string victim = path + "/" + damage.name;
    const std::string good = test::get_file(victim);
    test::put_file(victim, damage.change(good));
    const LogCapture log;
    VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(dir()));
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->path, dir() + "/step-1") << damage.name << damage.reason;
    EXPECT_THAT(log.text(), HasSubstr("skipping checkpoint " + path));
    EXPECT_THAT(log.text(), HasSubstr(damage.reason));
    test::put_file(victim, good);
  }
  for (const std::string name : {"model.safetensors", "manifest.json"}) {
    std::filesystem::rename(path + "/" + name, dir() + "/aside");
    const LogCapture log;
    EXPECT_EQ((*newest_valid_checkpoint(dir()))->path, dir() + "/step-1");
    EXPECT_THAT(log.text(), HasSubstr(name));
    std::filesystem::rename(dir() + "/aside", path + "/" + name);
  }
  EXPECT_EQ((*newest_valid_checkpoint(dir()))->path, path);
  std::filesystem::remove_all(dir() + "/step-1");
  std::filesystem::remove_all(path);
  VOLTA_ASSERT_OK(const auto none, newest_valid_checkpoint(dir()));
  EXPECT_FALSE(none);
}

TEST_F(CheckpointTest, AnotherArchitectureIsAMismatch) {
  advance();
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(*write()));
  TransformerConfig other = test::small_config();
  other.heads = other.kv_heads = 4;
  other.head_dim = 4;
  expect_error(load_checkpoint_model(checkpoint, other, test::device(1)), ErrorCode::kMismatch,
               "another architecture");
}

// Without clipping, the square of a gradient can overflow. A resumed run would refuse the result.
TEST_F(CheckpointTest, MomentsThatAreNotNumbersAreNeverWritten) {
  advance();
  ASSERT_TRUE(write(1));
  advance();
  const std::string name = "adam.v.transformer.h.1.ln_2.weight";
  Tensor moments = trainer_->optimizer_state().find(name)->second;
  std::vector<float> values = test::values(moments);
  values[5] = INFINITY;
  ASSERT_TRUE(moments.write<float>(values));
  expect_error(write(1), ErrorCode::kNonFinite,
               "optimiser tensor '" + name +
                   "' f32[16] holds 0 NaN and 1 infinities, the first at element 5");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-1"}));
}

// Files that carry a right checksum, but are no trainer's.
TEST_F(CheckpointTest, ForeignTrainerStateIsRefused) {
  advance();
  const std::string path = *write();
  const std::string trainer = file("step-1", "trainer.safetensors");
  std::filesystem::copy_file(file("step-1", "model.safetensors"), trainer,
                             std::filesystem::copy_options::overwrite_existing);
  test::bless(path, "trainer.safetensors");
  VOLTA_ASSERT_OK(const Checkpoint foreign, open_checkpoint(path));
  expect_error(load_trainer_state(foreign), ErrorCode::kInvalidFile, "no trainer wrote it");
  std::filesystem::remove_all(path);
  advance();
  ASSERT_TRUE(write());
  std::filesystem::copy_file(file("step-2", "trainer.safetensors"), dir() + "/two");
  advance();
  ASSERT_TRUE(write());
  std::filesystem::copy_file(dir() + "/two", file("step-3", "trainer.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  test::bless(dir() + "/step-3", "trainer.safetensors");
  VOLTA_ASSERT_OK(const Checkpoint mixed, open_checkpoint(dir() + "/step-3"));
  expect_error(load_trainer_state(mixed), ErrorCode::kInvalidFile,
               "is of step 2, its manifest of step 3");
}

// The error is one of the file, not of an argument, and resuming takes the older checkpoint.
TEST_F(CheckpointTest, AStepThatIsNoNumberIsDamage) {
  for (int i = 0; i < 2; ++i) {
    advance();
    ASSERT_TRUE(write(0));
  }
  const std::string path = dir() + "/step-2";
  for (const std::string step : {"x", "6.0", "", "-2", "99999999999999999999"}) {
    test::change_state(path, [&](auto& state) { state.metadata["step"] = step; });
    VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(path));
    const std::string reason = "step-2/trainer.safetensors: the step in its metadata is '" + step;
    expect_error(load_trainer_state(checkpoint), ErrorCode::kInvalidFile, reason);
    expect_error(check_trainer_state(checkpoint), ErrorCode::kInvalidFile, reason);
    expect_error(check_trainer_state(checkpoint), ErrorCode::kInvalidFile,
                 "the checkpoint is damaged, and a run cannot go on from it");
    const LogCapture log;
    VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(dir(), {}, CheckpointUse::kResume));
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->path, dir() + "/step-1");
    EXPECT_THAT(log.text(), HasSubstr(reason));
    EXPECT_EQ((*newest_valid_checkpoint(dir()))->path, path);  // Its model is good.
  }
}

// The next save would remove the checkpoint that is the best one.
TEST_F(CheckpointTest, ABestStepThatCannotBeIsDamage) {
  advance(2);
  const std::string path = *write();
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(path));
  const auto with_best = [&](const std::string& best) {
    test::change_state(path, [&](auto& state) {
      state.metadata["run"] = R"({"settings":{},"rows_seen":8,"waited":0,)" + best + "}";
    });
    return check_trainer_state(checkpoint);
  };
  EXPECT_TRUE(with_best(R"("best_val_loss":2.5,"best_step":2)"));
  EXPECT_TRUE(with_best(R"("best_val_loss":2.5)"));  // Of an earlier version.
  expect_error(with_best(R"("best_val_loss":2.5,"best_step":3)"), ErrorCode::kInvalidFile,
               "trainer.safetensors: run: best_step is 3, but the checkpoint is of step 2");
  for (const std::string loss : {"1e39", "-1e39", "1e400", "\"inf\""}) {
    expect_error(with_best(R"("best_val_loss":)" + loss + R"(,"best_step":1)"),
                 ErrorCode::kInvalidFile, "trainer.safetensors: run");
  }
}

// Training would stop at every step with such values, or go astray.
TEST_F(CheckpointTest, MomentsThatNoTrainingGivesAreDamage) {
  advance();
  ASSERT_TRUE(write());
  advance();
  const std::string path = *write();
  const std::string name = "transformer.h.1.ln_2.weight";
  const auto expect_found = [&](const std::string& tensor, float value, const std::string& text) {
    float before = 0.0f;
    const auto exchange = [&](auto& state) {
      std::vector<float> values = test::values(state.tensors[tensor]);
      before = std::exchange(values[5], value);
      ASSERT_TRUE(state.tensors[tensor].template write<float>(values));
    };
    test::change_state(path, exchange);
    VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(path));
    expect_error(
        check_trainer_state(checkpoint), ErrorCode::kInvalidFile,
        path + "/trainer.safetensors: optimiser tensor '" + tensor + "' f32[16] is " + text);
    const LogCapture log;
    VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(dir(), {}, CheckpointUse::kResume));
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->path, dir() + "/step-1");
    EXPECT_THAT(log.text(), HasSubstr("a run cannot go on from it"));
    value = before;
    test::change_state(path, exchange);
  };
  for (const std::string& tensor : {"adam.m." + name, "adam.v." + name}) {
    expect_found(tensor, std::nanf(""), "nan at element 5");
    expect_found(tensor, -std::nanf(""), "nan at element 5");
    expect_found(tensor, INFINITY, "inf at element 5");
    expect_found(tensor, -INFINITY, "-inf at element 5");
  }
  expect_found("adam.v." + name, -1.0f, "-1 at element 5, where no training gives a negative");
  VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(dir(), {}, CheckpointUse::kResume));
  EXPECT_EQ(newest->path, path);  // The mean of gradients may be negative.
}

TEST_F(CheckpointTest, ACheckOfTheTrainerStateCanBeInterrupted) {
  advance();
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(*write()));
  std::int64_t last = -1, size = 0;
  ASSERT_TRUE(check_trainer_state(checkpoint, [&](std::int64_t bytes, std::int64_t all) {
    EXPECT_GT(bytes, last);
    last = bytes;
    size = all;
    return true;
  }));
  EXPECT_LT(last, size);
  expect_error(check_trainer_state(checkpoint, [](std::int64_t, std::int64_t) { return false; }),
               ErrorCode::kInterrupted, "interrupted reading");
}

// A full disk, or any other refusal, at every single call: the error comes back, nothing of the
// new checkpoint stays under its name unless it is whole, and the one before is untouched.
TEST_F(CheckpointTest, AnyFailureLeavesThePreviousOneIntact) {
  advance();
  ASSERT_TRUE(write());
  advance();
  for (const FileCall call : {FileCall::kOpen, FileCall::kWrite, FileCall::kFsync, FileCall::kClose,
                              FileCall::kRename, FileCall::kMkdir}) {
    int failures = 0;
    for (int nth = 1;; ++nth) {
      test::FaultyFileOps faults;
      faults.fail(call, nth, ENOSPC, 1);
      Result<std::string> written;
      {
        const ScopedFileOps scope(faults);
        const LogCapture quiet;
        written = write();
      }
      VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(dir()));
      ASSERT_TRUE(newest);
      const bool there = newest->manifest.step == 2;
      if (!written) {
        ++failures;
        EXPECT_EQ(written.error().code(), ErrorCode::kIo) << written.error().message();
        EXPECT_THAT(written.error().message(), HasSubstr("checkpoint of step 2"));
      }
      EXPECT_TRUE(open_checkpoint(dir() + "/step-1"));
      for (const std::string& name : names()) {
        EXPECT_TRUE(name.starts_with("step-")) << name << " stays after call " << nth;
      }
      if (written) {
        EXPECT_TRUE(there);
      }
      std::filesystem::remove_all(dir() + "/step-2");
      if (faults.calls(call) < nth) break;  // Nothing left to fail.
    }
    EXPECT_GT(failures, 0) << static_cast<int>(call);
  }
}

TEST_F(CheckpointTest, APreviousFolderOfTheNameComesBackWhenTheNewOneCannotBePut) {
  advance();
  ASSERT_TRUE(write());
  // Renames: three files of the model folder, the trainer's, the manifest, aside, and in place.
  for (int nth = 1; nth <= 7; ++nth) {
    test::FaultyFileOps faults;
    faults.fail(FileCall::kRename, nth, EIO, 1);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(write()) << nth;
    EXPECT_TRUE(open_checkpoint(dir() + "/step-1")) << nth;
  }
}

TEST_F(CheckpointTest, AnOldOneThatCannotBeRemovedIsAWarning) {
  advance();
  ASSERT_TRUE(write());
  advance();
  test::FaultyFileOps faults;
  faults.fail(FileCall::kUnlink, 1, EACCES);
  faults.fail(FileCall::kRmdir, 1, EACCES);
  const ScopedFileOps scope(faults);
  const LogCapture log;
  EXPECT_TRUE(write(1));
  EXPECT_THAT(log.text(), HasSubstr("an old checkpoint could not be removed"));
}

TEST_F(CheckpointTest, AnUnwritableFolderIsAnError) {
  advance();
  const auto written = write_checkpoint("/proc/volta-none", {&*trainer_, nullptr, "{}"}, 0);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("checkpoint of step 1"));
}

}  // namespace
}  // namespace volta
