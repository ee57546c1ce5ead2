// Normalizers change a text before it is split into words. The kinds are those of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {

/// NFC, NFD, NFKC or NFKD.
struct NormalFormStep {
  unicode::Form form = unicode::Form::kNfc;
};
struct LowercaseStep {};
struct StripAccentsStep {};
/// The treatment of control characters and unusual spaces by SentencePiece's nmt rules.
struct NmtStep {};
/// Removes white space at the ends.
struct StripStep {
  bool left = true;
  bool right = true;
};
/// Puts a string before a text that is not empty.
struct PrependStep {
  std::string prefix;
};
/// Replaces a string, or the matches of a regular expression.
struct ReplaceStep {
  std::variant<std::string, Regex> pattern;
  std::string content;
};
/// Writes bytes as their characters (byte_level.h).
struct ByteLevelNormalizerStep {};
struct BertStep {
  bool clean_text = true;
  bool handle_chinese = true;
  bool strip_accents = true;
  bool lowercase = true;
};
using NormalizerStep =
    std::variant<NormalFormStep, LowercaseStep, StripAccentsStep, NmtStep, StripStep, PrependStep,
                 ReplaceStep, ByteLevelNormalizerStep, BertStep>;

/// Parses a "Replace", which can be a normalizer or a decoder. kInvalidFile, kUnsupported.
Result<ReplaceStep> parse_replace(const JsonRef& json);
/// `component` is the name of the step in the error when the budget is spent.
Result<std::string> replace(const ReplaceStep& step, std::string text, WorkBudget& budget,
                            std::string_view component);

/// Whether a part of a text includes the text's beginning and end. Steps that add or remove
/// something at the ends of a text do so only there.
struct PartOfText {
  bool begins = true;
  bool ends = true;
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}
  /// The "normalizer" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<Normalizer> parse(const JsonRef& json);

  bool empty() const { return steps_.empty(); }
  /// Normalizes valid UTF-8 to valid UTF-8. kInvalidFile when the budget is spent, kInterrupted.
  Result<std::string> normalize(std::string_view text, WorkBudget& budget,
                                const PartOfText& part = {}) const;

 private:
  Status parse_into(const JsonRef& json, int depth);
  std::vector<NormalizerStep> steps_;
};

}  // namespace volta::tokenizers
