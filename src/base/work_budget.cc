#include "base/work_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace volta {

namespace {

constexpr std::uint64_t kMaxInput = std::uint64_t{1} << 50;  // So no product below overflows.
constexpr WorkLimits kPerByte{.steps = 256, .bytes = 64};

}  // namespace

WorkLimits text_work_limits(std::size_t input_bytes) {
  const std::uint64_t bytes = std::min<std::uint64_t>(input_bytes, kMaxInput);
  return {.steps = 16'000'000 + kPerByte.steps * bytes,
          .bytes = (std::uint64_t{1} << 20) + kPerByte.bytes * bytes};
}

WorkBudget::WorkBudget(const WorkLimits& limits, Interruption interrupted)
    : bytes_(limits.bytes), interrupted_(std::move(interrupted)) {
  set_steps(limits.steps);
}

// Sets the remaining steps. The callback is first called after kStepsBetweenQuestions steps, so
// short work never calls it.
void WorkBudget::set_steps(std::uint64_t left) {
  until_question_ = interrupted_ ? std::min(left, kStepsBetweenQuestions) : left;
  later_steps_ = left - until_question_;
}

bool WorkBudget::make_many(std::uint64_t count, std::uint64_t size) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  return make_bytes(size != 0 && count > kMost / size ? kMost : count * size) && step(count / 64);
}

Status WorkBudget::check(std::string_view component) const {
  switch (end_) {
    case End::kNone:
      return {};
    case End::kInterrupted:
      return fail(ErrorCode::kInterrupted, "interrupted");
    case End::kSteps:
    case End::kBytes:
      break;
  }
  return fail(
      ErrorCode::kInvalidFile,
      fmt::format("{} {}; the file is damaged, made to do harm, or unfit for such a text",
                  component, end_ == End::kSteps ? "runs for too long" : "makes too much text"));
}

void WorkBudget::add_input(std::size_t bytes) {
  if (spent()) return;
  const std::uint64_t more = std::min<std::uint64_t>(bytes, kMaxInput);
  (interrupted_ ? later_steps_ : until_question_) += kPerByte.steps * more;
  bytes_ += kPerByte.bytes * more;
}

// Called when the callback is due or the steps run out.
bool WorkBudget::step_slowly(std::uint64_t count) {
  if (spent()) return false;
  const std::uint64_t left = steps_left();
  if (count > left) return end(End::kSteps);
  if (interrupted_ && interrupted_()) return end(End::kInterrupted);
  set_steps(left - count);
  return true;
}

bool WorkBudget::make_last_bytes(std::uint64_t count) {
  if (spent()) return false;
  if (count > bytes_) return end(End::kBytes);
  bytes_ = 0;
  return true;
}

bool WorkBudget::end(End reason) {
  end_ = reason;
  until_question_ = later_steps_ = bytes_ = 0;
  return false;
}

}  // namespace volta
