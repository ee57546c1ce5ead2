#include "text/tokenizers/regex.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "text/tokenizers/regex_matcher.h"
#include "text/tokenizers/regex_program.h"
#include "text/tokenizers/regex_syntax.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// The name of the pattern for messages, shortened if the pattern is long.
std::string named(std::string_view pattern, std::string_view what) {
  constexpr std::size_t kMost = 200;
  if (pattern.size() <= kMost) return fmt::format("{}: the pattern '{}'", what, pattern);
  return fmt::format("{}: the pattern '{}...'", what,
                     pattern.substr(0, unicode::character_before(pattern, kMost)));
}

}  // namespace

struct Regex::Compiled {
  RegexProgram program;
  std::string name;  // For messages.
};

Result<Regex> Regex::compile(std::string_view pattern, std::string_view what) {
  Compiled compiled{.program = {}, .name = named(pattern, what)};
  auto tree = parse_regex(pattern);
  if (!tree) return std::unexpected(std::move(tree).error().with_context(compiled.name));
  auto program = compile_regex(*std::move(tree));
  if (!program) return std::unexpected(std::move(program).error().with_context(compiled.name));
  compiled.program = *std::move(program);
  Regex regex;
  regex.compiled_ = std::make_shared<const Compiled>(std::move(compiled));
  return regex;
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches,
                       WorkBudget& budget) const {
  using Outcome = RegexMatcher::Outcome;
  constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  RegexMatcher matcher(compiled_->program, text, budget);
  std::size_t last_end = kNowhere;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t begin = matcher.find_candidate(at);
    const Outcome outcome = matcher.match_at(begin);
    if (outcome == Outcome::kGaveUp) {
      VOLTA_TRY(budget.check(compiled_->name));
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{} takes too much memory on this text; the file is damaged, or made "
                              "to do harm",
                              compiled_->name));
    }
    if (outcome == Outcome::kNone) {
      at = matcher.next_begin(begin);
      continue;
    }
    // An empty match directly after another match does not count.
    const bool is_empty = matcher.end() == begin;
    if (!is_empty || begin != last_end) matches.push_back({begin, matcher.end()});
    last_end = matcher.end();
    at = is_empty ? begin + unicode::character_at(text, begin).length : last_end;
  }
  return matcher.charge() ? Status() : budget.check(compiled_->name);
}

}  // namespace volta::tokenizers
