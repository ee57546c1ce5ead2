#include "progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10.0;

}  // namespace

Progress::Progress() : started_(monotonic_seconds()) {}

void Progress::draw(const StepEvent& event) {
  const double part = static_cast<double>(event.report.step) /
                      static_cast<double>(std::max<std::int64_t>(event.steps, 1));
  const int full = static_cast<int>(part * kBarWidth);
  std::string cells;
  for (int i = 0; i < kBarWidth; ++i) cells += i < full ? "█" : "░";
  const double done = static_cast<double>(event.report.step - first_step_ + 1);
  const double left = (monotonic_seconds() - started_) / done *
                      static_cast<double>(event.steps - event.report.step);
  line_.show(fmt::format(" {}/{}  loss {:.3f}  {} tokens/s  {} left", event.report.step,
                         event.steps, loss_, format_count(static_cast<std::int64_t>(tokens_per_s_)),
                         format_duration(left)),
             cells);
}

void Progress::start(std::int64_t done, std::int64_t steps) {
  if (done < steps) line_.show(fmt::format("step {}/{} runs", done + 1, steps));
}

void Progress::step(const StepEvent& event) {
  const double now = monotonic_seconds();
  if (first_step_ < 0) {
    first_step_ = event.report.step;
    started_ = now;
    loss_ = event.report.loss;
    tokens_per_s_ = event.tokens_per_s;
  }
  loss_ += 0.1 * (event.report.loss - loss_);
  tokens_per_s_ += 0.1 * (event.tokens_per_s - tokens_per_s_);
  const bool last = event.report.step == event.steps;
  if (event.val_loss || (!line_.on_terminal() && (last || now - last_drawn_ >= kLineSeconds))) {
    line_.erase();
    const std::string val =
        event.val_loss ? fmt::format("  val_loss {:.4f}", *event.val_loss) : std::string();
    note(fmt::format("step {}/{}  loss {:.4f}{}  lr {:.2e}  grad norm {:.3f}  {} tokens/s\n",
                     event.report.step, event.steps, loss_, val, event.report.lr,
                     event.report.grad_norm,
                     format_count(static_cast<std::int64_t>(tokens_per_s_))));
    last_drawn_ = now;
  }
  if (line_.on_terminal() && (last || now - last_drawn_ >= kRedrawSeconds)) {
    draw(event);
    last_drawn_ = now;
  }
}

void Progress::message(LogLevel level, std::string_view text) {
  line_.erase();
  if (level == LogLevel::kWarning || level == LogLevel::kError) {
    note("volta: ");
    if (line_.has_color()) note_raw(level == LogLevel::kError ? "\033[31m" : "\033[33m");
    note(log_level_name(level));
    if (line_.has_color()) note_raw("\033[0m");
    note(": ");
  }
  note(fmt::format("{}\n", one_line(text)));
}

void Progress::finish() { line_.keep(); }

}  // namespace volta::cli
