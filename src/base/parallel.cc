// The pool. A job has at most one part for each thread: the caller runs part 0, and worker i runs
// part i + 1. When the caller has finished its own part, it also runs the parts that no worker has
// started. So a worker that is still asleep, or that the system has descheduled, does not delay the
// job.
//
// A job costs what the cores need to tell each other about it. The caller announces it in one place
// that all workers watch, and each worker notes its progress in a cache line of its own, which the
// caller only reads unless it takes the part. So there is one write that all wait for, and the
// caller's reads of many workers overlap. (Exchanging a state with each worker in turn, at the
// beginning and at the end, takes longer in proportion to the workers.)
//
// Between two jobs a worker first spins and then sleeps. The ops of a step follow each other within
// microseconds, and waking a sleeping thread takes tens of them.
#include "base/parallel.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"

namespace volta {

namespace {

Result<int> threads_from_environment() {
  const std::string_view text = environment("VOLTA_NUM_THREADS");
  if (text.empty()) return std::min(usable_cpu_count(), kMaxThreads);
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

// Spins until `done()`, for a limited time; returns whether it is.
template <typename Done>
bool spin_until(const Done& done) {
  constexpr int kPausesBetweenClocks = 32;
  constexpr std::int64_t kPauseNanoseconds = 20'000;    // Spins without yielding the CPU.
  constexpr std::int64_t kSpinNanoseconds = 1'000'000;  // The total time.
  std::int64_t start = 0;
  for (;;) {
    for (int i = 0; i < kPausesBetweenClocks; ++i) {
      if (done()) return true;
      pause_in_spin_loop();
    }
    const std::int64_t now = monotonic_nanoseconds();
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
  bool run(std::int64_t chunks, std::int64_t parts, FunctionRef<void(std::int64_t)> fn);

 private:
  // A job has a number, which grows from job to job, and at most kMaxThreads parts. Both are
  // announced in one word. So a worker can tell whether it has a part before it reads the job,
  // which a caller without that worker may replace at any time.
  static constexpr int kPartBits = 11;
  static_assert(kMaxThreads < 1 << kPartBits);
  static constexpr std::uint64_t announcement(std::uint64_t number, std::int64_t parts) {
    return number << kPartBits | static_cast<std::uint64_t>(parts);
  }
  static constexpr std::uint64_t number_of(std::uint64_t announced) {
    return announced >> kPartBits;
  }
  static constexpr std::int64_t parts_of(std::uint64_t announced) {
    return static_cast<std::int64_t>(announced & ((std::uint64_t{1} << kPartBits) - 1));
  }
  static constexpr std::uint64_t kExit =
      ~std::uint64_t{0};  // Announces that the pool is being destroyed.

  // What became of a worker's part in the last job of which anybody claimed it:
  //   any earlier job -> kRunning          by the worker, which starts its part
  //   any earlier job -> kTaken            by the caller, which runs the part itself
  //   kRunning, kRunningNotify -> kDone    by the worker, at the end of its part
  enum Progress : std::uint64_t {
    kTaken,
    kRunning,
    kRunningNotify,  // The worker runs its part, and the caller sleeps and must be notified.
    kDone,
  };
  static constexpr std::uint64_t progress(std::uint64_t number, Progress p) {
    return number << 2 | p;
  }

  // Each worker has a cache line of its own, because different threads write them.
  struct alignas(64) Worker {
    std::atomic<std::uint64_t> progress = 0;
    std::atomic<int> asleep = 0;  // 1 while the worker sleeps or is about to.
    Workers* pool = nullptr;
    std::int64_t part = 0;
    pthread_t thread = {};

    bool has_part(std::uint64_t announced) const { return part < parts_of(announced); }
  };
  static constexpr auto kNothing = [](std::int64_t) {};
  struct Job {
    std::int64_t chunks = 0;
    std::int64_t parts = 1;
    FunctionRef<void(std::int64_t)> fn = kNothing;
    int caller_cpu = -1;
  };

  static void* work(void* worker);
  static bool claim(Worker& worker, std::uint64_t number, Progress by);
  std::uint64_t wait_for_job(Worker& worker, std::uint64_t seen);
  void wait_for_end(Worker& worker, std::uint64_t number) const;
  void wake(std::span<const std::unique_ptr<Worker>> workers);
  void run_part(std::int64_t part) const;

  std::vector<std::unique_ptr<Worker>> workers_;
  // Off when there are more threads than CPUs: spinning would take CPUs from threads that work.
  bool spin_ = false;
  std::atomic<bool> busy_ = false;
  // What a worker reads when a job begins, in one line. The caller writes the job before it
  // announces it, and workers read it after they have claimed a part.
  alignas(64) std::atomic<std::uint64_t> announced_ = 0;
  Job job_;
  // How many workers sleep or are about to.
  alignas(64) std::atomic<int> sleepers_ = 0;
};

ThreadPool::Workers::Workers(int count) : spin_(count < usable_cpu_count()) {
  const BlockSignals block;
  workers_.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->pool = this;
    worker->part = i + 1;
    if (::pthread_create(&worker->thread, nullptr, work, worker.get()) != 0) break;
    workers_.push_back(std::move(worker));
  }
}

ThreadPool::Workers::~Workers() {
  announced_.store(kExit);
  wake(workers_);
  for (const auto& worker : workers_) ::pthread_join(worker->thread, nullptr);
}

// Claims a worker's part of job `number`, for the worker or for the caller; false if the other one
// has done so. A worker that comes late finds that its part was claimed in this job or a later one.
bool ThreadPool::Workers::claim(Worker& worker, std::uint64_t number, Progress by) {
  std::uint64_t seen = worker.progress.load(std::memory_order_acquire);
  return seen < progress(number, kTaken) &&
         worker.progress.compare_exchange_strong(seen, progress(number, by));
}

void* ThreadPool::Workers::work(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  Workers& pool = *worker.pool;
  std::uint64_t seen = 0;
  for (;;) {
    seen = pool.wait_for_job(worker, seen);
    if (seen == kExit) return nullptr;
    const std::uint64_t number = number_of(seen);
    if (!claim(worker, number, kRunning)) continue;
    // The kernel often wakes a sleeping worker on the CPU of the caller. There the worker waits
    // while the caller does most of the work alone, and it may take tens of milliseconds until the
    // kernel moves it. So the worker leaves that CPU itself. (Measured on matrix products of two
    // threads in the first 10 ms after a pause: without this, half of them were as fast as one
    // thread or slower; with it, as fast as two.) With more threads than CPUs this would only
    // disturb other threads.
    if (pool.spin_) leave_cpu(pool.job_.caller_cpu);
    pool.run_part(worker.part);
    // The next job may begin after this.
    if (worker.progress.exchange(progress(number, kDone)) == progress(number, kRunningNotify)) {
      worker.progress.notify_one();
    }
  }
}

// Returns the next announcement of a job in which the worker has a part, or of the end. Jobs
// without a part for it neither wake the worker nor keep it from falling asleep.
std::uint64_t ThreadPool::Workers::wait_for_job(Worker& worker, std::uint64_t seen) {
  std::uint64_t announced = seen;
  const auto called = [&] {
    announced = announced_.load();
    return announced != seen && worker.has_part(announced);
  };
  if (spin_ && spin_until(called)) return announced;
  for (;;) {
    // A caller that announces a job after this worker has looked sees that it sleeps.
    sleepers_.fetch_add(1);
    worker.asleep.store(1);
    if (!called()) worker.asleep.wait(1);
    worker.asleep.store(0);
    sleepers_.fetch_sub(1);
    if (called()) return announced;
  }
}

void ThreadPool::Workers::wake(std::span<const std::unique_ptr<Worker>> workers) {
  if (sleepers_.load() == 0) return;
  for (const auto& worker : workers) {
    if (worker->asleep.load() == 1 && worker->asleep.exchange(0) == 1) worker->asleep.notify_one();
  }
}

void ThreadPool::Workers::wait_for_end(Worker& worker, std::uint64_t number) const {
  std::uint64_t running = progress(number, kRunning);
  const auto ended = [&] { return worker.progress.load(std::memory_order_acquire) != running; };
  if (ended() || (spin_ && spin_until(ended))) return;
  if (worker.progress.compare_exchange_strong(running, progress(number, kRunningNotify))) {
    worker.progress.wait(progress(number, kRunningNotify), std::memory_order_acquire);
  }
}

void ThreadPool::Workers::run_part(std::int64_t part) const {
  const std::int64_t end = part_begin(job_.chunks, job_.parts, part + 1);
  for (std::int64_t chunk = part_begin(job_.chunks, job_.parts, part); chunk < end; ++chunk) {
    job_.fn(chunk);
  }
}

bool ThreadPool::Workers::run(std::int64_t chunks, std::int64_t parts,
                              FunctionRef<void(std::int64_t)> fn) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  job_ = {.chunks = chunks, .parts = parts, .fn = fn, .caller_cpu = current_cpu()};
  const std::uint64_t number = number_of(announced_.load(std::memory_order_relaxed)) + 1;
  announced_.store(announcement(number, parts));
  const auto helpers = std::span(workers_).first(static_cast<std::size_t>(parts - 1));
  wake(helpers);
  run_part(0);
  for (const auto& worker : helpers) {
    if (claim(*worker, number, kTaken)) run_part(worker->part);
  }
  for (const auto& worker : helpers) wait_for_end(*worker, number);
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

void parallel_chunks(ThreadPool& pool, std::int64_t chunks, FunctionRef<void(std::int64_t)> fn) {
  const std::int64_t parts = std::min<std::int64_t>(pool.threads(), chunks);
  if (parts > 1 && pool.workers_->run(chunks, parts, fn)) return;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk);
}

void parallel_for(ThreadPool& pool, std::int64_t begin, std::int64_t end, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> fn) {
  if (begin >= end) return;
  // Unsigned, because the length of the longest ranges does not fit into a signed number.
  const auto step = static_cast<std::uint64_t>(std::max<std::int64_t>(grain, 1));
  const std::uint64_t length = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
  if (length <= step || pool.threads() == 1) return fn(begin, end);
  const std::uint64_t grains = ceil_div(length, step);
  const std::uint64_t parts = std::min(static_cast<std::uint64_t>(pool.threads()), grains);
  const auto place = [&](std::uint64_t part) {
    if (part == parts) return end;  // The last grain may be cut short.
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(begin) +
                                     part_begin(grains, parts, part) * step);
  };
  parallel_chunks(pool, static_cast<std::int64_t>(parts), [&](std::int64_t part) {
    fn(place(static_cast<std::uint64_t>(part)), place(static_cast<std::uint64_t>(part) + 1));
  });
}

}  // namespace volta
