// Splits a template into text and the tokens between its brackets. White space is removed as in
// transformers (trim_blocks and lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta::jinja {

enum class TokenKind : std::uint8_t {
  kText,        ///< Text outside the brackets.
  kPrintBegin,  ///< {{
  kPrintEnd,
  kTagBegin,  ///< {%
  kTagEnd,
  kName,
  kString,  ///< Without quotes and escapes.
  kInteger,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text{};
  std::int64_t integer = 0;
};

/// The tokens; the last one is kEnd. kInvalidFile, with the line, for an invalid template;
/// kUnsupported for names and numbers that Volta does not support.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace volta::jinja
