// What Attention and the ops on key/value caches share. Private to src/ops.
#pragma once

#include "ops/check.h"

namespace volta::rules {

/// The widths of one row: q, k (and v), and q | k | v.
struct AttentionWidths {
  std::int64_t q = 0, kv = 0, packed = 0;
};

/// Checks the attributes; sizes are bounded so that no width overflows.
Status check_attention_shape(const Check& check, const AttentionShape& shape);
AttentionWidths attention_widths(const AttentionShape& shape);

}  // namespace volta::rules
