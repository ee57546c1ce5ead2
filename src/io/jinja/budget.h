// What rendering a template may cost. Every step and every byte made is counted, and the rendering
// ends with an error when one runs out: whatever a template says, it ends soon. For that to hold,
// work that grows with a value is counted where it is done, for every value that it goes through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "base/result.h"

namespace volta::jinja {

struct Limits {
  std::int64_t steps = 10'000'000;               ///< Expressions evaluated, text scanned.
  std::int64_t bytes = std::int64_t{256} << 20;  ///< Of all values made, alive or not.
  std::int64_t output = std::int64_t{64} << 20;  ///< Bytes of the rendered text.
};

class Budget {
 public:
  /// `interrupted` is asked now and then, and ends the work when it says so; empty: never.
  explicit Budget(const Limits& limits = {}, std::function<bool()> interrupted = {})
      : steps_(limits.steps), bytes_(limits.bytes), interrupted_(std::move(interrupted)) {
    if (interrupted_) next_question_ = steps_;
  }

  /// Each returns false when that was too much, then and for ever after.
  bool step(std::size_t count = 1) {
    steps_ -= bounded(count);
    if (steps_ < next_question_) ask();
    return !spent();
  }
  /// Reading, comparing or copying so many bytes. The slowest functions need some 10 ns a byte, so
  /// this takes as long as evaluating an expression.
  bool scan(std::size_t bytes) { return step(1 + bytes / 16); }
  /// Looking for a name among so many, which may all be as long.
  bool search(std::size_t count, std::size_t bytes) {
    return step(count / 8) && step(bytes / 16) && step(count * (bytes / 64));
  }
  bool make_bytes(std::size_t count) {
    bytes_ -= bounded(count);
    return !spent();
  }
  bool make_many(std::size_t count, std::size_t size) {
    if (size != 0 && count > kMost / size) return make_bytes(kMost);
    return make_bytes(count * size) && step(count / 64);
  }

  bool spent() const { return steps_ < 0 || bytes_ < 0; }
  /// The error of a spent budget; kInterrupted when it was not spent but taken away.
  Status check() const {
    if (!spent()) return {};
    if (stopped_) return fail(ErrorCode::kInterrupted, "interrupted");
    return fail(ErrorCode::kInvalidFile,
                steps_ < 0 ? "the template runs for too long" : "the template makes too much text");
  }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 50;
  static constexpr std::int64_t kStepsBetweenQuestions = 10'000;  // About a millisecond.

  void ask() {
    next_question_ = steps_ - kStepsBetweenQuestions;
    if (spent() || !interrupted_()) return;
    stopped_ = true;
    steps_ = -1;
  }
  // Counters stop just below zero: they never wrap.
  std::int64_t bounded(std::size_t count) const {
    return spent() ? 0 : static_cast<std::int64_t>(count < kMost ? count : kMost);
  }

  std::int64_t steps_;
  std::int64_t bytes_;
  std::int64_t next_question_ = std::numeric_limits<std::int64_t>::min();  // Asked below it.
  std::function<bool()> interrupted_;
  bool stopped_ = false;
};

}  // namespace volta::jinja
