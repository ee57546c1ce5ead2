// What rendering a template may cost. Every step and every byte made is counted, and the rendering
// ends with an error when one runs out: whatever a template says, it ends soon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace volta::jinja {

struct Limits {
  std::int64_t steps = 20'000'000;               ///< Expressions evaluated, text scanned.
  std::int64_t bytes = std::int64_t{256} << 20;  ///< Of all values made, alive or not.
  std::int64_t output = std::int64_t{64} << 20;  ///< Bytes of the rendered text.
};

class Budget {
 public:
  explicit Budget(const Limits& limits = {}) : steps_(limits.steps), bytes_(limits.bytes) {}

  /// Each returns false when that was too much, then and for ever after.
  bool step(std::size_t count = 1) {
    steps_ -= bounded(count);
    return !spent();
  }
  /// Looking at so many bytes.
  bool scan(std::size_t bytes) { return step(1 + bytes / 64); }
  bool make_bytes(std::size_t count) {
    bytes_ -= bounded(count);
    return !spent();
  }
  bool make_many(std::size_t count, std::size_t size) {
    if (size != 0 && count > kMost / size) return make_bytes(kMost);
    return make_bytes(count * size) && step(count / 64);
  }

  bool spent() const { return steps_ < 0 || bytes_ < 0; }
  /// The error of a spent budget.
  Status check() const {
    if (!spent()) return {};
    return fail(ErrorCode::kInvalidFile,
                steps_ < 0 ? "the template runs for too long" : "the template makes too much text");
  }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 50;
  // Counters stop just below zero: they never wrap.
  std::int64_t bounded(std::size_t count) const {
    return spent() ? 0 : static_cast<std::int64_t>(count < kMost ? count : kMost);
  }

  std::int64_t steps_;
  std::int64_t bytes_;
};

}  // namespace volta::jinja
