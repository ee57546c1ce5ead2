#include "train/data.h"

#include <algorithm>
#include <set>

#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

struct Batch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;
  bool operator==(const Batch&) const = default;
};

Batch fill(const BatchSource& source, std::int64_t step, std::int64_t micro, std::size_t batch,
           std::size_t time) {
  Batch out;
  out.ids.resize(batch * time);
  out.targets.resize(batch * time);
  EXPECT_TRUE(source.fill(step, micro, out.ids, out.targets));
  return out;
}

std::shared_ptr<const std::vector<std::int32_t>> counting(std::int32_t n) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = i;
  return std::make_shared<const std::vector<std::int32_t>>(std::move(values));
}

TEST(RandomWindows, TargetsAreTheNextTokens) {
  const auto source = RandomWindows::create(counting(100), 7, 1);
  ASSERT_TRUE(source);
  const Batch batch = fill(*source, 3, 0, 5, 7);
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    EXPECT_EQ(batch.targets[i], batch.ids[i] + 1);
    if (i % 7 != 0) {
      EXPECT_EQ(batch.ids[i], batch.ids[i - 1] + 1);
    }
  }
}

TEST(RandomWindows, AreAFunctionOfSeedStreamStepAndRow) {
  const auto tokens = counting(1000);
  const auto source = RandomWindows::create(tokens, 4, 1);
  ASSERT_TRUE(source);
  const Batch first = fill(*source, 0, 0, 6, 4);
  EXPECT_EQ(fill(*source, 0, 0, 6, 4), first);
  EXPECT_NE(fill(*source, 1, 0, 6, 4), first);
  EXPECT_NE(fill(*RandomWindows::create(tokens, 4, 2), 0, 0, 6, 4), first);
  EXPECT_NE(fill(*RandomWindows::create(tokens, 4, 1, kEvaluationStream), 0, 0, 6, 4), first);
  // Micro-batches are the rows of the whole batch.
  Batch halves = fill(*source, 0, 0, 3, 4);
  const Batch second = fill(*source, 0, 1, 3, 4);
  halves.ids.insert(halves.ids.end(), second.ids.begin(), second.ids.end());
  halves.targets.insert(halves.targets.end(), second.targets.begin(), second.targets.end());
  EXPECT_EQ(halves, first);
}

TEST(RandomWindows, ReachBothEndsOfTheText) {
  const auto source = RandomWindows::create(counting(6), 3, 1);  // Windows start at 0, 1 or 2.
  ASSERT_TRUE(source);
  std::set<std::int32_t> starts;
  for (std::int64_t step = 0; step < 50; ++step) starts.insert(fill(*source, step, 0, 1, 3).ids[0]);
  EXPECT_EQ(starts, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(RandomWindows, NeedTimePlusOneTokens) {
  EXPECT_TRUE(RandomWindows::create(counting(9), 8, 1));
  expect_error(RandomWindows::create(counting(8), 8, 1), ErrorCode::kInvalidArgument,
               "the text has 8 tokens; a context of 8 needs at least 9");
}

TEST(ExampleRows, AreTakenInOrderAndCycle) {
  const auto source = ExampleRows::create({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 2, 1);
  ASSERT_TRUE(source);
  EXPECT_EQ(fill(*source, 0, 0, 2, 2).ids, (std::vector<std::int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(fill(*source, 0, 0, 2, 2).targets, (std::vector<std::int32_t>{2, 3, 5, 6}));
  EXPECT_EQ(fill(*source, 1, 0, 2, 2).ids, (std::vector<std::int32_t>{7, 8, 1, 2}));
  EXPECT_EQ(fill(*source, 2, 0, 2, 2).ids, (std::vector<std::int32_t>{4, 5, 7, 8}));
}

TEST(ExampleRows, MicroBatchesGoOnWhereTheOneBeforeEnded) {
  const auto source = ExampleRows::create({1, 2, 3, 4, 5, 6, 7, 8}, 4, 1, 2);
  ASSERT_TRUE(source);
  EXPECT_EQ(fill(*source, 0, 0, 1, 1).ids, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(fill(*source, 0, 1, 1, 1).ids, (std::vector<std::int32_t>{3}));
  EXPECT_EQ(fill(*source, 1, 0, 1, 1).ids, (std::vector<std::int32_t>{5}));
}

TEST(ExampleRows, RefuseAWrongNumberOfIds) {
  expect_error(ExampleRows::create({1, 2, 3}, 2, 1, 1), ErrorCode::kInvalidArgument,
               "3 ids are not 2 examples of 2 tokens");
  EXPECT_FALSE(ExampleRows::create({}, 0, 1, 1));
  EXPECT_FALSE(ExampleRows::create({1}, 1, 0, 1));
  EXPECT_FALSE(ExampleRows::create({1, 2}, 1, 1, 0));
}

}  // namespace
}  // namespace volta
