#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

namespace volta {
namespace {

int apply(FunctionRef<int(int)> f, int x) { return f(x); }

struct Adder {
  int offset;
  int operator()(int x) const { return x + offset; }
};

TEST(FunctionRefTest, CallsWhatItViews) {
  int calls = 0;
  const auto counting = [&calls](int x) { return ++calls + x; };
  EXPECT_EQ(apply(counting, 10), 11);
  EXPECT_EQ(apply(counting, 10), 12);
  const Adder adder{5};
  EXPECT_EQ(apply(adder, 1), 6);
  EXPECT_EQ(apply([](int x) { return x * x; }, 7), 49);
}

TEST(FunctionRefTest, ForwardsMoveOnlyArguments) {
  const auto take = [](std::unique_ptr<int> p) { return *p; };
  const FunctionRef<int(std::unique_ptr<int>)> f = take;
  EXPECT_EQ(f(std::make_unique<int>(3)), 3);
}

TEST(FunctionRefTest, IsTwoWordsAndChecksTheSignature) {
  static_assert(sizeof(FunctionRef<void()>) == 2 * sizeof(void*));
  static_assert(std::is_trivially_copyable_v<FunctionRef<void()>>);
  static_assert(!std::is_constructible_v<FunctionRef<int(int)>, void (*)()>);
}

}  // namespace
}  // namespace volta
