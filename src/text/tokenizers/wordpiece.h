// WordPiece (BERT) repeatedly takes the longest piece at the front of the word. WordLevel has whole
// words only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/model.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

class WordPiece final : public Model {
 public:
  static Result<std::unique_ptr<Model>> parse(const JsonRef& json, WorkBudget& budget);

  Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                  WorkBudget& budget) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string_view kind() const override { return "wordpiece"; }

 private:
  Status push_unknown(std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  Trie pieces_;
  std::uint32_t continuation_ = Trie::kRoot;  // The prefix's node in the trie.
  bool can_continue_ = true;                  // Whether any piece has the prefix.
  std::string unknown_;
  std::int64_t max_characters_ = 100;  // Longer words are unknown.
};

class WordLevel final : public Model {
 public:
  static Result<std::unique_ptr<Model>> parse(const JsonRef& json, WorkBudget& budget);

  Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                  WorkBudget& budget) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string_view kind() const override { return "wordlevel"; }

 private:
  Vocabulary vocabulary_;
  std::string unknown_;
};

}  // namespace volta::tokenizers
