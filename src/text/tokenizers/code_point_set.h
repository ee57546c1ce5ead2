// Sets of code points, for the classes of regular expressions.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace volta::unicode {

class CodePointSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CodePointSet() = default;
  /// The ranges may be in any order and may overlap.
  explicit CodePointSet(std::vector<Range> ranges);

  /// Sorted; adjacent ranges are joined.
  std::span<const Range> ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  bool operator==(const CodePointSet&) const = default;

  CodePointSet united(const CodePointSet& other) const;
  CodePointSet intersected(const CodePointSet& other) const;
  /// All other code points, surrogates included.
  CodePointSet complement() const;
  /// Adds the upper, lower and title cases of all its characters (simple case folding).
  CodePointSet with_all_cases() const;

 private:
  std::vector<Range> ranges_;
};

/// The code points of a general category ("Lu"), a group of categories ("L") or a script ("Han").
/// The case of the name does not matter. Nullopt for an unknown name.
std::optional<CodePointSet> property_set(std::string_view name);

/// \s, \w and \d as in Oniguruma (Ruby).
const CodePointSet& space_set();
const CodePointSet& word_set();
const CodePointSet& digit_set();

}  // namespace volta::unicode
