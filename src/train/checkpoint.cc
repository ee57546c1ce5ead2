#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/temporary.h"
#include "base/text.h"
#include "base/version.h"
#include "io/adapter.h"
#include "io/model_folder.h"
#include "io/safetensors.h"

namespace volta {
namespace {

constexpr std::string_view kManifestName = "manifest.json";
constexpr std::string_view kTrainerName = "trainer.safetensors";
constexpr std::array<std::string_view, 3> kModelFiles = {"config.json", "model.safetensors",
                                                         kTrainerName};
constexpr std::array<std::string_view, 3> kAdapterFiles = {kAdapterConfigFile, kAdapterWeightsFile,
                                                           kTrainerName};
constexpr std::string_view kStepPrefix = "step-";
constexpr std::int64_t kMaxManifestBytes = 1 << 20;
constexpr std::int64_t kMaxStep = std::int64_t{1} << 40;

// N of "step-N".
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size());
  const auto step = parse_int<std::int64_t>(digits, "step", 0, kMaxStep);
  if (!step || fmt::format("{}", *step) != digits) return std::nullopt;
  return *step;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_checksum(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<CheckpointFile> describe_file(const std::string& directory, const std::string& name) {
  VOLTA_TRY(const MappedFile file, MappedFile::open(join_path(directory, name)));
  CheckpointFile described{name, file.size(), hex(hash64(file.bytes()))};
  VOLTA_TRY(file.check_unchanged());
  return described;
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

// What `go_on` is told is the bytes of this file.
Status verify_file(const std::string& directory, const CheckpointFile& expected,
                   FunctionRef<bool(std::int64_t)> go_on) {
  const std::string path = join_path(directory, expected.name);
  VOLTA_TRY(const std::int64_t bytes, file_size(path));
  if (bytes != expected.bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} has {} bytes, the manifest says {}", path, bytes, expected.bytes));
  }
  VOLTA_TRY(const MappedFile file, MappedFile::open(path));
  Status unchanged;
  const auto hash = hash64(file.bytes(), [&](std::int64_t done) {
    unchanged = file.check_unchanged();
    return unchanged.has_value() && go_on(done);
  });
  VOLTA_TRY(std::move(unchanged));
  if (!hash) return fail(ErrorCode::kInterrupted, fmt::format("interrupted reading {}", path));
  VOLTA_TRY(file.check_unchanged());
  if (hex(*hash) != expected.xxh3) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} is damaged: its checksum is {}, the manifest says {}", path,
                            hex(*hash), expected.xxh3));
  }
  return {};
}

Status verify_file(const std::string& directory, const CheckpointFile& expected) {
  return verify_file(directory, expected, [](std::int64_t) { return true; });
}

