#include "io/carried_files.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxConfigBytes = std::int64_t{1} << 24;
constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;

constexpr std::array<std::string_view, 11> kCarried = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
};

// The value as it was parsed; as deep as the parser lets it be.
void write_value(JsonWriter& json, const JsonValue& value) {
  if (const auto* flag = value.if_bool()) {
    json.value(*flag);
  } else if (const auto* integer = value.if_int()) {
    json.value(*integer);
  } else if (const auto* number = value.if_double()) {
    json.raw(format_real(*number));
  } else if (const auto* text = value.if_string()) {
    json.value(*text);
  } else if (const auto* list = value.if_array()) {
    json.begin_array();
    for (const JsonValue& element : *list) write_value(json, element);
    json.end_array();
  } else if (const auto* members = value.if_object()) {
    json.begin_object();
    for (const auto& [key, member] : *members) write_value(json.key(key), member);
    json.end_object();
  } else {
    json.null();
  }
}

}  // namespace

Result<std::string> config_with_f32_weights(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue root, parse_json(text, name, {.max_bytes = kMaxConfigBytes}));
  const JsonValue::Object* members = root.if_object();
  if (members == nullptr) {
    return fail(ErrorCode::kInvalidFile, std::string(name) + ": it must be a JSON object");
  }
  JsonWriter json(2);
  json.begin_object();
  for (const auto& [key, member] : *members) {
    const bool type = (key == "dtype" || key == "torch_dtype") && member.if_string() != nullptr;
    if (type) {
      json.field(key, "float32");
    } else {
      write_value(json.key(key), member);
    }
  }
  json.end_object();
  return std::move(json).take() + "\n";
}

std::span<const std::string_view> carried_file_names() { return kCarried; }

Result<CarriedFiles> read_carried_files(const std::string& directory) {
  CarriedFiles files;
  const std::string config = join_path(directory, "config.json");
  VOLTA_TRY(const std::string text, read_text_file(config, kMaxConfigBytes));
  VOLTA_TRY(files["config.json"], config_with_f32_weights(text, config));
  for (const std::string_view name : kCarried) {
    const std::string path = join_path(directory, name);
    if (!path_exists(path)) continue;
    VOLTA_TRY(files[std::string(name)], read_text_file(path, kMaxFileBytes));
  }
  return files;
}

Status write_carried_files(const std::string& directory, const CarriedFiles& files) {
  for (const auto& [name, text] : files) {
    VOLTA_TRY(write_file_atomic(join_path(directory, name), text));
  }
  return {};
}

Status copy_model_files(const std::string& from, const std::string& to) {
  const auto copy = [&](std::string_view name) -> Status {
    const std::string path = join_path(from, name);
    if (!path_exists(path)) return {};
    VOLTA_TRY(const auto bytes, read_binary_file(path, kMaxFileBytes));
    return write_file_atomic(join_path(to, name), bytes.span());
  };
  for (const std::string_view name : kCarried) VOLTA_TRY(copy(name));
  return copy("config.json");
}

}  // namespace volta
