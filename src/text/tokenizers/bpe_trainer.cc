#include "text/tokenizers/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/hash_table.h"
#include "text/tokenizers/split_scanner.h"
#include "text/tokenizers/tokenizer_parts.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

constexpr std::string_view kTrainerComponent = "training the tokenizer";
// The work is limited only by the text and the size of the vocabulary.

// Hashes strings of the text with a random seed, because the text may come from anyone.
struct SeededHash {
  std::uint64_t seed = random_seed();
  std::size_t operator()(std::string_view text) const { return hash64(text, seed); }
};

// A word of the text and its number of occurrences.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count;
};

// The words are in the order of their first occurrence, so the result depends on the text only.
Result<std::vector<Word>> count_words(std::string_view text,
                                      const std::array<std::int32_t, 256>& bytes,
                                      WorkBudget& budget) {
  std::vector<Span> spans;
  VOLTA_TRY(scan_words(KnownPattern::kGpt2, text, 0, spans, budget));
  std::unordered_map<std::string_view, std::size_t, SeededHash> places;
  std::vector<Word> words;
  for (const Span& span : spans) {
    VOLTA_TRY(budget.spend(8, kTrainerComponent));
    const std::string_view word = text.substr(span.begin, span.end - span.begin);
    const auto [place, added] = places.emplace(word, words.size());
    if (!added) {
      ++words[place->second].count;
      continue;
    }
    // A word may be as long as the text, so the budget is asked within words, too.
    std::vector<std::int32_t>& symbols =
        words.emplace_back(Word{.symbols = {}, .count = 1}).symbols;
    symbols.reserve(word.size());
    for (const char c : word) {
      VOLTA_TRY(budget.spend(1, kTrainerComponent));
      symbols.push_back(bytes[static_cast<unsigned char>(c)]);
    }
  }
  return words;
}

class Trainer {
 public:
  explicit Trainer(std::int64_t min_count) : min_count_(min_count) {}

  Status add_words(std::vector<Word> words, WorkBudget& budget) {
    words_ = std::move(words);
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const Word& word = words_[i];
      for (std::size_t j = 0; j + 1 < word.symbols.size(); ++j) {
        VOLTA_TRY(budget.spend(4, kTrainerComponent));
        add({word.symbols[j], word.symbols[j + 1]}, word.count, i);
      }
    }
    for (const Pair& pair : std::exchange(changed_, {})) offer(pair);
    return {};
  }

  // Gets the most frequent pair, with the lowest ids in case of a tie; false when none is left.
  bool next(Pair& pair) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const std::int64_t now = pairs_[key(top.pair)].count;
      if (now < min_count_) continue;
      if (now == top.count) {
        pair = top.pair;
        return true;
      }
      queue_.push({now, top.pair});  // Other merges have reduced its count.
    }
    return false;
  }

  // Replaces the pair by a new symbol everywhere.
  Status merge(const Pair& pair, std::int32_t symbol, WorkBudget& budget) {
    const std::vector<std::size_t> places = std::move(pairs_[key(pair)].words);
    std::size_t last = words_.size();
    for (const std::size_t place : places) {  // A second visit of a word would find nothing.
      if (place == last) continue;
      VOLTA_TRY(merge_in(place, pair, symbol, budget));
      last = place;
    }
    pairs_[key(pair)] = {};
    for (const Pair& changed : std::exchange(changed_, {})) offer(changed);
    return {};
  }

 private:
  struct Candidate {
    std::int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct Occurrences {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // Words that may contain the pair.
  };

  static std::uint64_t key(const Pair& pair) {
    return static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
  }

  void add(const Pair& pair, std::int64_t count, std::size_t word) {
    Occurrences& found = pairs_[key(pair)];
    if (found.words.empty()) changed_.push_back(pair);
    found.count += count;
    if (found.words.empty() || found.words.back() != word) found.words.push_back(word);
  }

  void offer(const Pair& pair) {
    const std::int64_t count = pairs_[key(pair)].count;
    if (count >= min_count_) queue_.push({count, pair});
  }

  Status merge_in(std::size_t place, const Pair& pair, std::int32_t symbol, WorkBudget& budget) {
    Word& word = words_[place];
    std::vector<std::int32_t>& s = word.symbols;
    std::size_t out = 0;
    for (std::size_t i = 0; i < s.size(); ++out) {
      VOLTA_TRY(budget.spend(1, kTrainerComponent));
      const bool found = i + 1 < s.size() && s[i] == pair.first && s[i + 1] == pair.second;
      if (!found) {
        s[out] = s[i++];
        continue;
      }
      if (out > 0) {
        pairs_[key({s[out - 1], pair.first})].count -= word.count;
        add({s[out - 1], symbol}, word.count, place);
      }
      if (i + 2 < s.size()) {
        pairs_[key({pair.second, s[i + 2]})].count -= word.count;
        add({symbol, s[i + 2]}, word.count, place);
      }
      s[out] = symbol;
      i += 2;
    }
    s.resize(out);
    return {};
  }

  std::vector<Word> words_;
  std::int64_t min_count_;
  HashTable<Occurrences> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> changed_;  // Pairs that are new since the last offer().
};

}  // namespace

