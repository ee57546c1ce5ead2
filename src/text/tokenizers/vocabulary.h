// A vocabulary: maps the strings of tokens to their ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "text/tokenizers/hash_table.h"

namespace volta::tokenizers {

/// Ids from this on are refused. No vocabulary is that large, and tables grow with the largest id.
inline constexpr std::int32_t kMaxTokenId = 1 << 22;
/// The longest token. The longest ones in use have 256 bytes (128 spaces as byte characters).
inline constexpr std::size_t kMaxTokenBytes = 4096;
/// The cost of adding a token or a merge to the tables (base/work_budget.h).
inline constexpr std::uint64_t kStepsPerToken = 16;

class Vocabulary {
 public:
  /// `seed` is for tests: see HashTable.
  explicit Vocabulary(std::uint64_t seed = random_seed()) : seed_(seed), by_hash_(seed) {}

  /// If two strings are equal, the later one wins. kInvalidFile for an id that is negative, not
  /// below kMaxTokenId or the id of another string, and for a token longer than kMaxTokenBytes.
  Status add(std::string_view token, std::int64_t id);

  std::optional<std::int32_t> find(std::string_view token) const;
  bool contains(std::int32_t id) const {
    return id >= 0 && id < end_id() && tokens_[static_cast<std::size_t>(id)].used;
  }
  /// Empty if the id does not exist.
  std::string_view token(std::int32_t id) const {
    if (!contains(id)) return {};
    const TokenBytes& bytes = tokens_[static_cast<std::size_t>(id)];
    return std::string_view(text_).substr(bytes.begin, bytes.length);
  }
  /// The number of different strings.
  std::int64_t size() const { return static_cast<std::int64_t>(count_); }
  /// One more than the largest id.
  std::int32_t end_id() const { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  struct TokenBytes {
    std::size_t begin = 0;
    std::uint32_t length = 0;
    bool used = false;
  };
  struct Entry {
    std::size_t begin = 0;
    std::uint32_t length = 0;
    std::int32_t id = -1;
    std::uint32_t next = 0;  // The next entry with the same hash, plus one.
  };
  // The shift avoids the key with all bits set, which HashTable reserves.
  std::uint64_t key_of(std::string_view token) const { return hash64(token, seed_) >> 1; }
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.length);
  }

  std::uint64_t seed_;
  std::string text_;
  std::vector<TokenBytes> tokens_;  // By id.
  std::vector<Entry> entries_;
  HashTable<std::uint32_t> by_hash_;  // The first entry with the hash, plus one.
  std::size_t count_ = 0;
};

}  // namespace volta::tokenizers
