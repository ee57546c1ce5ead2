#include "base/thread_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/parallel.h"

namespace volta {
namespace {

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

TEST(ThreadLimitTest, CountsThreadsThatCanExistAtOnce) {
  EXPECT_EQ(creatable_threads(0), 0);
  EXPECT_EQ(creatable_threads(3), 3);
  const NoThreads none;
  EXPECT_EQ(creatable_threads(3), 0);
}

TEST(ThreadLimitTest, APoolHasTheThreadsThatCanBeCreatedAndSaysSo) {
  std::string warning;
  set_log_callback([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning) warning = message;
  });
  {
    const NoThreads none;
    auto pool = ThreadPool::create(4);
    ASSERT_TRUE(pool);
    EXPECT_EQ(pool->threads(), 1);
    std::atomic<std::int64_t> sum = 0;
    parallel_for(*pool, 0, 100, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
  EXPECT_THAT(warning, testing::HasSubstr("1 of 4 threads"));
  warning.clear();
  EXPECT_EQ(ThreadPool::create(4)->threads(), 4);
  EXPECT_EQ(warning, "");
  set_log_callback({});
}

}  // namespace
}  // namespace volta
