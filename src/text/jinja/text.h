// Python's string functions for UTF-8. All text is valid UTF-8; indices count code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/budget.h"

namespace volta::jinja {

/// Searches for a string in linear time, for all inputs. The needle is charged to the budget here;
/// the caller charges for the searched text.
class Searcher {
 public:
  Searcher(Budget& budget, std::string_view needle);
  /// The first match at or after `from`; npos when there is none or the budget is spent.
  std::size_t find(std::string_view text, std::size_t from = 0) const;

 private:
  const Budget* budget_;
  std::string_view needle_;
  std::vector<std::size_t> borders_;  // For each prefix of the needle; empty for short needles.
};

/// White space as defined by str.isspace() and \s.
bool is_space(char32_t c);
std::size_t count_characters(std::string_view text);
/// The offset in bytes of character `index`; text.size() when there are fewer characters.
std::size_t character_offset(std::string_view text, std::size_t index);

/// str.strip() for white space.
std::string_view strip(std::string_view text, bool left, bool right);
/// str.strip() for the characters of a set. The set is searched once per removed character.
std::string_view strip(Budget& budget, std::string_view text, bool left, bool right,
                       std::string_view set);
/// str.split() at `separator` (not empty), at most `most` times unless that is negative. The caller
/// charges for the text. The parts and the separator are charged to the budget, and splitting stops
/// when it is spent.
std::vector<std::string_view> split(Budget& budget, std::string_view text,
                                    std::string_view separator, std::int64_t most);
/// str.split() without a separator: the parts between white space.
std::vector<std::string_view> split_words(Budget& budget, std::string_view text, std::int64_t most);
std::vector<std::string_view> splitlines(Budget& budget, std::string_view text);

/// The conversion of letters in a text. kTitle is str.title(), kCapital str.capitalize(), and
/// kWords Jinja's filter title.
enum class Letters : std::uint8_t { kUpper, kLower, kTitle, kCapital, kWords };
/// Converts the letter case as in Python. kUnsupported for the few characters whose conversion has
/// several characters or depends on others (the German sharp s, ligatures, a final sigma).
Result<std::string> change_case(std::string_view text, Letters letters);

/// repr() of a string.
std::string quoted(std::string_view text);

}  // namespace volta::jinja
