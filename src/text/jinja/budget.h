// Limits on the cost of rendering a template, and a counter for nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/work_budget.h"

namespace volta::jinja {

struct Limits {
  std::uint64_t steps = 4'000'000;                 ///< Evaluated expressions and scanned text.
  std::uint64_t bytes = std::uint64_t{256} << 20;  ///< All values ever made, not only live ones.
  std::int64_t output = std::int64_t{64} << 20;    ///< Size of the rendered text.
};

class Budget : public WorkBudget {
 public:
  explicit Budget(const Limits& limits = {}, Interruption interrupted = {})
      : WorkBudget({.steps = limits.steps, .bytes = limits.bytes}, std::move(interrupted)) {}

  /// Charges for reading, comparing or copying `bytes` bytes. The slowest functions need about 10
  /// ns per byte, so one step takes about as long as evaluating an expression.
  bool scan(std::size_t bytes) { return step(1 + bytes / 16); }
  /// Charges for a search for a name of `bytes` bytes among `count` names, each possibly as long.
  bool search(std::size_t count, std::size_t bytes) {
    return step(count / 8) && step(bytes / 16) && step(count * (bytes / 64));
  }
  Status check() const {
    if (!spent()) [[likely]] {
      return {};
    }
    return WorkBudget::check("the template");
  }
};

/// Counts the recursion depth of a function, for the duration of a call.
class Level {
 public:
  explicit Level(int& depth) : depth_(depth) { ++depth_; }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

}  // namespace volta::jinja
