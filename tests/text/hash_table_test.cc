#include "text/tokenizers/hash_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {
namespace {

std::uint64_t inverse(std::uint64_t odd) {
  std::uint64_t x = odd;
  for (int i = 0; i < 6; ++i) x *= 2 - odd * x;  // Newton's method modulo 2^64.
  return x;
}

// Keys that one seed, which an attacker would have to know, puts into the same slot.
std::vector<std::uint64_t> colliding_keys(std::uint64_t seed, std::size_t count) {
  const std::uint64_t first = inverse(mix(seed) | 1);
  const std::uint64_t second = inverse(mix(seed + 1) | 1);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t low = 1; keys.size() < count; ++low) {
    const std::uint64_t spread = low * second;  // Its upper half is left after the second product.
    keys.push_back((spread ^ spread >> 32) * first);
  }
  return keys;
}

std::size_t longest_search(std::uint64_t seed, const std::vector<std::uint64_t>& keys) {
  HashTable<int> table(seed);
  for (const std::uint64_t key : keys) table[key] = 1;
  std::size_t longest = 0;
  for (const std::uint64_t key : keys) longest = std::max(longest, table.probes(key));
  return longest;
}

TEST(HashTable, FindsWhatWasPut) {
  HashTable<int> table;
  EXPECT_EQ(table.find(1), nullptr);
  for (std::uint64_t key = 0; key < 1000; ++key) table[key * key] = static_cast<int>(key);
  for (std::uint64_t key = 0; key < 1000; ++key) {
    EXPECT_EQ(*table.find(key * key), static_cast<int>(key));
  }
  EXPECT_EQ(table.find(2), nullptr);
  EXPECT_EQ(table.size(), 1000u);
  std::size_t visited = 0;
  table.for_each([&](std::uint64_t key, int value) {
    EXPECT_EQ(key, static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(value));
    ++visited;
  });
  EXPECT_EQ(visited, 1000u);
}

TEST(HashTable, KeysThatCollideUnderOneSeedDoNotUnderAnother) {
  const auto keys = colliding_keys(7, 4000);
  EXPECT_EQ(longest_search(7, keys), 4000u);
  for (int i = 0; i < 10; ++i) EXPECT_LT(longest_search(random_seed(), keys), 100u);
}

TEST(HashTable, RegularKeysAreSpread) {
  std::vector<std::uint64_t> edges, pairs;
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    edges.push_back(i << 8 | 'a');
    pairs.push_back(i << 32 | (i + 1));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_LT(longest_search(random_seed(), edges), 200u);
    EXPECT_LT(longest_search(random_seed(), pairs), 200u);
  }
}

TEST(HashTable, SeedsDiffer) {
  EXPECT_NE(random_seed(), random_seed());
  EXPECT_EQ(hash64("volta", 1), hash64("volta", 1));
  EXPECT_NE(hash64("volta", 1), hash64("volta", 2));
}

TEST(Vocabulary, DoesNotDependOnItsSeed) {
  Vocabulary one(1), two(2);
  for (Vocabulary* vocabulary : {&one, &two}) {
    for (std::int32_t id = 0; id < 1000; ++id) {
      ASSERT_TRUE(vocabulary->add("t" + std::to_string(id / 2), id));  // Each string twice.
    }
  }
  for (std::int32_t id = 0; id < 1000; ++id) {
    const std::string token = "t" + std::to_string(id / 2);
    EXPECT_EQ(one.find(token), id / 2 * 2 + 1);
    EXPECT_EQ(one.find(token), two.find(token));
    EXPECT_EQ(one.token(id), two.token(id));
  }
}

}  // namespace
}  // namespace volta::tokenizers
