// The steps of pre-tokenizers. pre_tokenizer_json.cc parses them.
#include "text/tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/visit_step.h"

namespace volta::tokenizers {
namespace {

using unicode::Character;
using unicode::character_at;

constexpr std::string_view kSplit = "pre_tokenizer Split";

// Fills the gaps between matches, so that the spans cover the text.
void cover(std::vector<Span>& matches, std::size_t size) {
  std::vector<Span> all;
  all.reserve(matches.size() * 2 + 1);
  std::size_t end = 0;
  for (const Span& match : matches) {
    if (match.begin > end) all.push_back({end, match.begin, false});
    all.push_back(match);
    end = match.end;
  }
  if (end < size) all.push_back({end, size, false});
  matches.swap(all);
}

// Merges or removes delimiters (the spans that match), and appends the remaining spans.
void apply(SplitBehavior behavior, const std::vector<Span>& spans, std::size_t offset,
           std::vector<Span>& words) {
  const std::size_t first = words.size();
  const auto push = [&](const Span& s) { words.push_back({s.begin + offset, s.end + offset}); };
  bool previous_match = false;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool any = words.size() > first;
    bool merge = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!span.match) push(span);
        continue;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kMergedWithPrevious:
        merge = any && span.match && !previous_match;
        break;
      case SplitBehavior::kMergedWithNext:
        // From the right: a delimiter joins the part after it, unless that is a delimiter.
        merge = any && previous_match && !span.match;
        break;
      case SplitBehavior::kContiguous:
        merge = any && span.match == previous_match;
        break;
    }
    previous_match = span.match;
    if (merge) {
      words.back().end = span.end + offset;
    } else {
      push(span);
    }
  }
}

Status find_string(std::string_view needle, std::string_view text, std::vector<Span>& matches,
                   WorkBudget& budget) {
  if (needle.empty()) return {};
  VOLTA_TRY(budget.spend(text.size() / 8, kSplit));
  for (std::size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    VOLTA_TRY(budget.spend(1, kSplit));
    matches.push_back({at, at + needle.size()});
  }
  return {};
}

bool in_class(const CharacterStep& step, char32_t c) {
  switch (step.what) {
    case CharacterStep::Class::kSpace:
      return unicode::is_space(c);
    case CharacterStep::Class::kPunctuation:
      return unicode::properties()[c].is_bert_punctuation();
    case CharacterStep::Class::kDigit:
      return unicode::is_numeric(c);
    case CharacterStep::Class::kDelimiter:
      return c == step.delimiter;
  }
  return false;
}

// Replaces each word by the words that `cut` makes of it; empty words are removed.
template <typename Cut>
Status recut(Words& words, WorkBudget& budget, const Cut& cut) {
  const std::vector<Span> old = std::exchange(words.list, {});
  const std::size_t start = old.empty() ? 0 : old.front().begin;
  words.list.reserve(old.size());
  for (const Span& word : old) {
    VOLTA_TRY(budget.spend(2 + (word.end - word.begin) / 4, "pre_tokenizer"));
    VOLTA_TRY(cut(word));
  }
  std::erase_if(words.list, [](const Span& word) { return word.begin == word.end; });
  words.first_at_start =
      words.first_at_start && !words.list.empty() && words.list.front().begin == start;
  return {};
}

// Replaces each word by the text that `write` makes of it.
template <typename Write>
Status rewrite(Words& words, WorkBudget& budget, std::string_view component, const Write& write) {
  std::string text;
  const std::size_t before = words.text().size();
  text.reserve(before + before / 4);
  for (Span& word : words.list) {
    VOLTA_TRY(budget.spend(2 + (word.end - word.begin) / 4, component));
    const std::size_t begin = text.size();
    write(words.at(word), &word == &words.list.front() && words.first_at_start, text);
    word = {begin, text.size()};
  }
  if (text.size() > before) VOLTA_TRY(budget.grow(text.size() - before, component));
  words.rewritten = std::move(text);
  words.is_rewritten = true;
  return {};
}

