#include "graph/memory_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

#include "build.h"
#include "graph/plan.h"

namespace volta {
namespace {

using ::testing::HasSubstr;
using testing::message;
using testing::must;

TEST(PlaceBlocks, SharesWhatIsNotNeededTogether) {
  std::vector<MemoryBlock> blocks{{64, 0, 1}, {128, 1, 2}, {64, 2, 3}, {64, 3, 3}};
  EXPECT_EQ(must(place_blocks(blocks)), 192);
  EXPECT_EQ(blocks[1].offset, 0);    // The largest first,
  EXPECT_EQ(blocks[0].offset, 128);  // then what lives beside it,
  EXPECT_EQ(blocks[2].offset, 128);  // in the same place when never together.
  EXPECT_EQ(blocks[3].offset, 0);
}

TEST(PlaceBlocks, TakesTheSmallestGapThatFits) {
  // At step 1, 256 bytes are free at 512 and 128 at 1024 (between blocks that live throughout).
  std::vector<MemoryBlock> blocks{{512, 0, 1}, {256, 0, 0}, {250, 0, 1},
                                  {128, 0, 0}, {120, 0, 1}, {100, 1, 1}};
  EXPECT_EQ(must(place_blocks(blocks)), 512 + 256 + 256 + 128 + 128);
  EXPECT_EQ(blocks[1].offset, 512);
  EXPECT_EQ(blocks[3].offset, 1024);
  EXPECT_EQ(blocks[5].offset, 1024);
}

TEST(PlaceBlocks, RoundsSizesUpToTheAlignment) {
  std::vector<MemoryBlock> blocks{{1, 0, 0}, {65, 0, 0}, {0, 0, 0}};
  EXPECT_EQ(must(place_blocks(blocks)), 192);
  EXPECT_EQ(blocks[1].offset, 0);
  EXPECT_EQ(blocks[0].offset, 128);
  EXPECT_EQ(must(place_blocks({})), 0);
}

TEST(PlaceBlocks, RefusesSizesThatCannotBe) {
  std::vector<MemoryBlock> negative{{-1, 0, 0}};
  EXPECT_THAT(message(place_blocks(negative)), HasSubstr("-1 bytes"));
  const std::int64_t half = std::numeric_limits<std::int64_t>::max() / 2;
  std::vector<MemoryBlock> huge{{half, 0, 0}, {half, 1, 1}};
  EXPECT_THAT(message(place_blocks(huge)), HasSubstr("exceed 2^63 bytes"));
  std::vector<MemoryBlock> largest{{std::numeric_limits<std::int64_t>::max(), 0, 0}};
  EXPECT_FALSE(place_blocks(largest));
}

TEST(PlaceBlocks, ResultsLieTogetherAtTheStart) {
  std::vector<MemoryBlock> blocks{{256, 0, 1}, {64, 1, 3}, {128, 0, 2}, {65, 2, 3}, {0, 0, 3}};
  blocks[1].result = blocks[3].result = blocks[4].result = true;
  EXPECT_EQ(must(place_blocks(blocks)), 64 + 128 + 256 + 128);
  EXPECT_EQ(blocks[3].offset, 0);    // The larger one first,
  EXPECT_EQ(blocks[1].offset, 128);  // and the other behind it;
  EXPECT_EQ(blocks[0].offset, 192);  // then what lives beside them.
}

RC_GTEST_PROP(PlaceBlocks, NeverOverlapsWhatLivesTogether,
              (const std::vector<std::array<std::uint8_t, 3>>& numbers)) {
  std::vector<MemoryBlock> blocks;
  std::int64_t total = 0;
  for (const auto& [size, first, length] : numbers) {
    blocks.push_back({std::int64_t{size} * 5, first % 16, first % 16 + length % 5});
    blocks.back().result = first >= 240;
    if (blocks.back().result) blocks.back().last = 20;
    must(add_aligned(total, blocks.back().bytes));
  }
  auto again = blocks;
  const std::int64_t arena = must(place_blocks(blocks));
  std::int64_t results = 0;
  for (const MemoryBlock& block : blocks) {
    if (block.result) must(add_aligned(results, block.bytes));
  }
  RC_ASSERT(arena <= total);
  RC_ASSERT(must(place_blocks(again)) == arena);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const MemoryBlock& a = blocks[i];
    RC_ASSERT(a.offset == again[i].offset);
    RC_ASSERT(!a.result || a.offset + a.bytes <= results);
    RC_ASSERT(a.offset >= 0 && a.offset % kArenaAlignment == 0 && a.offset + a.bytes <= arena);
    for (std::size_t j = 0; j < i; ++j) {
      const MemoryBlock& b = blocks[j];
      const bool apart_in_time = a.last < b.first || b.last < a.first;
      const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
      RC_ASSERT(apart_in_time || apart);
    }
  }
}

}  // namespace
}  // namespace volta
