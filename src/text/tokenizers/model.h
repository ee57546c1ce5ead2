// Models convert one word to token ids. The pre-tokenizer determines the words.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a word, which must not be empty. kInvalidArgument when the vocabulary lacks
  /// a part of the word and has no unknown token; kInvalidFile when the budget is spent,
  /// kInterrupted.
  virtual Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                          WorkBudget& budget) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  /// "bpe", "unigram", "wordpiece" or "wordlevel".
  virtual std::string_view kind() const = 0;
};

/// Parses the "model" of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel. With `byte_words`,
/// words are the bytes of the text although the vocabulary is written in byte characters
/// (byte_level.h); this requires takes_byte_words(). kInvalidFile, kUnsupported.
Result<std::unique_ptr<Model>> parse_model(const JsonRef& json, bool byte_words,
                                           WorkBudget& budget);
/// Parses a model's "vocab", an object that maps tokens to ids. kInvalidFile.
Result<Vocabulary> read_vocabulary(const JsonRef& json, WorkBudget& budget);
/// Whether a model accepts bytes as words: it is a BPE without affixes.
bool takes_byte_words(const JsonRef& json);

}  // namespace volta::tokenizers
