// Prompts in a file, one a line: plain text, or JSON objects. Knows no vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

struct FilePrompt {
  std::int64_t line = 0;  ///< From 1.
  /// What a line asks to continue: a text, or token ids (not empty, none negative).
  std::variant<std::string, std::vector<std::int32_t>> prompt;
};

/// The lines of a text file; a carriage return before a line's end is not part of it. kInvalidFile,
/// naming the line, for an empty one and for what is not UTF-8; and for a file without any.
Result<std::vector<FilePrompt>> parse_prompt_lines(std::string_view text, std::string_view name);
/// The same of JSON lines: each an object with either "prompt", a text, or "ids", a list of ids,
/// and nothing else.
Result<std::vector<FilePrompt>> parse_prompt_json_lines(std::string_view text,
                                                        std::string_view name);
/// Reads a file: JSON lines when its name ends in ".jsonl", otherwise text.
Result<std::vector<FilePrompt>> load_prompts(const std::string& path);

}  // namespace volta
