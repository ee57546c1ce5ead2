// The pool, on oneTBB: one task_arena of exactly the wanted concurrency, because TBB sizes itself
// by the affinity mask and knows nothing of cgroup quotas.
//
// Measured on two cores of an EPYC 9005 (TBB 2021.8, static_partitioner): fork and join of two
// parts cost 0.8 us while the worker still spins, about 30 us when the pool slept for a
// millisecond; no malloc call once warm.
//
// In the thread sanitizer's build this file alone is uninstrumented (packaged TBB synchronises in
// ways the sanitizer cannot see); the fork and the join are told to it instead.
#include "base/parallel.h"

#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "base/arithmetic.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_limit.h"

#if defined(VOLTA_TSAN)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
// TBB's own calls of memset, malloc and the like are its own affair as well.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libtbb.so\n"; }
#endif

namespace volta {

namespace {

// A happens-before edge for the thread sanitizer: what came before release() on one thread is
// visible after acquire() on another. Nothing in other builds.
struct TsanEdge {
#if defined(VOLTA_TSAN)
  void release() { __tsan_release(this); }
  void acquire() { __tsan_acquire(this); }
#else
  void release() {}
  void acquire() {}
#endif
};

// Part `part` of `parts` nearly equal ones of [0, n): where it starts.
template <std::integral T>
constexpr T part_begin(T n, T parts, T part) {
  const T length = n / parts;
  const T longer = n % parts;  // The first `longer` parts hold one more.
  return part * length + std::min(part, longer);
}

Result<int> threads_from_environment() {
  const char* text = std::getenv("VOLTA_NUM_THREADS");
  if (text == nullptr || std::string_view(text).empty()) {
    return std::min(usable_cpu_count(), kMaxThreads);
  }
  return parse_int<int>(text, "VOLTA_NUM_THREADS", 1, kMaxThreads);
}

// `threads`, the caller included, or as many of them as can be created, which is said.
int possible_threads(int threads) {
  const int possible = 1 + creatable_threads(threads - 1);
  if (possible < threads) {
    log(LogLevel::kWarning,
        fmt::format("the system lets {} of {} threads be created; going on with {}. Raise "
                    "`ulimit -u` or the container's limit of processes, or ask for fewer threads",
                    possible, threads, possible));
  }
  return possible;
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int threads) : arena(threads, /*reserved_for_masters=*/1) {
    // TBB keeps fewer workers than this arena wants when it was asked for more threads than CPUs.
    if (threads > oneapi::tbb::info::default_concurrency()) {
      limit.emplace(oneapi::tbb::global_control::max_allowed_parallelism, kMaxThreads);
    }
    arena.initialize();
    // TBB starts its workers when there is work for them, and keeps them. They start now, while
    // what creatable_threads() has found still holds.
    arena.execute([&] {
      oneapi::tbb::parallel_for(0, threads, [](int) {}, oneapi::tbb::static_partitioner());
    });
  }

  std::optional<oneapi::tbb::global_control> limit;  // With more threads than CPUs.
  oneapi::tbb::task_arena arena;
};

ThreadPool::ThreadPool(int threads, std::unique_ptr<Impl> impl)
    : threads_(threads), impl_(std::move(impl)) {}
ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;
ThreadPool& ThreadPool::operator=(ThreadPool&&) noexcept = default;
ThreadPool::~ThreadPool() = default;

Result<ThreadPool> ThreadPool::create(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} threads: choose from 1 to {}, or 0 for all that this process may "
                            "use",
                            threads, kMaxThreads));
  }
  if (threads == 0) {
    VOLTA_TRY(threads, threads_from_environment());
  }
  threads = possible_threads(threads);
  return ThreadPool(threads, threads == 1 ? nullptr : std::make_unique<Impl>(threads));
}

void parallel_chunks(ThreadPool& pool, int64_t chunks, FunctionRef<void(int64_t)> fn) {
  const int64_t parts = std::min<int64_t>(pool.threads(), chunks);
  if (parts <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk);
    return;
  }
  TsanEdge fork, join;
  fork.release();
  const auto caller = std::this_thread::get_id();
  const int caller_cpu = current_cpu();
  const auto run_part = [&](int64_t part) {
    fork.acquire();
    // A worker that slept is often woken on the CPU of the thread that woke it, where it waits
    // until that has done most of the work alone, and the kernel may take tens of milliseconds to
    // move it (matrix products of two threads in the first 10 ms after a pause: half of them ran as
    // fast as one thread, or slower; with this, as two). More threads than CPUs would only crowd
    // the others.
    if (!pool.impl_->limit && std::this_thread::get_id() != caller) leave_cpu(caller_cpu);
    const int64_t end = part_begin(chunks, parts, part + 1);
    for (int64_t chunk = part_begin(chunks, parts, part); chunk < end; ++chunk) fn(chunk);
    join.release();
  };
  pool.impl_->arena.execute([&] {
    oneapi::tbb::parallel_for(int64_t{0}, parts, run_part, oneapi::tbb::static_partitioner());
  });
  join.acquire();
}

void parallel_for(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain,
                  FunctionRef<void(int64_t, int64_t)> fn) {
  if (begin >= end) return;
  // Unsigned, because the longest ranges do not fit a signed number.
  const auto step = static_cast<uint64_t>(std::max<int64_t>(grain, 1));
  const uint64_t length = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
  if (length <= step || pool.threads() == 1) return fn(begin, end);
  const uint64_t grains = ceil_div(length, step);
  const uint64_t parts = std::min(static_cast<uint64_t>(pool.threads()), grains);
  const auto place = [&](uint64_t part) {
    if (part == parts) return end;  // The last grain may be cut short.
    return static_cast<int64_t>(static_cast<uint64_t>(begin) +
                                part_begin(grains, parts, part) * step);
  };
  parallel_chunks(pool, static_cast<int64_t>(parts), [&](int64_t part) {
    fn(place(static_cast<uint64_t>(part)), place(static_cast<uint64_t>(part) + 1));
  });
}

}  // namespace volta
