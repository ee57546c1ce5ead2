// Helpers that Attention and the ops on key/value caches share. Private to src/ops.
#pragma once

#include "ops/check.h"

namespace volta::rules {

/// The numbers of elements in a row of q, in a row of k (or v), and in a packed row q | k | v.
struct AttentionWidths {
  std::int64_t q = 0, kv = 0, packed = 0;
};

/// Checks the attributes. The sizes are bounded, so that no width overflows.
Status check_attention_shape(const Check& check, const AttentionShape& shape);
AttentionWidths attention_widths(const AttentionShape& shape);

}  // namespace volta::rules