Status check_special_tokens(std::span<const std::string> special_tokens) {
  std::set<std::string_view> seen;
  for (const std::string& token : special_tokens) {
    if (token.empty()) return fail(ErrorCode::kInvalidArgument, "a special token needs a text");
    if (const auto invalid = find_invalid_utf8(token)) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("byte {} is not UTF-8", *invalid));
    }
    if (!seen.insert(token).second) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is given twice; give it once", token));
    }
    const auto first = decode_utf8(token);
    const bool alone = first && token.size() == static_cast<std::size_t>(first->length);
    if (alone && std::ranges::find(kByteCharacters, first->value) != kByteCharacters.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is the token of a byte already; use a longer text, such as "
                              "'<|{}|>'",
                              token, token));
    }
  }
  return {};
}

Result<std::string> train_byte_level_bpe(std::string_view text, const BpeTrainingOptions& options) {
  const auto fixed = static_cast<std::int64_t>(256 + options.special_tokens.size());
  if (options.vocab_size < fixed || options.vocab_size > kMaxTokenId) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a vocabulary of {} tokens; it must have {} (the bytes and the special "
                            "tokens) to {}",
                            options.vocab_size, fixed, kMaxTokenId));
  }
  VOLTA_TRY(check_special_tokens(options.special_tokens));
  Vocabulary vocabulary;
  TokenizerParts parts;
  for (const std::string& token : options.special_tokens) {
    const std::int32_t id = vocabulary.end_id();
    VOLTA_TRY(vocabulary.add(token, id));
    parts.added_tokens.push_back(
        {.id = id, .content = token, .normalized = false, .special = true});
  }
  std::array<std::int32_t, 256> bytes{};
  std::array<char32_t, 256> alphabet = kByteCharacters;
  std::ranges::sort(alphabet);
  for (const char32_t character : alphabet) {
    const std::size_t byte = static_cast<std::size_t>(
        std::ranges::find(kByteCharacters, character) - kByteCharacters.begin());
    bytes[byte] = vocabulary.end_id();
    std::string token;
    append_utf8(token, character);
    VOLTA_TRY(vocabulary.add(token, bytes[byte]));
  }
  std::string storage;
  WorkBudget budget(kAnyNumberOfSteps, options.interrupted);
  VOLTA_TRY(auto words, count_words(unicode::repair_utf8(text, storage), bytes, budget));
  Trainer trainer(options.min_count);
  VOLTA_TRY(trainer.add_words(std::move(words), budget));
  std::vector<Pair> pairs;
  Pair pair;
  while (vocabulary.end_id() < options.vocab_size && trainer.next(pair)) {
    std::string merged(vocabulary.token(pair.first));
    merged += vocabulary.token(pair.second);
    // Long runs of one character lead here. Readers refuse such a token, and no text needs it.
    if (merged.size() > kMaxTokenBytes) continue;
    // Two different merges can lead to the same token.
    const auto known = vocabulary.find(merged);
    const std::int32_t id = known.value_or(vocabulary.end_id());
    if (!known) VOLTA_TRY(vocabulary.add(merged, id));
    VOLTA_TRY(trainer.merge(pair, id, budget));
    pairs.push_back(pair);
  }
  std::vector<BpeMerge> merges;
  for (const auto& [left, right] : pairs) {
    merges.emplace_back(vocabulary.token(left), vocabulary.token(right));
  }
  return tokenizer_json(parts, vocabulary, merges, 1);
}

}  // namespace volta::tokenizers
