#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"
#include "train/event_file.h"
#include "train/loss_plot.h"
#include "train/metrics.h"
#include "train/run_folder.h"
#include "train/run_setup.h"

namespace volta {
namespace {

double seconds_since_1970() {
  using Seconds = std::chrono::duration<double>;
  return std::chrono::duration_cast<Seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Run {
 public:
  Run(RunSetup setup, MetricsFile metrics, const RunCallbacks& callbacks, Say say)
      : setup_(std::move(setup)),
        metrics_(std::move(metrics)),
        callbacks_(callbacks),
        say_(std::move(say)) {
    if (!setup_.checkpoint.empty()) saved_step_ = steps_done();
  }

  Result<RunResult> run() {
    const double begin = monotonic_seconds();
    if (callbacks_.on_start) callbacks_.on_start(steps_done(), steps());
    open_events();
    if (setup_.state.estimate_due) {
      Status caught_up = catch_up();
      if (!caught_up && caught_up.error().code() == ErrorCode::kInterrupted) return interrupted();
      if (!caught_up) return std::unexpected(with_checkpoint(std::move(caught_up).error()));
    }
    while (!finished()) {
      auto stopped = step();
      if (!stopped) return std::unexpected(with_checkpoint(std::move(stopped).error()));
      if (*stopped) return interrupted();
    }
    Status ended = finish();
    if (!ended && ended.error().code() == ErrorCode::kInterrupted) return interrupted();
    VOLTA_TRY(std::move(ended));
    result_.seconds = monotonic_seconds() - begin;
    return result_;
  }

 private:
  std::int64_t steps() const { return setup_.options.trainer.schedule.steps; }
  std::int64_t steps_done() const { return setup_.trainer->steps_done(); }
  bool out_of_patience() const {
    return setup_.options.patience > 0 && setup_.state.waited >= setup_.options.patience;
  }
  // Whether this step has the lowest estimate so far, and its checkpoint is to be kept.
  bool is_best(std::int64_t step) const {
    const auto& best = setup_.state.best;
    return setup_.options.keep_best && best && best->step == step;
  }
  bool should_stop() const { return callbacks_.should_stop && callbacks_.should_stop(); }
  bool finished() const { return steps_done() >= steps() || out_of_patience(); }

  Result<bool> step();
  Result<std::optional<double>> evaluate();
  Result<double> estimate();
  Result<double> evaluate_all();
  Status catch_up();
  Status follow_folder();
  Status save();
  Status complete_metrics(std::optional<double> val_loss);
  Status choose_model();
  void open_events();
  void write_events(const MetricsRecord& record);
  void tell(const Status& status);
  void plot();
  Status finish();
  std::unexpected<Error> interrupted();
  Error with_checkpoint(const Error& error) const;

  RunSetup setup_;
  MetricsFile metrics_;
  std::optional<EventFile> events_;  ///< Absent without --tensorboard, and after an error.
  const RunCallbacks& callbacks_;
  Say say_;
  RunResult result_;
  std::int64_t saved_step_ = -1;  ///< Of the last good checkpoint.
  bool folder_is_gone_ = false;
  Status last_save_;
};

// Performs one update and everything that follows it. Returns true when the run is to stop.
Result<bool> Run::step() {
  const TrainerOptions& options = setup_.options.trainer;
  const std::int64_t tokens = options.batch * options.time * options.accumulate;
  const double begin = monotonic_seconds();
  auto stepped = setup_.trainer->step(*setup_.batches);
  if (!stepped && stepped.error().code() == ErrorCode::kInterrupted) {  // No weight changed.
    if (steps_done() > 0 && saved_step_ != steps_done()) VOLTA_TRY(save());
    return true;
  }
  VOLTA_TRY(const StepReport report, std::move(stepped));
  VOLTA_TRY(follow_folder());
  const double seconds = std::max(monotonic_seconds() - begin, 1e-9);
  setup_.state.rows_seen += options.batch * options.accumulate;
  setup_.state.loss = report.loss;
  ++result_.new_steps;
  result_.tokens += tokens;
  MetricsRecord record{.step = report.step,
                       .loss = report.loss,
                       .lr = report.lr,
                       .grad_norm = report.grad_norm,
                       .tokens_per_s = static_cast<double>(tokens) / seconds,
                       .val_loss = {}};
  auto evaluated = evaluate();
  const bool broken_off = !evaluated && evaluated.error().code() == ErrorCode::kInterrupted;
  if (!evaluated && !broken_off) {
    return std::unexpected(
        std::move(evaluated).error().with_context(fmt::format("step {}", report.step)));
  }
  if (evaluated) record.val_loss = *evaluated;
  tell(metrics_.write(record));
  write_events(record);
  if (callbacks_.on_step) {
    callbacks_.on_step({report, steps(), record.tokens_per_s, record.val_loss});
  }
  const bool stop = broken_off || (!finished() && should_stop());
  const std::int64_t every = setup_.options.save_every;
  const bool best = is_best(report.step);
  if (finished() || stop || (every > 0 && report.step % every == 0) || best) {
    VOLTA_TRY(save());
  }
  if (best) tell(write_run_file(setup_.options, {.best = setup_.state.best}));
  return stop;
}

// The validation loss after this step, if one is due: over random windows during the run, over the
// whole text at its end.
Result<std::optional<double>> Run::evaluate() {
  if (!setup_.evaluator) return std::nullopt;
  std::optional<double> loss;
  const std::int64_t every = setup_.options.eval_every;
  if (every > 0 && steps_done() % every == 0 && steps_done() < steps()) {
    setup_.state.estimate_due = true;
    VOLTA_TRY(loss, estimate());
  }
  if (finished()) {
    VOLTA_TRY(loss, evaluate_all());
  }
  return loss;
}

Result<double> Run::estimate() {
  const std::int64_t batches = setup_.options.eval_batches;
  // Of rows, an estimate takes the first ones, always the same.
  const auto estimated =
      setup_.data.validation_rows
          ? setup_.evaluator->mean_loss(*setup_.data.validation_rows,
                                        batches * setup_.options.trainer.batch)
          : setup_.evaluator->mean_loss(*setup_.validation, steps_done(), batches);
  VOLTA_TRY(const double loss, estimated);
  RunState& state = setup_.state;
  state.estimate_due = false;
  if (!state.best || loss < state.best->val_loss) {
    state.best = {.step = steps_done(), .val_loss = loss};
    state.waited = 0;
  } else {
    ++state.waited;
  }
  return loss;
}

// Computes an estimate that was interrupted. Without it, the best step and the early stop could
// differ from those of an uninterrupted run.
Status Run::catch_up() {
  setup_.state.estimate_due = setup_.evaluator.has_value();
  if (!setup_.state.estimate_due) return {};
  VOLTA_TRY(const double loss, estimate());
  tell(complete_metrics(loss));
  VOLTA_TRY(save());
  if (is_best(steps_done())) tell(write_run_file(setup_.options, {.best = setup_.state.best}));
  return {};
}

// Evaluates over all validation data, which may take long.
Result<double> Run::evaluate_all() {
  const Dataset& data = setup_.data;
  const auto stop = [this] { return should_stop(); };
  const auto evaluated =
      data.validation_rows
          ? setup_.evaluator->mean_loss(*data.validation_rows, data.validation_rows->count, stop)
          : setup_.evaluator->mean_loss(*data.validation, stop);
  VOLTA_TRY(const double loss, evaluated);
  result_.val_loss = loss;
  return loss;
}

// The folder may have been moved since it was locked. Another run may have begun under its old
// name, whose files are not this run's to write or to remove.
Status Run::follow_folder() {
  std::string& out = setup_.options.out;
  auto place = setup_.lock->place();
  folder_is_gone_ = !place;
  if (!place) return std::unexpected(std::move(place).error());
  if (*place == out) return {};
  say_(LogLevel::kWarning, fmt::format("{} was moved: the run goes on in {}", out, *place));
  out = *std::move(place);
  metrics_.was_moved(join_path(out, kMetricsFile));
  if (!setup_.checkpoint.empty()) {
    setup_.checkpoint = join_path(out, file_name(setup_.checkpoint));
  }
  return {};
}

// Writes the metrics first, so that the lines of all steps before a checkpoint are on the disk.
Status Run::save() {
  VOLTA_TRY(follow_folder());
  tell(metrics_.sync());
  const CheckpointContent content{.trainer = &*setup_.trainer,
                                  .tokenizer = setup_.data.tokenizer.get(),
                                  .run_state = to_json(setup_.state),
                                  .carried = setup_.carried,
                                  .base = setup_.base};
  std::optional<std::int64_t> best;
  if (setup_.options.keep_best && setup_.state.best) best = setup_.state.best->step;
  auto written = write_checkpoint(setup_.options.out, content, setup_.options.keep, best);
  if (written) {
    setup_.checkpoint = *std::move(written);
    saved_step_ = steps_done();
    last_save_ = {};
    return {};
  }
  last_save_ = std::unexpected(std::move(written).error());
  // More training would not repair the weights, whereas a full disk may have room again later.
  if (last_save_.error().code() == ErrorCode::kNonFinite) return last_save_;
  tell(last_save_);
  return {};
}

void Run::open_events() {
  if (!setup_.options.tensorboard || finished()) return;
  auto created = EventFile::create(join_path(setup_.options.out, kTensorboardFolder), steps_done(),
                                   seconds_since_1970());
  if (created) {
    events_ = *std::move(created);
  } else {
    tell(std::unexpected(std::move(created).error()));
  }
}

// After an error no further events are written: the metrics have all figures.
void Run::write_events(const MetricsRecord& record) {
  if (!events_) return;
  std::vector<Scalar> values = {{"loss", record.loss},
                                {"lr", record.lr},
                                {"grad_norm", record.grad_norm},
                                {"tokens_per_s", record.tokens_per_s}};
  if (record.val_loss) values.emplace_back("val_loss", *record.val_loss);
  const Status written = events_->write(record.step, seconds_since_1970(), values);
  if (!written) events_.reset();
  tell(written);
}

void Run::tell(const Status& status) {
  if (!status) say_(LogLevel::kError, status.error().message());
}

void Run::plot() {
  const std::string& out = setup_.options.out;
  const auto draw = [&]() -> Status {
    VOLTA_TRY(const auto records, read_metrics(join_path(out, kMetricsFile)));
    return write_file_atomic(join_path(out, kLossPlotFile),
                             loss_plot_svg(records, file_name(setup_.data.path)));
  };
  tell(draw());
}

// Adds the validation loss to the line of the last step, which lacks it when the evaluation was
// interrupted.
Status Run::complete_metrics(std::optional<double> val_loss) {
  const std::string path = join_path(setup_.options.out, kMetricsFile);
  VOLTA_TRY(const auto records, read_metrics(path));
  if (records.empty() || records.back().step != steps_done() || records.back().val_loss) return {};
  MetricsRecord last = records.back();
  last.val_loss = val_loss;
  return metrics_.replace_last(last);
}

// Writes the best step into run.json. After an early stop, this determines which checkpoint
// represents the run.
Status Run::choose_model() {
  result_.best = setup_.state.best;
  const bool early = result_.end == RunEnd::kEarlyStop;
  // The last evaluation, over the whole text, counts as well.
  if (!early && result_.val_loss && (!result_.best || *result_.val_loss < result_.best->val_loss)) {
    result_.best = {.step = steps_done(), .val_loss = *result_.val_loss};
  }
  tell(write_run_file(setup_.options, {.best = result_.best, .stopped_early = early}));
  result_.checkpoint = setup_.checkpoint;
  if (!early) return {};
  VOLTA_TRY(const auto chosen, run_checkpoint(setup_.options.out));
  if (chosen) result_.checkpoint = chosen->path;
  return {};
}

Status Run::finish() {
  if (Status there = follow_folder(); !there) {
    return std::unexpected(with_checkpoint(std::move(there).error()));
  }
  if (setup_.evaluator && !result_.val_loss) {  // Resumed after the last step.
    VOLTA_TRY(evaluate_all());
    tell(complete_metrics(result_.val_loss));
  }
  plot();
  if (!last_save_) {
    return std::unexpected(with_checkpoint(
        Error(last_save_.error())
            .with_context("training has finished, but its result could not be saved")));
  }
  result_.end = steps_done() >= steps() ? RunEnd::kFinished : RunEnd::kEarlyStop;
  result_.steps = steps_done();
  result_.loss = setup_.state.loss;
  return choose_model();
}

std::unexpected<Error> Run::interrupted() {
  if (Status there = follow_folder(); !there) {
    return std::unexpected(with_checkpoint(std::move(there).error()));
  }
  plot();
  const Error error(ErrorCode::kInterrupted,
                    fmt::format("interrupted after step {} of {}", steps_done(), steps()));
  return std::unexpected(with_checkpoint(error));
}

// Adds to an error what was saved, and how the user goes on where the same command can succeed.
Error Run::with_checkpoint(const Error& error) const {
  const bool wrong_data = error.code() == ErrorCode::kInvalidArgument;  // As wrong the next time.
  std::string hint = "there is no checkpoint yet";
  if (saved_step_ >= 0 && folder_is_gone_) {
    hint = fmt::format("its checkpoint {} is gone, too", setup_.checkpoint);
  } else if (saved_step_ >= 0 && wrong_data) {
    hint = fmt::format("the newest checkpoint is {}", setup_.checkpoint);
  } else if (saved_step_ >= 0) {
    hint = fmt::format("go on from {}: volta train --out {} --resume", setup_.checkpoint,
                       shell_quoted(setup_.options.out));
  } else if (error.code() == ErrorCode::kInterrupted) {
    hint += ": start again with --force";
  }
  return Error(error.code(), fmt::format("{}; {}", error.message(), hint));
}

}  // namespace

Result<RunResult> train(const RunOptions& options, const std::shared_ptr<Device>& device,
                        const RunCallbacks& callbacks) {
  const Say say = [&callbacks](LogLevel level, const std::string& message) {
    if (callbacks.on_message) callbacks.on_message(level, message);
  };
  VOLTA_TRY(RunSetup setup, set_up_run(options, device, callbacks.should_stop, say));
  VOLTA_TRY(MetricsFile metrics,
            MetricsFile::open(join_path(options.out, kMetricsFile), setup.trainer->steps_done()));
  return Run(std::move(setup), std::move(metrics), callbacks, say).run();
}

}  // namespace volta
