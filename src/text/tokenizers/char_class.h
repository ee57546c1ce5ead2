// A class of characters, in a form for matching regular expressions.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizers/code_point_set.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {

/// A set of bytes with which a character may begin.
using ByteSet = std::bitset<256>;

/// The characters of a set of code points. Most classes consist of whole general categories, so
/// that one lookup in the table of properties is enough. All other cases are in a short list of
/// exceptions.
class CharClass {
 public:
  explicit CharClass(const unicode::CodePointSet& set);

  bool contains_ascii(unsigned char c) const { return ascii_[c]; }
  bool contains(char32_t c) const {
    if (c < 128) return ascii_[c];
    const bool in_category = (categories_ >> unicode::properties()[c].category() & 1) != 0;
    if (exceptions_.empty() || c < exceptions_.front().first || c > exceptions_.back().last) {
      return in_category;
    }
    return in_category != is_exception(c);
  }
  /// The first bytes of the UTF-8 of its characters.
  const ByteSet& first_bytes() const { return first_bytes_; }
  bool operator==(const CharClass&) const = default;

 private:
  bool is_exception(char32_t c) const;

  std::array<bool, 128> ascii_{};
  std::uint32_t categories_ = 0;  // A bit for each category that is mostly in the class.
  std::vector<unicode::CodePointSet::Range> exceptions_;  // Beyond ASCII.
  ByteSet first_bytes_;
};

}  // namespace volta::tokenizers
