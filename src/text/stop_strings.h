// Stop strings: where in a growing text the first of them ends. Text that may still become one is
// held back. Knows bytes only, not tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] volta {

/// Pieces of a text go in; what surely lies before any stop string comes out. How the text is cut
/// into pieces makes no difference. The work is linear in the text, whatever the stop strings
/// (Aho & Corasick 1975). With stop strings of whole UTF-8 characters and pieces of whole
/// characters, what comes out has whole characters, too.
class StopStrings {
 public:
  /// Empty strings among `stops` are ignored; without any other, text passes through.
  explicit StopStrings(std::span<const std::string> stops);

  /// What may be shown now. Of several stop strings the one that ends first counts, and of those
  /// that end together the longest. Nothing comes out after a stop.
  std::string push(std::string_view text);
  /// The end of the text: what was held back, unless a stop was found.
  std::string finish();
  /// Whether a stop string was found.
  bool stopped() const { return stopped_; }

 private:
  // A prefix of a stop string. Children are a list; a byte has one child at most.
  struct Node {
    std::uint8_t byte = 0;
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t suffix = 0;     // The longest proper suffix that is a prefix, too.
    std::size_t depth = 0;       // Its length.
    std::size_t stop_bytes = 0;  // The longest stop string that it ends with; 0: none.
  };
  std::int32_t child(std::int32_t node, std::uint8_t byte) const;
  std::int32_t next(std::int32_t node, std::uint8_t byte) const;
  void insert(std::string_view stop);
  void link();

  Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<Node> nodes_;
  std::int32_t state_ = 0;  // The longest prefix that the text so far ends with.
  std::string held_;        // Its bytes.
  bool stopped_ = false;
};

}  // namespace volta
