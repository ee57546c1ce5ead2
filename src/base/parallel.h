// Threads: a pool of workers and a static parallel_for. A part of a range must compute the same
// whichever thread runs it, so that results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// More threads than this are refused, whoever asks.
inline constexpr int kMaxThreads = 1024;

/// A fixed set of workers; the calling thread is one of them. All threads are created with the pool
/// and none later. They block every signal that is not the result of their own instructions, so
/// that signals reach the threads of the program. Cheap to keep, so a device holds one for its
/// lifetime. Safe to use from several threads at once: while the workers are busy for one caller,
/// another caller does its work alone. Move-only.
class ThreadPool {
 public:
  /// A pool of `threads` workers. 0 means VOLTA_NUM_THREADS where it is set, otherwise the CPUs
  /// this process may use (affinity mask and cgroup quota, see usable_cpu_count() in base/cpu.h).
  /// Where the system creates fewer, the pool has those, and a warning says so.
  /// kInvalidArgument for a negative or absurd number, or a VOLTA_NUM_THREADS that is not one.
  static Result<ThreadPool> create(int threads = 0);

  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;
  ~ThreadPool();

  /// The number of threads that work in this pool, the caller included; at least 1.
  int threads() const { return threads_; }

 private:
  friend void parallel_chunks(ThreadPool& pool, int64_t chunks, FunctionRef<void(int64_t)> fn);
  class Workers;
  ThreadPool(int threads, std::unique_ptr<Workers> workers);

  int threads_;
  std::unique_ptr<Workers> workers_;  ///< Null when threads_ is 1.
};

/// Runs fn(chunk) once for every chunk in [0, chunks), spread over the pool, and returns when all
/// are done. Chunks are handed out as contiguous runs, one to a thread. Runs inline when there is
/// one chunk or one thread, and when it is called from within fn. fn must not throw. Allocates
/// nothing.
void parallel_chunks(ThreadPool& pool, int64_t chunks, FunctionRef<void(int64_t chunk)> fn);

/// Runs fn(b, e) over disjoint contiguous parts that together are [begin, end): at most one part a
/// thread, each starting at begin plus a multiple of `grain` (taken as at least 1), of nearly equal
/// length. Runs inline, as one part, when the range is no longer than `grain` or the pool has one
/// thread; an empty range calls nothing. fn must not throw. Allocates nothing.
void parallel_for(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain,
                  FunctionRef<void(int64_t begin, int64_t end)> fn);

}  // namespace volta
