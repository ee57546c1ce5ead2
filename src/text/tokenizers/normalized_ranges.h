// Where quoted bytes lie in a normalized text. Normalizers do not tell which character they made of
// which; but what they make of a part is mostly a part of what they make of the whole.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/quoted_text.h"
#include "text/tokenizers/normalizer.h"

namespace volta::tokenizers {

/// The ranges of `normalized`, which the normalizer has made of `text`, that come from its `quoted`
/// ranges (in order). Each border is found by normalizing the text between it and one before it;
/// where that is not what `normalized` holds there (an accent of a message's that has joined the
/// character before it), the range begins at the first difference, or goes on to the next border
/// that is found, so that nothing that is quoted is taken for the template's. Takes time in
/// proportion to the text, however many ranges there are: it costs at most as much as normalizing
/// the text eight times, out of `budget`.
Result<std::vector<TextRange>> normalized_ranges(const Normalizer& normalizer,
                                                 std::string_view text, std::string_view normalized,
                                                 std::span<const TextRange> quoted,
                                                 WorkBudget& budget);

}  // namespace volta::tokenizers
