// Limits on a tokenizer.json. Files in use are far below them; docs/cli.md has the numbers. The
// running cost of a step is counted separately (base/work_budget.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace volta::tokenizers {

inline constexpr int kMaxDepth = 8;                   ///< Of nested sequences.
inline constexpr std::ptrdiff_t kMaxSteps = 32;       ///< Of the same kind.
inline constexpr std::size_t kMaxTemplateParts = 64;  ///< Ids and sequences in one template.
inline constexpr std::size_t kMaxStepText = 1024;     ///< Bytes that a step writes or searches for.

/// kInvalidFile when the last of `steps`, a list of variants, exceeds the limit for its kind.
template <typename Step>
Status check_step_count(const std::vector<Step>& steps, const JsonRef& json) {
  const auto same = [&](const Step& step) { return step.index() == steps.back().index(); };
  if (std::ranges::count_if(steps, same) <= kMaxSteps) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: more than {} steps of this kind", json.path(), kMaxSteps));
}

/// kInvalidFile when a text of a step is longer than kMaxStepText; `key` names it.
inline Status check_step_text(std::string_view text, const JsonRef& json, std::string_view key) {
  if (text.size() <= kMaxStepText) return {};
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} has {} bytes; at most {} are allowed",
                                                   json.path(), key, text.size(), kMaxStepText));
}

}  // namespace volta::tokenizers
