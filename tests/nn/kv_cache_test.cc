// KV caches: sizes, lengths and their limits.
#include "nn/kv_cache.h"

#include <limits>

#include "nn/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::must;

TEST(KvCache, ShapesBytesAndBindings) {
  const auto device = test::cpu(1);
  const auto config = test::llama_config();  // 2 layers, 2 kv heads of 8.
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto cache = must(TransformerKvCache::create(config, 3, 20, dtype, *device));
    EXPECT_EQ(cache.slots(), 3);
    EXPECT_EQ(cache.capacity(), 20);
    ASSERT_EQ(cache.layers().size(), 2u);
    EXPECT_EQ(cache.layers()[1].k.spec(), (TensorSpec{dtype, Shape(3, 2, 1, 8, 64)}));
    EXPECT_EQ(cache.layers()[1].v.spec(), (TensorSpec{dtype, Shape(3, 2, 64, 8)}));
    EXPECT_EQ(cache.bytes(), 2 * 2 * 3 * 2 * 64 * 8 * dtype_size(dtype));
    EXPECT_EQ(cache.bytes(), must(TransformerKvCache::bytes_for(config, 3, 20, dtype)));
    const auto bind = [&](const std::string& name) {
      return cache.bind({.name = name, .kind = ValueKind::kState, .spec = {}, .constant = {}});
    };
    EXPECT_EQ(must(bind("cache.0.k")).buffer(), cache.layers()[0].k.buffer());
    EXPECT_EQ(must(bind("cache.1.v")).buffer(), cache.layers()[1].v.buffer());
    test::expect_error(bind("cache.2.k"), ErrorCode::kNotFound, "'cache.2.k'");
  }
}

// What a window needs does not grow with the sequence.
TEST(KvCache, WindowsKeepRings) {
  auto config = test::llama_config();
  config.context = 100'000;
  config.layers = 3;
  config.window = 70;  // 69 and a chunk of 256, in blocks of 64: 384.
  config.full_layers = {1};
  const auto layout = [&](std::int64_t layer, std::int64_t capacity) {
    const CacheLayout one = cache_layout(config, layer, capacity);
    return std::pair(one.rows, one.ring);
  };
  EXPECT_EQ(layout(0, 100'000), std::pair(std::int64_t{384}, true));
  EXPECT_EQ(layout(1, 100'000), std::pair(std::int64_t{100'032}, false));
  EXPECT_EQ(layout(2, 385), std::pair(std::int64_t{384}, true));
  EXPECT_EQ(layout(2, 384), std::pair(std::int64_t{384}, false));
  EXPECT_EQ(layout(2, 20), std::pair(std::int64_t{64}, false));
  const auto bytes = [&](std::int64_t capacity) {
    return must(TransformerKvCache::bytes_for(config, 2, capacity, DType::kF32));
  };
  constexpr std::int64_t kRow = 2 * 2 * 2 * 8 * 4;  // k and v, slots, heads, head_dim, f32.
  EXPECT_EQ(bytes(100'000), kRow * (384 + 100'032 + 384));
  const auto cache = must(TransformerKvCache::create(config, 2, 1000, DType::kF32, *test::cpu(1)));
  EXPECT_EQ(cache.bytes(), bytes(1000));
  EXPECT_EQ(cache.capacity(), 1000);
  EXPECT_EQ(cache.layers()[0].k.spec().shape, Shape(2, 2, 6, 8, 64));
  EXPECT_EQ(cache.layers()[1].v.spec().shape, Shape(2, 2, 1024, 8));
  config.window = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(layout(0, 1000), std::pair(std::int64_t{1024}, false));
}

TEST(KvCache, ARingGoesBackOnlyToWhatItHolds) {
  auto config = test::llama_config();
  config.context = 2000;
  auto cache = must(TransformerKvCache::create(config, 1, 2000, DType::kF32, *test::cpu(1)));
  ASSERT_TRUE(cache_layout(config, 0, 2000).ring);
  must(cache.advance(0, 383));
  EXPECT_TRUE(cache.can_rewind(0, 1));  // Nothing was overwritten yet.
  must(cache.advance(0, 617));
  EXPECT_TRUE(cache.can_rewind(0, 1000));
  // Rows 617 to 999 are left for sure; a row at 686 sees 617 and later ones.
  EXPECT_TRUE(cache.can_rewind(0, 686));
  EXPECT_FALSE(cache.can_rewind(0, 685));
  EXPECT_FALSE(cache.can_rewind(0, 1001));
  test::expect_error(cache.rewind(0, 600), ErrorCode::kInvalidArgument, "cannot go back to 600");
  // Going back does not bring back what was overwritten.
  must(cache.rewind(0, 700));
  EXPECT_FALSE(cache.can_rewind(0, 685));
  EXPECT_TRUE(cache.can_rewind(0, 686));
  must(cache.rewind(0, 0));
}

TEST(KvCache, BadSizesAreRefusedBeforeAllocating) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto config = test::llama_config();
  struct Case {
    std::int64_t slots, capacity;
    DType dtype;
    const char* text;
  };
  const std::vector<Case> cases = {
      {0, 1, DType::kF32, "for 0 sequences"},
      {65537, 1, DType::kF32, "for 65537 sequences; it must be between 1 and 65536"},
      {1, 0, DType::kF32, "of 0 tokens"},
      {1, 321, DType::kF32, "of 321 tokens; it must be between 1 and the model's context of 320"},
      {1, 1, DType::kI8, "a KV cache of i8"}};
  for (const Case& c : cases) {
    test::expect_error(TransformerKvCache::bytes_for(config, c.slots, c.capacity, c.dtype),
                       ErrorCode::kInvalidArgument, c.text);
    test::expect_error(TransformerKvCache::create(config, c.slots, c.capacity, c.dtype, *device),
                       ErrorCode::kInvalidArgument, c.text);
  }
  auto huge = config;
  huge.context = 1 << 24;
  huge.kv_heads = huge.heads = 4096;
  huge.head_dim = 4096;
  huge.window = 0;
  test::expect_error(TransformerKvCache::bytes_for(huge, 65536, 1 << 24, DType::kF32),
                     ErrorCode::kInvalidArgument, "[65536, 4096, 16777216, 4096]");
  huge.dim = 0;
  EXPECT_FALSE(TransformerKvCache::bytes_for(huge, 1, 1, DType::kF32));
  EXPECT_FALSE(TransformerKvCache::create(huge, 1, 1, DType::kF32, *device));
  EXPECT_EQ(device->faulty_memory().allocations(), 0);
}

TEST(KvCache, OutOfMemoryGivesEverythingBack) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  for (std::int64_t nth = 1; nth <= 4; ++nth) {
    device->faulty_memory().allocation_fuse.arm(nth);
    const auto cache = TransformerKvCache::create(test::llama_config(), 1, 8, DType::kF32, *device);
    test::expect_error(cache, ErrorCode::kOutOfMemory, "injected");
    EXPECT_EQ(device->faulty_memory().live_bytes(), 0);
  }
}

TEST(KvCache, LengthsAdvanceAndRewind) {
  auto cache =
      must(TransformerKvCache::create(test::gpt2_config(), 2, 10, DType::kF32, *test::cpu(1)));
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
