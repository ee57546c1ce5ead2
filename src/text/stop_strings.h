// Finds the first stop string in a growing text, and tells how much of the text is certainly before
// it. Keeps no text. Works on bytes, not on tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] volta {

/// Reads a text in pieces and tells how many of its bytes are certainly before any stop string. The
/// result does not depend on the division into pieces. The time is linear in the text, for any stop
/// strings (Aho & Corasick 1975). If the stop strings and the pieces consist of whole UTF-8
/// characters, so do these bytes.
class StopStrings {
 public:
  /// Empty strings in `stops` are ignored. Without any other, nothing is held back.
  explicit StopStrings(std::span<const std::string> stops);

  /// Reads the next piece of the text. Returns how many bytes, from the beginning of the whole
  /// text, can be shown now. Of several stop strings, the one that ends first counts; if several
  /// end at the same place, the longest one. After a stop the number stays.
  std::size_t push(std::string_view piece);
  /// What can be shown when the text has ended: its length, or, if a stop string was found, the
  /// length before that.
  std::size_t finish() const;
  /// Whether a stop string was found.
  bool stopped() const { return stopped_; }

 private:
  // A prefix of a stop string. Its children form a list, with at most one child per byte.
  struct Node {
    std::uint8_t byte = 0;
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t suffix = 0;     // The longest proper suffix that is also a prefix.
    std::size_t depth = 0;       // The length of the prefix.
    std::size_t stop_bytes = 0;  // The length of the longest stop string at its end; 0: none.
  };
  std::int32_t child(std::int32_t node, std::uint8_t byte) const;
  std::int32_t next(std::int32_t node, std::uint8_t byte) const;
  void insert(std::string_view stop);
  void link();

  Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<Node> nodes_;
  std::int32_t state_ = 0;  // The longest prefix at the end of the text so far.
  std::size_t length_ = 0;  // Of the text so far; after a stop, of the text before it.
  bool stopped_ = false;
};

}  // namespace volta
