// Normalizers: they rewrite text before it is cut into words. The kinds are those of
// tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
/// What SentencePiece's nmt rules do to controls and odd spaces.
struct NmtStep {};
/// Drops white space at the ends.
struct StripStep {
  bool left = true;
  bool right = true;
};
/// Puts a string before text that is not empty.
struct PrependStep {
  std::string prefix;
};
/// Replaces a string, or what a regular expression matches.
struct ReplaceStep {
  std::variant<std::string, Regex> pattern;
  std::string content;
};
/// Writes bytes as their stand-ins (byte_level.h).
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

/// Reads a "Replace", which is a normalizer and a decoder. kInvalidFile, kUnsupported.
Result<ReplaceStep> parse_replace(const JsonRef& json);
/// `component` names the step in the error of a spent budget.
Result<std::string> replace(const ReplaceStep& step, std::string text, WorkBudget& budget,
                            std::string_view component);

/// Which ends of a whole text a part of it has: steps that add or drop something at the ends of a
/// text do so there alone.
struct PartOfText {
  bool begins = true;
  bool ends = true;
};

class Normalizer {
 public:
  /// The "normalizer" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<Normalizer> parse(const JsonRef& json);

  bool empty() const { return steps_.empty(); }
  /// Valid UTF-8 to valid UTF-8. kInvalidFile when the budget is spent, kInterrupted.
  Result<std::string> normalize(std::string_view text, WorkBudget& budget,
                                const PartOfText& part = {}) const;

 private:
  Status parse_into(const JsonRef& json, int depth);
  std::vector<NormalizerStep> steps_;
};

}  // namespace volta::tokenizers
