// Whole runs: what they leave behind, and how they stop.
#include "train/run.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "formats/safetensors.h"
#include "support/async_device.h"
#include "support/fault_device.h"
#include "support/file_faults.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/metrics.h"
#include "train/run_fixture.h"
#include "train/run_folder.h"

namespace volta {
namespace {

using test::expect_error;
using test::FileCall;
using testing::HasSubstr;
using testing::Not;

class RunTest : public test::RunFixture {};

TEST_F(RunTest, RecordsTheComputeTypeAndSaysWhatItCosts) {
  RunOptions o = options("f32");
  VOLTA_ASSERT_OK(const RunResult full, train(o));
  EXPECT_THAT(messages_, Not(HasSubstr("can be slower")));
  o = options("bf16");
  o.trainer.compute_dtype = DType::kBF16;
  VOLTA_ASSERT_OK(const RunResult half, train(o));
  if (!test::on_gpu()) {
    EXPECT_THAT(messages_, HasSubstr("training in bf16 can be slower than in f32 here: "));
  }
  VOLTA_ASSERT_OK(const RunOptions saved, load_run_options(o.out));
  EXPECT_EQ(saved.trainer.compute_dtype, DType::kBF16);
  ASSERT_TRUE(full.loss && half.loss);
  EXPECT_NE(*full.loss, *half.loss);
  EXPECT_NEAR(*full.loss, *half.loss, 0.02);
}

TEST_F(RunTest, LeavesCheckpointsMetricsAndACurve) {
  const RunOptions o = options("a");
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.steps, 20);
  EXPECT_EQ(result.tokens, 20 * 4 * 8);
  EXPECT_EQ(result.checkpoint, o.out + "/step-20");
  ASSERT_TRUE(result.val_loss);
  EXPECT_LT(*result.val_loss, 2.6);
  EXPECT_EQ(*list_directory(o.out),
            (std::vector<std::string>{".lock", "loss.svg", "metrics.jsonl", "run.json", "step-10",
                                      "step-15", "step-20"}));
  VOLTA_ASSERT_OK(const auto records, read_metrics(o.out + "/metrics.jsonl"));
  ASSERT_EQ(records.size(), 20u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(records[i].val_loss.has_value(), (i + 1) % 5 == 0);
    EXPECT_GT(records[i].tokens_per_s, 0.0);
    EXPECT_EQ(records[i].lr, learning_rate(o.trainer.schedule, static_cast<std::int64_t>(i)));
  }
  EXPECT_EQ(records.back().val_loss, result.val_loss);
  EXPECT_EQ(records.back().loss, result.loss);
  EXPECT_THAT(test::get_file(o.out + "/loss.svg"), HasSubstr("text.txt"));
  EXPECT_THAT(messages_, HasSubstr("memory: weights"));
  EXPECT_THAT(messages_, HasSubstr("steps: 20, each of 4 rows of 8 tokens"));
  EXPECT_THAT(messages_, HasSubstr("tokens of"));
  VOLTA_ASSERT_OK(const Transformer model, test::load_model(result.checkpoint, test::device(1)));
  EXPECT_EQ(model.config().layers, 2);
  EXPECT_EQ(events_.size(), 20u);
  EXPECT_EQ(events_.back().steps, 20);
  VOLTA_ASSERT_OK(const RunOptions saved, load_run_options(o.out));
  EXPECT_EQ(saved.data, o.data);
}

// The loss that the run reports is that of all windows of the validation text.
TEST_F(RunTest, TheLastValidationLossIsOverTheWholeText) {
  const RunOptions o = options("a");
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  VOLTA_ASSERT_OK(const Transformer model, test::load_model(result.checkpoint, test::device(1)));
  VOLTA_ASSERT_OK(auto evaluator, Evaluator::create(model, 3, 8));
  VOLTA_ASSERT_OK(const Dataset data, load_text(o.data.front(), "char", nullptr, 0.1));
  EXPECT_EQ(*evaluator.mean_loss(*data.validation), *result.val_loss);
}

TEST_F(RunTest, ThreadsDoNotChangeARun) {
  RunOptions o = options("one");
  o.trainer.dropout = 0.1f;
  ASSERT_TRUE(train(o));
  for (const int threads : {2, 3}) {
    RunOptions other = o;
    other.out = dir_.file(std::to_string(threads));
    device_ = test::device(threads);
    ASSERT_TRUE(train(other));
    expect_same_runs(o.out, other.out);
  }
}

// While a run trains, its folder is moved, and another run begins under its old name.
TEST_F(RunTest, AMovedFolderIsFollowed) {
  const RunOptions whole = options("whole");
  ASSERT_TRUE(train(whole));
  const RunOptions o = options("a");
  const auto count = callbacks_.on_step;
  callbacks_.on_step = [&](const StepEvent& event) {
    count(event);
    if (event.report.step != 7) return;
    std::filesystem::rename(o.out, dir_.file("b"));
    std::filesystem::create_directories(o.out + "/step-1");
    test::put_file(o.out + "/metrics.jsonl", "another run's");
  };
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.checkpoint, dir_.file("b/step-20"));
  EXPECT_THAT(messages_,
              HasSubstr(o.out + " was moved: the run goes on in " + dir_.file("b") + "\n"));
  expect_same_runs(whole.out, dir_.file("b"));
  EXPECT_EQ(*list_directory(dir_.file("b")), *list_directory(whole.out));
  EXPECT_EQ(*list_directory(o.out), (std::vector<std::string>{"metrics.jsonl", "step-1"}));
  EXPECT_EQ(test::get_file(o.out + "/metrics.jsonl"), "another run's");
}

