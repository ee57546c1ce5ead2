#include "text/tokenizers/wordpiece.h"

#include <fmt/format.h>

#include <algorithm>

namespace volta::tokenizers {
namespace {

std::unexpected<Error> no_unknown_token(std::string_view word, std::string_view unknown) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not in the vocabulary, and neither is the token for the "
                          "unknown, '{}'",
                          word, unknown));
}

}  // namespace

Result<std::unique_ptr<Model>> WordPiece::parse(const JsonRef& json, WorkBudget& budget) {
  auto model = std::make_unique<WordPiece>();
  VOLTA_TRY(model->vocabulary_, read_vocabulary(json, budget));
  VOLTA_TRY(model->unknown_, json.get_string_or("unk_token", "[UNK]"));
  VOLTA_TRY(model->max_characters_, json.get_int_or("max_input_chars_per_word", 100, 0));
  VOLTA_TRY(const std::string prefix, json.get_string_or("continuing_subword_prefix", "##"));
  for (std::int32_t id = 0; id < model->vocabulary_.end_id(); ++id) {
    const std::string_view token = model->vocabulary_.token(id);
    VOLTA_TRY(budget.spend(1 + token.size(), "model WordPiece"));
    if (model->vocabulary_.find(token) == id) VOLTA_TRY(model->pieces_.insert(token, id));
  }
  for (const char c : prefix) {
    const auto next = model->pieces_.child(model->continuation_, c);
    model->can_continue_ = next.has_value();
    if (!next) break;
    model->continuation_ = *next;
  }
  return model;
}

Status WordPiece::push_unknown(std::vector<std::int32_t>& ids) const {
  const auto id = vocabulary_.find(unknown_);
  if (!id) return no_unknown_token("a word", unknown_);
  ids.push_back(*id);
  return {};
}

Status WordPiece::tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                           WorkBudget& budget) const {
  VOLTA_TRY(budget.spend(1 + word.size() / 16, "model WordPiece"));
  const auto characters = std::ranges::count_if(
      word, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  if (characters > max_characters_) return push_unknown(ids);
  const std::size_t before = ids.size();
  for (std::string_view rest = word; !rest.empty();) {
    const bool first = rest.size() == word.size();
    Trie::Match piece;
    if (first || can_continue_) {
      piece = pieces_.longest(rest, first ? Trie::kRoot : continuation_);
      VOLTA_TRY(budget.spend(piece.looked_at, "model WordPiece"));
    }
    if (piece.number == Trie::kNone) {  // The whole word becomes the unknown token.
      ids.resize(before);
      return push_unknown(ids);
    }
    ids.push_back(piece.number);
    rest.remove_prefix(piece.length);
  }
  return {};
}

Result<std::unique_ptr<Model>> WordLevel::parse(const JsonRef& json, WorkBudget& budget) {
  auto model = std::make_unique<WordLevel>();
  VOLTA_TRY(model->vocabulary_, read_vocabulary(json, budget));
  VOLTA_TRY(model->unknown_, json.get_string_or("unk_token", "<unk>"));
  return model;
}

Status WordLevel::tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                           WorkBudget& budget) const {
  VOLTA_TRY(budget.spend(1 + word.size() / 16, "model WordLevel"));
  auto id = vocabulary_.find(word);
  if (!id) id = vocabulary_.find(unknown_);
  if (!id) return no_unknown_token(word, unknown_);
  ids.push_back(*id);
  return {};
}

}  // namespace volta::tokenizers
