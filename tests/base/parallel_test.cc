#include "base/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rapidcheck/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "support/alloc_counter.h"

namespace volta {
namespace {

ThreadPool make_pool(int threads) {
  Result<ThreadPool> pool = ThreadPool::create(threads);
  EXPECT_TRUE(pool) << pool.error().message();
  return *std::move(pool);
}

// Sets an environment variable for one scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (old_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, old_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string old_;
};

TEST(ThreadPoolTest, SizeComesFromTheCallerTheEnvironmentOrTheMachine) {
  EXPECT_EQ(make_pool(1).threads(), 1);
  EXPECT_EQ(make_pool(5).threads(), 5);
  {
    const ScopedEnv env("VOLTA_NUM_THREADS", "3");
    EXPECT_EQ(make_pool(0).threads(), 3);
    EXPECT_EQ(make_pool(2).threads(), 2);
  }
  const ScopedEnv env("VOLTA_NUM_THREADS", "");
  EXPECT_EQ(make_pool(0).threads(), usable_cpu_count());
}

TEST(ThreadPoolTest, RefusesAbsurdSizes) {
  EXPECT_EQ(ThreadPool::create(-1).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ThreadPool::create(kMaxThreads + 1).error().code(), ErrorCode::kInvalidArgument);
  for (const char* bad : {"zero", "0", "-2", "4.5", "9999999999999"}) {
    const ScopedEnv env("VOLTA_NUM_THREADS", bad);
    const Result<ThreadPool> pool = ThreadPool::create();
    ASSERT_FALSE(pool) << bad;
    EXPECT_EQ(pool.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(pool.error().message().find("VOLTA_NUM_THREADS"), std::string::npos);
  }
}

// No thread of the default size can be created while this lives: its stack fits no address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_init(&attributes_);
    pthread_getattr_default_np(&attributes_);
    pthread_attr_getstacksize(&attributes_, &size_);
    set(std::size_t{1} << 50);
  }
  ~NoThreads() {
    set(size_);
    pthread_attr_destroy(&attributes_);
  }
  NoThreads(const NoThreads&) = delete;