TEST_F(RunTest, ARemovedFolderEndsTheRun) {
  const RunOptions o = options("a");
  callbacks_.on_step = [&](const StepEvent& event) {
    if (event.report.step == 12) std::filesystem::remove_all(o.out);
  };
  const auto ended = train(o);
  expect_error(ended, ErrorCode::kIo, "the folder '" + o.out + "' was removed while it was in use");
  EXPECT_THAT(ended.error().message(), HasSubstr("its checkpoint " + o.out + "/step-10 is gone"));
  EXPECT_FALSE(path_exists(o.out));
}

TEST_F(RunTest, AFolderThatHoldsARunIsRefusedWithoutResume) {
  ASSERT_TRUE(train(options("a")));
  expect_error(train(options("a")), ErrorCode::kInvalidArgument, "holds a run already");
  // Whatever is left of it counts.
  std::filesystem::remove_all(dir_.file("a"));
  std::filesystem::create_directories(dir_.file("a/step-3"));
  expect_error(train(options("a")), ErrorCode::kInvalidArgument, "--resume");
}

TEST_F(RunTest, TheSecondRunOnOneFolderIsRefused) {
  const RunOptions o = options("a");
  int refused = 0;
  callbacks_.on_step = [&](const StepEvent& event) {
    if (event.report.step != 2) return;
    RunOptions second = o;
    second.resume = true;
    expect_error(volta::train(second, test::device(1)), ErrorCode::kIo, o.out);
    ++refused;
  };
  ASSERT_TRUE(volta::train(o, device_, callbacks_));
  EXPECT_EQ(refused, 1);
}

TEST_F(RunTest, ResumeWithoutACheckpointStartsAtStepZeroAndSaysSo) {
  RunOptions o = options("a");
  o.resume = true;
  ASSERT_TRUE(train(o));
  EXPECT_THAT(messages_, HasSubstr("has no valid checkpoint: starting at step 0"));
  EXPECT_EQ(events_.front().report.step, 1);
}

