#include "base/work_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace volta {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(WorkBudgetTest, GivesExactlyTheStepsAndBytesOfItsLimits) {
  WorkBudget budget({.steps = 10, .bytes = 5});
  EXPECT_TRUE(budget.step(9));
  EXPECT_EQ(budget.steps_left(), 1);
  EXPECT_TRUE(budget.step());
  EXPECT_TRUE(budget.step(0));
  EXPECT_TRUE(budget.make_bytes(4));
  EXPECT_TRUE(budget.make_bytes(1));
  EXPECT_TRUE(budget.make_bytes(0));
  EXPECT_FALSE(budget.spent());
  EXPECT_TRUE(budget.check("the test"));
  EXPECT_FALSE(budget.step());
  EXPECT_TRUE(budget.spent());
}

TEST(WorkBudgetTest, StaysSpentAndNamesTheComponent) {
  WorkBudget steps({.steps = 10, .bytes = 5});
  EXPECT_FALSE(steps.step(11));
  EXPECT_FALSE(steps.step(0));
  EXPECT_FALSE(steps.make_bytes(0));
  const Status slow = steps.spend(1, "the normalizer Replace");
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(slow.error().message(), HasSubstr("the normalizer Replace runs for too long"));

  WorkBudget bytes({.steps = 10, .bytes = 5});
  const Status large = bytes.grow(6, "the template");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(large.error().message(), HasSubstr("the template makes too much text"));
  EXPECT_FALSE(bytes.step());
  EXPECT_FALSE(bytes.grow(0, "the template"));
}

TEST(WorkBudgetTest, NoCountWrapsAround) {
  EXPECT_FALSE(WorkBudget({.steps = 10, .bytes = 5}).step(kMost));
  EXPECT_FALSE(WorkBudget({.steps = 10, .bytes = 5}).make_bytes(kMost));
  EXPECT_FALSE(WorkBudget({.steps = 10, .bytes = 5}).make_many(kMost, kMost));
  EXPECT_FALSE(WorkBudget({.steps = 10, .bytes = 5}).make_many(3, 2));
  EXPECT_FALSE(WorkBudget({.steps = 10, .bytes = 5}).make_many(kMost, 0));
  EXPECT_TRUE(WorkBudget({.steps = 10, .bytes = 6}).make_many(3, 2));
}

TEST(WorkBudgetTest, AsksWhetherItIsInterrupted) {
  int questions = 0;
  bool stop = false;
  WorkBudget budget({.steps = 1'000'000, .bytes = 5}, [&] {
    ++questions;
    return stop;
  });
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(budget.step());
  EXPECT_GE(questions, 10);   // Soon enough,
  EXPECT_LE(questions, 100);  // and not at every step.
  EXPECT_EQ(budget.steps_left(), 900'000);
  stop = true;
  const Status status = budget.spend(20'000, "the test");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInterrupted);
  EXPECT_FALSE(budget.make_bytes(1));
}

TEST(WorkBudgetTest, GrowsWithItsInput) {
  const auto never = [] { return false; };
  for (const Interruption& interrupted : {Interruption(), Interruption(never)}) {
    WorkBudget budget(text_work_limits(0), interrupted);
    const std::uint64_t before = budget.steps_left();
    budget.add_input(1000);
    EXPECT_EQ(budget.steps_left() - before, 256'000);
    EXPECT_TRUE(budget.make_bytes((1 << 20) + 64'000));
    EXPECT_FALSE(budget.make_bytes(1));
    budget.add_input(1000);
    EXPECT_FALSE(budget.step());  // Spent is spent.
  }
}

TEST(WorkBudgetTest, LimitsOfTextGrowWithTheText) {
  const WorkLimits none = text_work_limits(0);
  EXPECT_EQ(none.bytes, 1 << 20);
  EXPECT_EQ(none.steps, 16'000'000);
  const WorkLimits some = text_work_limits(1000);
  EXPECT_EQ(some.bytes - none.bytes, 64'000);
  EXPECT_EQ(some.steps - none.steps, 256'000);
  EXPECT_GT(text_work_limits(std::numeric_limits<std::size_t>::max()).bytes, some.bytes);
}

}  // namespace
}  // namespace volta
