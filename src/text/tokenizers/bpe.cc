#include "text/tokenizers/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// Below this number of symbols, repeated searches for the best pair are faster than a heap.
constexpr std::size_t kShortWord = 32;
// Characters below this limit (all alphabets, and the U+2581 that replaces spaces) have a table by
// code point.
constexpr std::size_t kTableEnd = 0x3000;
// The maximum for the prefix and the suffix; "</w>" has 4 bytes.
constexpr std::size_t kMaxAffixBytes = 64;
constexpr std::string_view kBpeComponent = "model BPE";
constexpr std::size_t kBlock = 4096;          // Symbols of a word between two budget checks.
constexpr std::uint64_t kStepsPerMerge = 16;  // A heap at random places of a long word.
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::create(BpeSettings settings, Vocabulary vocabulary,
                                         std::span<const BpeMerge> merges,
                                         std::string_view merges_name, bool byte_words,
                                         WorkBudget& budget) {
  auto model = std::make_unique<Bpe>();
  model->settings_ = std::move(settings);
  model->vocabulary_ = std::move(vocabulary);
  const std::string& unknown = model->settings_.unknown;
  if (!unknown.empty()) model->unknown_id_ = model->vocabulary_.find(unknown);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto id = model->vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    model->fallback_ids_[byte] = id.value_or(-1);
  }
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string character;
    append_utf8(character, c);
    model->character_ids_.push_back(model->vocabulary_.find(character).value_or(-1));
  }
  model->has_joints_ = model->settings_.prefix.empty() && model->settings_.suffix.empty();
  if (merges.size() > kMaxMerges) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} merges; at most {} are allowed",
                                                     merges_name, merges.size(), kMaxMerges));
  }
  model->merged_ids_.reserve(merges.size());
  for (std::uint32_t rank = 0; const auto& [left, right] : merges) {
    VOLTA_TRY(budget.spend(kStepsPerToken, kBpeComponent));
    if (Status added = model->add_merge(left, right, rank); !added) {
      return std::unexpected(
          std::move(added).error().with_context(fmt::format("{}[{}]", merges_name, rank)));
    }
    ++rank;
  }
  model->byte_words_ = byte_words;
  if (byte_words) VOLTA_TRY(model->prepare_bytes());
  return model;
}

namespace {

// Reads "merges": each is "a b" or ["a", "b"].
Result<std::vector<BpeMerge>> read_bpe_merges(const JsonRef& merges, WorkBudget& budget) {
  const JsonValue::Array* list = merges.node().if_array();
  if (list == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an array", merges.path()));
  }
  std::vector<BpeMerge> read;
  read.reserve(list->size());
  for (const JsonValue& item : *list) {
    VOLTA_TRY(budget.spend(1, kBpeComponent));
    const std::string* line = item.if_string();
    if (line != nullptr && line->starts_with("#version")) continue;
    const JsonValue::Array* pair = item.if_array();
    if (line != nullptr && std::ranges::count(*line, ' ') == 1) {
      const std::size_t space = line->find(' ');
      const std::string_view view = *line;
      read.emplace_back(view.substr(0, space), view.substr(space + 1));
    } else if (pair != nullptr && pair->size() == 2 && pair->front().if_string() != nullptr &&
               pair->back().if_string() != nullptr) {
      read.emplace_back(*pair->front().if_string(), *pair->back().if_string());
    } else {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}[{}]: expected two tokens", merges.path(), read.size()));
    }
  }
  return read;
}

}  // namespace

