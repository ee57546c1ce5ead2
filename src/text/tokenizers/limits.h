// What a tokenizer.json may ask for. Files in use stay far below: docs/cli.md has the numbers. What
// a step costs beyond that is counted as it runs (base/work_budget.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace volta::tokenizers {

inline constexpr int kMaxDepth = 8;                   ///< Of sequences in sequences.
inline constexpr std::ptrdiff_t kMaxSteps = 32;       ///< Of one kind.
inline constexpr std::size_t kMaxTemplateParts = 64;  ///< Ids and sequences of one template.
inline constexpr std::size_t kMaxStepText = 1024;     ///< Bytes of what a step writes or looks for.

/// kInvalidFile when the last of `steps`, a list of variants, is one too many of its kind.
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