Status run(const SplitStep& step, Words& words, WorkBudget& budget) {
  return recut(words, budget, [&](const Span& word) -> Status {
    const std::string_view text = words.at(word);
    const auto* known = std::get_if<KnownPattern>(&step.pattern);
    if (known != nullptr && step.behavior == SplitBehavior::kIsolated) {
      return scan_words(*known, text, word.begin, words.list, budget);
    }
    std::vector<Span> matches;
    if (known != nullptr) {
      VOLTA_TRY(scan_words(*known, text, 0, matches, budget));
    } else if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
      VOLTA_TRY(regex->find_all(text, matches, budget));
    } else if (const auto* string = std::get_if<std::string>(&step.pattern)) {
      VOLTA_TRY(find_string(*string, text, matches, budget));
    }
    cover(matches, text.size());
    if (step.invert) {
      for (Span& span : matches) span.match = !span.match;
    }
    apply(step.behavior, matches, word.begin, words.list);
    return {};
  });
}

Status run(const CharacterStep& step, Words& words, WorkBudget& budget) {
  return recut(words, budget, [&](const Span& word) -> Status {
    const std::string_view text = words.at(word);
    std::vector<Span> matches;
    VOLTA_TRY(budget.spend(text.size(), "pre_tokenizer"));
    for (std::size_t at = 0; at < text.size();) {
      const Character c = character_at(text, at);
      if (in_class(step, c.value)) matches.push_back({at, at + c.length});
      at += c.length;
    }
    cover(matches, text.size());
    apply(step.behavior, matches, word.begin, words.list);
    return {};
  });
}

Status run(const WhitespaceStep&, Words& words, WorkBudget& budget) {
  enum class Kind : std::uint8_t { kSpace, kWord, kOther };
  const auto kind_of = [](char32_t c) {
    if (unicode::is_word(c)) return Kind::kWord;
    return unicode::is_space(c) ? Kind::kSpace : Kind::kOther;
  };
  return recut(words, budget, [&](const Span& word) -> Status {
    Kind previous = Kind::kSpace;
    for (std::size_t at = word.begin; at < word.end;) {
      const Character c = character_at(words.text(), at);
      VOLTA_TRY(budget.spend(1, "pre_tokenizer Whitespace"));
      const Kind kind = kind_of(c.value);
      if (kind != Kind::kSpace) {
        if (kind == previous) {
          words.list.back().end = at + c.length;
        } else {
          words.list.push_back({at, at + c.length});
        }
      }
      previous = kind;
      at += c.length;
    }
    return {};
  });
}

Status run(const PrefixSpaceStep&, Words& words, WorkBudget& budget) {
  const auto write = [](std::string_view word, bool, std::string& out) {
    if (!word.starts_with(' ')) out += ' ';
    out += word;
  };
  return rewrite(words, budget, "pre_tokenizer ByteLevel", write);
}

Status run(const ByteCharactersStep&, Words& words, WorkBudget& budget) {
  const auto write = [](std::string_view word, bool, std::string& out) {
    out += to_byte_characters(word);
  };
  return rewrite(words, budget, "pre_tokenizer ByteLevel", write);
}

Status run(const MetaspaceStep& step, Words& words, WorkBudget& budget) {
  using Prepend = MetaspaceStep::Prepend;
  const auto write = [&](std::string_view word, bool at_start, std::string& out) {
    const bool has_it = word.starts_with(' ') || word.starts_with(step.replacement);
    const bool wants =
        step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start);
    if (wants && !has_it) out += step.replacement;
    for (const char c : word) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  };
  VOLTA_TRY(rewrite(words, budget, "pre_tokenizer Metaspace", write));
  if (!step.split) return {};
  return run(SplitStep{.pattern = step.replacement, .behavior = SplitBehavior::kMergedWithNext},
             words, budget);
}

Status run(const FixedLengthStep& step, Words& words, WorkBudget& budget) {
  return recut(words, budget, [&](const Span& word) -> Status {
    std::int64_t count = 0;
    for (std::size_t at = word.begin; at < word.end;) {
      const std::size_t end = at + character_at(words.text(), at).length;
      VOLTA_TRY(budget.spend(1, "pre_tokenizer FixedLength"));
      if (count++ % step.length == 0) {
        words.list.push_back({at, end});
      } else {
        words.list.back().end = end;
      }
      at = end;
    }
    return {};
  });
}

}  // namespace

Result<Words> PreTokenizer::split(std::string_view text, bool at_start, WorkBudget& budget) const {
  Words words;
  words.source = text;
  words.first_at_start = at_start;
  if (!text.empty()) words.list.push_back({0, text.size()});
  for (const PreTokenizerStep& step : steps_) {
    VOLTA_TRY(visit_step([&](const auto& s) { return run(s, words, budget); }, step));
  }
  return words;
}

}  // namespace volta::tokenizers
