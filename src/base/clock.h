// A clock that never goes backwards, for measuring durations.
#pragma once

#include <chrono>
#include <cstdint>

namespace volta {

/// Nanoseconds since an arbitrary fixed time in the past.
inline std::int64_t monotonic_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Seconds since the same time.
inline double monotonic_seconds() { return static_cast<double>(monotonic_nanoseconds()) * 1e-9; }

}  // namespace volta
