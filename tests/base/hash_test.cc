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

TEST(HashTest, PiecesGiveTheSame) {
  const std::string text((size_t{70} << 20) + 3, 'x');
  std::vector<int64_t> told;
  const auto go_on = [&](int64_t done) {
    told.push_back(done);
    return true;
  };
  EXPECT_EQ(hash64(as_bytes(text), go_on), hash64(text));
  EXPECT_EQ(told, (std::vector<int64_t>{0, 32 << 20, 64 << 20}));
  EXPECT_EQ(hash64(as_bytes(text), [](int64_t done) { return done == 0; }), std::nullopt);
  EXPECT_EQ(hash64(as_bytes(""), [](int64_t) { return false; }), hash64(""));
}

TEST(HashTest, HexKeepsLeadingZeros) { EXPECT_EQ(hex(uint64_t{0xab}), "00000000000000ab"); }

}  // namespace
}  // namespace volta
