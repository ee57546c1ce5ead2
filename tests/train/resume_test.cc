// Runs that are stopped or killed and resumed give, bit for bit, what an unbroken run gives.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/rng.h"
#include "base/temporary.h"
#include "support/damaged_state.h"
#include "train/checkpoint.h"
#include "train/run_fixture.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

class Resume : public test::RunFixture {
 protected:
  // Everything that draws or remembers: dropout, accumulation, evaluation.
  RunOptions full_options(const std::string& name) const {
    RunOptions o = options(name);
    o.trainer.dropout = 0.1f;
    o.trainer.batch = 2;
    o.trainer.accumulate = 2;
    o.save_every = 3;
    o.keep = 2;
    return o;
  }
};

TEST_F(Resume, AStoppedRunWritesACheckpointAndGoesOnBitForBit) {
  ASSERT_TRUE(train(full_options("unbroken")));
  RunOptions o = full_options("stopped");
  RandomSequence random(RandomKey{.seed = 11});
  std::int64_t done = 0;
  while (done < 20) {
    stop_after_ = 1 + random.next_below(7);
    const auto result = train(o);
    o.resume = true;
    if (result) break;
    done += stop_after_;
    EXPECT_EQ(result.error().code(), ErrorCode::kInterrupted);
    EXPECT_THAT(
        result.error().message(),
        HasSubstr("interrupted after step " + std::to_string(done) + " of 20; go on from " + o.out +
                  "/step-" + std::to_string(done) + ": volta train --out " + o.out + " --resume"));
  }
  expect_same_runs(dir_.file("unbroken"), o.out);
}

TEST_F(Resume, MetricsAreCutToTheCheckpoint) {
  ASSERT_TRUE(train(full_options("unbroken")));
  // As if killed between step 8 and the checkpoint of step 9, in the middle of a line.
  RunOptions o = full_options("killed");
  stop_after_ = 8;
  EXPECT_FALSE(train(o));
  std::filesystem::remove_all(o.out + "/step-8");
  const std::string metrics = test::get_file(o.out + "/metrics.jsonl");
  test::put_file(o.out + "/metrics.jsonl", metrics + R"({"step":9,"lo)");
  auto unfinished = TemporaryFolder::create(o.out + "/step-9");
  ASSERT_TRUE(unfinished);
  const std::string left = unfinished->path();
  unfinished->release();
  unfinished = fail(ErrorCode::kInternal, "killed");  // Its lock is gone.
  ASSERT_TRUE(path_exists(left));
  std::filesystem::create_directories(o.out + "/.tmp-step-9");
  stop_after_ = 0;
  o.resume = true;
  events_.clear();
  ASSERT_TRUE(train(o));
  EXPECT_EQ(events_.front().report.step, 7);
  EXPECT_FALSE(path_exists(left));
  EXPECT_TRUE(std::filesystem::remove(o.out + "/.tmp-step-9"));  // A stranger's stays.
  expect_same_runs(dir_.file("unbroken"), o.out);
}

// The review's case: 40 steps, a note in line 5, and all lines behind it were gone.
TEST_F(Resume, ADamagedLineOfTheMetricsCostsNoOther) {
  ASSERT_TRUE(train(full_options("unbroken")));
  RunOptions o = full_options("noted");
  stop_after_ = 12;
  EXPECT_FALSE(train(o));
  std::string metrics = test::get_file(o.out + "/metrics.jsonl");
  std::size_t place = 0;
  for (int i = 0; i < 4; ++i) place = metrics.find('\n', place) + 1;
  metrics.insert(place, "# note\n");
  test::put_file(o.out + "/metrics.jsonl", metrics);
  stop_after_ = 0;
  o.resume = true;
  std::string log;
  set_log_callback([&](LogLevel, std::string_view message) { log += message; });
  const auto result = train(o);
  set_log_callback({});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->new_steps, 8);
  EXPECT_EQ(result->steps, 20);
  EXPECT_THAT(log, HasSubstr("line 5."));
  EXPECT_EQ(test::get_file(o.out + "/metrics.jsonl.cut"), "# note\n");
  expect_same_runs(dir_.file("unbroken"), o.out);
}

