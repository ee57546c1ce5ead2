#include "text/prompt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/json.h"
#include "base/text.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;
constexpr JsonLimits kLineLimits = {.max_depth = 4};

using ParseLine = FunctionRef<Result<FilePrompt>(std::string_view line, const std::string& place)>;

Result<std::vector<FilePrompt>> parse_lines(std::string_view text, std::string_view name,
                                            ParseLine parse) {
  std::vector<FilePrompt> prompts;
  std::int64_t number = 0;
  text = skip_byte_order_mark(text);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string place = fmt::format("{}: line {}", name, ++number);
    if (line.empty()) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{} is empty; each line must hold a prompt", place));
    }
    if (const auto mistake = utf8_mistake(line)) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", place, *mistake));
    }
    VOLTA_TRY(FilePrompt prompt, parse(line, place));
    prompt.line = number;
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: no prompts; the file is empty", name));
  }
  return prompts;
}

Result<std::vector<std::int32_t>> parse_id_list(const JsonRef& ref) {
  VOLTA_TRY(const auto elements, ref.elements());
  std::vector<std::int32_t> ids;
  ids.reserve(elements.size());
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t id, element.as_int(0, std::numeric_limits<std::int32_t>::max()));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  if (ids.empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: no ids; give at least one", ref.path()));
  }
  return ids;
}

Result<FilePrompt> parse_object(std::string_view line, const std::string& place) {
  VOLTA_TRY(const JsonValue value, parse_json(line, place, kLineLimits));
  const JsonRef root(value, place);
  const JsonValue::Object* object = value.if_object();
  if (object == nullptr || object->size() != 1 ||
      (object->front().first != "prompt" && object->front().first != "ids")) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: expected an object with either \"prompt\" or \"ids\", and nothing "
                            "else",
                            place));
  }
  FilePrompt prompt;
  if (object->front().first == "prompt") {
    VOLTA_TRY(prompt.prompt, root.get_string("prompt"));
  } else {
    VOLTA_TRY(const JsonRef ids, root.member("ids"));
    VOLTA_TRY(prompt.prompt, parse_id_list(ids));
  }
  return prompt;
}

}  // namespace

Result<std::vector<FilePrompt>> parse_prompt_lines(std::string_view text, std::string_view name) {
  return parse_lines(text, name,
                     [](std::string_view line, const std::string&) -> Result<FilePrompt> {
                       return FilePrompt{.prompt = std::string(line)};
                     });
}

Result<std::vector<FilePrompt>> parse_prompt_json_lines(std::string_view text,
                                                        std::string_view name) {
  return parse_lines(text, name, [](std::string_view line, const std::string& place) {
    return parse_object(line, place);
  });
}

Result<std::vector<FilePrompt>> load_prompts(const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxBytes));
  return path.ends_with(".jsonl") ? parse_prompt_json_lines(text, path)
                                  : parse_prompt_lines(text, path);
}

}  // namespace volta
