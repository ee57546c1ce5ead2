// A model: one word to token ids. What a word is, the pre-tokenizer says.
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
  /// Appends the ids of a word that is not empty. kInvalidArgument when the vocabulary lacks
  /// something and has no token for the unknown; kInvalidFile when the budget is spent,
  /// kInterrupted.
  virtual Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                          WorkBudget& budget) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  /// "bpe", "unigram", "wordpiece" or "wordlevel".
  virtual std::string_view kind() const = 0;
};

/// The "model" of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel. `byte_words`: words are
/// the bytes of the text themselves, where the vocabulary has stand-ins (byte_level.h); only where
/// takes_byte_words(). kInvalidFile, kUnsupported.
Result<std::unique_ptr<Model>> parse_model(const JsonRef& json, bool byte_words,
                                           WorkBudget& budget);
/// The "vocab" of a model that is an object of tokens and ids. kInvalidFile.
Result<Vocabulary> read_vocabulary(const JsonRef& json, WorkBudget& budget);
/// Whether a model can take bytes for words: a BPE without affixes.
bool takes_byte_words(const JsonRef& json);

}  // namespace volta::tokenizers
