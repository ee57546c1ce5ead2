#include "base/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/memory.h"

namespace volta {
namespace {

// Published by xxHash: XXH3 of nothing, and as `xxhsum -H3` and `xxhsum -H2` print "abc".
TEST(HashTest, EqualsKnownAnswers) {
  EXPECT_EQ(hex(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hex(hash128("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(hash64("abc")), "78af5f94892f3950");
  EXPECT_EQ(hex(hash128("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(HashTest, HexKeepsLeadingZeros) {
  EXPECT_EQ(hex(uint64_t{0xab}), "00000000000000ab");
  EXPECT_EQ(hex(Hash128{.high = 1, .low = 2}), "00000000000000010000000000000002");
}

RC_GTEST_PROP(HashProperties, PiecesHashAsTheWhole, (const std::string& a, const std::string& b)) {
  StreamHasher hasher;
  hasher.update(a);
  RC_ASSERT(hasher.digest64() == hash64(a));
  hasher.update(as_bytes(b));
  RC_ASSERT(hasher.digest64() == hash64(a + b));
  RC_ASSERT(hasher.digest128() == hash128(a + b));
}

TEST(StreamHasherTest, LongInputAndMoves) {
  const std::string text(1'000'000, 'x');
  StreamHasher first;
  first.update(std::string_view(text).substr(0, 333'333));
  StreamHasher second = std::move(first);
  second.update(std::string_view(text).substr(333'333));
  EXPECT_EQ(second.digest64(), hash64(text));
  EXPECT_EQ(second.digest128(), hash128(as_bytes(text)));
  StreamHasher third;
  third = std::move(second);
  EXPECT_EQ(third.digest64(), hash64(as_bytes(text)));
}

}  // namespace
}  // namespace volta
