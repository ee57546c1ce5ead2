// Token ids from a safetensors file: its tensor `input_ids`, checked against a vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// ids [count, length], row-major.
struct TokenRows {
  std::vector<std::int32_t> ids;
  std::int64_t count = 0;
  std::int64_t length = 0;
};

/// Reads `input_ids`, i64 or i32 [count, length], from a safetensors file: at least one row of at
/// least `min_length` tokens, every id in [0, vocab_size). kNotFound without the file or the
/// tensor; kInvalidFile for any other problem, with the row and column of an invalid id.
Result<TokenRows> load_token_rows(const std::string& path, std::int64_t vocab_size,
                                  std::int64_t min_length);

}  // namespace volta