Result<std::unique_ptr<Model>> Bpe::parse(const JsonRef& json, bool byte_words,
                                          WorkBudget& budget) {
  VOLTA_TRY(const double dropout, json.get_float_or("dropout", 0));
  if (dropout != 0) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: dropout {} makes encoding random; set it to null", json.path(), dropout));
  }
  BpeSettings settings;
  VOLTA_TRY(settings.prefix, json.get_string_or("continuing_subword_prefix", ""));
  VOLTA_TRY(settings.suffix, json.get_string_or("end_of_word_suffix", ""));
  if (std::max(settings.prefix.size(), settings.suffix.size()) > kMaxAffixBytes) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: a prefix or suffix of more than {} bytes",
                                                     json.path(), kMaxAffixBytes));
  }
  VOLTA_TRY(settings.fuse_unknown, json.get_bool_or("fuse_unk", false));
  VOLTA_TRY(settings.byte_fallback, json.get_bool_or("byte_fallback", false));
  VOLTA_TRY(settings.ignore_merges, json.get_bool_or("ignore_merges", false));
  VOLTA_TRY(settings.unknown, json.get_string_or("unk_token", ""));
  VOLTA_TRY(Vocabulary vocabulary, read_vocabulary(json, budget));
  VOLTA_TRY(const auto member, json.optional_member("merges"));
  std::vector<BpeMerge> merges;
  if (member) {
    VOLTA_TRY(merges, read_bpe_merges(*member, budget));
  }
  return create(std::move(settings), std::move(vocabulary), merges, member ? member->path() : "",
                byte_words, budget);
}

std::vector<BpeMerge> Bpe::merges() const {
  std::vector<std::uint64_t> pairs(merged_ids_.size(), ~std::uint64_t{0});
  merges_.for_each([&](std::uint64_t pair, const Merge& merge) { pairs[merge.rank] = pair; });
  std::vector<BpeMerge> merges;
  merges.reserve(merges_.size());
  for (const std::uint64_t pair : pairs) {
    if (pair == ~std::uint64_t{0}) continue;  // The same pair follows with a later rank.
    merges.emplace_back(vocabulary_.token(static_cast<std::int32_t>(pair >> 32)),
                        vocabulary_.token(static_cast<std::int32_t>(pair)));
  }
  return merges;
}

Status Bpe::add_merge(std::string_view left, std::string_view right, std::uint32_t rank) {
  const auto find = [&](std::string_view token) -> Result<std::int32_t> {
    if (const auto id = vocabulary_.find(token)) return *id;
    return fail(ErrorCode::kInvalidFile, fmt::format("token '{}' is not in the vocabulary", token));
  };
  VOLTA_TRY(const std::int32_t left_id, find(left));
  VOLTA_TRY(const std::int32_t right_id, find(right));
  std::string merged(left);
  merged += right.substr(std::min(settings_.prefix.size(), right.size()));
  VOLTA_TRY(const std::int32_t id, find(merged));
  note_joint(left, right, left_id, right_id);
  merged_ids_.resize(rank + std::size_t{1});
  merged_ids_[rank] = id;
  merges_[static_cast<std::uint64_t>(left_id) << 32 | static_cast<std::uint32_t>(right_id)] = {rank,
                                                                                               id};
  return {};
}

void Bpe::note_joint(std::string_view left, std::string_view right, std::int32_t left_id,
                     std::int32_t right_id) {
  const auto is_special = [&](std::int32_t id) {
    return id == unknown_id_ ||
           (settings_.byte_fallback && std::ranges::find(fallback_ids_, id) != fallback_ids_.end());
  };
  // The text of such a token is not the text in its place, so cuts are not safe.
  if (is_special(left_id) || is_special(right_id) || left.empty() || right.empty()) {
    has_joints_ = false;
  }
  if (!has_joints_) return;
  const auto last = unit_id(left.substr(unicode::character_before(left, left.size())), true, true);
  const auto first = unit_id(right.substr(0, unicode::character_at(right, 0).length), true, true);
  if (!last || !first) return;  // No word contains this pair of units.
  joints_[static_cast<std::uint64_t>(*last) << 32 | static_cast<std::uint32_t>(*first)] = true;
}

Status Bpe::prepare_bytes() {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, kByteCharacters[byte]);
    byte_ids_[byte] = vocabulary_.find(character).value_or(-1);
  }
  if (!settings_.ignore_merges) return {};
  for (std::int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    const auto bytes = from_byte_characters(vocabulary_.token(id));
    if (bytes && vocabulary_.contains(id)) VOLTA_TRY(words_.add(*bytes, id));
  }
  return {};
}