// Only in one of the two runs are checkpoints written at the best steps.
TEST_F(Resume, KeepingTheBestChangesNoBit) {
  RunOptions o = full_options("all");
  o.eval_every = 2;
  ASSERT_TRUE(train(o));
  o.out = dir_.file("newest");
  o.keep_best = false;
  stop_after_ = 7;
  EXPECT_FALSE(train(o));
  stop_after_ = 0;
  o.resume = true;
  ASSERT_TRUE(train(o));
  expect_same_runs(dir_.file("all"), o.out);
}

TEST_F(Resume, ADamagedNewestCheckpointCostsOnlyItsSteps) {
  ASSERT_TRUE(train(full_options("unbroken")));
  RunOptions o = full_options("damaged");
  stop_after_ = 11;
  EXPECT_FALSE(train(o));
  test::put_file(o.out + "/step-11/model.safetensors", "damaged");
  stop_after_ = 0;
  o.resume = true;
  events_.clear();
  set_log_callback([](LogLevel, std::string_view) {});
  ASSERT_TRUE(train(o));
  set_log_callback({});
  EXPECT_EQ(events_.front().report.step, 11);
  expect_same_runs(dir_.file("unbroken"), o.out);
  // What had been computed behind the older checkpoint is computed again, and nothing is lost.
  EXPECT_THAT(test::get_file(o.out + "/metrics.jsonl.cut"), HasSubstr("{\"step\":11,"));
}

TEST_F(Resume, AMissingTensorOfTheOptimiserIsNamedWithItsFile) {
  RunOptions o = full_options("run");
  stop_after_ = 4;
  EXPECT_FALSE(train(o));
  const std::string path = o.out + "/step-4";
  test::change_state(path, [](auto& state) { state.tensors.erase(state.tensors.begin()); });
  stop_after_ = 0;
  o.resume = true;
  const auto refused = train(o);
  expect_error(refused, ErrorCode::kInvalidFile, path + "/trainer.safetensors: optimiser tensor '");
  EXPECT_THAT(refused.error().message(),
              HasSubstr("is missing; the checkpoint belongs to another model or optimiser. Move " +
                        path + " to another place to go on from an older checkpoint"));
  std::filesystem::rename(path, dir_.file("aside"));
  EXPECT_TRUE(train(o));
}

TEST_F(Resume, RemembersItsPatience) {
  RunOptions o = options("unbroken");
  o.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 0.5, .steps = 200};
  o.patience = 3;
  o.eval_every = 2;
  o.save_every = 0;
  const auto unbroken = train(o);
  ASSERT_TRUE(unbroken);
  o.out = dir_.file("stopped");
  stop_after_ = 3;
  Result<RunResult> result = train(o);
  o.resume = true;
  while (!result) {
    ASSERT_EQ(result.error().code(), ErrorCode::kInterrupted) << result.error().message();
    result = train(o);
  }
  EXPECT_EQ(result->end, RunEnd::kEarlyStop);
  EXPECT_EQ(result->steps, unbroken->steps);
  expect_same_runs(dir_.file("unbroken"), o.out, "step-" + std::to_string(result->steps));
}

