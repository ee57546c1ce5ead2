#include "text/tokenizers/vocabulary.h"

#include <fmt/format.h>

namespace volta::tokenizers {

Status Vocabulary::add(std::string_view token, std::int64_t id) {
  if (id < 0 || id >= kMaxTokenId) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("token '{}' has the id {}; ids go from 0 to {}", token, id, kMaxTokenId - 1));
  }
  if (token.size() > kMaxTokenBytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("token {} has {} bytes; at most {} are allowed", id, token.size(),
                            kMaxTokenBytes));
  }
  const auto known = static_cast<std::int32_t>(id);
  if (contains(known) && this->token(known) != token) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("the tokens '{}' and '{}' both have the id {}; every token needs an id "
                            "of its own",
                            this->token(known), token, id));
  }
  const std::size_t begin = text_.size();
  text_ += token;
  const auto length = static_cast<std::uint32_t>(token.size());
  if (static_cast<std::size_t>(id) >= tokens_.size()) {
    tokens_.resize(static_cast<std::size_t>(id) + 1);
  }
  tokens_[static_cast<std::size_t>(id)] = {begin, length, true};
  std::uint32_t& first = by_hash_[key_of(token)];
  for (std::uint32_t i = first; i != 0; i = entries_[i - 1].next) {
    if (text_of(entries_[i - 1]) == token) {
      entries_[i - 1].id = static_cast<std::int32_t>(id);
      return {};
    }
  }
  entries_.push_back({begin, length, static_cast<std::int32_t>(id), first});
  first = static_cast<std::uint32_t>(entries_.size());
  ++count_;
  return {};
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
  const std::uint32_t* first = by_hash_.find(key_of(token));
  for (std::uint32_t i = first == nullptr ? 0 : *first; i != 0; i = entries_[i - 1].next) {
    if (text_of(entries_[i - 1]) == token) return entries_[i - 1].id;
  }
  return std::nullopt;
}

}  // namespace volta::tokenizers
