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

// `count` rows of three tokens; row i has the ids 10 i to 10 i + 2.
std::shared_ptr<const LabelledRows> numbered_rows(std::int32_t count) {
  LabelledRows rows{.ids = {}, .targets = {}, .count = count, .time = 3};
  for (std::int32_t row = 0; row < count; ++row) {
    for (std::int32_t i = 0; i < 3; ++i) {
      rows.ids.push_back(10 * row + i);
      rows.targets.push_back(i == 0 ? -1 : 10 * row + i + 1);
    }
  }
  return std::make_shared<const LabelledRows>(std::move(rows));
}

TEST(ShuffledRows, EveryPassHasEveryRowOnceInAnotherOrder) {
  VOLTA_ASSERT_OK(const ShuffledRows source, ShuffledRows::create(numbered_rows(7), 5, 2));
  std::vector<std::int32_t> order;
  for (std::int64_t step = 0; step < 7; ++step) {  // 28 rows: four passes.
    for (const std::int64_t micro : {0, 1}) {
      const Batch batch = fill(source, step, micro, 2, 3);
      for (std::size_t row = 0; row < 2; ++row) {
        const std::int32_t first = batch.ids[3 * row];
        order.push_back(first / 10);
        EXPECT_EQ(batch.ids[3 * row + 2], first + 2);
        EXPECT_EQ(batch.targets[3 * row], -1);
        EXPECT_EQ(batch.targets[3 * row + 1], first + 2);
      }
    }
  }
  std::set<std::vector<std::int32_t>> passes;
  for (std::size_t pass = 0; pass < 4; ++pass) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(7 * pass);
    const std::vector<std::int32_t> rows(begin, begin + 7);
    EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), 7u);
    EXPECT_TRUE(passes.insert(rows).second);
  }
}

TEST(ShuffledRows, AreAFunctionOfSeedStepAndMicroBatch) {
  VOLTA_ASSERT_OK(const ShuffledRows source, ShuffledRows::create(numbered_rows(30), 5, 1));
  const Batch late = fill(source, 11, 0, 4, 3);  // Rows 44 to 47: the second pass.
  const Batch early = fill(source, 0, 0, 4, 3);
  EXPECT_EQ(fill(source, 11, 0, 4, 3), late);
  VOLTA_ASSERT_OK(const ShuffledRows again, ShuffledRows::create(numbered_rows(30), 5, 1));
  EXPECT_EQ(fill(again, 11, 0, 4, 3), late);
  EXPECT_EQ(fill(again, 0, 0, 4, 3), early);
  VOLTA_ASSERT_OK(const ShuffledRows other, ShuffledRows::create(numbered_rows(30), 6, 1));
  EXPECT_NE(fill(other, 0, 0, 4, 3), early);
}

TEST(ShuffledRows, NeedRowsOfOneLength) {
  expect_error(ShuffledRows::create(numbered_rows(0), 1, 1), ErrorCode::kInvalidArgument, "0 rows");
  LabelledRows rows = *numbered_rows(2);
  rows.targets.pop_back();
  expect_error(ShuffledRows::create(std::make_shared<const LabelledRows>(rows), 1, 1),
               ErrorCode::kInvalidArgument, "6 ids with 5 targets are not 2 rows of 3 tokens");
}

}  // namespace
}  // namespace volta
