// Prompts in a file, one per line: plain text or JSON objects. Does not check vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

struct FilePrompt {
  std::int64_t line = 0;  ///< Counted from 1.
  /// A text, or token ids (not empty, none negative).
  std::variant<std::string, std::vector<std::int32_t>> prompt;
};

/// The lines of a text file. A carriage return at the end of a line is removed. kInvalidFile, with
/// the line, for an empty line and for invalid UTF-8; also for a file without lines.
Result<std::vector<FilePrompt>> parse_prompt_lines(std::string_view text, std::string_view name);
/// The same for JSON lines. Each line is an object with either "prompt", a text, or "ids", a list
/// of ids, and no other member.
Result<std::vector<FilePrompt>> parse_prompt_json_lines(std::string_view text,
                                                        std::string_view name);
/// Loads a file: JSON lines if its name ends in ".jsonl", otherwise text.
Result<std::vector<FilePrompt>> load_prompts(const std::string& path);

}  // namespace volta
