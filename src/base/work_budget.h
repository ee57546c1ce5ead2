// Limits the work that untrusted data can cause. Every step and every byte of output is counted.
// The work ends with an error when either limit is exceeded or when it is interrupted, so no file
// can make it run for long. For this, code whose work grows with a value must count that work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// A callback that returns whether to stop; if empty, the work is never interrupted. The thread
/// that does the work calls it from time to time.
using Interruption = std::function<bool()>;

struct WorkLimits {
  std::uint64_t steps = 0;  ///< Steps of about 10 ns each.
  std::uint64_t bytes = 0;  ///< Bytes by which results may grow.
};

/// No limit for steps; not one byte of results.
inline constexpr WorkLimits kAnyNumberOfSteps{.steps = std::numeric_limits<std::uint64_t>::max(),
                                              .bytes = 0};

/// The limits for converting `input_bytes` bytes of text to tokens, or tokens of that many bytes to
/// text: 256 steps and 64 bytes per byte of input, plus 16 million steps and 1 MiB.
WorkLimits text_work_limits(std::size_t input_bytes);

class WorkBudget {
 public:
  explicit WorkBudget(const WorkLimits& limits, Interruption interrupted = {});

  /// Count steps, bytes, or items of `size` bytes each (with a step per 64 items). They return
  /// false if a limit is exceeded or the work is interrupted, and from then on always.
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
  /// The error of a spent budget: kInvalidFile with the name of the file's component that caused
  /// the work ("the normalizer Replace"), or kInterrupted.
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

  /// Raises the limits for `bytes` more bytes of input, with the factors of text_work_limits().
  void add_input(std::size_t bytes);

  /// The remaining steps, for libraries with their own limits.
  std::uint64_t steps_left() const { return until_question_ + later_steps_; }

 private:
  enum class End : std::uint8_t { kNone, kSteps, kBytes, kInterrupted };
  static constexpr std::uint64_t kStepsBetweenQuestions = 10'000;  // Less than a millisecond.

  void set_steps(std::uint64_t left);
  bool step_slowly(std::uint64_t count);
  bool make_last_bytes(std::uint64_t count);
  bool end(End reason);

  std::uint64_t until_question_ = 0;  // Steps until interrupted_ is called.
  std::uint64_t later_steps_ = 0;     // The remaining steps after those.
  std::uint64_t bytes_ = 0;
  Interruption interrupted_;
  End end_ = End::kNone;
};

}  // namespace volta
