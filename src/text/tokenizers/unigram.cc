#include "text/tokenizers/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {

// The score of an unknown character is lower than the worst piece's by this (SentencePiece's
// kUnkPenalty).
constexpr double kUnknownPenalty = 10;
constexpr std::string_view kUnigramComponent = "model Unigram";

// Without its score, because a word of many megabytes has a step for each byte.
struct Unigram::Step {
  std::int32_t length = 0;  // Of its last piece, in bytes; 0: not reached yet.
  std::int32_t id = -1;
};

Result<std::unique_ptr<Model>> Unigram::parse(const JsonRef& json, WorkBudget& budget) {
  auto model = std::make_unique<Unigram>();
  VOLTA_TRY(model->byte_fallback_, json.get_bool_or("byte_fallback", false));
  VOLTA_TRY(const JsonRef vocab, json.member("vocab"));
  const JsonValue::Array* pieces = vocab.node().if_array();
  if (pieces == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an array", vocab.path()));
  }
  double worst = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const JsonValue::Array* pair = (*pieces)[i].if_array();
    const std::string* piece =
        pair != nullptr && pair->size() == 2 ? pair->front().if_string() : nullptr;
    if (piece == nullptr ||
        (pair->back().if_double() == nullptr && pair->back().if_int() == nullptr)) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}[{}]: expected a piece and its score", vocab.path(), i));
    }
    const double score = pair->back().if_double() != nullptr
                             ? *pair->back().if_double()
                             : static_cast<double>(*pair->back().if_int());
    VOLTA_TRY(budget.spend(1 + piece->size(), kUnigramComponent));
    VOLTA_TRY(model->vocabulary_.add(*piece, static_cast<std::int64_t>(i)));
    VOLTA_TRY(model->pieces_.insert(*piece, static_cast<std::int32_t>(i)));
    model->scores_.push_back(score);
    worst = std::min(worst, score);
  }
  model->unknown_score_ = worst - kUnknownPenalty;
  VOLTA_TRY(const std::int64_t unknown, json.get_int_or("unk_id", -1, -1));
  if (unknown >= model->vocabulary_.end_id()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: unk_id {} is not one of the {} pieces",
                                                     json.path(), unknown, pieces->size()));
  }
  if (unknown >= 0) model->unknown_id_ = static_cast<std::int32_t>(unknown);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto id = model->vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    model->fallback_ids_[byte] = id.value_or(-1);
  }
  return model;
}

Result<std::vector<Unigram::Step>> Unigram::best_steps(std::string_view word,
                                                       WorkBudget& budget) const {
  std::vector<Step> steps(word.size() + 1);
  // The scores of the steps. No piece is longer than kMaxTokenBytes, so a step's score is last read
  // before that of the step `best.size()` bytes further is written.
  std::vector<double> best(std::bit_ceil(std::min(word.size(), kMaxTokenBytes) + 1));
  const std::size_t mask = best.size() - 1;
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    const double total = score + best[begin & mask];
    if (steps[end].length == 0 || total > best[end & mask]) {
      best[end & mask] = total;
      steps[end] = {static_cast<std::int32_t>(end - begin), id};
    }
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = unicode::character_at(word, at).length;
    bool single = false;  // Whether the character itself is a piece.
    std::uint32_t node = Trie::kRoot;
    std::size_t end = at;
    while (end < word.size()) {
      const auto next = pieces_.child(node, word[end]);
      if (!next) break;
      node = *next;
      ++end;
      const std::int32_t id = pieces_.number(node);
      if (id == Trie::kNone) continue;
      offer(at, end, scores_[static_cast<std::size_t>(id)], id);
      single = single || end - at == length;
    }
    VOLTA_TRY(budget.spend(1 + (end - at), kUnigramComponent));
    if (!single) {
      if (!unknown_id_) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is not in the vocabulary, and unk_id is null",
                                word.substr(at, length)));
      }
      offer(at, at + length, unknown_score_, *unknown_id_);
    }
    at += length;
  }
  return steps;
}

Status Unigram::push(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const auto id = vocabulary_.find(piece)) {
    ids.push_back(*id);
    return {};
  }
  const auto has_token = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)] >= 0; };
  if (byte_fallback_ && std::ranges::all_of(piece, has_token)) {
    for (const char c : piece) ids.push_back(fallback_ids_[static_cast<unsigned char>(c)]);
  } else if (unknown_id_) {
    ids.push_back(*unknown_id_);
  }
  return {};
}

Status Unigram::tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                         WorkBudget& budget) const {
  VOLTA_TRY(std::vector<Step> steps, best_steps(word, budget));
  // Back along the best way. Each piece moves from the step at its end to the step at its
  // beginning.
  Step last = steps.back();
  for (std::size_t end = word.size(); end > 0;) {
    const std::size_t begin = end - static_cast<std::size_t>(last.length);
    VOLTA_TRY(budget.spend(1, kUnigramComponent));
    std::swap(last, steps[begin]);
    end = begin;
  }
  for (std::size_t begin = 0; begin < word.size();) {
    const auto end_of = [&](std::size_t at) {
      return at + static_cast<std::size_t>(steps[at].length);
    };
    const bool unknown = steps[begin].id == unknown_id_;
    std::size_t end = end_of(begin);
    // Adjacent unknown pieces are joined.
    while (unknown && end < word.size() && steps[end].id == unknown_id_) end = end_of(end);
    VOLTA_TRY(budget.spend(1 + (end - begin), kUnigramComponent));
    VOLTA_TRY(push(word.substr(begin, end - begin), ids));
    begin = end;
  }
  return {};
}

}  // namespace volta::tokenizers
