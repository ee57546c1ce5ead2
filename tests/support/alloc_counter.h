// Counts calls of the malloc family (malloc, calloc, realloc and the aligned ones, so operator new
// too) by every thread of the test process, to prove that something allocates nothing.
#pragma once

#include <cstdint>

namespace volta::test {

/// False in sanitizer builds, whose own malloc cannot be replaced: skip the test.
bool can_count_allocations();

/// Calls since the process started, and the bytes that they asked for.
int64_t allocation_count();
int64_t allocated_bytes();

/// Calls since this was made:
///   AllocationCounter counter;
///   plan.run();
///   const int64_t n = counter.count();  // Read it before EXPECT_EQ, which may allocate.
class AllocationCounter {
 public:
  AllocationCounter() : start_(allocation_count()), start_bytes_(allocated_bytes()) {}
  int64_t count() const { return allocation_count() - start_; }
  /// Of all calls together; what was freed in between counts.
  int64_t bytes() const { return allocated_bytes() - start_bytes_; }

 private:
  int64_t start_;
  int64_t start_bytes_;
};

}  // namespace volta::test
