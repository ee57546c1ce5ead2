// KV caches: sizes, pages, lengths and their limits.
#include "nn/kv_cache.h"

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/cpu.h"
#include "nn/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::must;

TEST(KvCache, ShapesBytesAndBindings) {
  const auto device = test::device(1);
  auto config = test::llama_config();  // 2 layers, 2 kv heads of 8.
  config.window = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const KvCacheSizes sizes{.slots = 3, .capacity = 70, .dtype = dtype};
    const auto cache = must(TransformerKvCache::create(config, sizes, *device));
    EXPECT_EQ(cache.slots(), 3);
    EXPECT_EQ(cache.capacity(), 70);
    ASSERT_EQ(cache.layers().size(), 2u);
    EXPECT_EQ(cache.layers()[1].k.spec(), (TensorSpec{dtype, Shape(6, 2, 8, 64)}));
    EXPECT_EQ(cache.layers()[1].v.spec(), (TensorSpec{dtype, Shape(6, 2, 64, 8)}));
    EXPECT_EQ(cache.bytes(), 2 * 2 * 6 * 2 * 64 * 8 * dtype_size(dtype));
    EXPECT_EQ(cache.bytes(), must(TransformerKvCache::bytes_for(config, sizes)));
    const auto bind = [&](const std::string& name) {
      return cache.bind({.name = name, .kind = ValueKind::kState, .spec = {}, .constant = {}});
    };
    EXPECT_EQ(must(bind("cache.0.k")).buffer(), cache.layers()[0].k.buffer());
    EXPECT_EQ(must(bind("cache.1.v")).buffer(), cache.layers()[1].v.buffer());
    test::expect_error(bind("cache.2.k"), ErrorCode::kNotFound, "'cache.2.k'");
  }
}

