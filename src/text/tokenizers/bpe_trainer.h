// Learns a byte-level BPE vocabulary (GPT-2's kind) from a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"

namespace [[gnu::visibility("default")]] volta {
namespace tokenizers {

struct BpeTrainingOptions {
  std::int64_t vocab_size = 8192;  ///< With the special tokens and the 256 bytes.
  std::int64_t min_count = 2;      ///< A pair that is seen less often is not merged.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  Interruption interrupted{};  ///< Asked now and then; kInterrupted when it says so.
};

/// A tokenizer.json with at most `vocab_size` tokens: the special ones, the bytes, and merges in
/// the order found. The same text gives the same tokens. Bytes that are not UTF-8 are read as
/// U+FFFD. kInvalidArgument when the vocabulary has no place for the bytes.
Result<std::string> train_byte_level_bpe(std::string_view text, const BpeTrainingOptions& options);

}  // namespace tokenizers
}  // namespace volta