Status Bpe::tokenize(std::string_view word, std::vector<std::int32_t>& ids,
                     WorkBudget& budget) const {
  VOLTA_TRY(budget.spend(1, kBpeComponent));
  if (settings_.ignore_merges) {
    if (const auto id = (byte_words_ ? words_ : vocabulary_).find(word)) {
      ids.push_back(*id);
      return {};
    }
  }
  const std::size_t begin = ids.size();
  VOLTA_TRY(split(word, ids, budget));
  if (ids.size() - begin <= kShortWord || !has_joints_) return merge_all(ids, begin, budget);
  // A long word may be a whole text without pre-tokenizer. Cut it where no merge can cross.
  const std::vector<std::int32_t> symbols(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                          ids.end());
  ids.resize(begin);
  std::size_t part = begin;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (i % kBlock == 0) {
      VOLTA_TRY(budget.spend(8 * std::min(kBlock, symbols.size() - i), kBpeComponent));
    }
    const bool joint = i > 0 && joints_.find(static_cast<std::uint64_t>(symbols[i - 1]) << 32 |
                                             static_cast<std::uint32_t>(symbols[i])) != nullptr;
    if (!joint) {
      if (ids.size() > part + kShortWord) {
        VOLTA_TRY(merge_long(ids, part, budget));
      } else if (ids.size() > part + 1) {
        merge_short(ids, part);
      }
      part = ids.size();
    }
    ids.push_back(symbols[i]);
  }
  return merge_all(ids, part, budget);
}

Status Bpe::merge_all(std::vector<std::int32_t>& symbols, std::size_t begin,
                      WorkBudget& budget) const {
  if (symbols.size() - begin > kShortWord) return merge_long(symbols, begin, budget);
  merge_short(symbols, begin);
  return {};
}

std::optional<std::int32_t> Bpe::unit_id(std::string_view unit, bool first, bool last) const {
  if ((first || settings_.prefix.empty()) && (!last || settings_.suffix.empty())) {
    const char32_t c = unicode::character_at(unit, 0).value;
    if (c >= kTableEnd) return vocabulary_.find(unit);
    const std::int32_t id = character_ids_[c];
    return id < 0 ? std::nullopt : std::optional(id);
  }
  std::string affixed = first ? "" : settings_.prefix;
  affixed += unit;
  if (last) affixed += settings_.suffix;
  return vocabulary_.find(affixed);
}

// Writes a character that the vocabulary lacks as one token per byte. This includes the bytes of
// the affixes, as in other implementations.
bool Bpe::byte_tokens(std::string_view unit, bool first, bool last,
                      std::vector<std::int32_t>& symbols) const {
  const std::size_t before = symbols.size();
  std::string affixed = first ? "" : settings_.prefix;
  affixed += unit;
  if (last) affixed += settings_.suffix;
  for (const char c : affixed) {
    const std::int32_t id = fallback_ids_[static_cast<unsigned char>(c)];
    if (id < 0) {
      symbols.resize(before);
      return false;
    }
    symbols.push_back(id);
  }
  return true;
}

void Bpe::unknown(Unknown& state, std::vector<std::int32_t>& symbols) const {
  if (!unknown_id_) return;  // Without an unknown token, unknown characters are skipped.
  if (state.pending && !settings_.fuse_unknown) symbols.push_back(*unknown_id_);
  state.pending = true;
}

// Splits the word into units, before any merge. The unknown token is written when a known unit
// follows. It stays pending while bytes fall back to byte tokens, as in Hugging Face tokenizers.
Status Bpe::split(std::string_view word, std::vector<std::int32_t>& symbols,
                  WorkBudget& budget) const {
  Unknown state;
  const auto known = [&](std::int32_t id) {
    if (state.pending) symbols.push_back(*unknown_id_);
    state.pending = false;
    symbols.push_back(id);
  };
  if (byte_words_) {
    VOLTA_TRY(budget.spend(8 * word.size(), kBpeComponent));
    for (const char c : word) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        known(id);
      } else {
        unknown(state, symbols);
      }
    }
  } else {
    std::size_t counted = 0;
    for (std::size_t at = 0; at < word.size();) {
      if (at >= counted) {  // A word may be a whole text.
        const std::size_t block = std::min(kBlock, word.size() - at);
        VOLTA_TRY(budget.spend(8 * block, kBpeComponent));
        counted = at + block;
      }
      const std::size_t length = unicode::character_at(word, at).length;
      const std::string_view unit = word.substr(at, length);
      const bool last = at + length == word.size();
      if (const auto id = unit_id(unit, at == 0, last)) {
        known(*id);
      } else if (!settings_.byte_fallback || !byte_tokens(unit, at == 0, last, symbols)) {
        unknown(state, symbols);
      }
      at += length;
    }
  }
  if (state.pending) symbols.push_back(*unknown_id_);
  return {};
}

