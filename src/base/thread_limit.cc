// Creates threads that wait for each other, counts them and lets them go. POSIX threads, because
// std::thread throws where one cannot be created.
#include "base/thread_limit.h"

#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace volta {
namespace {

void* wait_for(void* flag) {
  static_cast<std::atomic<bool>*>(flag)->wait(false);
  return nullptr;
}

// The threads of this process as the kernel counts them; nothing where there is no /proc.
std::optional<nlink_t> counted_threads() {
  struct stat info = {};
  if (::stat("/proc/self/task", &info) != 0) return std::nullopt;
  return info.st_nlink;
}

// A joined thread counts against the limits until the kernel has cleared it away, some
// microseconds later. Threads that others start meanwhile end the wait at its limit.
void wait_until_counted(std::optional<nlink_t> before) {
  constexpr int kMostPauses = 200;
  for (int pause = 0; pause < kMostPauses && counted_threads() > before; ++pause) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

int creatable_threads(int wanted) {
  const std::optional<nlink_t> before = counted_threads();
  std::atomic<bool> released = false;
  std::vector<pthread_t> threads;
  for (int i = 0; i < wanted; ++i) {
    pthread_t thread = {};
    if (::pthread_create(&thread, nullptr, wait_for, &released) != 0) break;
    threads.push_back(thread);
  }
  released = true;
  released.notify_all();
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  if (!threads.empty()) wait_until_counted(before);
  return static_cast<int>(threads.size());
}

}  // namespace volta
