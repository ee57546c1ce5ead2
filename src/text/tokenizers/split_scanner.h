// Hand-written scanners for the patterns with which GPT-2, Llama 3 and Qwen split text. Each
// returns the same words as its pattern in one pass; tests compare them with regex.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/work_budget.h"
#include "text/tokenizers/regex.h"

namespace volta::tokenizers {

enum class KnownPattern : std::uint8_t { kGpt2, kLlama3, kQwen2 };

/// The texts of the patterns in tokenizer.json.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
std::string_view pattern_text(KnownPattern pattern);
/// The scanner for a pattern, if there is one.
std::optional<KnownPattern> find_known_pattern(std::string_view text);

/// Appends the words of valid UTF-8. They cover the text, because these patterns skip nothing.
/// `offset` is added to every place. kInterrupted, and kInvalidFile when the budget is spent.
Status scan_words(KnownPattern pattern, std::string_view text, std::size_t offset,
                  std::vector<Span>& words, WorkBudget& budget);

}  // namespace volta::tokenizers
