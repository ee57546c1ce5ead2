// A set of strings with a number each, searched byte by byte. It finds the longest string, or all
// strings, at a place in a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizers/hash_table.h"

namespace volta::tokenizers {

class Trie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::int32_t kNone = -1;
  /// 0.3 GB of tables. The largest vocabularies in use need a fifth of that.
  static constexpr std::size_t kMaxNodes = std::size_t{1} << 23;

  /// Adds a string, or replaces the number of an equal one. Numbers are 0 or more. kInvalidFile
  /// when the strings have too many different prefixes.
  Status insert(std::string_view string, std::int32_t number) {
    if (numbers_.size() + string.size() > kMaxNodes) {
      return fail(ErrorCode::kInvalidFile,
                  "the tokens are too many and too long to look for in a text");
    }
    std::uint32_t node = kRoot;
    for (const char c : string) {
      const std::uint64_t key = edge(node, c);
      const std::uint32_t* known = edges_.find(key);
      if (known == nullptr) {
        edges_[key] = static_cast<std::uint32_t>(numbers_.size());
        node = static_cast<std::uint32_t>(numbers_.size());
        numbers_.push_back(kNone);
      } else {
        node = *known;
      }
    }
    numbers_[node] = number;
    if (!string.empty()) starts_[static_cast<unsigned char>(string.front())] = true;
    return {};
  }
  bool empty() const { return numbers_.size() == 1 && numbers_.front() == kNone; }
  /// Whether any string begins with this byte.
  bool starts_with(char c) const { return starts_[static_cast<unsigned char>(c)]; }

  /// The node after one more byte; nullopt when no string continues with it.
  std::optional<std::uint32_t> child(std::uint32_t node, char c) const {
    const std::uint32_t* next = edges_.find(edge(node, c));
    return next == nullptr ? std::nullopt : std::optional(*next);
  }
  /// The number of the string that ends at a node, or kNone.
  std::int32_t number(std::uint32_t node) const { return numbers_[node]; }

  struct Match {
    std::size_t length = 0;
    std::int32_t number = kNone;
    std::size_t looked_at = 0;  ///< Bytes of the text.
  };
  /// The longest string at the front of `text`, starting from a node; kNone when there is none.
  Match longest(std::string_view text, std::uint32_t node = kRoot) const {
    Match best;
    std::size_t i = 0;
    while (i < text.size()) {
      const auto next = child(node, text[i++]);
      if (!next) break;
      node = *next;
      if (numbers_[node] != kNone) best = {i, numbers_[node]};
    }
    best.looked_at = i;
    return best;
  }

 private:
  static std::uint64_t edge(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }

  HashTable<std::uint32_t> edges_;
  std::vector<std::int32_t> numbers_{kNone};
  std::array<bool, 256> starts_{};
};

}  // namespace volta::tokenizers
