// Finds the first stop string in a growing text. Holds back text that may still become one. Works
// on bytes, not on tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] volta {

/// Takes pieces of a text and returns the text that is certainly before any stop string. The result
/// does not depend on the division into pieces. The time is linear in the text, for any stop
/// strings (Aho & Corasick 1975). If the stop strings and the pieces consist of whole UTF-8
/// characters, so does the output.
class StopStrings {
 public:
  /// Empty strings in `stops` are ignored. Without any other, the output is the input.
  explicit StopStrings(std::span<const std::string> stops);

  /// Adds text, and returns the text that can be shown now. Of several stop strings, the one that
  /// ends first counts; if several end at the same place, the longest one. After a stop the output
  /// is empty.
  std::string push(std::string_view text);
  /// Ends the text. Returns the text that was held back, unless a stop string was found.
  std::string finish();
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
  std::string held_;        // The bytes of this prefix.
  bool stopped_ = false;
};

}  // namespace volta
