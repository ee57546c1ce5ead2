// What rendering a template may cost, and how deeply it may nest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/work_budget.h"

namespace volta::jinja {

struct Limits {
  std::uint64_t steps = 4'000'000;                 ///< Expressions evaluated, text scanned.
  std::uint64_t bytes = std::uint64_t{256} << 20;  ///< Of all values made, alive or not.
  std::int64_t output = std::int64_t{64} << 20;    ///< Bytes of the rendered text.
};

class Budget : public WorkBudget {
 public:
  explicit Budget(const Limits& limits = {}, Interruption interrupted = {})
      : WorkBudget({.steps = limits.steps, .bytes = limits.bytes}, std::move(interrupted)) {}

  /// Reading, comparing or copying so many bytes. The slowest functions need some 10 ns a byte, so
  /// this takes as long as evaluating an expression.
  bool scan(std::size_t bytes) { return step(1 + bytes / 16); }
  /// Looking for a name among so many, which may all be as long.
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

/// How deep a recursive function is in itself, counted for as long as a call lasts.
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
