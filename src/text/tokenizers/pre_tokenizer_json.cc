// Parses pre-tokenizers from tokenizer.json.
#include <fmt/format.h>

#include "base/text.h"
#include "text/tokenizers/limits.h"
#include "text/tokenizers/pre_tokenizer.h"

namespace volta::tokenizers {
namespace {

Result<char32_t> get_character(const JsonRef& json, std::string_view key) {
  VOLTA_TRY(const std::string text, json.get_string(key));
  const auto character = decode_utf8(text);
  if (character && static_cast<std::size_t>(character->length) == text.size()) {
    return character->value;
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} '{}' is not one character", json.path(), key, text));
}

Result<SplitStep> parse_split(const JsonRef& json) {
  SplitStep step;
  VOLTA_TRY(const JsonRef pattern, json.member("pattern"));
  VOLTA_TRY(step.behavior, parse_split_behavior(json, "behavior"));
  VOLTA_TRY(step.invert, json.get_bool_or("invert", false));
  VOLTA_TRY(const auto string, pattern.optional_member("String"));
  if (string) {
    VOLTA_TRY(std::string text, string->as_string());
    VOLTA_TRY(check_step_text(text, json, "pattern"));
    step.pattern = std::move(text);
    return step;
  }
  VOLTA_TRY(const std::string text, pattern.get_string("Regex"));
  VOLTA_TRY(SplitStep split, split_at(text, pattern.path()));
  step.pattern = std::move(split.pattern);
  return step;
}

Result<MetaspaceStep> parse_metaspace(const JsonRef& json) {
  MetaspaceStep step;
  VOLTA_TRY(const char32_t replacement, get_character(json, "replacement"));
  step.replacement.clear();
  append_utf8(step.replacement, replacement);
  VOLTA_TRY(step.split, json.get_bool_or("split", true));
  VOLTA_TRY(const bool prefix_space, json.get_bool_or("add_prefix_space", true));
  VOLTA_TRY(const std::string scheme,
            json.get_string_or("prepend_scheme", prefix_space ? "always" : "never"));
  if (scheme == "always") {
    step.prepend = MetaspaceStep::Prepend::kAlways;
  } else if (scheme == "never") {
    step.prepend = MetaspaceStep::Prepend::kNever;
  } else if (scheme == "first") {
    step.prepend = MetaspaceStep::Prepend::kFirst;
  } else {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: prepend_scheme '{}' is not always, never or first", json.path(), scheme));
  }
  return step;
}

}  // namespace

Result<SplitStep> split_at(std::string_view pattern, std::string_view what) {
  SplitStep step;
  if (const auto known = find_known_pattern(pattern)) {
    step.pattern = *known;
  } else {
    VOLTA_TRY(step.pattern, Regex::compile(pattern, what));
  }
  return step;
}

Result<SplitBehavior> parse_split_behavior(const JsonRef& json, std::string_view key) {
  VOLTA_TRY(const std::string text, json.get_string_or(key, "Isolated"));
  if (text == "Removed") return SplitBehavior::kRemoved;
  if (text == "Isolated") return SplitBehavior::kIsolated;
  if (text == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (text == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (text == "Contiguous") return SplitBehavior::kContiguous;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} '{}' is not Removed, Isolated, MergedWithPrevious, "
                          "MergedWithNext or Contiguous",
                          json.path(), key, text));
}

Result<PreTokenizer> PreTokenizer::parse(const JsonRef& json) {
  PreTokenizer pre_tokenizer;
  VOLTA_TRY(pre_tokenizer.parse_into(json, 0));
  return pre_tokenizer;
}

Status PreTokenizer::parse_into(const JsonRef& json, int depth) {
  using Class = CharacterStep::Class;
  VOLTA_TRY(const std::string type, json.get_string("type"));
  if (type == "Sequence") {
    if (depth == kMaxDepth) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: nested too deeply", json.path()));
    }
    VOLTA_TRY(const JsonRef list, json.member("pretokenizers"));
    VOLTA_TRY(const auto parts, list.elements());
    for (const JsonRef& part : parts) VOLTA_TRY(parse_into(part, depth + 1));
  } else if (type == "ByteLevel") {
    VOLTA_TRY(const bool prefix_space, json.get_bool_or("add_prefix_space", true));
    VOLTA_TRY(const bool use_regex, json.get_bool_or("use_regex", true));
    if (prefix_space) steps_.emplace_back(PrefixSpaceStep{});
    if (use_regex) steps_.emplace_back(SplitStep{.pattern = KnownPattern::kGpt2});
    steps_.emplace_back(ByteCharactersStep{});
  } else if (type == "Split") {
    VOLTA_TRY(SplitStep step, parse_split(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "Metaspace") {
    VOLTA_TRY(MetaspaceStep step, parse_metaspace(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "Whitespace") {
    steps_.emplace_back(WhitespaceStep{});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(CharacterStep{});
  } else if (type == "BertPreTokenizer") {
    steps_.emplace_back(CharacterStep{});
    steps_.emplace_back(CharacterStep{Class::kPunctuation, SplitBehavior::kIsolated});
  } else if (type == "Punctuation") {
    VOLTA_TRY(const SplitBehavior behavior, parse_split_behavior(json, "behavior"));
    steps_.emplace_back(CharacterStep{Class::kPunctuation, behavior});
  } else if (type == "Digits") {
    VOLTA_TRY(const bool each, json.get_bool_or("individual_digits", false));
    steps_.emplace_back(
        CharacterStep{Class::kDigit, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "CharDelimiterSplit") {
    VOLTA_TRY(const char32_t delimiter, get_character(json, "delimiter"));
    steps_.emplace_back(CharacterStep{Class::kDelimiter, SplitBehavior::kRemoved, delimiter});
  } else if (type == "FixedLength") {
    VOLTA_TRY(const std::int64_t length, json.get_int_or("length", 5, 1));
    steps_.emplace_back(FixedLengthStep{length});
  } else {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: pre-tokenizer {} is not supported", json.path(), type));
  }
  return check_step_count(steps_, json);
}

}  // namespace volta::tokenizers
