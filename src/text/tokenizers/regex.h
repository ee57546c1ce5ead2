// Regular expressions on valid UTF-8, as tokenizers use them to split text. They have the meaning
// of Oniguruma (Ruby), which Hugging Face tokenizers use; unsupported syntax is refused
// (regex_syntax.h). All matches in a text share a budget.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"

namespace volta::tokenizers {

/// A part of a text, and whether it is a match.
struct Span {
  std::size_t begin;
  std::size_t end;
  bool match = true;
  bool operator==(const Span&) const = default;
};

class Regex {
 public:
  /// `what` names the pattern in messages. kInvalidFile for an invalid pattern, kUnsupported for
  /// syntax that this library does not support.
  static Result<Regex> compile(std::string_view pattern, std::string_view what);

  /// Appends all matches from left to right, as whole characters. kInvalidFile, with the pattern's
  /// name, when the budget is spent or one match takes too much memory; kInterrupted.
  Status find_all(std::string_view text, std::vector<Span>& matches, WorkBudget& budget) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace volta::tokenizers
