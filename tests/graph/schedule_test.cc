#include "graph/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace volta {
namespace {

using Places = std::vector<std::size_t>;

// For any steps: what touches the same memory keeps its order, no wait could be left out, and
// before() is what streams and waits together say.
RC_GTEST_PROP(Schedule, KeepsTheOrderOfConflicts, ()) {
  const auto streams = *rc::gen::inRange(1, 5);
  const auto place = rc::gen::inRange<std::size_t>(0, 6);
  const auto places = rc::gen::container<Places>(place);
  const auto steps =
      *rc::gen::container<std::vector<std::pair<Places, Places>>>(rc::gen::pair(places, places));
  Schedule schedule(streams, 6);
  for (const auto& [reads, writes] : steps) schedule.add(reads, writes);

  // Every step that has ended before a step, found by following streams and waits.
  std::vector<std::set<std::size_t>> earlier(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto add = [&](std::size_t step) {
      earlier[i].insert(step);
      earlier[i].insert(earlier[step].begin(), earlier[step].end());
    };
    for (std::size_t j = i; j-- > 0;) {
      if (schedule.stream(j) != schedule.stream(i)) continue;
      add(j);
      break;
    }
    for (const std::size_t wait : schedule.waits(i)) {
      RC_ASSERT(wait < i);
      RC_ASSERT(!earlier[i].contains(wait));  // It would be one wait too many.
      add(wait);
    }
    for (std::size_t j = 0; j < i; ++j) {
      RC_ASSERT(schedule.before(j, i) == earlier[i].contains(j));
      const auto touches = [](const Places& a, const Places& b) {
        return std::ranges::find_first_of(a, b) != a.end();
      };
      const bool conflict = touches(steps[i].second, steps[j].first) ||
                            touches(steps[i].second, steps[j].second) ||
                            touches(steps[i].first, steps[j].second);
      if (conflict) RC_ASSERT(schedule.before(j, i));
    }
    RC_ASSERT(!schedule.before(i, i));
  }
}

TEST(Schedule, StepsThatOnlyReadTheSameRunSideBySide) {
  Schedule schedule(3, 4);
  schedule.add({}, Places{0});
  schedule.add(Places{0}, Places{1});
  schedule.add(Places{0}, Places{2});
  schedule.add(Places{1, 2}, Places{3});
  EXPECT_EQ(schedule.stream(1), 0);  // It continues step 0.
  EXPECT_EQ(schedule.stream(2), 1);
  EXPECT_EQ(schedule.waits(2), Places{0});
  EXPECT_FALSE(schedule.before(1, 2));
  EXPECT_EQ(schedule.stream(3), 1);  // It continues the newest of what it reads.
  EXPECT_EQ(schedule.waits(3), Places{1});
  EXPECT_TRUE(schedule.before(0, 3));
}

}  // namespace
}  // namespace volta
