// Byte-pair encoding (Sennrich et al. 2016): merges the characters or bytes of a word pair by pair,
// in the order in which training found the pairs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/hash_table.h"
#include "text/tokenizers/model.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

/// The options of a BPE model.
struct BpeSettings {
  std::string prefix{};        ///< Before every unit of a word except the first.
  std::string suffix{};        ///< After the last unit of a word.
  std::string unknown{};       ///< The token for unknown characters; if empty, they are skipped.
  bool fuse_unknown = false;   ///< A run of unknown characters becomes one token.
  bool byte_fallback = false;  ///< Unknown characters become tokens of their bytes, "<0x41>".
  bool ignore_merges = false;  ///< A word that is a token is not split.
};
/// Two tokens that are merged.
using BpeMerge = std::pair<std::string_view, std::string_view>;
/// The most merges of a model. Gemma's tokenizer has 514,906.
inline constexpr std::size_t kMaxMerges = std::size_t{1} << 21;

class Bpe final : public Model {
 public:
  /// Makes a model from its parts. The best merges come first; `merges_name` names their list in
  /// messages. kInvalidFile when the vocabulary lacks a token of a merge, or the token that it
  /// makes.
  static Result<std::unique_ptr<Bpe>> create(BpeSettings settings, Vocabulary vocabulary,
                                             std::span<const BpeMerge> merges,
                                             std::string_view merges_name, bool byte_words,
                                             WorkBudget& budget);
  static Result<std::unique_ptr<Model>> parse(const JsonRef& json, bool byte_words,
                                              WorkBudget& budget);

  /// O(n log n) in the length of the word.
  Status tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                  WorkBudget& budget) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string_view kind() const override { return "bpe"; }
  /// The merges, the best first; views of the vocabulary.
  std::vector<BpeMerge> merges() const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::int32_t id = -1;
  };
  // Whether an unknown token for the characters before still has to be written.
  struct Unknown {
    bool pending = false;
  };

  Status add_merge(std::string_view left, std::string_view right, std::uint32_t rank);
  Status prepare_bytes();
  void note_joint(std::string_view left, std::string_view right, std::int32_t left_id,
                  std::int32_t right_id);
  Status merge_all(std::vector<std::int32_t>& symbols, std::size_t begin, WorkBudget& budget) const;
  const Merge* merge(std::int32_t left, std::int32_t right) const {
    return merges_.find(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
  }
  std::optional<std::int32_t> unit_id(std::string_view unit, bool first, bool last) const;
  bool byte_tokens(std::string_view unit, bool first, bool last,
                   std::vector<std::int32_t>& symbols) const;
  Status split(std::string_view word, std::vector<std::int32_t>& symbols, WorkBudget& budget) const;
  void unknown(Unknown& state, std::vector<std::int32_t>& symbols) const;
  void merge_short(std::vector<std::int32_t>& symbols, std::size_t begin) const;
  Status merge_long(std::vector<std::int32_t>& symbols, std::size_t begin,
                    WorkBudget& budget) const;

  Vocabulary vocabulary_;
  std::vector<std::int32_t> character_ids_;  // By code point: tokens of single characters, or -1.
  HashTable<Merge> merges_;                  // By (left << 32 | right).
  std::vector<std::int32_t> merged_ids_;     // The merged token, by the rank of the pair.
  // Pairs of units that are adjacent inside the result of some merge. Between the units of all
  // other pairs a word can be cut, and its parts can be merged separately. Used only if every token
  // consists of its own characters.
  HashTable<bool> joints_;
  bool has_joints_ = false;
  BpeSettings settings_;
  std::optional<std::int32_t> unknown_id_;
  bool byte_words_ = false;
  std::array<std::int32_t, 256> byte_ids_{};    // With byte_words_: the token of each byte, or -1.
  Vocabulary words_;                            // With byte_words_: the tokens as bytes.
  std::array<std::int32_t, 256> fallback_ids_;  // <0x00> to <0xFF>, or -1.
};

}  // namespace volta::tokenizers
