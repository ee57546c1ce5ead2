// Patterns and texts from a grammar: the first byte says whether there is hostile syntax among it.
// Inputs that begin with 0xFF are a pattern and a text as they are, with a zero byte between them.
// Matches are whole characters, in order, and the budget bounds the time of all of them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../support/regex_cases.h"
#include "base/text.h"
#include "base/work_budget.h"
#include "text/tokenizers/regex.h"

namespace {

void check(std::string_view pattern, std::string_view text) {
  const auto regex = volta::tokenizers::Regex::compile(pattern, "fuzz");
  if (!regex || volta::find_invalid_utf8(text)) return;
  // A fraction of a second with sanitizers; what is not counted takes more than the 10 of one
  // input.
  volta::WorkBudget budget({.steps = 2'000'000, .bytes = 0});
  std::vector<volta::tokenizers::Span> matches;
  const auto found = regex->find_all(text, matches, budget);
  if (!found && found.error().code() != volta::ErrorCode::kInvalidFile) __builtin_trap();
  if (!volta::test::are_matches(text, matches)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> bytes(data, size);
  if (bytes[0] == 0xFF) {
    const std::string all(bytes.begin() + 1, bytes.end());
    const std::size_t middle = all.find('\0');
    const std::string_view view = all;
    const std::string_view text = middle == std::string::npos ? "" : view.substr(middle + 1);
    check(view.substr(0, middle), text);
    return 0;
  }
  volta::test::RegexGrammar grammar(bytes.subspan(1), bytes[0] % 2 == 1);
  const std::string pattern = grammar.pattern();
  std::string text = grammar.text();
  check(pattern, text);
  // Again on more of the same: what adds up over a text takes long here.
  const std::string once = text;
  while (!once.empty() && text.size() < 5'000) text += once;
  check(pattern, text);
  return 0;
}
