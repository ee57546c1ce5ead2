// Any bytes as a file of prompts, of either kind, and as a text with stop strings.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/prompt_file.h"
#include "text/stop_strings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  for (const auto parse : {volta::parse_prompt_lines, volta::parse_prompt_json_lines}) {
    const auto prompts = parse(text, "fuzz");
    std::int64_t line = 0;
    if (prompts && prompts->empty()) __builtin_trap();
    for (const auto& prompt : prompts.value_or(std::vector<volta::FilePrompt>())) {
      if (prompt.line != ++line) __builtin_trap();
    }
  }
  // The first line and the second one stop the rest, which comes whole or in pieces.
  const std::size_t first = std::min(text.find('\n'), text.size());
  const std::size_t second = std::min(text.find('\n', first + 1), text.size());
  const std::vector<std::string> stops = {text.substr(0, first),
                                          text.substr(std::min(first + 1, second), second - first)};
  const std::string rest = text.substr(second);
  volta::StopStrings whole(stops), pieces(stops);
  whole.push(rest);
  std::size_t shown = 0;
  for (const char c : rest) {
    const std::size_t before = std::exchange(shown, pieces.push(std::string_view(&c, 1)));
    if (shown < before || shown > rest.size()) __builtin_trap();  // Shown text stays.
  }
  if (pieces.finish() != whole.finish() || pieces.finish() > rest.size()) __builtin_trap();
  if (whole.stopped() != pieces.stopped()) __builtin_trap();
  return 0;
}