// Starting again loses nothing of what was there, though none of it could be used.
TEST_F(RunTest, ResumeKeepsWhatItCannotUse) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  const std::string metrics = test::get_file(o.out + "/metrics.jsonl");
  const std::string weights = test::get_file(o.out + "/step-20/model.safetensors");
  const std::string other = R"({"format": 99, "volta": "99"})";
  test::put_file(o.out + "/step-20/manifest.json", other);
  test::put_file(o.out + "/step-15/model.safetensors", "damaged");
  std::filesystem::remove(o.out + "/step-10/manifest.json");
  std::filesystem::create_directories(o.out + "/step-15.invalid");
  o.resume = true;
  o.trainer.schedule.steps = 3;
  messages_.clear();
  events_.clear();
  set_log_callback([](LogLevel, std::string_view) {});
  const auto result = train(o);
  set_log_callback({});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(events_.front().report.step, 1);
  EXPECT_EQ(*list_directory(o.out),
            (std::vector<std::string>{".lock", "loss.svg", "metrics.jsonl", "metrics.jsonl.old",
                                      "run.json", "step-10.invalid", "step-15.invalid",
                                      "step-15.invalid.2", "step-20.invalid", "step-3"}));
  EXPECT_EQ(test::get_file(o.out + "/metrics.jsonl.old"), metrics);
  EXPECT_EQ(test::get_file(o.out + "/step-20.invalid/model.safetensors"), weights);
  EXPECT_EQ(test::get_file(o.out + "/step-20.invalid/manifest.json"), other);
  EXPECT_THAT(messages_, HasSubstr("has no valid checkpoint: starting at step 0"));
  EXPECT_THAT(messages_, HasSubstr("/step-20 is kept as " + o.out + "/step-20.invalid"));
  EXPECT_THAT(messages_, HasSubstr("/step-15 is kept as " + o.out + "/step-15.invalid.2"));
  EXPECT_THAT(messages_, HasSubstr("metrics.jsonl is kept as " + o.out + "/metrics.jsonl.old"));
  EXPECT_EQ(read_metrics(o.out + "/metrics.jsonl")->size(), 3u);
}

TEST_F(RunTest, AnUnusableNewestCheckpointIsKeptWhenAnOlderOneServes) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  test::put_file(o.out + "/step-20/manifest.json", "{}");
  o.resume = true;
  set_log_callback([](LogLevel, std::string_view) {});
  EXPECT_TRUE(train(o));
  set_log_callback({});
  EXPECT_EQ(test::get_file(o.out + "/step-20.invalid/manifest.json"), "{}");
  EXPECT_TRUE(open_checkpoint(o.out + "/step-20"));
  EXPECT_FALSE(path_exists(o.out + "/metrics.jsonl.old"));
  // The lines behind the checkpoint that served.
  EXPECT_THAT(test::get_file(o.out + "/metrics.jsonl.cut"), HasSubstr("{\"step\":16,"));
  EXPECT_THAT(test::get_file(o.out + "/metrics.jsonl.cut"), HasSubstr("{\"step\":20,"));
}

TEST_F(RunTest, AFinishedRunCanBeResumedAndSaysItsResult) {
  RunOptions o = options("a");
  VOLTA_ASSERT_OK(const RunResult first, train(o));
  o.resume = true;
  events_.clear();
  VOLTA_ASSERT_OK(const RunResult again, train(o));
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(again.steps, 20);
  EXPECT_EQ(again.val_loss, first.val_loss);
  EXPECT_EQ(again.checkpoint, first.checkpoint);
  EXPECT_EQ(again.tokens, 0);
  ASSERT_TRUE(first.loss);
  EXPECT_EQ(again.loss, first.loss);
}

// Nobody gave an option, and some of these values have none.
TEST_F(RunTest, ResumingNamesRunJsonWhereItWasChanged) {
  ASSERT_TRUE(train(options("a")));
  const std::string path = dir_.file("a/run.json");
  const std::string good = test::get_file(path);
  const auto expect_refused = [&](const std::string& from, const std::string& to,
                                  const std::string& text) {
    std::string changed = good;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    test::put_file(path, changed.replace(changed.find(from), from.size(), to));
    VOLTA_ASSERT_OK(RunOptions o, load_run_options(dir_.file("a")));
    o.resume = true;
    expect_error(train(o), ErrorCode::kMismatch, text);
  };
  const std::string put = path + " has another value than the checkpoint: put ";
  expect_refused("\"norm_eps\": 1e-05", "\"norm_eps\": 1e-3", put + "1e-05 back there, or start");
  expect_refused("\"window\": 0", "\"window\": 4", put + "0 back there");
  expect_refused("\"packing\": false", "\"packing\": true", put + "false back there");
  expect_refused("\"batch\": 4", "\"batch\": 5", put + "4 back there");
  expect_refused("\"val_data\": \"\"", "\"val_data\": \"" + dir_.file("text.txt") + "\"",
                 "set val_data in " + path + " to \"\" again");
  test::put_file(path, good);
}

