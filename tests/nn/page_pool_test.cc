// PagePool: no page is in two places, none is lost, and one sequence never touches another's.
#include "nn/page_pool.h"

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>
#include <utility>

#include "nn/helpers.h"

namespace volta {
namespace {

using test::must;

// Every page is free or in exactly one table, and tables hold pages just where held() says.
void check_pages(const PagePool& pool) {
  std::set<std::int32_t> given;
  for (std::int64_t s = 0; s < pool.sequences(); ++s) {
    const PageRange held = pool.held(s);
    RC_ASSERT(held.first >= 0 && held.first <= held.end && held.end <= pool.blocks());
    const auto table = pool.table(s);
    RC_ASSERT(std::ssize(table) == pool.blocks());
    for (std::int64_t block = 0; block < pool.blocks(); ++block) {
      const std::int32_t page = table[static_cast<std::size_t>(block)];
      if (block < held.first || block >= held.end) {
        RC_ASSERT(page == PagePool::kNone);
        continue;
      }
      RC_ASSERT(page >= 0 && page < pool.pages());
      RC_ASSERT(given.insert(page).second);
    }
  }
  RC_ASSERT(std::ssize(given) + pool.free() == pool.pages());
}

RC_GTEST_PROP(PagePool, NoPageIsInTwoTablesAndAllComeBack, ()) {
  const auto pages = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto sequences = *rc::gen::inRange<std::int64_t>(1, 5);
  const auto blocks = *rc::gen::inRange<std::int64_t>(1, 12);
  PagePool pool = must(PagePool::create(pages, sequences, blocks));
  check_pages(pool);
  const auto steps = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 3), rc::gen::inRange(0, 100), rc::gen::inRange(0, 14)));
  for (const auto& [what, whose, block] : steps) {
    const std::int64_t s = whose % sequences;
    const PageRange before = pool.held(s);
    const std::int64_t free = pool.free();
    std::vector<std::vector<std::int32_t>> others;
    for (std::int64_t other = 0; other < sequences; ++other) {
      const auto table = pool.table(other);
      others.emplace_back(table.begin(), table.end());
    }
    if (what == 0) {
      const std::int64_t first = before.pages() == 0 ? block / 2 : before.first;
      const std::int64_t more = block - (before.pages() == 0 ? first : before.end);
      const bool wanted = more <= 0 || (block <= blocks && more <= free);
      RC_ASSERT(pool.extend(s, first, block) == wanted);
      if (!wanted) RC_ASSERT(pool.held(s) == before && pool.free() == free);
    } else if (what == 1) {
      pool.drop_before(s, block);
    } else {
      pool.drop_from(s, block);
    }
    check_pages(pool);
    for (std::int64_t other = 0; other < sequences; ++other) {
      if (other == s) continue;
      RC_ASSERT(std::ranges::equal(pool.table(other), others[static_cast<std::size_t>(other)]));
    }
    // What it has still, it has in the same pages.
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const std::int32_t was = others[static_cast<std::size_t>(s)][at], now = pool.table(s)[at];
      RC_ASSERT(was == PagePool::kNone || now == PagePool::kNone || was == now);
    }
  }
  for (std::int64_t s = 0; s < sequences; ++s) pool.drop_from(s, 0);
  RC_ASSERT(pool.free() == pages);
  check_pages(pool);
}

TEST(PagePool, GivesPagesOnlyWhereTheyAreWanted) {
  PagePool pool = must(PagePool::create(5, 2, 8));
  EXPECT_TRUE(pool.extend(0, 3, 5));
  EXPECT_EQ(pool.held(0), (PageRange{3, 5}));
  EXPECT_EQ(pool.free(), 3);
  EXPECT_FALSE(pool.extend(1, 0, 4));  // One too many: nothing happens.
  EXPECT_EQ(pool.held(1).pages(), 0);
  EXPECT_TRUE(pool.extend(1, 0, 3));
  EXPECT_TRUE(pool.extend(0, 0, 5));  // It has those.
  EXPECT_FALSE(pool.extend(0, 0, 6));
  pool.drop_before(1, 2);
  EXPECT_EQ(pool.held(1), (PageRange{2, 3}));
  EXPECT_TRUE(pool.extend(0, 0, 7));
  EXPECT_EQ(pool.free(), 0);
  pool.drop_before(0, 100);
  pool.drop_from(1, 0);
  EXPECT_EQ(pool.free(), 5);
}

TEST(PagePool, RefusesWhatItCannotCount) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  for (const auto& [pages, sequences, blocks] : std::vector<std::array<std::int64_t, 3>>{
           {0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, 1, 1}, {most + 1, 1, 1}, {1, 1 << 16, 1 << 16}}) {
    test::expect_error(PagePool::create(pages, sequences, blocks), ErrorCode::kInvalidArgument,
                       "a pool of");
  }
}

}  // namespace
}  // namespace volta