// What a window needs does not grow with the sequence.
TEST(KvCache, WindowsHaveAPoolOfTheirOwn) {
  auto config = test::llama_config();
  config.context = 100'000;
  config.layers = 3;
  config.window = 70;  // 69 and a step of 256: 325 positions, in up to 7 blocks.
  config.full_layers = {1};
  const auto groups = cache_groups(config);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 1);
  EXPECT_EQ(groups[1].layers, 2);
  EXPECT_EQ(groups[1].window, 70);
  EXPECT_EQ(layer_group(config, 0), 1u);
  EXPECT_EQ(layer_group(config, 1), 0u);
  const auto pages = [&](std::int64_t capacity, std::int64_t limit = 0) {
    const KvCacheSizes sizes{.slots = 2, .capacity = capacity, .pages = limit};
    return std::pair(pool_pages(config, sizes, groups[0]), pool_pages(config, sizes, groups[1]));
  };
  EXPECT_EQ(pages(100'000), std::pair(std::int64_t{2 * 1563}, std::int64_t{2 * 7}));
  EXPECT_EQ(pages(449), std::pair(std::int64_t{2 * 8}, std::int64_t{2 * 7}));
  EXPECT_EQ(pages(448), std::pair(std::int64_t{2 * 7}, std::int64_t{2 * 7}));
  EXPECT_EQ(pages(20), std::pair(std::int64_t{2}, std::int64_t{2}));
  EXPECT_EQ(pages(449, 15), std::pair(std::int64_t{15}, std::int64_t{14}));
  EXPECT_EQ(pages(449, 3), std::pair(std::int64_t{3}, std::int64_t{3}));
  constexpr std::int64_t kPage = 2 * 2 * 64 * 8 * 4;  // k and v, heads, positions, head_dim, f32.
  const KvCacheSizes sizes{.slots = 2, .capacity = 1000};
  const auto cache = must(TransformerKvCache::create(config, sizes, *test::device(1)));
  EXPECT_EQ(cache.bytes(), kPage * (2 * 16 + 2 * 2 * 7));
  EXPECT_EQ(cache.bytes(), must(TransformerKvCache::bytes_for(config, sizes)));
  EXPECT_EQ(cache.layers()[0].k.spec().shape, Shape(14, 2, 8, 64));
  EXPECT_EQ(cache.layers()[1].v.spec().shape, Shape(32, 2, 64, 8));
  config.full_layers = {0, 1, 2};
  EXPECT_EQ(cache_groups(config).size(), 1u);
  config.full_layers = {};
  config.window = std::numeric_limits<std::int32_t>::max();
  ASSERT_EQ(cache_groups(config).size(), 1u);
  EXPECT_EQ(pool_pages(config, sizes, cache_groups(config)[0]), 32);
}

TEST(KvCache, AWindowGivesPagesBackAndGoesBackOnlyToWhatItHolds) {
  auto config = test::llama_config();  // A window of 70.
  config.context = 2000;
  const KvCacheSizes sizes{.slots = 1, .capacity = 2000};
  auto cache = must(TransformerKvCache::create(config, sizes, *test::device(1)));
  const auto append = [&](std::int64_t tokens) {
    ASSERT_TRUE(cache.reserve(0, cache.length(0) + tokens));
    must(cache.advance(0, tokens));
  };
  append(256);
  append(127);
  EXPECT_TRUE(cache.can_rewind(0, 1));  // Nothing was given back yet.
  append(256);
  append(256);
  append(105);
  EXPECT_EQ(cache.length(0), 1000);
  EXPECT_EQ(cache.pool(0).held(0), (PageRange{9, 16}));
  EXPECT_TRUE(cache.can_rewind(0, 1000));
  EXPECT_TRUE(cache.can_rewind(0, 576 + 69));  // A token at 645 sees 576 and later ones.
  EXPECT_FALSE(cache.can_rewind(0, 576 + 68));
  EXPECT_FALSE(cache.can_rewind(0, 1001));
  test::expect_error(cache.rewind(0, 600), ErrorCode::kInvalidArgument, "cannot go back to 600");
  must(cache.rewind(0, 700));
  EXPECT_EQ(cache.pool(0).held(0), (PageRange{9, 11}));
  append(256);
  must(cache.rewind(0, 0));
  EXPECT_EQ(cache.pool(0).free(), cache.pool(0).pages());
}

constexpr auto nobody = [](std::int64_t) { return false; };

// A sequence that got pages for all its tokens at its start never lacks one, whatever the others
// do and however its tokens come.
RC_GTEST_PROP(KvCache, WhatIsReservedAtTheStartLasts, ()) {
  auto config = test::llama_config();
  config.context = 2000;
  config.window = *rc::gen::inRange(1, 400);
  if (*rc::gen::arbitrary<bool>()) config.full_layers = {1};
  const KvCacheSizes sizes{
      .slots = 3, .capacity = 2000, .pages = *rc::gen::inRange<std::int64_t>(2, 40)};
  auto cache = must(TransformerKvCache::create(config, sizes, *test::device(1)));
  const std::int64_t room = *rc::gen::inRange<std::int64_t>(1, cache.longest() + 1);
  RC_ASSERT(cache.could_reserve(0, room, nobody));
  RC_ASSERT(cache.reserve(0, room));
  while (cache.length(0) < room) {
    const auto rows = std::min<std::int64_t>(*rc::gen::inRange(1, 257), room - cache.length(0));
    RC_ASSERT(cache.reserve(0, cache.length(0) + rows));
    RC_ASSERT(cache.advance(0, rows).has_value());
    const std::int64_t slot = *rc::gen::inRange(1, 3);
    const std::int64_t more = *rc::gen::inRange(1, 257);
    if (cache.reserve(slot, cache.length(slot) + more)) {
      RC_ASSERT(cache.advance(slot, more).has_value());
    } else if (*rc::gen::arbitrary<bool>()) {
      RC_ASSERT(cache.rewind(slot, 0).has_value());
    }
  }
}

// Whatever sequences do, each has pages for what later tokens read, and none has another's.
RC_GTEST_PROP(KvCache, SequencesHaveThePagesTheyNeed, ()) {
  auto config = test::llama_config();
  config.context = 2000;
  config.window = *rc::gen::inRange(1, 400);
  if (*rc::gen::arbitrary<bool>()) config.full_layers = {1};
  const KvCacheSizes sizes{.slots = 3,
                           .capacity = *rc::gen::inRange<std::int64_t>(1, 2000),
                           .pages = *rc::gen::inRange<std::int64_t>(0, 30)};
  auto cache = must(TransformerKvCache::create(config, sizes, *test::device(1)));
  const auto steps = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 3), rc::gen::inRange(0, 6), rc::gen::inRange(1, 257)));
  for (const auto& [slot, what, rows] : steps) {
    const std::int64_t length = cache.length(slot);
    if (what == 0) {
      RC_ASSERT(cache.rewind(slot, 0).has_value());
    } else if (what == 1) {
      const std::int64_t back = std::max<std::int64_t>(0, length - rows);
      RC_ASSERT(cache.rewind(slot, back).has_value() == cache.can_rewind(slot, back));
    } else if (const bool could = cache.could_reserve(slot, length + rows, nobody);
               cache.reserve(slot, length + rows)) {
      RC_ASSERT(cache.advance(slot, rows).has_value());
    } else {
      RC_ASSERT(!could);
      const auto others = [&](std::int64_t other) { return other != slot; };
      RC_ASSERT(cache.could_reserve(slot, length + rows, others) ==
                (length + rows <= cache.longest()));
      // Alone it fails only for what never fits.
      for (std::int64_t other = 0; other < 3; ++other) {
        if (other != slot) RC_ASSERT(cache.rewind(other, 0).has_value());
      }
      RC_ASSERT(cache.reserve(slot, length + rows) || length + rows > cache.longest());
    }
    for (std::size_t group = 0; group < cache.groups(); ++group) {
      std::set<std::int32_t> given;
      for (std::int64_t s = 0; s < 3; ++s) {
        const PageRange held = cache.pool(group).held(s);
        const bool windowed = group + 1 == cache.groups();  // The last one, or the only one.
        const std::int64_t now = cache.length(s);
        const std::int64_t seen = windowed ? std::max<std::int64_t>(0, now - config.window + 1) : 0;
        if (now > 0) RC_ASSERT(held.first <= seen / 64 && held.end >= (now + 63) / 64);
        for (const std::int32_t page : cache.pool(group).table(s)) {
          RC_ASSERT(page == PagePool::kNone || given.insert(page).second);
        }
      }
    }
  }
}

