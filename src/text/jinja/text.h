// Python's string functions on UTF-8. Text is valid UTF-8 everywhere; indices count code points.
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

/// Finds one string in others in linear time, whatever they are. The budget pays for the needle,
/// the caller for what is searched.
class Searcher {
 public:
  Searcher(Budget& budget, std::string_view needle);
  /// The first place at or after `from`; npos when there is none, or the budget is spent.
  std::size_t find(std::string_view text, std::size_t from = 0) const;

 private:
  const Budget* budget_;
  std::string_view needle_;
  std::vector<std::size_t> borders_;  // Of the needle's beginnings; empty for short needles.
};

/// What str.isspace() and \s say.
bool is_space(char32_t c);
std::size_t count_characters(std::string_view text);
/// The byte at which character `index` begins; text.size() when there are not so many.
std::size_t character_offset(std::string_view text, std::size_t index);

/// str.strip() of white space.
std::string_view strip(std::string_view text, bool left, bool right);
/// str.strip() of the characters of a set, which is read once for each character that goes.
std::string_view strip(Budget& budget, std::string_view text, bool left, bool right,
                       std::string_view set);
/// str.split() at `separator` (not empty), at most `most` times unless it is negative. The caller
/// pays for the text; parts and separators are paid by the budget, and end with it.
std::vector<std::string_view> split(Budget& budget, std::string_view text,
                                    std::string_view separator, std::int64_t most);
std::vector<std::string_view> splitlines(Budget& budget, std::string_view text);

/// What becomes of the letters of a text. kTitle is str.title().
enum class Letters : std::uint8_t { kUpper, kLower, kTitle };
/// Letter case as Python has it. kUnsupported for the few characters whose case is longer than one
/// character or depends on others (the German sharp s, ligatures, a final sigma).
Result<std::string> change_case(std::string_view text, Letters letters);

/// repr() of a string.
std::string quoted(std::string_view text);

}  // namespace volta::jinja
