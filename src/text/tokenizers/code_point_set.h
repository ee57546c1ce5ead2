// Sets of code points: what the classes of a regular expression hold.
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
  /// Ranges in any order, which may overlap.
  explicit CodePointSet(std::vector<Range> ranges);

  /// Sorted; there is a gap between each and the next.
  std::span<const Range> ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  bool operator==(const CodePointSet&) const = default;

  CodePointSet united(const CodePointSet& other) const;
  CodePointSet intersected(const CodePointSet& other) const;
  /// All other code points, surrogates included.
  CodePointSet complement() const;
  /// With the upper, lower and title cases of all that it holds (simple case folding).
  CodePointSet with_all_cases() const;

 private:
  std::vector<Range> ranges_;
};

/// The code points of a general category ("Lu"), a group of them ("L") or a script ("Han"),
/// whatever the case of the name; nothing when there is none of this name.
std::optional<CodePointSet> property_set(std::string_view name);

/// \s, \w and \d as Oniguruma (Ruby) has them.
const CodePointSet& space_set();
const CodePointSet& word_set();
const CodePointSet& digit_set();

}  // namespace volta::unicode
