#include "train/checkpoint_manifest.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "formats/adapter.h"
#include "tensor/spec.h"

namespace volta {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::array<std::string_view, 3> kModelFiles = {"config.json", "model.safetensors",
                                                         kTrainerFile};
constexpr std::array<std::string_view, 3> kAdapterFiles = {kAdapterConfigFile, kAdapterWeightsFile,
                                                           kTrainerFile};
constexpr std::int64_t kMaxManifestBytes = 1 << 20;

bool is_checksum(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<CheckpointFile> describe_file(const std::string& directory, const std::string& name) {
  VOLTA_TRY(const MappedFile file, MappedFile::open(join_path(directory, name)));
  CheckpointFile described{name, file.size(), hex(hash64(file.bytes()))};
  VOLTA_TRY(file.check_unchanged());
  return described;
}

Result<CheckpointFile> parse_file(const JsonRef& ref) {
  CheckpointFile file;
  VOLTA_TRY(file.name, ref.get_string("name"));
  VOLTA_TRY(file.bytes, ref.get_int("bytes", 0, kMaxTensorBytes));  // So that sums do not overflow.
  VOLTA_TRY(file.xxh3, ref.get_string("xxh3"));
  if (!is_plain_file_name(file.name) || !is_checksum(file.xxh3)) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: '{}' with checksum '{}' is no file of a checkpoint", ref.path(),
                            file.name, file.xxh3));
  }
  return file;
}

Result<BaseModel> parse_base(const JsonRef& ref) {
  BaseModel base;
  VOLTA_TRY(base.path, ref.get_string("path"));
  VOLTA_TRY(base.xxh3, ref.get_string("xxh3"));
  if (is_checksum(base.xxh3)) return base;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: '{}' is no checksum of a model", ref.path(), base.xxh3));
}

Status check_complete(const CheckpointManifest& manifest, std::string_view name) {
  std::set<std::string_view> names;
  for (const CheckpointFile& file : manifest.files) {
    if (!names.insert(file.name).second) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: '{}' is listed twice", name, file.name));
    }
  }
  for (const std::string_view required : manifest.base ? kAdapterFiles : kModelFiles) {
    if (!names.contains(required)) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: no '{}' listed", name, required));
    }
  }
  return {};
}

}  // namespace

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size());
  const auto step = parse_int<std::int64_t>(digits, "step", 0, kMaxPlausibleCount);
  if (!step || fmt::format("{}", *step) != digits) return std::nullopt;
  return *step;
}

Result<std::vector<CheckpointFile>> describe_files(const std::string& directory) {
  std::vector<CheckpointFile> files;
  VOLTA_TRY(const auto names, list_directory(directory));
  for (const std::string& name : names) {
    VOLTA_TRY(CheckpointFile file, describe_file(directory, name));
    files.push_back(std::move(file));
  }
  return files;
}

Status verify_file(const std::string& directory, const CheckpointFile& expected,
                   FunctionRef<bool(std::int64_t)> go_on) {
  const std::string path = join_path(directory, expected.name);
  VOLTA_TRY(const std::int64_t bytes, file_size(path));
  if (bytes != expected.bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} has {} bytes, the manifest says {}", path, bytes, expected.bytes));
  }
  VOLTA_TRY(const MappedFile file, MappedFile::open(path));
  VOLTA_TRY(const std::uint64_t hash, hash_file(file, go_on));
  if (hex(hash) != expected.xxh3) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} is damaged: its checksum is {}, the manifest says {}", path,
                            hex(hash), expected.xxh3));
  }
  return {};
}

std::string to_json(const CheckpointManifest& manifest) {
  JsonWriter json(2);
  json.begin_object().field("format", manifest.format).field("volta", manifest.volta);
  json.field("step", manifest.step).field("device", manifest.device);
  json.field("isa", manifest.isa).key("kernels").begin_array();
  for (const std::string& kernel : manifest.kernels) json.value(kernel);
  json.end_array();
  if (manifest.base) {
    json.key("base").begin_object().field("path", manifest.base->path);
    json.field("xxh3", manifest.base->xxh3).end_object();
  }
  json.key("files").begin_array();
  for (const CheckpointFile& file : manifest.files) {
    json.begin_object().field("name", file.name).field("bytes", file.bytes);
    json.field("xxh3", file.xxh3).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

Result<CheckpointManifest> parse_manifest(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {.max_bytes = kMaxManifestBytes}));
  const JsonRef root(json, name);
  CheckpointManifest manifest;
  VOLTA_TRY(manifest.format, root.get_int("format"));
  if (manifest.format != kCheckpointFormat) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: checkpoint format {}; this Volta reads format {}. Use the version "
                            "that wrote it",
                            name, manifest.format, kCheckpointFormat));
  }
  VOLTA_TRY(manifest.volta, root.get_string("volta"));
  VOLTA_TRY(manifest.step, root.get_int("step", 0, kMaxPlausibleCount));
  VOLTA_TRY(manifest.device, root.get_string("device"));
  VOLTA_TRY(manifest.isa, root.get_string("isa"));
  VOLTA_TRY(const JsonRef kernels, root.member("kernels"));
  VOLTA_TRY(const auto kernel_list, kernels.elements());
  for (const JsonRef& kernel : kernel_list) {
    VOLTA_TRY(std::string words, kernel.as_string());
    manifest.kernels.push_back(std::move(words));
  }
  VOLTA_TRY(const auto base, root.optional_member("base"));
  if (base) {
    VOLTA_TRY(manifest.base, parse_base(*base));
  }
  VOLTA_TRY(const JsonRef files, root.member("files"));
  VOLTA_TRY(const auto file_list, files.elements());
  for (const JsonRef& entry : file_list) {
    VOLTA_TRY(CheckpointFile file, parse_file(entry));
    manifest.files.push_back(std::move(file));
  }
  VOLTA_TRY(check_complete(manifest, name));
  return manifest;
}

Result<CheckpointManifest> read_manifest(const std::string& directory) {
  const std::string manifest_path = join_path(directory, kManifestFile);
  VOLTA_TRY(const std::string text, read_text_file(manifest_path, kMaxManifestBytes));
  VOLTA_TRY(CheckpointManifest manifest, parse_manifest(text, manifest_path));
  const auto step = step_of(file_name(directory));
  if (step && *step != manifest.step) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} is of step {}; the folder's name says {}",
                                                     manifest_path, manifest.step, *step));
  }
  return manifest;
}

Result<bool> has_manifest(const std::string& directory) {
  const std::string path = join_path(directory, kManifestFile);
  if (!path_exists(path)) return false;
  VOLTA_TRY(const std::int64_t bytes, file_size(path));
  if (bytes > kMaxManifestBytes) return false;  // Volta writes none of this size.
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxManifestBytes));
  const auto json = parse_json(text, path, {.max_bytes = kMaxManifestBytes});
  return !json || json->if_object() == nullptr || json->find("volta") != nullptr;
}

Result<std::optional<BaseModel>> recorded_base(const std::string& directory) {
  VOLTA_TRY(const bool present, has_manifest(directory));
  if (!present) return std::nullopt;
  VOLTA_TRY(CheckpointManifest manifest, read_manifest(directory));
  return std::move(manifest.base);
}

}  // namespace volta