TEST(KvCache, AFullPoolRefusesOneAndLeavesTheOthers) {
  auto config = test::gpt2_config();
  const KvCacheSizes sizes{.slots = 2, .capacity = 320, .pages = 6};  // Of 10 at most.
  auto cache = must(TransformerKvCache::create(config, sizes, *test::device(1)));
  EXPECT_EQ(cache.longest(), 320);
  ASSERT_TRUE(cache.reserve(0, 256));
  must(cache.advance(0, 256));
  EXPECT_FALSE(cache.could_reserve(1, 129, nobody));
  EXPECT_FALSE(cache.reserve(1, 129));
  EXPECT_TRUE(cache.could_reserve(1, 129, [](std::int64_t slot) { return slot == 0; }));
  EXPECT_TRUE(cache.could_reserve(1, 128, nobody));
  EXPECT_TRUE(cache.reserve(1, 128));
  EXPECT_FALSE(cache.reserve(0, 257));
  EXPECT_EQ(cache.length(0), 256);
  must(cache.rewind(1, 0));
  EXPECT_TRUE(cache.reserve(0, 257));
}

TEST(KvCache, BadSizesAreRefusedBeforeAllocating) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto config = test::llama_config();
  struct Case {
    std::int64_t slots, capacity;
    DType dtype;
    const char* text;
    std::int64_t pages = 0;
  };
  const std::vector<Case> cases = {
      {0, 1, DType::kF32, "for 0 sequences"},
      {65537, 1, DType::kF32, "for 65537 sequences; it must be between 1 and 65536"},
      {1, -1, DType::kF32, "of -1 tokens"},
      {1, 1, DType::kF32, "of -1 pages", -1},
      {1, 321, DType::kF32, "of 321 tokens; it must be between 1 and the model's context of 320"},
      {1, 1, DType::kI8, "a KV cache of i8"}};
  for (const Case& c : cases) {
    const KvCacheSizes sizes{
        .slots = c.slots, .capacity = c.capacity, .pages = c.pages, .dtype = c.dtype};
    test::expect_error(TransformerKvCache::bytes_for(config, sizes), ErrorCode::kInvalidArgument,
                       c.text);
    test::expect_error(TransformerKvCache::create(config, sizes, *device),
                       ErrorCode::kInvalidArgument, c.text);
  }
  auto huge = config;
  huge.context = 1 << 24;
  huge.kv_heads = huge.heads = 4096;
  huge.head_dim = 4096;
  huge.window = 0;
  test::expect_error(TransformerKvCache::bytes_for(huge, {.slots = 65536}),
                     ErrorCode::kInvalidArgument, "more than 2147483647 pages");
  test::expect_error(TransformerKvCache::bytes_for(huge, {.slots = 8000}),
                     ErrorCode::kInvalidArgument, "[2097152000, 4096, 64, 4096]");
  huge.dim = 0;
  EXPECT_FALSE(TransformerKvCache::bytes_for(huge, {.capacity = 1}));
  EXPECT_FALSE(TransformerKvCache::create(huge, {.capacity = 1}, *device));
  EXPECT_EQ(device->faulty_memory().allocations(), 0);
}