TEST_F(RunTest, ResumingNamesTheOptionOfTheDataThatDiffers) {
  const auto expect_refused = [&](RunOptions o, const std::string& text) {
    o.resume = true;
    expect_error(train(o), ErrorCode::kMismatch, text);
  };
  RunOptions o = options("validated");
  o.val_data = dir_.file("va.txt");
  test::put_file(o.val_data, test::get_file(dir_.file("text.txt")));
  ASSERT_TRUE(train(o));
  RunOptions without = o;
  without.val_data.clear();
  expect_refused(without, "data.validation_xxh3 is missing, the checkpoint has");
  expect_refused(without, "again (--val-data)");
  test::put_file(o.val_data, test::get_file(o.val_data) + "the cat");
  expect_refused(o,
                 "The validation data is no longer what the run was evaluated with: give it that "
                 "data again (--val-data)");
  RunOptions plain = options("plain");
  ASSERT_TRUE(train(plain));
  plain.val_data = o.val_data;
  expect_refused(plain, "The run had no file to validate with: leave --val-data out");
}

TEST_F(RunTest, ResumingWithOtherSettingsNamesTheFirstThatDiffers) {
  ASSERT_TRUE(train(options("a")));
  const auto expect_refused = [&](auto change, const std::string& text) {
    RunOptions o = options("a");
    o.resume = true;
    change(o);
    expect_error(train(o), ErrorCode::kMismatch, text);
  };
  expect_refused([](auto& o) { o.seed = 2; }, "--seed is 2, the checkpoint has 1");
  expect_refused([](auto& o) { o.trainer.batch = 5; }, "--batch is 5, the checkpoint has 4");
  expect_refused([](auto& o) { o.trainer.schedule.steps = 10; }, "--steps is 10");
  expect_refused([](auto& o) { o.trainer.schedule.steps = 10; },
                 "start a new run from this model: `volta train --init " + dir_.file("a/step-20") +
                     " --data FILE --out NEW`");
  expect_refused([](auto& o) { o.tokenizer = "byte"; },
                 "tokenizer is byte, the checkpoint has char");
  expect_refused([](auto& o) { o.trainer.dropout = 0.5f; }, "--dropout is 0.5");
  expect_refused([](auto& o) { o.trainer.compute_dtype = DType::kBF16; },
                 "--dtype is bf16, the checkpoint has f32");
  expect_refused([](auto& o) { o.trainer.optimizer.kind = OptimizerConfig::Kind::kSgd; },
                 "--optimizer is sgd, the checkpoint has adamw");
  expect_refused([](auto& o) { o.model.layers = 3; }, "--layers is 3, the checkpoint has 2");
  expect_refused([](auto& o) { o.model.norm_bias = true; }, "--bias is true");
  expect_refused([](auto& o) { o.val_fraction = 0.2; }, "--val-fraction is 0.2");
  expect_refused(
      [&](auto& o) {
        o.data = {dir_.file("other.txt")};
        test::put_file(o.data.front(), test::get_file(dir_.file("text.txt")) + "the cat");
      },
      "The data is no longer what the run was trained on");
  expect_refused(
      [](auto& o) { o.trainer.batch = 5; },
      "leave out what changes this one (its option, or --preset), or give it its old value");
  // What is only watched may change.
  RunOptions o = options("a");
  o.resume = true;
  o.eval_every = 7;
  o.save_every = 0;
  o.keep = 1;
  EXPECT_TRUE(train(o));
}

TEST_F(RunTest, AConstantScheduleCanBeExtended) {
  RunOptions o = options("a");
  o.trainer.schedule.kind = ScheduleKind::kConstant;
  ASSERT_TRUE(train(o));
  o.trainer.schedule.steps = 26;
  o.resume = true;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.steps, 26);
  RunOptions whole = o;
  whole.resume = false;
  whole.out = dir_.file("whole");
  ASSERT_TRUE(train(whole));
  EXPECT_EQ(weights_of(result.checkpoint), weights_of(whole.out + "/step-26"));
}

