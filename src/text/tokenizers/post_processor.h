// Post-processors: the special tokens that are put around one sequence ([CLS] ... [SEP]). What they
// do to pairs of sequences and to offsets is left out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace volta::tokenizers {

class PostProcessor {
 public:
  /// The "post_processor" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<PostProcessor> parse(const JsonRef& json);

  std::vector<std::int32_t> process(std::vector<std::int32_t> ids) const;

 private:
  static constexpr std::int32_t kSequence = -1;
  Status parse_into(const JsonRef& json, int depth);
  Status add(std::vector<std::int32_t> ids, const JsonRef& json);
  // One list of ids a template, kSequence where the ids go; applied one after the other.
  std::vector<std::vector<std::int32_t>> templates_;
};

}  // namespace volta::tokenizers
