// Any bytes as a chat template, run on a conversation that has a bit of everything. What is not
// counted by the budget makes an input slow: there are long texts to do it to, and steps enough.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace {

constexpr std::string_view kVariables = R"({
  "messages": [{"role": "system", "content": " Be brief.\n"},
               {"role": "user", "content": "Gr\u00fc\u00dfe \ud83c\udf0d <b>", "n": 3},
               {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
               {"role": "tool", "content": [{"type": "text", "text": "2.5"}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [1, null, true]}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "x": -2.5})";

volta::jinja::Environment environment() {
  volta::jinja::Environment made;
  // Counted work of a second or two with sanitizers; what escapes takes far more than the 10
  // seconds of one input.
  made.limits = {.steps = 1'000'000, .bytes = 32 << 20, .output = 1 << 20};
  const auto json = volta::parse_json(kVariables, "variables");
  for (const auto& [name, value] : *json->if_object()) {
    made.variables.emplace_back(name, *volta::jinja::from_json(value));
  }
  // Texts and lists that are equal but for their end.
  const std::string same(std::size_t{1} << 20, 'x');
  made.variables.emplace_back("a", volta::jinja::Value::text(same + "1"));
  made.variables.emplace_back("b", volta::jinja::Value::text(same + "2"));
  const auto list = std::make_shared<volta::jinja::Sequence>();
  list->items.assign(10'000, volta::jinja::Value::text("x"));
  made.variables.emplace_back("l", volta::jinja::Value(list));
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const volta::jinja::Environment given = environment();
  const std::string source(data, data + size);
  const auto ast = volta::jinja::parse(source);
  if (!ast) return 0;
  const auto text = volta::jinja::render(*ast, given);
  if (!text) return 0;
  if (volta::find_invalid_utf8(text->text)) __builtin_trap();
  if (text->text.size() > std::size_t{1} << 20) __builtin_trap();
  std::size_t end = 0;  // What is quoted is in order, and characters are quoted as a whole.
  for (const volta::TextRange& range : text->quoted) {
    if (range.begin < end || range.begin >= range.end || range.end > text->text.size()) {
      __builtin_trap();
    }
    const auto part = std::string_view(text->text).substr(range.begin, range.end - range.begin);
    if (volta::find_invalid_utf8(part)) __builtin_trap();
    end = range.end + 1;
  }
  return 0;
}