void Bpe::merge_short(std::vector<std::int32_t>& symbols, std::size_t begin) const {
  std::size_t count = symbols.size() - begin;
  std::array<Merge, kShortWord> pairs{};  // pairs[i]: the merge of symbols i and i + 1.
  const std::span<std::int32_t> s = std::span(symbols).subspan(begin);
  const auto look = [&](std::size_t i) {
    const Merge* found = i + 1 < count ? merge(s[i], s[i + 1]) : nullptr;
    pairs[i] = found == nullptr ? Merge{kNoRank, -1} : *found;
  };
  for (std::size_t i = 0; i < count; ++i) look(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    s[best] = pairs[best].id;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      s[i] = s[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --count;
    look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(begin + count);
}

// A word may be a whole text of many megabytes. The memory is 8 bytes per symbol for its
// neighbours, and 8 bytes per pair in the heap.
Status Bpe::merge_long(std::vector<std::int32_t>& symbols, std::size_t begin,
                       WorkBudget& budget) const {
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  constexpr std::int32_t kMerged = -1;  // A symbol that is now a part of the one before it.
  struct Link {
    std::uint32_t previous, next;
  };
  const std::span<std::int32_t> s = std::span(symbols).subspan(begin);
  if (s.size() >= kEnd) {
    return fail(ErrorCode::kInvalidArgument, "a word of 4 GiB and more cannot be encoded");
  }
  // The rank and the place of pairs. The lowest rank is on top, and of equal ranks the leftmost.
  std::vector<std::uint64_t> heap;
  const auto consider = [&](std::uint32_t at, std::uint32_t next) {
    const Merge* found = merge(s[at], s[next]);
    if (found != nullptr) heap.push_back(std::uint64_t{found->rank} << 32 | at);
    return found != nullptr;
  };
  std::vector<Link> links(s.size());
  for (std::uint32_t i = 0; i < s.size(); ++i) {
    VOLTA_TRY(budget.spend(2, kBpeComponent));
    links[i] = {i == 0 ? kEnd : i - 1, i + 1 == s.size() ? kEnd : i + 1};
    if (i + 1 < s.size()) consider(i, i + 1);
  }
  std::ranges::make_heap(heap, std::greater());
  const auto push = [&](std::uint32_t at, std::uint32_t next) {
    if (consider(at, next)) std::ranges::push_heap(heap, std::greater());
  };
  while (!heap.empty()) {
    VOLTA_TRY(budget.spend(kStepsPerMerge, kBpeComponent));
    const std::int32_t id = merged_ids_[heap.front() >> 32];
    const auto at = static_cast<std::uint32_t>(heap.front());
    std::ranges::pop_heap(heap, std::greater());
    heap.pop_back();
    const std::uint32_t next = links[at].next;
    if (s[at] == kMerged || next == kEnd) continue;
    // A neighbour may have been merged in the meantime.
    const Merge* now = merge(s[at], s[next]);
    if (now == nullptr || now->id != id) continue;
    s[at] = id;
    s[next] = kMerged;
    links[at].next = links[next].next;
    if (links[at].next != kEnd) links[links[at].next].previous = at;
    if (links[at].previous != kEnd) push(links[at].previous, at);
    if (links[at].next != kEnd) push(at, links[at].next);
  }
  symbols.erase(
      std::remove(symbols.begin() + static_cast<std::ptrdiff_t>(begin), symbols.end(), kMerged),
      symbols.end());
  return {};
}

}  // namespace volta::tokenizers
