#include "train/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/temporary.h"
#include "base/version.h"
#include "formats/adapter.h"
#include "formats/model_folder.h"
#include "formats/non_finite.h"
#include "formats/safetensors.h"
#include "train/checkpoint.h"

namespace volta {
namespace {

// Renames a checkpoint and then removes it, so that a kill in between leaves no half of it under
// its name.
Status retire(const CheckpointPlace& place) {
  const std::string aside = retired_path(place.path);
  VOLTA_TRY(rename_path(place.path, aside));
  return remove_all(aside);
}

// Whether a checkpoint has all its files with the right sizes. This check is quick;
// open_checkpoint() also verifies the content.
bool looks_complete(const std::string& path, const CheckpointManifest& manifest) {
  return std::ranges::all_of(manifest.files, [&](const CheckpointFile& file) {
    const auto bytes = file_size(join_path(path, file.name));
    return bytes && *bytes == file.bytes;
  });
}

// A file or folder in a checkpoint that its manifest does not name, so somebody else put it there.
// Empty if there is none.
Result<std::string> foreign_file(const std::string& path, const CheckpointManifest& manifest) {
  VOLTA_TRY(const auto names, list_directory(path));
  const auto foreign = std::ranges::find_if(names, [&](const std::string& name) {
    const auto is_name = [&](const CheckpointFile& file) { return file.name == name; };
    return name != kManifestFile && std::ranges::none_of(manifest.files, is_name);
  });
  return foreign == names.end() ? std::string() : *foreign;
}

Status prune(const std::string& run_directory, std::int64_t step, std::int64_t keep,
             std::optional<std::int64_t> best) {
  if (keep == 0) return {};
  VOLTA_TRY(const auto places, list_checkpoints(run_directory));
  std::int64_t good = 0;
  for (const CheckpointPlace& place : places) {
    // Later checkpoints are from before a resume that could not use them, and damaged ones cannot
    // be used. Both are left alone and do not count towards `keep`.
    if (place.step > step) continue;
    const auto manifest = read_manifest(place.path);
    if (!manifest || !looks_complete(place.path, *manifest) || good++ < keep) continue;
    if (place.step == best) continue;
    VOLTA_TRY(const std::string foreign, foreign_file(place.path, *manifest));
    if (!foreign.empty()) {
      log(LogLevel::kWarning,
          fmt::format(
              "{} is not removed, because it holds '{}', which is not part of the checkpoint",
              place.path, foreign));
      continue;
    }
    VOLTA_TRY(retire(place));
  }
  return {};
}

// A checkpoint with values that are not finite would replace a good one, and no run could continue
// from it. An interruption does not stop the check: the checkpoint that it asks for is this one.
Status check_trained_tensors(const Trainer& trainer) {
  Device& device = *trainer.model().device();
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(device.info().threads));
  const auto check = [&](std::string_view kind, const auto& tensors) -> Status {
    for (const auto& [name, tensor] : tensors) {
      VOLTA_TRY(const NonFinite bad, count_non_finite(device, tensor, pool));
      if (bad.first < 0) continue;
      return fail(
          ErrorCode::kNonFinite,
          fmt::format("{} '{}' {} holds {} NaN and {} infinities, the first at element {}; "
                      "lower the learning rate or the weight decay, or clip gradients",
                      kind, name, to_string(tensor.spec()), bad.nans, bad.infinities, bad.first));
    }
    return {};
  };
  VOLTA_TRY(check("weight", trainer.model().trained_weights()));
  return check("optimiser tensor", trainer.optimizer_state());
}

Status write_model(const std::string& directory, const CheckpointContent& content) {
  const Transformer& model = content.trainer->model();
  if (content.base) {
    return save_adapter(directory, model.config(), model.adapter(), content.base->path);
  }
  VOLTA_TRY(save_model(directory, model, content.tokenizer));
  return write_carried_files(directory, content.carried);
}

// Writes all files of a checkpoint into an empty folder and makes them durable.
Status write_files(const std::string& directory, const CheckpointContent& content) {
  const Trainer& trainer = *content.trainer;
  const Device& device = *trainer.model().device();
  VOLTA_TRY(write_model(directory, content));
  VOLTA_TRY(write_safetensors(join_path(directory, kTrainerFile), trainer.optimizer_state(),
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
  VOLTA_TRY(write_file_atomic(join_path(directory, kManifestFile), to_json(manifest)));
  return fsync_directory(directory);
}

// Renames the finished folder to its place. A folder that already has this name was not usable, or
// the run would have resumed after it. It is moved aside, and moved back when the rename fails.
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

// Reads a finished checkpoint from the disk and compares it with its manifest. The checksums in the
// manifest were computed while the files were still in the page cache.
Status read_back(const std::string& path) {
  VOLTA_TRY(const CheckpointManifest manifest, read_manifest(path));
  for (const CheckpointFile& file : manifest.files) {
    VOLTA_TRY(drop_cached_pages(join_path(path, file.name)));
    VOLTA_TRY(verify_file(path, file, [](std::int64_t) { return true; }));
  }
  return {};
}

}  // namespace

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
    VOLTA_TRY(check_trained_tensors(*content.trainer));
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

}  // namespace volta
