// How kernels share work among threads and report bad indices. Knows no SIMD and no op. No sum goes
// across the parts of a split, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"

namespace volta::cpu {

/// With fewer elements a second thread costs more than it saves: waking one takes some
/// microseconds, in which a core streams about this many floats.
inline constexpr std::int64_t kElementGrain = 16 * 1024;

/// Runs fn(begin, end) over parts of `elements`; parts begin at multiples of the grain.
inline void split_elements(const Context& context, std::int64_t elements,
                           FunctionRef<void(std::int64_t, std::int64_t)> fn) {
  parallel_for(*context.pool, 0, elements, kElementGrain, fn);
}

/// Runs fn(begin, end) over parts of `rows`, each row costing about `row_elements` elements.
inline void split_rows(const Context& context, std::int64_t rows, std::int64_t row_elements,
                       FunctionRef<void(std::int64_t, std::int64_t)> fn) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, row_elements));
  parallel_for(*context.pool, 0, rows, grain, fn);
}

/// Runs fn(begin, end) over parts of `columns`. A column costs `rows` elements. Every part but the
/// last is a multiple of 16 wide (a cache line of floats), so that threads do not write the same
/// line.
inline void split_columns(const Context& context, std::int64_t columns, std::int64_t rows,
                          FunctionRef<void(std::int64_t, std::int64_t)> fn) {
  const std::int64_t wanted = kElementGrain / std::max<std::int64_t>(1, rows);
  const std::int64_t grain = std::max<std::int64_t>(16, wanted / 16 * 16);
  parallel_for(*context.pool, 0, columns, grain, fn);
}

/// Whether a kernel should end before its next block and leave its output unfinished (see Context).
inline bool stops_here(const Context& context) {
  if (context.interrupted == nullptr) return false;
  if (context.stopped->load(std::memory_order_relaxed)) return true;
  if (!(*context.interrupted)()) return false;
  context.stopped->store(true, std::memory_order_relaxed);
  return true;
}

/// Like split_elements(), in blocks of about a millisecond. Before each one, stops_here() may end
/// it.
inline void split_blocks(const Context& context, std::int64_t elements,
                         FunctionRef<void(std::int64_t, std::int64_t)> fn) {
  constexpr std::int64_t kBlock = 64 * kElementGrain;
  split_elements(context, elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end && !stops_here(context); i += kBlock) {
      fn(i, std::min(end, i + kBlock));
    }
  });
}

/// Records that element `index` of an index tensor is out of range. The smallest index wins, so
/// that the report does not depend on the threads either.
inline void report_bad_index(const Context& context, std::int64_t index) {
  if (context.bad_index == nullptr) return;
  std::int64_t seen = context.bad_index->load(std::memory_order_relaxed);
  do {
    if (seen != 0 && seen <= index + 1) return;
  } while (!context.bad_index->compare_exchange_weak(seen, index + 1, std::memory_order_relaxed));
}

}  // namespace volta::cpu
