// A class of characters, in the form that a regular expression is matched with.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizers/code_point_set.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {

/// The 256 bytes that a character may begin with.
using ByteSet = std::bitset<256>;

/// Holds what a set of code points holds. Most classes are made of whole general categories, so
/// that one look at the table of properties tells; what is not is a short list of exceptions.
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
  /// What the UTF-8 of its characters begins with.
  const ByteSet& first_bytes() const { return first_bytes_; }
  bool operator==(const CharClass&) const = default;

 private:
  bool is_exception(char32_t c) const;

  std::array<bool, 128> ascii_{};
  std::uint32_t categories_ = 0;  // A bit for each category that most of is in the class.
  std::vector<unicode::CodePointSet::Range> exceptions_;  // Beyond ASCII.
  ByteSet first_bytes_;
};

}  // namespace volta::tokenizers
