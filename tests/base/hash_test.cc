#include "base/hash.h"

#include <gtest/gtest.h>

#include "base/memory.h"

namespace volta {
namespace {

// Published by xxHash: XXH3 of nothing, and as `xxhsum -H3` prints "abc".
TEST(HashTest, EqualsKnownAnswers) {
  EXPECT_EQ(hex(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hex(hash64("abc")), "78af5f94892f3950");
  EXPECT_EQ(hash64(as_bytes("abc")), hash64("abc"));
}

TEST(HashTest, HexKeepsLeadingZeros) { EXPECT_EQ(hex(uint64_t{0xab}), "00000000000000ab"); }

}  // namespace
}  // namespace volta
