// A hash table from 64-bit keys to small values for the inner loops of the tokenizers: open
// addressing, no removal. Knows no tokens. Keys come from untrusted files, so every table has a
// random hash function; no file can be made to cause collisions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace volta::tokenizers {

/// A finalizer in which every bit of the key affects every bit of the result (the last step of
/// MurmurHash3).
inline std::uint64_t mix(std::uint64_t key) {
  key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDU;
  key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53U;
  return key ^ key >> 33;
}

/// The key with all bits set is reserved.
template <typename Value>
class HashTable {
 public:
  /// `seed` is for tests. It affects the speed of lookups, but not their results.
  explicit HashTable(std::uint64_t seed = random_seed())
      : multipliers_{mix(seed) | 1, mix(seed + 1) | 1} {}

  const Value* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = home(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return &slot.value;
      if (slot.key == kEmpty) return nullptr;
    }
  }
  /// The value of the key; it is created if it is missing. Invalidates references to other values.
  Value& operator[](std::uint64_t key) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = place(key);
    if (slot.key == kEmpty) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }
  std::size_t size() const { return size_; }
  /// Calls visit(key, value) for every key, in no particular order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) visit(slot.key, slot.value);
    }
  }

  /// The number of slots that a lookup of the key visits, for tests.
  std::size_t probes(std::uint64_t key) const {
    std::size_t count = 1;
    for (std::size_t i = home(key); slots_[i].key != key && slots_[i].key != kEmpty; ++count) {
      i = (i + 1) & mask_;
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  // Multiply-shift hashing (Dietzfelbinger et al. 1997), after a product that spreads the bits of
  // the keys. For all keys, two of them share a slot only as often as random keys would.
  std::size_t home(std::uint64_t key) const {
    key *= multipliers_.first;
    return static_cast<std::size_t>(((key ^ key >> 32) * multipliers_.second) >> shift_);
  }
  Slot& place(std::uint64_t key) {
    std::size_t i = home(key);
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    shift_ = 64 - std::countr_zero(slots_.size());
    for (Slot& slot : old) {
      if (slot.key != kEmpty) place(slot.key) = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  std::pair<std::uint64_t, std::uint64_t> multipliers_;  // Odd.
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::size_t size_ = 0;
};

}  // namespace volta::tokenizers
