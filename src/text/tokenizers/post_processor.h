// Post-processors add the special tokens around one sequence ([CLS] ... [SEP]). Pairs of sequences
// and offsets are not supported.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace volta::tokenizers {

class PostProcessor {
 public:
  /// The "post_processor" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<PostProcessor> parse(const JsonRef& json);
  /// Puts these tokens, where there are any, before and after a sequence.
  static PostProcessor around(std::optional<std::int32_t> before,
                              std::optional<std::int32_t> after);

  std::vector<std::int32_t> process(std::vector<std::int32_t> ids) const;

 private:
  static constexpr std::int32_t kSequence = -1;
  Status parse_into(const JsonRef& json, int depth);
  Status add(std::vector<std::int32_t> ids, const JsonRef& json);
  // One list of ids per template, with kSequence in place of the sequence; applied in order.
  std::vector<std::vector<std::int32_t>> templates_;
};

}  // namespace volta::tokenizers
