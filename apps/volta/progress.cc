#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10.0;

// NO_COLOR: https://no-color.org.
bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

}  // namespace

Progress::Progress()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      color_(terminal_ && !no_color()),
      started_(monotonic_seconds()) {}

std::string Progress::bar(const StepEvent& event) const {
  const double part = static_cast<double>(event.report.step) /
                      static_cast<double>(std::max<std::int64_t>(event.steps, 1));
  const int full = static_cast<int>(part * kBarWidth);
  std::string cells;
  for (int i = 0; i < kBarWidth; ++i) cells += i < full ? "█" : "░";
  const double done = static_cast<double>(event.report.step - first_step_ + 1);
  const double left = (monotonic_seconds() - started_) / done *
                      static_cast<double>(event.steps - event.report.step);
  return fmt::format("{}{}{} {}/{}  loss {:.3f}  {} tokens/s  {} left", color_ ? "\033[36m" : "",
                     cells, color_ ? "\033[0m" : "", event.report.step, event.steps, loss_,
                     format_count(static_cast<std::int64_t>(tokens_per_s_)), format_duration(left));
}

void Progress::erase() {
  if (drawn_) note("\r\033[K");
  drawn_ = false;
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
  if (event.val_loss || (!terminal_ && (last || now - last_drawn_ >= kLineSeconds))) {
    erase();
    const std::string val =
        event.val_loss ? fmt::format("  val_loss {:.4f}", *event.val_loss) : std::string();
    note(fmt::format("step {}/{}  loss {:.4f}{}  lr {:.2e}  grad norm {:.3f}  {} tokens/s\n",
                     event.report.step, event.steps, loss_, val, event.report.lr,
                     event.report.grad_norm,
                     format_count(static_cast<std::int64_t>(tokens_per_s_))));
    last_drawn_ = now;
  }
  if (terminal_ && (last || now - last_drawn_ >= kRedrawSeconds)) {
    note("\r\033[K" + bar(event));
    drawn_ = true;
    last_drawn_ = now;
  }
}

void Progress::message(LogLevel level, std::string_view text) {
  erase();
  const bool bad = level == LogLevel::kWarning || level == LogLevel::kError;
  const std::string_view color = !color_ ? "" : level == LogLevel::kError ? "\033[31m" : "\033[33m";
  if (bad) {
    note(fmt::format("volta: {}{}:{} {}\n", color, log_level_name(level), color_ ? "\033[0m" : "",
                     text));
  } else {
    note(fmt::format("{}\n", text));
  }
}

void Progress::finish() {
  if (drawn_) note("\n");
  drawn_ = false;
}

}  // namespace volta::cli