TEST_F(Resume, CanTrainLongerThanPlanned) {
  // A constant rate does not depend on the number of steps, so the bits are the same.
  RunOptions whole = options("whole");
  whole.trainer.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e-2, .steps = 20};
  whole.eval_every = 0;
  ASSERT_TRUE(train(whole));
  RunOptions parts = whole;
  parts.out = dir_.file("parts");
  parts.trainer.schedule.steps = 12;
  ASSERT_TRUE(train(parts));
  parts.trainer.schedule.steps = 20;
  parts.resume = true;
  messages_.clear();
  VOLTA_ASSERT_OK(const RunResult longer, train(parts));
  EXPECT_EQ(longer.new_steps, 8);
  EXPECT_THAT(messages_, HasSubstr("the run has 20 steps instead of 12\n"));
  EXPECT_EQ(weights_of(whole.out + "/step-20"), weights_of(parts.out + "/step-20"));
  // With another schedule, the rate is that of the longer one from here on.
  RunOptions cosine = options("cosine");
  ASSERT_TRUE(train(cosine));
  cosine.resume = true;
  cosine.trainer.schedule.steps = 30;
  ASSERT_TRUE(train(cosine));
  EXPECT_THAT(messages_, HasSubstr("30 steps instead of 20: the learning rate now follows"));
  VOLTA_ASSERT_OK(const auto metrics, read_metrics(cosine.out + "/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 30u);
  EXPECT_EQ(metrics[20].lr, learning_rate(cosine.trainer.schedule, 20));
  EXPECT_GT(metrics[20].lr, metrics[19].lr);
  // Fewer steps are another run.
  cosine.trainer.schedule.steps = 25;
  expect_error(train(cosine), ErrorCode::kMismatch, "--steps is 25, the checkpoint has 30");
}

TEST_F(Resume, TakesAnotherLearningRateWithAMessage) {
  RunOptions run = options("a");
  ASSERT_TRUE(train(run));
  VOLTA_ASSERT_OK(const auto before, read_metrics(run.out + "/metrics.jsonl"));
  run.resume = true;
  run.trainer.schedule.steps = 30;
  run.trainer.schedule.lr /= 2.0;
  run.trainer.schedule.min_lr /= 2.0;
  messages_.clear();
  ASSERT_TRUE(train(run));
  EXPECT_THAT(messages_, HasSubstr("from here on the run has lr "));
  EXPECT_THAT(messages_, HasSubstr("; the optimiser's moments stay"));
  VOLTA_ASSERT_OK(const auto metrics, read_metrics(run.out + "/metrics.jsonl"));
  ASSERT_EQ(metrics.size(), 30u);
  EXPECT_EQ(metrics[19].lr, before[19].lr);  // The steps that were done stay as they were.
  EXPECT_EQ(metrics[20].lr, learning_rate(run.trainer.schedule, 20));
  // run.json has the new rate, so that the next resume needs no flag and tells nothing.
  VOLTA_ASSERT_OK(const RunOptions recorded,
                  parse_run_options(test::get_file(run.out + "/run.json"), "run.json"));
  EXPECT_EQ(recorded.trainer.schedule.lr, run.trainer.schedule.lr);
  messages_.clear();
  ASSERT_TRUE(train(run));
  EXPECT_THAT(messages_, Not(HasSubstr("from here on")));
  // No step is left that could have another rate: nothing is recorded.
  run.trainer.schedule.lr /= 2.0;
  run.trainer.schedule.min_lr /= 2.0;
  expect_error(train(run), ErrorCode::kInvalidArgument,
               "the run has done its 30 steps, so that lr");
  VOLTA_ASSERT_OK(const RunOptions kept,
                  parse_run_options(test::get_file(run.out + "/run.json"), "run.json"));
  EXPECT_EQ(kept.trainer.schedule.lr, recorded.trainer.schedule.lr);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VOLTA_NO_FORK
#endif
#endif

#if !defined(VOLTA_NO_FORK)  // The thread sanitizer cannot follow a fork.
class KilledResume : public Resume {
 protected:
  void kill_and_resume(RunOptions o);
};

// A child that trains slowly enough to be hit at any moment; SIGKILL gives it no chance to tidy up.
void KilledResume::kill_and_resume(RunOptions o) {
  RunOptions whole = o;
  device_.reset();  // No threads while forking.
  RandomSequence random(RandomKey{.seed = 21});
  int kills = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto device = CpuDevice::create({.threads = 1});
      const auto result = volta::train(o, *device);
      _exit(result ? 0 : 1);
    }
    usleep(2000 + random.next_below(40000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    o.resume = true;
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ++kills;
    if (kills == 12) break;
  }
  EXPECT_GT(kills, 0);
  device_ = test::cpu(1);  // As the child, which cannot use a GPU after a fork.
  set_log_callback([](LogLevel, std::string_view) {});
  const auto finished = train(o);
  set_log_callback({});
  ASSERT_TRUE(finished) << finished.error().message();
  whole.out = dir_.file("unbroken");
  ASSERT_TRUE(train(whole));
  expect_same_runs(whole.out, o.out);
}

TEST_F(KilledResume, AKilledProcessLosesNothingButTime) {
  RunOptions o = full_options("killed");
  o.save_every = 1;
  kill_and_resume(o);
}

TEST_F(KilledResume, NorDoesAKilledLoraRun) {
  RunOptions base = options("base");
  base.trainer.schedule.steps = 2;
  ASSERT_TRUE(train(base));
  RunOptions o = full_options("killed");
  o.init = base.out;
  o.lora = {.rank = 2, .dropout = 0.1f, .targets = {"all-linear"}};
  o.save_every = 1;
  kill_and_resume(o);
}
#endif

}  // namespace
}  // namespace volta
