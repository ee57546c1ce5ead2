#include "text/tokenizers/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {

Result<AddedToken> parse_added_token(const JsonRef& json) {
  AddedToken token;
  VOLTA_TRY(token.content, json.get_string("content"));
  VOLTA_TRY(token.single_word, json.get_bool_or("single_word", false));
  VOLTA_TRY(token.lstrip, json.get_bool_or("lstrip", false));
  VOLTA_TRY(token.rstrip, json.get_bool_or("rstrip", false));
  VOLTA_TRY(token.special, json.get_bool_or("special", false));
  VOLTA_TRY(token.normalized, json.get_bool_or("normalized", !token.special));
  return token;
}

namespace {

// In some models, tokens such as "<|im_start|>" are not marked as special.
bool looks_like_control(std::string_view content) {
  return (content.starts_with("<|") && content.ends_with("|>")) ||
         (content.starts_with("<\uFF5C") && content.ends_with("\uFF5C>"));
}

}  // namespace

Status AddedTokens::check_id(const AddedToken& token, const Vocabulary& vocabulary) const {
  if (token.content.empty() || vocabulary.find(token.content)) return {};
  const auto added = tokens_.find(token.id);
  const std::string_view other =
      added != tokens_.end() ? added->second.token.content : vocabulary.token(token.id);
  if (other.empty() || other == token.content) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("added token '{}' has the id {}, which is the id of the token '{}'; "
                          "every token needs an id of its own",
                          token.content, token.id, other));
}

Status AddedTokens::add(AddedToken token, const Vocabulary& vocabulary,
                        const Normalizer& normalizer, WorkBudget& budget) {
  if (token.content.empty()) return {};
  token.id = vocabulary.find(token.content).value_or(token.id);
  if (token.id < 0 || token.id >= kMaxTokenId) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("added token '{}' has the id {}; ids go from 0 to {}", token.content,
                            token.id, kMaxTokenId - 1));
  }
  std::string pattern = token.content;
  if (token.normalized) {
    VOLTA_TRY(pattern, normalizer.normalize(pattern, budget));
  }
  if (std::max(token.content.size(), pattern.size()) > kMaxTokenBytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("added token {} has more than {} bytes", token.id, kMaxTokenBytes));
  }
  if (!pattern.empty()) {
    VOLTA_TRY((token.normalized ? normalized_ : raw_).insert(pattern, token.id));
  }
  if (token.special) special_.insert(token.content);
  ids_.insert_or_assign(token.content, token.id);
  const std::int32_t id = token.id;
  const bool control = token.special || looks_like_control(token.content);
  has_normalized_control_ = has_normalized_control_ || (control && token.normalized);
  tokens_.insert_or_assign(id, Known{std::move(token), std::move(pattern), control});
  return {};
}

bool AddedTokens::is_control(std::int32_t id) const {
  const auto known = tokens_.find(id);
  return known != tokens_.end() && known->second.control;
}

std::vector<std::int32_t> AddedTokens::control_ids() const {
  std::vector<std::int32_t> ids;
  for (const auto& [id, known] : tokens_) {
    if (known.control) ids.push_back(id);
  }
  return ids;
}

// The longest token at a place. A control token must end before the next quoted byte.
Trie::Match AddedTokens::find_at(const Trie& trie, std::string_view text, std::size_t at,
                                 std::span<const TextRange> quoted) const {
  const auto match = trie.longest(text.substr(at));
  const bool meets_quoted = !quoted.empty() && quoted.front().begin < at + match.length;
  if (match.number == Trie::kNone || !meets_quoted || !is_control(match.number)) return match;
  const std::size_t own_end = std::max(quoted.front().begin, at);
  auto own = trie.longest(text.substr(at, own_end - at));
  own.looked_at += match.looked_at;
  return own;
}

Result<std::vector<Segment>> AddedTokens::split(std::string_view text, bool normalized,
                                                WorkBudget& budget,
                                                std::span<const TextRange> quoted) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  constexpr std::string_view kComponent = "added_tokens";
  std::vector<Segment> segments;
  VOLTA_TRY(budget.spend(text.size() / 16, kComponent));
  std::size_t done = 0;
  const auto is_word_at = [&](std::size_t at) {
    return at < text.size() && unicode::is_word(unicode::character_at(text, at).value);
  };
  for (std::size_t at = 0; at < text.size();) {
    if (!trie.starts_with(text[at])) {
      ++at;
      continue;
    }
    while (!quoted.empty() && quoted.front().end <= at) quoted = quoted.subspan(1);
    const auto match = find_at(trie, text, at, quoted);
    VOLTA_TRY(budget.spend(match.looked_at, kComponent));
    if (match.number == Trie::kNone) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match.length;
    at = end;
    const auto known = tokens_.find(match.number);
    if (known == tokens_.end()) continue;
    const AddedToken& token = known->second.token;
    if (token.single_word &&
        (is_word_at(end) || (begin > 0 && is_word_at(unicode::character_before(text, begin))))) {
      continue;
    }
    while (token.lstrip && begin > done) {
      const std::size_t before = unicode::character_before(text, begin);
      if (!unicode::is_space(unicode::character_at(text, before).value)) break;
      begin = before;
    }
    while (token.rstrip && end < text.size()) {
      const unicode::Character c = unicode::character_at(text, end);
      VOLTA_TRY(budget.spend(1, kComponent));
      if (!unicode::is_space(c.value)) break;
      end += c.length;
    }
    if (done < begin) segments.push_back({done, begin});
    segments.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({done, text.size()});
  return segments;
}

const std::string* AddedTokens::text(std::int32_t id) const {
  const auto known = tokens_.find(id);
  return known == tokens_.end() ? nullptr : &known->second.pattern;
}

std::int32_t AddedTokens::find(std::string_view content) const {
  const auto known = ids_.find(content);
  return known == ids_.end() ? -1 : known->second;
}

}  // namespace volta::tokenizers