TEST_F(RunTest, StopsEarlyWhenTheLossNoLongerFalls) {
  RunOptions o = options("a");
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 0.5, .steps = 200};
  o.patience = 2;
  o.eval_every = 2;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_EQ(result.end, RunEnd::kEarlyStop);
  EXPECT_EQ(result.new_steps, result.steps);
  EXPECT_LT(result.steps, 200);
  EXPECT_EQ(result.steps % 2, 0);
  VOLTA_ASSERT_OK(const auto records, read_metrics(o.out + "/metrics.jsonl"));
  EXPECT_EQ(static_cast<std::int64_t>(records.size()), result.steps);
  EXPECT_EQ(records.back().val_loss, result.val_loss);
  // It stays stopped.
  o.resume = true;
  VOLTA_ASSERT_OK(const RunResult again, train(o));
  EXPECT_EQ(again.end, RunEnd::kEarlyStop);
  EXPECT_EQ(again.steps, result.steps);
  EXPECT_EQ(again.new_steps, 0);
  EXPECT_EQ(again.checkpoint, result.checkpoint);
}

// Four saves and three evaluations after the minimum, one checkpoint kept: the best one is there.
TEST_F(RunTest, AnEarlyStopReturnsToTheBestCheckpoint) {
  RunOptions o = options("a");
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 0.5, .steps = 200};
  o.patience = 3;
  o.eval_every = 2;
  o.save_every = 1;
  o.keep = 1;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  ASSERT_EQ(result.end, RunEnd::kEarlyStop);
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->step, result.steps - 6);
  const std::string best = checkpoint_path(o.out, result.best->step);
  const std::string last = checkpoint_path(o.out, result.steps);
  EXPECT_EQ(result.checkpoint, best);
  VOLTA_ASSERT_OK(const auto places, list_checkpoints(o.out));
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].path, last);
  EXPECT_EQ(places[1].path, best);
  VOLTA_ASSERT_OK(const auto records, read_metrics(o.out + "/metrics.jsonl"));
  EXPECT_EQ(records[static_cast<std::size_t>(result.best->step) - 1].val_loss,
            result.best->val_loss);
  VOLTA_ASSERT_OK(const RunProgress progress, load_run_progress(o.out));
  EXPECT_TRUE(progress.stopped_early);
  EXPECT_EQ(progress.best->step, result.best->step);
  EXPECT_EQ(progress.best->val_loss, result.best->val_loss);
  // The run's folder stands for it, and every checkpoint for itself.
  EXPECT_EQ(*find_model_folder(o.out), best);
  EXPECT_EQ(*find_model_folder(last), last);
  // A resumed run that may go on begins with the newest.
  o.resume = true;
  o.patience = 4;
  events_.clear();
  VOLTA_ASSERT_OK(const RunResult again, train(o));
  EXPECT_EQ(events_.front().report.step, result.steps + 1);
  // A damaged best one is passed over.
  test::put_file(checkpoint_path(o.out, again.best->step) + "/model.safetensors", "damaged");
  std::string log;
  set_log_callback([&](LogLevel, std::string_view message) { log += message; });
  const auto found = find_model_folder(o.out);
  set_log_callback({});
  EXPECT_EQ(*found, checkpoint_path(o.out, again.steps));
  EXPECT_THAT(log, HasSubstr("the best checkpoint of"));
  std::filesystem::remove_all(checkpoint_path(o.out, again.best->step));
  EXPECT_EQ(*find_model_folder(o.out), checkpoint_path(o.out, again.steps));
}

TEST_F(RunTest, WithoutKeepingTheBestOnlyTheNewestStay) {
  RunOptions o = options("a");
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 0.5, .steps = 200};
  o.patience = 3;
  o.eval_every = 2;
  o.save_every = 0;
  o.keep_best = false;
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  ASSERT_EQ(result.end, RunEnd::kEarlyStop);
  EXPECT_EQ(result.checkpoint, checkpoint_path(o.out, result.steps));
  EXPECT_EQ(*find_model_folder(o.out), result.checkpoint);
  EXPECT_EQ(list_checkpoints(o.out)->size(), 1u);
}

// A run that ends as planned stands for its last step, and says where its minimum was.
TEST_F(RunTest, AFinishedRunSaysItsBestStep) {
  RunOptions o = options("a");
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  ASSERT_TRUE(result.best);
  EXPECT_LE(result.best->val_loss, *result.val_loss);
  VOLTA_ASSERT_OK(const RunProgress progress, load_run_progress(o.out));
  EXPECT_FALSE(progress.stopped_early);
  EXPECT_EQ(progress.best->step, result.best->step);
  EXPECT_EQ(*find_model_folder(o.out), o.out + "/step-20");
}

