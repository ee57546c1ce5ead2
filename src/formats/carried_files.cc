#include "formats/carried_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/json_value.h"
#include "formats/model_config.h"

namespace volta {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// The largest files known: tokenizer.json 33 MB, other vocabularies 8 MB, tokenizer_config.json
// 1.2 MB.
struct CarriedName {
  std::string_view name;
  std::int64_t max_bytes;
};
constexpr std::array<CarriedName, 11> kCarried = {{
    {"generation_config.json", kMaxConfigBytes},
    {"tokenizer.json", 64 * kMiB},
    {"tokenizer_config.json", kMaxConfigBytes},
    {"special_tokens_map.json", kMaxConfigBytes},
    {"added_tokens.json", kMaxConfigBytes},
    {"vocab.json", 64 * kMiB},
    {"merges.txt", 64 * kMiB},
    {"vocab.txt", 64 * kMiB},
    {"tokenizer.model", 64 * kMiB},
    {"chat_template.jinja", kMaxConfigBytes},
    {"chat_template.json", kMaxConfigBytes},
}};
constexpr auto kNames = [] {
  std::array<std::string_view, kCarried.size()> names{};
  std::ranges::transform(kCarried, names.begin(), &CarriedName::name);
  return names;
}();

std::int64_t max_bytes(std::string_view name) {
  const auto found = std::ranges::find(kCarried, name, &CarriedName::name);
  return found == kCarried.end() ? kMaxConfigBytes : found->max_bytes;
}

// Whether a path is inside a folder. Both must be real paths.
bool is_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && path.substr(folder.size()).starts_with('/');
}

// The folder of the hub's cache that stores the files of a model folder: for
// .../models--ORG--NAME/snapshots/REVISION it is .../models--ORG--NAME/blobs. Empty for folders
// outside the cache.
std::string hub_blobs(const std::string& real_directory) {
  const std::string snapshots = parent_path(real_directory);
  const std::string repository = parent_path(snapshots);
  const bool hub =
      file_name(snapshots) == "snapshots" && file_name(repository).starts_with("models--");
  return hub ? join_path(repository, "blobs") : "";
}

// The path of the file to read: `path` itself, or the target of the link.
Result<std::string> resolve(const std::string& directory, const std::string& path) {
  if (!is_link(path)) return path;
  VOLTA_TRY(const std::string folder, real_path(directory));
  VOLTA_TRY(std::string target, real_path(path));
  const std::string blobs = hub_blobs(folder);
  if (is_below(target, folder) || (!blobs.empty() && is_below(target, blobs))) return target;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}' is a symbolic link to '{}', outside the model folder: it will not "
                          "be copied; put the file itself there, or remove the link",
                          path, target));
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
      write_json_value(json.key(key), member);
    }
  }
  json.end_object();
  return std::move(json).take() + "\n";
}

std::span<const std::string_view> carried_file_names() { return kNames; }

Result<std::optional<std::string>> read_carried_file(const std::string& directory,
                                                     std::string_view name) {
  const std::string path = join_path(directory, name);
  if (!path_exists(path)) {
    if (!is_link(path)) return std::nullopt;
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("'{}' is a symbolic link that leads nowhere: put the file itself there, "
                    "or remove the link",
                    path));
  }
  VOLTA_TRY(const std::string source, resolve(directory, path));
  VOLTA_TRY(std::string text, read_text_file(source, max_bytes(name)));
  if (!name.ends_with(".json")) return text;
  VOLTA_TRY(const JsonValue json, parse_json(text, path));
  if (json.if_object() != nullptr) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: it must be a JSON object", path));
}

Result<CarriedFiles> read_carried_files(const std::string& directory) {
  CarriedFiles files;
  const std::string path = join_path(directory, "config.json");
  VOLTA_TRY(const auto config, read_carried_file(directory, "config.json"));
  if (!config) return fail(ErrorCode::kNotFound, fmt::format("no file '{}'", path));
  VOLTA_TRY(files["config.json"], config_with_f32_weights(*config, path));
  for (const std::string_view name : kNames) {
    VOLTA_TRY(auto text, read_carried_file(directory, name));
    if (text) files.emplace(name, *std::move(text));
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
    VOLTA_TRY(const auto text, read_carried_file(from, name));
    return text ? write_file_atomic(join_path(to, name), *text) : Status();
  };
  for (const std::string_view name : kNames) VOLTA_TRY(copy(name));
  return copy("config.json");
}

}  // namespace volta