// Each layer's cache would fit alone, and Linux would give out all of them, but not let them be
// used.
TEST(KvCache, WhatDoesNotFitIsRefusedBeforeAllocating) {
  auto config = test::llama_config();
  config.window = 0;
  config.context = 1 << 24;
  const std::int64_t layer_bytes = 2 * config.kv_heads * config.head_dim * 4 * config.context;
  const auto device = test::device(1);
  const std::int64_t memory = std::max(memory_left_bytes(), device->info().memory_bytes);
  config.layers = 2 + memory / layer_bytes;
  test::expect_error(TransformerKvCache::create(config, {.slots = 1}, *device),
                     ErrorCode::kOutOfMemory, "--context");
}

TEST(KvCache, OutOfMemoryGivesEverythingBack) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  for (std::int64_t nth = 1; nth <= 4; ++nth) {
    device->faulty_memory().allocation_fuse.arm(nth);
    const auto cache = TransformerKvCache::create(test::llama_config(), {.capacity = 8}, *device);
    test::expect_error(cache, ErrorCode::kOutOfMemory, "injected");
    EXPECT_EQ(device->faulty_memory().live_bytes(), 0);
  }
}

TEST(KvCache, LengthsAdvanceAndRewind) {
  auto cache = must(TransformerKvCache::create(test::gpt2_config(), {.slots = 2, .capacity = 10},
                                               *test::device(1)));
  test::expect_error(cache.advance(0, 4), ErrorCode::kInvalidArgument, "no pages for 4 tokens");
  EXPECT_FALSE(cache.reserve(0, 11));
  ASSERT_TRUE(cache.reserve(0, 10));
  must(cache.advance(0, 4));
  must(cache.advance(0, 6));
  must(cache.advance(1, 0));
  EXPECT_EQ(cache.length(0), 10);
  EXPECT_EQ(cache.length(1), 0);
  const auto refused = [&](std::int64_t slot, std::int64_t tokens) {
    test::expect_error(cache.advance(slot, tokens), ErrorCode::kInvalidArgument, "do not fit slot");
  };
  refused(0, 1);
  refused(0, std::numeric_limits<std::int64_t>::max());
  refused(1, 11);
  refused(1, -1);
  refused(2, 1);
  refused(-1, 1);
  EXPECT_EQ(cache.length(0), 10);
  must(cache.rewind(0, 7));
  EXPECT_EQ(cache.length(0), 7);
  test::expect_error(cache.rewind(0, 8), ErrorCode::kInvalidArgument,
                     "slot 0 of a KV cache holds 7 tokens; it cannot go back to 8");
  test::expect_error(cache.rewind(0, -1), ErrorCode::kInvalidArgument, "back to -1");
  must(cache.rewind(0, 0));
  EXPECT_EQ(cache.length(0), 0);
  test::expect_error(cache.rewind(2, 0), ErrorCode::kInvalidArgument, "no slot 2");
  test::expect_error(cache.rewind(-1, 0), ErrorCode::kInvalidArgument, "no slot -1");
}

}  // namespace
}  // namespace volta
