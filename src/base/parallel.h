// Threads: a pool of workers and a parallel_for with a static distribution. The callback must give
// the same results for a part of a range on every thread, so that results do not depend on the
// number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// The maximum number of threads in a pool.
inline constexpr int kMaxThreads = 1024;

/// A fixed set of workers; the calling thread is one of them. All threads are created with the
/// pool. They block every signal except those that their own instructions cause, so that signals
/// reach the threads of the program. An idle pool costs little, so a device holds one for its
/// lifetime. Safe to use from several threads at once: while the workers are busy for one caller,
/// another caller does its work alone. Move-only.
class ThreadPool {
 public:
  /// A pool of `threads` workers. 0 means the environment variable VOLTA_NUM_THREADS if it is set,
  /// otherwise the number of CPUs that this process may use (affinity mask and cgroup quota, see
  /// usable_cpu_count() in base/cpu.h). If the system creates fewer threads, the pool has fewer and
  /// a warning is logged. kInvalidArgument if `threads` is not from 0 to kMaxThreads, or
  /// VOLTA_NUM_THREADS is not a number from 1 to kMaxThreads.
  static Result<ThreadPool> create(int threads = 0);

  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;
  ~ThreadPool();

  /// The number of threads in this pool, including the caller; at least 1.
  int threads() const { return threads_; }

 private:
  friend void parallel_chunks(ThreadPool& pool, std::int64_t chunks,
                              FunctionRef<void(std::int64_t)> fn);
  class Workers;
  ThreadPool(int threads, std::unique_ptr<Workers> workers);

  int threads_;
  std::unique_ptr<Workers> workers_;  ///< Null when threads_ is 1.
};

/// Runs fn(chunk) once for every chunk in [0, chunks) on the threads of the pool, and returns when
/// all calls have ended. The chunks are split into contiguous runs, at most one per thread. Runs
/// all chunks on the calling thread if there is one chunk or one thread, if the workers are busy,
/// or if called from within fn. fn must not throw. Allocates nothing.
void parallel_chunks(ThreadPool& pool, std::int64_t chunks,
                     FunctionRef<void(std::int64_t chunk)> fn);

/// Splits [begin, end) into disjoint contiguous parts and runs fn(b, e) for each. There is at most
/// one part per thread. Each part starts at begin plus a multiple of `grain` (at least 1 is used),
/// and the parts have nearly equal lengths. If the range is no longer than `grain` or the pool has
/// one thread, the calling thread runs it as one part. For an empty range fn is not called. fn must
/// not throw. Allocates nothing.
void parallel_for(ThreadPool& pool, std::int64_t begin, std::int64_t end, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> fn);

}  // namespace volta