Result<CheckpointFile> parse_file(const JsonRef& ref) {
  CheckpointFile file;
  VOLTA_TRY(file.name, ref.get_string("name"));
  VOLTA_TRY(file.bytes, ref.get_int("bytes", 0, kMaxTensorBytes));  // So that sums fit.
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

// Takes a checkpoint out of sight in one step, then removes it, so that a kill in between leaves
// no half of it behind under its name.
Status retire(const CheckpointPlace& place) {
  const std::string aside = retired_path(place.path);
  VOLTA_TRY(rename_path(place.path, aside));
  return remove_all(aside);
}

// Whether a checkpoint has all its files, by their sizes. Quick; open_checkpoint() knows for sure.
bool looks_complete(const std::string& path) {
  const std::string manifest_path = join_path(path, kManifestName);
  const auto text = read_text_file(manifest_path, kMaxManifestBytes);
  if (!text) return false;
  const auto manifest = parse_manifest(*text, manifest_path);
  return manifest && std::ranges::all_of(manifest->files, [&](const CheckpointFile& file) {
           const auto bytes = file_size(join_path(path, file.name));
           return bytes && *bytes == file.bytes;
         });
}

Status prune(const std::string& run_directory, std::int64_t step, std::int64_t keep,
             std::optional<std::int64_t> best) {
  if (keep == 0) return {};
  VOLTA_TRY(const auto places, list_checkpoints(run_directory));
  std::int64_t kept = 0;
  for (const CheckpointPlace& place : places) {
    // Later ones are left from before a resume that could not use them, and damaged ones are of no
    // use: neither is ours to judge, nor counts as kept.
    if (place.step > step || !looks_complete(place.path) || kept++ < keep) continue;
    if (place.step == best) continue;
    VOLTA_TRY(retire(place));
  }
  return {};
}

// A checkpoint of weights that are not numbers would replace a good one and could not go on.
Status check_finite(const Transformer& model) {
  for (const auto& [name, tensor] : model.trained_weights()) {
    Tensor host = tensor;
    if (!tensor.host_accessible()) {
      VOLTA_TRY(host, tensor.clone_to());
    }
    VOLTA_TRY(const std::span<const float> values, host.values<float>());
    const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (bad == values.end()) continue;
    return fail(ErrorCode::kNonFinite,
                fmt::format("weight '{}' {} is {} at element {}; lower the learning rate or the "
                            "weight decay, or clip gradients",
                            name, to_string(tensor.spec()), std::isnan(*bad) ? "nan" : "infinite",
                            bad - values.begin()));
  }
  return {};
}

Status write_model(const std::string& directory, const CheckpointContent& content) {
  const Transformer& model = content.trainer->model();
  if (content.base) {
    return save_adapter(directory, model.config(), model.adapter(), content.base->path);
  }
  VOLTA_TRY(save_model(directory, model, content.tokenizer));
  return write_carried_files(directory, content.carried);
}

// Everything of a checkpoint, into an empty folder, durable.
Status write_files(const std::string& directory, const CheckpointContent& content) {
  const Trainer& trainer = *content.trainer;
  const Device& device = *trainer.model().device();
  VOLTA_TRY(write_model(directory, content));
  VOLTA_TRY(write_safetensors(join_path(directory, kTrainerName), trainer.optimizer_state(),
                              {{"format", "volta"},
                               {"step", fmt::format("{}", trainer.steps_done())},
                               {"run", content.run_state}}));
  CheckpointManifest manifest;
  manifest.volta = version_with_hash();
  manifest.step = trainer.steps_done();
  manifest.device = device.info().id;
  manifest.isa = device.info().isa;
  manifest.kernels = kernel_parameters(trainer.graph(), device);
  manifest.base = content.base;
  VOLTA_TRY(manifest.files, describe_files(directory));
  VOLTA_TRY(write_file_atomic(join_path(directory, kManifestName), to_json(manifest)));
  return fsync_directory(directory);
}

// Puts the finished folder in place. A folder that has the name already could not be used (a resume
// would have gone on behind it): it makes room, and comes back when the rename fails.
Status publish(TemporaryFolder& temporary, const CheckpointPlace& place) {
  if (!path_exists(place.path)) return temporary.rename_to(place.path);
  const std::string aside = retired_path(place.path);
  VOLTA_TRY(rename_path(place.path, aside));
  if (Status renamed = temporary.rename_to(place.path); !renamed) {
    if (Status back = rename_path(aside, place.path); !back) {
      log(LogLevel::kWarning, back.error().message());
    }
    return renamed;
  }
  return remove_all(aside);
}

}  // namespace

