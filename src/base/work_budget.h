// What work on untrusted data may cost. Every step and every byte made is counted, and the work
// ends with an error when one runs out or when it is interrupted: whatever a file asks for, it ends
// soon. For that to hold, work that grows with a value is counted where it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Asked now and then whether to stop; empty: never. Called by whichever thread does the work.
using Interruption = std::function<bool()>;

struct WorkLimits {
  std::uint64_t steps = 0;  ///< Of about 10 ns each.
  std::uint64_t bytes = 0;  ///< That results may grow by.
};

/// The limits of turning a text of so many bytes into tokens, or tokens of so many bytes into text:
/// 256 steps and 64 bytes for each byte, and 16 million steps and 1 MiB whatever the length.
WorkLimits text_work_limits(std::size_t input_bytes);

class WorkBudget {
 public:
  explicit WorkBudget(const WorkLimits& limits, Interruption interrupted = {});

  /// Counts steps, bytes, or items of `size` bytes each. False when that was too much or the work
  /// was interrupted, then and for ever after.
  bool step(std::uint64_t count = 1) {
    if (count < until_question_) [[likely]] {
      until_question_ -= count;
      return true;
    }
    return step_slowly(count);
  }
  bool make_bytes(std::uint64_t count) {
    if (count < bytes_) [[likely]] {
      bytes_ -= count;
      return true;
    }
    return make_last_bytes(count);
  }
  bool make_many(std::uint64_t count, std::uint64_t size);

  bool spent() const { return end_ != End::kNone; }
  /// The error of a spent budget: kInvalidFile naming the component of the file that asked for the
  /// work ("the normalizer Replace"), or kInterrupted.
  Status check(std::string_view component) const;

  /// step() or make_bytes(), and then check().
  [[nodiscard]] Status spend(std::uint64_t steps, std::string_view component) {
    if (step(steps)) [[likely]] {
      return {};
    }
    return check(component);
  }
  [[nodiscard]] Status grow(std::uint64_t bytes, std::string_view component) {
    if (make_bytes(bytes)) [[likely]] {
      return {};
    }
    return check(component);
  }

  /// There are so many bytes of input more: raises the limits as text_work_limits() does.
  void add_input(std::size_t bytes);

  /// What is left, for libraries that count by themselves.
  std::uint64_t steps_left() const { return until_question_ + later_steps_; }

 private:
  enum class End : std::uint8_t { kNone, kSteps, kBytes, kInterrupted };
  static constexpr std::uint64_t kStepsBetweenQuestions = 10'000;  // Less than a millisecond.

  void set_steps(std::uint64_t left);
  bool step_slowly(std::uint64_t count);
  bool make_last_bytes(std::uint64_t count);
  bool end(End reason);

  std::uint64_t until_question_ = 0;  // Steps until interrupted_ is asked.
  std::uint64_t later_steps_ = 0;     // Steps after those.
  std::uint64_t bytes_ = 0;
  Interruption interrupted_;
  End end_ = End::kNone;
};

}  // namespace volta