TEST_F(RunTest, ANonFiniteLossStopsAndKeepsTheLastCheckpoint) {
  RunOptions o = options("a");
  o.trainer.optimizer.kind = OptimizerConfig::Kind::kSgd;
  o.trainer.optimizer.clip = 0.0f;
  o.trainer.optimizer.weight_decay = 0.0f;
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e30, .steps = 50};
  o.save_every = 1;
  const auto result = train(o);
  expect_error(result, ErrorCode::kNonFinite, "step 2: loss");
  EXPECT_THAT(result.error().message(), HasSubstr("go on from " + o.out + "/step-1"));
  VOLTA_ASSERT_OK(const auto newest, newest_valid_checkpoint(o.out));
  EXPECT_EQ(newest->manifest.step, 1);
}

// An update can overflow what the loss before it did not show: such weights are never saved.
TEST_F(RunTest, WeightsThatOverflowStopTheRun) {
  RunOptions o = options("a");
  o.trainer.optimizer.kind = OptimizerConfig::Kind::kSgd;
  o.trainer.optimizer.clip = 0.0f;
  o.trainer.optimizer.weight_decay = 0.0f;
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e300, .steps = 50};
  o.save_every = 1;
  o.eval_every = 0;
  const auto result = train(o);
  ASSERT_FALSE(result);
  expect_error(result, ErrorCode::kNonFinite, "checkpoint of step 1: weight 'transformer.");
  EXPECT_THAT(result.error().message(), HasSubstr("there is no checkpoint yet"));
  EXPECT_TRUE(list_checkpoints(o.out)->empty());
}

TEST_F(RunTest, AFailingCheckpointIsToldAndTrainingGoesOn) {
  const RunOptions o = options("a");
  test::FaultyFileOps faults;
  callbacks_.on_step = [&](const StepEvent& event) {
    // The disk is full from step 8 to 12: the checkpoint of step 10 and some metrics fail.
    if (event.report.step == 8) faults.fail(FileCall::kWrite, 1, ENOSPC);
    if (event.report.step == 12) faults.fail(FileCall::kWrite, INT_MAX, 0);
  };
  const ScopedFileOps scope(faults);
  VOLTA_ASSERT_OK(const RunResult result, volta::train(o, device_, callbacks_));
  EXPECT_THAT(messages_, HasSubstr("checkpoint of step 10"));
  EXPECT_THAT(messages_, HasSubstr("No space left"));
  EXPECT_EQ(result.steps, 20);
  VOLTA_ASSERT_OK(const auto places, list_checkpoints(o.out));
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[2].step, 5);
  VOLTA_ASSERT_OK(const auto records, read_metrics(o.out + "/metrics.jsonl"));
  EXPECT_EQ(records.size(), 20u);
}

TEST_F(RunTest, WhenTheLastCheckpointFailsTheRunFails) {
  const RunOptions o = options("a");
  test::FaultyFileOps faults;
  callbacks_.on_step = [&](const StepEvent& event) {
    if (event.report.step == 19) faults.fail(FileCall::kMkdir, 1, EROFS);
  };
  const ScopedFileOps scope(faults);
  const auto result = volta::train(o, device_, callbacks_);
  expect_error(result, ErrorCode::kIo, "its result could not be saved");
  EXPECT_THAT(result.error().message(), HasSubstr("go on from " + o.out + "/step-15"));
}

