// The pool. Every worker is a thread with an atomic state. A job has at most one part for each
// thread: the caller runs part 0, and worker i runs part i + 1. When the caller has finished its
// own part, it also runs the parts that no worker has started. So a worker that is still asleep, or
// that the system has descheduled, does not delay the job.
//
// Between two jobs a worker first spins and then sleeps. The ops of a step follow each other within
// microseconds, and waking a sleeping thread takes tens of them.
#include "base/parallel.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/text.h"

namespace volta {

namespace {

// The start of part `part`, when [0, n) is split into `parts` nearly equal parts.
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

// Tells the processor that this thread waits for memory to change. The other hardware thread of the
// core then gets more of the core's resources, and leaving the loop is cheaper.
void pause_in_spin_loop() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `word` differs from `value`, for a limited time; returns whether it differs.
bool spin_while(const std::atomic<int>& word, int value) {
  constexpr int kPausesBetweenClocks = 32;
  constexpr int64_t kPauseNanoseconds = 20'000;  // Spins without yielding the CPU.
  constexpr int64_t kSpinNanoseconds = 200'000;  // The total time.
  int64_t start = 0;
  for (;;) {
    for (int i = 0; i < kPausesBetweenClocks; ++i) {
      if (word.load(std::memory_order_acquire) != value) return true;
      pause_in_spin_loop();
    }
    const int64_t now = monotonic_nanoseconds();
    if (start == 0) start = now;
    if (now - start > kSpinNanoseconds) return false;
    if (now - start > kPauseNanoseconds) std::this_thread::yield();
  }
}

// Blocks signals in the calling thread for a scope. Threads that it creates in this scope inherit
// the mask. Signals that an instruction of a thread causes (SIGBUS, SIGSEGV, ...) stay unblocked,
// because such a signal ends the process if it is blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t mask;
    sigfillset(&mask);
    for (const int signal : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&mask, signal);
    }
    blocked_ = pthread_sigmask(SIG_SETMASK, &mask, &before_) == 0;
  }
  ~BlockSignals() {
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_ = {};
  bool blocked_ = false;
};

}  // namespace

class ThreadPool::Workers {
 public:
  // Creates up to `count` workers; count() returns how many there are.
  explicit Workers(int count);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return static_cast<int>(workers_.size()); }

  // Runs the chunks in `parts` parts. Returns false without running anything if the workers are
  // busy with another job; that job may be the caller's own, when fn calls this function.
  bool run(int64_t chunks, int64_t parts, FunctionRef<void(int64_t)> fn);

 private:
  // The state of a worker.
  //   kIdle, kAsleep -> kReady   by the caller, for a new job
  //   kReady -> kRunning         by the worker, which starts its part
  //   kReady -> kIdle            by the caller, which runs the part itself
  //   kRunning, kRunningNotify -> kIdle   by the worker, at the end of its part
  enum State : int {
    kIdle,           // The worker has nothing to do and spins.
    kAsleep,         // The worker sleeps and must be notified.
    kReady,          // The worker's part has not been started.
    kRunning,        // The worker runs its part.
    kRunningNotify,  // The same, and the caller sleeps and must be notified at the end.
    kExit,           // The pool is being destroyed.
  };
  // Each worker has its own cache line, because different threads write the states.
  struct alignas(64) Worker {
    std::atomic<int> state = kIdle;
    Workers* pool = nullptr;
    int64_t part = 0;
    pthread_t thread = {};
  };
  struct Job {
    int64_t chunks;
    int64_t parts;
    FunctionRef<void(int64_t)> fn;
    int caller_cpu;
  };

  static void* work(void* worker);
  static void wait_for_job(Worker& worker, bool spin);
  static void wait_for_end(Worker& worker, bool spin);
  void run_part(int64_t part) const;

  std::vector<std::unique_ptr<Worker>> workers_;
  // Off when there are more threads than CPUs: spinning would take CPUs from threads that work.
  bool spin_ = false;
  std::atomic<bool> busy_ = false;
  // Written by the caller before it makes a worker ready, read by that worker before it ends.
  const Job* job_ = nullptr;
};

ThreadPool::Workers::Workers(int count) : spin_(count < usable_cpu_count()) {
  const BlockSignals block;
  workers_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->pool = this;
    worker->part = i + 1;
    if (::pthread_create(&worker->thread, nullptr, work, worker.get()) != 0) break;
    workers_.push_back(std::move(worker));
  }
}

