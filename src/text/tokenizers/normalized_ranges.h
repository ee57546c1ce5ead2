// Finds the places of quoted bytes in a normalized text. Normalizers do not report which character
// came from which. But the normalized form of a part is usually a part of the normalized whole.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/quoted_text.h"
#include "text/tokenizers/normalizer.h"

namespace volta::tokenizers {

/// The ranges of `normalized`, the normalizer's result for `text`, that come from the `quoted`
/// ranges of `text` (in order). The place of a border is found by normalizing the text between an
/// earlier border and this one. If the result differs from `normalized` there (for example because
/// an accent in a message has combined with the character before it), the place is unknown. Then a
/// range begins at the first difference, or extends to the next border with a known place, so that
/// quoted text never counts as the template's. The time is linear in the text for any number of
/// ranges: it costs at most as much of `budget` as normalizing the text eight times.
Result<std::vector<TextRange>> normalized_ranges(const Normalizer& normalizer,
                                                 std::string_view text, std::string_view normalized,
                                                 std::span<const TextRange> quoted,
                                                 WorkBudget& budget);

}  // namespace volta::tokenizers
