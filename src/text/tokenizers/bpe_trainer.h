// Trains a byte-level BPE vocabulary, as GPT-2 uses it, on a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"

namespace [[gnu::visibility("default")]] volta {
namespace tokenizers {

struct BpeTrainingOptions {
  std::int64_t vocab_size = 8192;  ///< Includes the special tokens and the 256 bytes.
  std::int64_t min_count = 2;      ///< Pairs that occur less often are not merged.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  Interruption interrupted{};  ///< Called regularly; training ends with kInterrupted if true.
};

/// kInvalidArgument for a special token that is empty, not UTF-8, given twice, or the token of a
/// byte (such as "a").
Status check_special_tokens(std::span<const std::string> special_tokens);

/// Returns a tokenizer.json with at most `vocab_size` tokens: the special tokens, the bytes, and
/// the merges in the order in which they were found. The result depends on the text and the options
/// only. Invalid UTF-8 is read as U+FFFD. kInvalidArgument when the vocabulary cannot hold the
/// bytes, and for what check_special_tokens() refuses.
Result<std::string> train_byte_level_bpe(std::string_view text, const BpeTrainingOptions& options);

}  // namespace tokenizers
}  // namespace volta