Result<std::string> weights_hash(const Transformer& model) {
  std::string summary;
  for (const auto& [name, tensor] : model.weights()) {
    Tensor host = tensor;
    if (!tensor.host_accessible()) {
      VOLTA_TRY(host, tensor.clone_to());
    }
    VOLTA_TRY(const auto bytes, host.host_bytes());
    const auto hash = hash64(bytes, [&](std::int64_t) { return !model.device()->interrupted(); });
    if (!hash) return fail(ErrorCode::kInterrupted, "interrupted");
    summary += fmt::format("{} {} {}\n", name, to_string(tensor.spec()), hex(*hash));
  }
  return hex(hash64(summary));
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
  VOLTA_TRY(manifest.step, root.get_int("step", 0, kMaxStep));
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

std::vector<std::string> kernel_parameters(const Graph& graph, const Device& device) {
  std::set<std::string> all;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(graph.spec(input));
    std::string words = device.kernel_parameters(node.op, inputs);
    if (!words.empty()) all.insert(std::move(words));
  }
  return {all.begin(), all.end()};
}

namespace {

// The manifest of a step-N folder.
Result<CheckpointManifest> read_manifest(const std::string& path) {
  const std::string manifest_path = join_path(path, kManifestName);
  VOLTA_TRY(const std::string text, read_text_file(manifest_path, kMaxManifestBytes));
  VOLTA_TRY(CheckpointManifest manifest, parse_manifest(text, manifest_path));
  const auto step = step_of(file_name(path));
  if (step && *step != manifest.step) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} is of step {}; the folder's name says {}",
                                                     manifest_path, manifest.step, *step));
  }
  return manifest;
}

// Reads a finished checkpoint from the disk and compares it with its manifest, whose checksums were
// made while the system had the files in memory.
Status read_back(const std::string& path) {
  VOLTA_TRY(const CheckpointManifest manifest, read_manifest(path));
  for (const CheckpointFile& file : manifest.files) {
    VOLTA_TRY(drop_cached_pages(join_path(path, file.name)));
    VOLTA_TRY(verify_file(path, file));
  }
  return {};
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(CheckpointManifest manifest, read_manifest(path));
  for (const CheckpointFile& file : manifest.files) {
    VOLTA_TRY(
        verify_file(path, file, [&](std::int64_t) { return !interrupted || !interrupted(); }));
  }
  return Checkpoint{path, std::move(manifest)};
}

Result<bool> has_manifest(const std::string& directory) {
  const std::string path = join_path(directory, kManifestName);
  if (!path_exists(path)) return false;
  VOLTA_TRY(const std::int64_t bytes, file_size(path));
  if (bytes > kMaxManifestBytes) return false;  // None that Volta writes is so large.
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

Result<std::vector<Error>> check_checkpoint(const std::string& path, const ReadCallback& go_on) {
  std::vector<Error> errors;
  const auto present = has_manifest(path);
  if (present && !*present) return errors;
  const auto manifest = read_manifest(path);
  if (!manifest) {
    errors.push_back(manifest.error());
    return errors;
  }
  std::int64_t done = 0, all = 0;
  for (const CheckpointFile& file : manifest->files) all += file.bytes;
  for (const CheckpointFile& file : manifest->files) {
    const Status verified = verify_file(
        path, file, [&](std::int64_t bytes) { return !go_on || go_on(done + bytes, all); });
    done += file.bytes;
    if (verified) continue;
    const ErrorCode code = verified.error().code();
    const bool ends = code == ErrorCode::kInterrupted || code == ErrorCode::kOutOfMemory;
    if (ends) return std::unexpected(verified.error());
    errors.emplace_back(code == ErrorCode::kInvalidFile ? ErrorCode::kMismatch : code,
                        verified.error().message());
  }
  return errors;
}

Result<std::vector<CheckpointPlace>> list_checkpoints(const std::string& run_directory) {
  std::vector<CheckpointPlace> places;
  if (!path_exists(run_directory)) return places;
  VOLTA_TRY(const auto names, list_directory(run_directory));
  for (const std::string& name : names) {
    std::string path = join_path(run_directory, name);
    const auto step = step_of(name);
    if (step && is_directory(path)) places.push_back({*step, std::move(path)});
  }
  std::sort(places.begin(), places.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return places;
}

std::string checkpoint_path(const std::string& run_directory, std::int64_t step) {
  return join_path(run_directory, fmt::format("{}{}", kStepPrefix, step));
}

Result<std::optional<Checkpoint>> newest_valid_checkpoint(const std::string& run_directory,
                                                          const Interruption& interrupted) {
  VOLTA_TRY(const auto places, list_checkpoints(run_directory));
  for (const CheckpointPlace& place : places) {
    auto checkpoint = open_checkpoint(place.path, interrupted);
    if (checkpoint) return std::optional(*std::move(checkpoint));
    if (checkpoint.error().code() == ErrorCode::kInterrupted) {
      return std::unexpected(std::move(checkpoint).error());  // It may well be valid.
    }
    log(LogLevel::kWarning,
        fmt::format("skipping checkpoint {}: {}", place.path, checkpoint.error().message()));
  }
  return std::nullopt;
}

Result<std::string> set_aside(const std::string& path, std::string_view suffix) {
  std::string aside = fmt::format("{}{}", path, suffix);
  for (int number = 2; path_exists(aside); ++number) {
    aside = fmt::format("{}{}.{}", path, suffix, number);
  }
  VOLTA_TRY(rename_path(path, aside));
  return aside;
}

std::int64_t checkpoint_bytes(const Trainer& trainer) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : trainer.model().trained_weights()) bytes += tensor.bytes();
  for (const auto& [name, tensor] : trainer.optimizer_state()) bytes += tensor.bytes();
  return bytes;
}

