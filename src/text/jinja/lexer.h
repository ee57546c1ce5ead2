// Cuts a template into text and the tokens between its brackets, with white space controlled as
// transformers has it (trim_blocks and lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta::jinja {

enum class TokenKind : std::uint8_t {
  kText,        ///< Outside the brackets.
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

/// The tokens, the last of which is kEnd. kInvalidFile with the line for what is no template,
/// kUnsupported for names and numbers beyond Volta's.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace volta::jinja
