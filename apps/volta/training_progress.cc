#include "training_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/text.h"

namespace volta::cli {
namespace {

// A step in one line of at most 80 characters, as far as its numbers allow. What does not fit is in
// metrics.jsonl.
std::string training_line(const StepEvent& event, std::string_view speed) {
  constexpr std::size_t kColumns = 80;
  const StepReport& report = event.report;
  const std::string val =
      event.val_loss ? fmt::format("  val_loss {:.4f}", *event.val_loss) : std::string();
  const std::string rate = fmt::format("  lr {:.2e}", report.lr);
  const std::string norm = fmt::format("  grad norm {:.3f}", report.grad_norm);
  const auto line = [&](std::string_view details) {
    return fmt::format("step {}/{}  loss {:.4f}{}{}  {} tokens/s", report.step, event.steps,
                       report.loss, val, details, speed);
  };
  for (const std::string& details : {rate + norm, rate}) {
    if (std::string text = line(details); text.size() <= kColumns) return text;
  }
  return line("");
}

}  // namespace

void TrainingProgress::start(std::int64_t done, std::int64_t steps) {
  if (done < steps && progress_.on_terminal()) {
    progress_.show_now(fmt::format("step {}/{} runs", done + 1, steps));
  }
}

void TrainingProgress::step(const StepEvent& event) {
  const std::int64_t step = event.report.step;
  const bool first = first_step_ < 0, last = step == event.steps;
  if (first) {
    first_step_ = step;
    started_ = monotonic_seconds();
    tokens_per_s_ = event.tokens_per_s;
  }
  tokens_per_s_ += 0.1 * (event.tokens_per_s - tokens_per_s_);
  const std::string speed = format_count(static_cast<std::int64_t>(tokens_per_s_));
  const bool terminal = progress_.on_terminal();
  const bool due = first || last || progress_.due();
  if (event.val_loss || (!terminal && due)) {
    progress_.print(training_line(event, speed));
  }
  if (!terminal || !due) return;
  // Measuring starts when the first step ends, so an estimate exists from the second step on.
  std::string left;
  if (!first && !last) {
    const double seconds_per_step =
        (monotonic_seconds() - started_) / static_cast<double>(step - first_step_);
    left = "  " + time_left(seconds_per_step * static_cast<double>(event.steps - step));
  }
  progress_.show_now(
      fmt::format("{}/{}  loss {:.3f}{}  {} tokens/s", step, event.steps, event.report.loss, left,
                  speed),
      static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(event.steps, 1)));
}

}  // namespace volta::cli