 private:
  void set(std::size_t size) {
    EXPECT_EQ(pthread_attr_setstacksize(&attributes_, size), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
  }
  pthread_attr_t attributes_;
  std::size_t size_ = 0;
};

TEST(ThreadPoolTest, HasTheThreadsThatCanBeCreatedAndSaysSo) {
  std::string warning;
  set_log_callback([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning) warning = message;
  });
  {
    const NoThreads none;
    auto pool = ThreadPool::create(4);
    ASSERT_TRUE(pool);
    EXPECT_EQ(pool->threads(), 1);
    std::atomic<int64_t> sum = 0;
    parallel_for(*pool, 0, 100, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
  EXPECT_THAT(warning, testing::HasSubstr("1 of 4 threads"));
  warning.clear();
  EXPECT_EQ(ThreadPool::create(4)->threads(), 4);
  EXPECT_EQ(warning, "");
  set_log_callback({});
}

// A program stops a run with a signal that its own thread handles; a worker that took it would
// leave the program's thread asleep.
TEST(ThreadPoolTest, WorkersTakeNoSignalsButThoseOfTheirOwnInstructions) {
  sigset_t before;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  ThreadPool pool = make_pool(2);
  sigset_t after;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  EXPECT_EQ(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
  std::atomic<int> started{0};
  std::atomic<int> blocked{-1}, blocked_fault{-1};
  const std::thread::id caller = std::this_thread::get_id();
  parallel_chunks(pool, 2, [&](int64_t) {
    ++started;
    while (started < 2) std::this_thread::yield();  // Each thread has one part.
    if (std::this_thread::get_id() == caller) return;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT);
    blocked_fault = sigismember(&mask, SIGBUS);
  });
  EXPECT_EQ(blocked, 1);
  EXPECT_EQ(blocked_fault, 0);
}

struct Range {
  int64_t begin, end;
  bool operator<(const Range& other) const { return begin < other.begin; }
};

std::vector<Range> parts_of(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain) {
  std::vector<Range> slots(static_cast<size_t>(pool.threads()));
  std::atomic<size_t> used{0};
  parallel_for(pool, begin, end, grain,
               [&](int64_t b, int64_t e) { slots[used.fetch_add(1)] = {b, e}; });
  slots.resize(used.load());
  std::ranges::sort(slots, {}, &Range::begin);
  return slots;
}

RC_GTEST_PROP(ParallelForProperties, PartsCoverTheRangeInOrder, ()) {
  ThreadPool pool = make_pool(*rc::gen::inRange(1, 6));
  const int64_t begin = *rc::gen::inRange<int64_t>(-1000, 1000);
  const int64_t length = *rc::gen::inRange<int64_t>(0, 1000);
  const int64_t grain = *rc::gen::inRange<int64_t>(-1, 300);
  const std::vector<Range> parts = parts_of(pool, begin, begin + length, grain);
  int64_t at = begin;
  int64_t longest = 0, shortest = length;
  for (const Range& part : parts) {
    RC_ASSERT(part.begin == at);
    RC_ASSERT(part.end > part.begin);
    if (grain > 0) RC_ASSERT((part.begin - begin) % grain == 0);
    at = part.end;
    longest = std::max(longest, part.end - part.begin);
    shortest = std::min(shortest, part.end - part.begin);
  }
  RC_ASSERT(at == begin + length);
  RC_ASSERT(static_cast<int>(parts.size()) <= pool.threads());
  if (length <= grain) RC_ASSERT(parts.size() <= 1u);
  if (!parts.empty()) RC_ASSERT(longest - shortest <= 2 * std::max<int64_t>(grain, 1));
}

TEST(ParallelForTest, EmptyRangeCallsNothing) {
  ThreadPool pool = make_pool(2);
  EXPECT_TRUE(parts_of(pool, 5, 5, 1).empty());
  EXPECT_TRUE(parts_of(pool, 5, 4, 1).empty());
  parallel_chunks(pool, 0, [](int64_t) { FAIL(); });
}

TEST(ParallelForTest, SmallWorkStaysOnTheCaller) {
  ThreadPool pool = make_pool(2);
  std::thread::id ran;
  parallel_for(pool, 0, 100, 100, [&](int64_t, int64_t) { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(ParallelForTest, HugeRangesDoNotOverflow) {
  ThreadPool pool = make_pool(3);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<Range> parts = parts_of(pool, 0, kMax, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts.back().end, kMax);
}

// Lengths that no signed number holds, and grains whose last multiple lies beyond the range.
TEST(ParallelForTest, RangesOfAllNumbersAreCutWithoutOverflow) {
  ThreadPool pool = make_pool(3);
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t begin : {kMin, kMin + 1, int64_t{-1}, int64_t{0}, int64_t{7}}) {
    for (const int64_t grain : {int64_t{1}, int64_t{3}, kMax / 2, kMax / 2 + 2, kMax - 8, kMax}) {
      const std::vector<Range> parts = parts_of(pool, begin, kMax, grain);
      ASSERT_FALSE(parts.empty());
      int64_t at = begin;
      for (const Range& part : parts) {
        EXPECT_EQ(part.begin, at) << begin << ' ' << grain;
        EXPECT_GT(part.end, part.begin) << begin << ' ' << grain;
        at = part.end;
      }
      EXPECT_EQ(at, kMax) << begin << ' ' << grain;
    }
  }
}

TEST(ParallelChunksTest, RunsEveryChunkOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool = make_pool(threads);
    std::vector<std::atomic<int>> counts(101);
    parallel_chunks(pool, 101, [&](int64_t chunk) { ++counts[static_cast<size_t>(chunk)]; });
    for (const auto& count : counts) EXPECT_EQ(count, 1);
  }
}

// What a worker has not begun is run by the caller. Pauses of all lengths, so that jobs meet
// workers that spin, that fall asleep and that sleep; numbers of parts that leave some out.
TEST(ParallelChunksTest, RunsEveryChunkOnceWhateverTheWorkersDo) {
  for (const int threads : {2, 3, 2 * usable_cpu_count() + 1}) {
    ThreadPool pool = make_pool(threads);
    std::vector<int> counts(64);
    for (int round = 0; round < 2000; ++round) {
      const int64_t chunks = 1 + round % 64;
      parallel_chunks(pool, chunks, [&](int64_t chunk) { ++counts[static_cast<size_t>(chunk)]; });
      for (int64_t chunk = 0; chunk < 64; ++chunk) {
        int& count = counts[static_cast<size_t>(chunk)];
        ASSERT_EQ(count, chunk < chunks ? 1 : 0) << chunk << " of " << chunks;
        count = 0;
      }
      if (round % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round / 4));
    }
  }
}

// While one caller holds the workers, another does its work alone, and does not wait.
TEST(ParallelChunksTest, ASecondCallerDoesNotWaitForTheFirst) {
  ThreadPool pool = make_pool(2);
  std::atomic<bool> held{false}, release{false};
  const std::jthread first([&] {
    parallel_chunks(pool, 2, [&](int64_t) {
      held = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!held) std::this_thread::yield();
  std::set<std::thread::id> ran;
  parallel_chunks(pool, 8, [&](int64_t) { ran.insert(std::this_thread::get_id()); });
  EXPECT_EQ(ran, std::set{std::this_thread::get_id()});
  release = true;
}

// Every part waits until all have started, so that the test hangs unless the pool really runs as
// many threads as it says, more than the machine has CPUs included.
TEST(ParallelForTest, RunsAtThePoolsConcurrency) {
  for (const int threads : {2, 2 * usable_cpu_count() + 1}) {
    ThreadPool pool = make_pool(threads);
    std::atomic<int> started{0};
    std::atomic<bool> late{false};
    parallel_chunks(pool, threads, [&](int64_t) {
      ++started;
      const double give_up = monotonic_seconds() + 20;
      while (started < threads && !late) {
        if (monotonic_seconds() > give_up) late = true;
        std::this_thread::yield();
      }
    });
    EXPECT_FALSE(late) << started << " of " << threads << " threads";
  }
}

// Sets the affinity mask of every thread of this process.
void set_masks(const cpu_set_t& mask) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto tid = static_cast<pid_t>(std::atol(task.path().filename().c_str()));
    sched_setaffinity(tid, sizeof(mask), &mask);
  }
}

// Runs jobs of as many parts as there are threads, with pauses in which workers fall asleep.
void expect_right_sums(ThreadPool& pool) {
  for (int round = 0; round < 60; ++round) {
    std::atomic<int64_t> sum{0};
    parallel_for(pool, 0, 1000, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    ASSERT_EQ(sum, 499500);
    if (round % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// One CPU for all threads, from the beginning; and CPUs that are taken away later, as when they are
// unplugged: the work is done, if more slowly.
TEST(ParallelForTest, WorksOnOneCpuAndWhenCpusAreTakenAway) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ThreadPool made_before = make_pool(std::max(2, usable_cpu_count()));
  expect_right_sums(made_before);
  set_masks(one);
  {
    EXPECT_EQ(make_pool(0).threads(), 1);
    ThreadPool crowded = make_pool(4);
    EXPECT_EQ(crowded.threads(), 4);
    expect_right_sums(crowded);
    expect_right_sums(made_before);
  }
  set_masks(before);
  expect_right_sums(made_before);
}

// Jobs of few parts between jobs of many: the workers without a part take none, and those that
// sleep are there for the next job.
TEST(ParallelChunksTest, JobsOfDifferentSizesTakeTurns) {
  ThreadPool pool = make_pool(std::max(4, usable_cpu_count()));
  std::vector<int> counts(static_cast<size_t>(pool.threads()));
  for (int round = 0; round < 3000; ++round) {
    const int64_t parts = round % 7 == 0 ? pool.threads() : 2;
    parallel_chunks(pool, parts, [&](int64_t part) { ++counts[static_cast<size_t>(part)]; });
    if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i], i < 2 ? 3000 : 429) << i;
}

TEST(ParallelForTest, MemoryWrittenByWorkersIsVisible) {
  ThreadPool pool = make_pool(4);
  std::vector<int64_t> values(10000);
  for (int round = 0; round < 20; ++round) {
    std::iota(values.begin(), values.end(), round);
    parallel_for(pool, 0, 10000, 10, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) values[static_cast<size_t>(i)] *= 2;
    });
    const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
    EXPECT_EQ(sum, 2 * (int64_t{10000} * 9999 / 2 + int64_t{10000} * round));
  }
}

TEST(ParallelForTest, NestsAndServesSeveralCallers) {
  ThreadPool pool = make_pool(2);
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    parallel_chunks(pool, 4, [&](int64_t) {
      parallel_for(pool, 0, 100, 10, [&](int64_t b, int64_t e) { sum += e - b; });
    });
  };
  {
    const std::jthread other(work);
    const std::jthread third(work);
    work();
  }
  EXPECT_EQ(sum, 3 * 4 * 100);
}

TEST(ParallelForTest, PoolsMoveAndLiveSideBySide) {
  ThreadPool a = make_pool(2);
  ThreadPool b = make_pool(3);
  a = std::move(b);
  EXPECT_EQ(a.threads(), 3);
  EXPECT_EQ(parts_of(a, 0, 30, 1).size(), 3u);
}

TEST(ParallelForTest, AllocatesNothingOnceWarm) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "the sanitizer owns malloc";
  ThreadPool pool = make_pool(std::max(2, usable_cpu_count()));
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    parallel_for(pool, 0, 1000, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    parallel_chunks(pool, 64, [&](int64_t) { ++sum; });
  };
  for (int i = 0; i < 1000; ++i) work();
  const test::AllocationCounter counter;
  for (int i = 0; i < 2000; ++i) {
    work();
    // Now and then the workers fall asleep, and wake up.
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const int64_t allocations = counter.count();
  EXPECT_EQ(allocations, 0);
}

TEST(AllocationCounterTest, SeesAllocations) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "the sanitizer owns malloc";
  const test::AllocationCounter counter;
  std::vector<int> v(10);
  EXPECT_GE(counter.count(), 1);
}

}  // namespace
}  // namespace volta