Result<std::string> write_checkpoint(const std::string& run_directory,
                                     const CheckpointContent& content, std::int64_t keep,
                                     std::optional<std::int64_t> best) {
  const std::int64_t step = content.trainer->steps_done();
  const CheckpointPlace place{step, checkpoint_path(run_directory, step)};
  const auto write = [&]() -> Status {
    VOLTA_TRY(check_finite(content.trainer->model()));
    VOLTA_TRY(TemporaryFolder temporary, TemporaryFolder::create(place.path));
    VOLTA_TRY(write_files(temporary.path(), content));
    VOLTA_TRY(read_back(temporary.path()));
    return publish(temporary, place);
  };
  if (Status written = write(); !written) {
    return std::unexpected(
        std::move(written).error().with_context(fmt::format("checkpoint of step {}", step)));
  }
  if (Status pruned = prune(run_directory, step, keep, best); !pruned) {
    log(LogLevel::kWarning,
        fmt::format("an old checkpoint could not be removed: {}", pruned.error().message()));
  }
  return place.path;
}

Result<Transformer> load_checkpoint_model(const Checkpoint& checkpoint,
                                          const TransformerConfig& expected,
                                          std::shared_ptr<Device> device) {
  VOLTA_TRY(Transformer model, load_model(checkpoint.path, std::move(device)));
  if (model.config() != expected) {
    return fail(ErrorCode::kMismatch,
                fmt::format("{} holds a model of another architecture than this run's: {} "
                            "parameters instead of {}. Resume with its own settings, or start "
                            "anew in another folder",
                            checkpoint.path, model.parameter_count(), parameter_count(expected)));
  }
  return model;
}

Result<TrainerState> load_trainer_state(const Checkpoint& checkpoint,
                                        const Interruption& interrupted) {
  const std::string path = join_path(checkpoint.path, kTrainerName);
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto& metadata = file.metadata();
  const auto step = metadata.find("step");
  const auto run = metadata.find("run");
  if (step == metadata.end() || run == metadata.end()) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: its metadata lacks 'step' or 'run': no trainer wrote it", path));
  }
  TrainerState state;
  VOLTA_TRY(state.step, parse_int<std::int64_t>(step->second, path + ": step", 0, kMaxStep));
  if (state.step != checkpoint.manifest.step) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} is of step {}, its manifest of step {}",
                                                     path, state.step, checkpoint.manifest.step));
  }
  state.run_state = run->second;
  VOLTA_TRY(state.optimizer, file.load_all(host_memory(), interrupted));
  return state;
}

}  // namespace volta
