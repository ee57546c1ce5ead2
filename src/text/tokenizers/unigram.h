// Unigram (Kudo 2018): splits a word into the pieces with the highest sum of scores.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/model.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

class Unigram final : public Model {
 public:
  static Result<std::unique_ptr<Model>> parse(const JsonRef& json, WorkBudget& budget);

  /// The time is proportional to the length of the word times the length of the longest piece.
  Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                  WorkBudget& budget) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string_view kind() const override { return "unigram"; }

 private:
  struct Step;  // The best way to a place in the word.
  Result<std::vector<Step>> best_steps(std::string_view word, WorkBudget& budget) const;
  Status push(std::string_view piece, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // Logarithms of probabilities.
  Trie pieces_;
  std::optional<std::int32_t> unknown_id_;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  std::array<std::int32_t, 256> fallback_ids_{};  // <0x00> to <0xFF>, or -1.
};

}  // namespace volta::tokenizers
