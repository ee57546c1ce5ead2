// Caches the ids of words, because a text repeats a few words often. It has two direct-mapped
// tables, so its size is fixed, and a new word replaces an old one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "text/tokenizers/hash_table.h"

namespace volta::tokenizers {

class WordCache {
 public:
  WordCache() : short_(kShortSlots), long_(kLongSlots) {}

  /// Appends the ids of a cached word; false when it is not cached. The word must not be empty.
  bool find(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (word.size() <= kShortBytes) {
      const ShortKey key = short_key(word);
      const ShortSlot& slot = short_[slot_of(key)];
      if (slot.key.low != key.low || slot.key.high != key.high) return false;
      if (slot.count == 1) {  // The most frequent case.
        ids.push_back(slot.ids[0]);
      } else {
        const auto known = std::span(slot.ids).first(slot.count);
        ids.insert(ids.end(), known.begin(), known.end());
      }
      return true;
    }
    if (word.size() > kLongBytes) return false;
    const LongSlot& slot = long_[hash64(word) % kLongSlots];
    if (slot.word != word) return false;
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.end());
    return true;
  }

  void insert(std::string_view word, std::span<const std::int32_t> ids) {
    if (word.size() <= kShortBytes) {
      if (ids.size() > kShortIds) return;
      const ShortKey key = short_key(word);
      ShortSlot& slot = short_[slot_of(key)];
      slot.key = key;
      slot.count = static_cast<std::uint8_t>(ids.size());
      std::ranges::copy(ids, slot.ids.begin());
    } else if (word.size() <= kLongBytes) {
      LongSlot& slot = long_[hash64(word) % kLongSlots];
      slot.word = word;
      slot.ids.assign(ids.begin(), ids.end());
    }
  }

 private:
  static constexpr std::size_t kShortBytes = 15;
  static constexpr std::size_t kShortIds = 5;
  static constexpr std::size_t kShortSlots = std::size_t{1} << 16;
  static constexpr std::size_t kLongBytes = 128;
  static constexpr std::size_t kLongSlots = std::size_t{1} << 12;

  struct ShortKey {  // The bytes, then zeros, and the length in the last byte. Never 0.
    std::uint64_t low = 0;
    std::uint64_t high = 0;
  };
  struct ShortSlot {
    ShortKey key;
    std::array<std::int32_t, kShortIds> ids{};
    std::uint8_t count = 0;
  };
  struct LongSlot {
    std::string word;
    std::vector<std::int32_t> ids;
  };

  static ShortKey short_key(std::string_view word) {
    std::array<char, 16> bytes{};
    std::memcpy(bytes.data(), word.data(), word.size());
    bytes[15] = static_cast<char>(word.size());
    ShortKey key;
    std::memcpy(&key, bytes.data(), 16);
    return key;
  }
  static std::size_t slot_of(const ShortKey& key) {
    return mix(key.low * 0x9E3779B97F4A7C15U + key.high) % kShortSlots;
  }

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
};

}  // namespace volta::tokenizers