ThreadPool::Workers::~Workers() {
  for (const auto& worker : workers_) {
    worker->state.store(kExit);
    worker->state.notify_one();
  }
  for (const auto& worker : workers_) ::pthread_join(worker->thread, nullptr);
}

void* ThreadPool::Workers::work(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  const Workers& pool = *worker.pool;
  for (;;) {
    wait_for_job(worker, pool.spin_);
    int state = kReady;
    if (!worker.state.compare_exchange_strong(state, kRunning)) {
      if (state == kExit) return nullptr;
      continue;  // The caller has taken the part.
    }
    // The kernel often wakes a sleeping worker on the CPU of the caller. There the worker waits
    // while the caller does most of the work alone, and it may take tens of milliseconds until the
    // kernel moves it. So the worker leaves that CPU itself. (Measured on matrix products of two
    // threads in the first 10 ms after a pause: without this, half of them were as fast as one
    // thread or slower; with it, as fast as two.) With more threads than CPUs this would only
    // disturb other threads.
    if (pool.spin_) leave_cpu(pool.job_->caller_cpu);
    pool.run_part(worker.part);
    // The job may no longer exist after this.
    if (worker.state.exchange(kIdle) == kRunningNotify) {
      worker.state.notify_one();
    }
  }
}

void ThreadPool::Workers::wait_for_job(Worker& worker, bool spin) {
  if (spin && spin_while(worker.state, kIdle)) return;
  int state = kIdle;
  if (worker.state.compare_exchange_strong(state, kAsleep)) {
    worker.state.wait(kAsleep, std::memory_order_acquire);
  }
}

void ThreadPool::Workers::wait_for_end(Worker& worker, bool spin) {
  if (spin && spin_while(worker.state, kRunning)) return;
  int state = kRunning;
  if (worker.state.compare_exchange_strong(state, kRunningNotify)) {
    worker.state.wait(kRunningNotify, std::memory_order_acquire);
  }
}

void ThreadPool::Workers::run_part(int64_t part) const {
  const int64_t end = part_begin(job_->chunks, job_->parts, part + 1);
  for (int64_t chunk = part_begin(job_->chunks, job_->parts, part); chunk < end; ++chunk) {
    job_->fn(chunk);
  }
}

bool ThreadPool::Workers::run(int64_t chunks, int64_t parts, FunctionRef<void(int64_t)> fn) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  const Job job = {.chunks = chunks, .parts = parts, .fn = fn, .caller_cpu = current_cpu()};
  job_ = &job;
  const auto helpers = std::span(workers_).first(static_cast<size_t>(parts - 1));
  for (const auto& worker : helpers) {
    if (worker->state.exchange(kReady) == kAsleep) {
      worker->state.notify_one();
    }
  }
  run_part(0);
  for (const auto& worker : helpers) {
    int state = kReady;
    if (worker->state.compare_exchange_strong(state, kIdle)) {
      run_part(worker->part);
    }
  }
  for (const auto& worker : helpers) wait_for_end(*worker, spin_);
  job_ = nullptr;
  busy_.store(false, std::memory_order_release);
  return true;
}

ThreadPool::ThreadPool(int threads, std::unique_ptr<Workers> workers)
    : threads_(threads), workers_(std::move(workers)) {}
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
  if (threads == 1) return ThreadPool(1, nullptr);
  auto workers = std::make_unique<Workers>(threads - 1);
  const int possible = 1 + workers->count();
  if (possible < threads) {
    log(LogLevel::kWarning,
        fmt::format("the system lets {} of {} threads be created; going on with {}. Raise "
                    "`ulimit -u` or the container's limit of processes, or ask for fewer threads",
                    possible, threads, possible));
  }
  return ThreadPool(possible, possible == 1 ? nullptr : std::move(workers));
}

void parallel_chunks(ThreadPool& pool, int64_t chunks, FunctionRef<void(int64_t)> fn) {
  const int64_t parts = std::min<int64_t>(pool.threads(), chunks);
  if (parts > 1 && pool.workers_->run(chunks, parts, fn)) return;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk);
}

void parallel_for(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain,
                  FunctionRef<void(int64_t, int64_t)> fn) {
  if (begin >= end) return;
  // Unsigned, because the length of the longest ranges does not fit into a signed number.
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