// A step that is given up within, at any of its ops, is as if it had not begun.
TEST_F(RunTest, AStepCanBeInterrupted) {
  device_ = test::cpu(2);
  RunOptions o = options("whole");
  o.trainer.schedule.steps = 4;
  o.trainer.accumulate = 2;
  o.save_every = 0;
  o.eval_every = 2;  // An estimate that is broken off is made up for.
  ASSERT_TRUE(train(o));
  const auto best_of = [](const std::string& folder) {
    const std::string text = test::get_file(folder + "/run.json");
    const auto at = text.find("\"best\"");
    return at == std::string::npos ? std::string() : text.substr(at, text.find('}', at) - at);
  };
  ASSERT_NE(best_of(o.out), "");
  std::int64_t asked = 0, allowed = 0;
  const auto device = CpuDevice::create(
      {.threads = 1, .interrupted = [&] { return allowed > 0 && ++asked > allowed; }});
  ASSERT_TRUE(device);
  device_ = *device;
  allowed = std::int64_t{1} << 40;
  o.out = dir_.file("counted");
  ASSERT_TRUE(train(o));
  const std::int64_t all = asked;
  int runs = 0, with_checkpoint = 0;
  for (std::int64_t stop = 1; stop < all; stop += all / 19 + 1) {
    SCOPED_TRACE(stop);
    o.out = dir_.file("run-" + std::to_string(stop));
    asked = 0;
    allowed = stop;
    const auto stopped = train(o);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code(), ErrorCode::kInterrupted) << stopped.error().message();
    allowed = 0;
    const bool saved = stopped.error().message().find("--resume") != std::string::npos;
    RunOptions again = o;
    again.resume = saved;
    if (!saved) std::filesystem::remove_all(o.out);
    const auto resumed = train(again);
    ASSERT_TRUE(resumed) << resumed.error().message();
    expect_same_runs(dir_.file("whole"), o.out, "step-4");
    EXPECT_EQ(best_of(o.out), best_of(dir_.file("whole")));
    ++runs;
    with_checkpoint += saved ? 1 : 0;
  }
  EXPECT_GT(runs, 5);
  EXPECT_GT(with_checkpoint, 2);
}

// The evaluation of the whole text is broken off, and made good when the run is resumed.
TEST_F(RunTest, TheLastEvaluationCanBeInterrupted) {
  RunOptions o = options("a");
  ASSERT_TRUE(train(o));
  o.out = dir_.file("b");
  int asked = 0;
  int allowed = 20;  // Before the text is read and after each of 19 steps.
  callbacks_.should_stop = [&] { return ++asked > allowed; };
  expect_error(train(o), ErrorCode::kInterrupted, "after step 20 of 20; go on from");
  o.resume = true;
  // Resuming is interrupted wherever it asks: reading checksums, loading the optimiser's tensors,
  // then the evaluation. It costs nothing.
  bool evaluated = false;
  for (allowed = 0; allowed < 200 && !evaluated; ++allowed) {
    asked = 0;
    const auto stopped = train(o);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code(), ErrorCode::kInterrupted) << stopped.error().message();
    evaluated = stopped.error().message().find("after step 20 of 20") != std::string::npos;
  }
  EXPECT_TRUE(evaluated);
  EXPECT_GT(allowed, 10);
  callbacks_.should_stop = {};
  VOLTA_ASSERT_OK(const RunResult result, train(o));
  EXPECT_TRUE(result.val_loss);
  expect_same_runs(dir_.file("a"), o.out);
}

// A run with its evaluations and checkpoints, and its resumption, on a device that works by itself
// in memory that the host cannot touch: the same files, bit for bit.
TEST_F(RunTest, AnAsynchronousDeviceWritesTheSameRun) {
  device_ = test::cpu(1);
  ASSERT_TRUE(train(options("a")));
  const auto async = std::make_shared<test::AsyncDevice>(test::cpu(1));
  device_ = async;
  RunOptions o = options("b");
  stop_after_ = 12;
  expect_error(train(o), ErrorCode::kInterrupted, "after step 12");
  stop_after_ = 0;
  o.resume = true;
  ASSERT_TRUE(train(o));
  EXPECT_GT(async->overtakes(), 0);
  expect_same_runs(dir_.file("a"), o.out);
}

// No memory, at any allocation on the device, is an error and no crash.
TEST_F(RunTest, DeviceMemoryThatRunsOutIsAnError) {
  const auto faulty = std::make_shared<test::FaultyDevice>(test::cpu(1));
  device_ = faulty;
  RunOptions o = options("a");
  o.trainer.schedule.steps = 1;
  for (const std::int64_t nth : {1, 5, 20, 40, 60, 80}) {
    faulty->faulty_memory().allocation_fuse.arm(nth);
    const auto result = train(o);
    faulty->faulty_memory().allocation_fuse.arm(0);
    if (result) {
      EXPECT_GT(nth, 20);
      break;
    }
    EXPECT_EQ(result.error().code(), ErrorCode::kOutOfMemory) << result.error().message();
  }
}

}  // namespace
}  // namespace volta
