// Replaces the malloc family of the test executable by one that counts and forwards to glibc's.
#include "support/alloc_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define VOLTA_HAS_SANITIZER_MALLOC
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define VOLTA_HAS_SANITIZER_MALLOC
#endif

namespace {

constinit std::atomic<int64_t> g_allocations{0};
constinit std::atomic<int64_t> g_bytes{0};

}  // namespace

namespace volta::test {

int64_t allocation_count() { return g_allocations.load(std::memory_order_relaxed); }
int64_t allocated_bytes() { return g_bytes.load(std::memory_order_relaxed); }

#if defined(VOLTA_HAS_SANITIZER_MALLOC)
bool can_count_allocations() { return false; }
#else
bool can_count_allocations() { return true; }
#endif

}  // namespace volta::test

#if !defined(VOLTA_HAS_SANITIZER_MALLOC)

namespace {

void count(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  g_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

void* malloc(size_t size) {
  count(size);
  return __libc_malloc(size);
}

void* calloc(size_t items, size_t size) {
  count(items * size);
  return __libc_calloc(items, size);
}

void* realloc(void* old, size_t size) {
  count(size);
  return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) {
  count(size);
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

void free(void* block) { __libc_free(block); }

}  // extern "C"

#endif
