// Regular expressions on valid UTF-8, by PCRE2: compiled once, matched with limits. Patterns are
// written for Oniguruma (Ruby); what that reads differently is refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;  // PCRE2's compiled pattern.

namespace volta::tokenizers {

/// The pattern with classes of Unicode (\p{L}, \s, \w, \d) written out where the installed PCRE2
/// has other code points in them than Oniguruma has: its Unicode is older, and some differ by
/// design.
std::string write_out_classes(std::string_view pattern);

/// A part of a text, and whether it is what was looked for.
struct Span {
  std::size_t begin;
  std::size_t end;
  bool match = true;
  bool operator==(const Span&) const = default;
};

class Regex {
 public:
  /// `what` names the pattern in messages. kInvalidFile when it is not a pattern, kUnsupported when
  /// it means something else to Oniguruma.
  static Result<Regex> compile(std::string_view pattern, std::string_view what);

  /// The same for a pattern that is PCRE2's own.
  static Result<Regex> compile_exact(std::string_view pattern, std::string_view what);

  /// Appends all matches, from left to right. kUnsupported when one takes more steps than is
  /// reasonable.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace volta::tokenizers
