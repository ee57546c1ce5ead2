#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "train/settings.h"

namespace volta {

Result<Checkpoint> open_checkpoint(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(CheckpointManifest manifest, read_manifest(path));
  for (const CheckpointFile& file : manifest.files) {
    VOLTA_TRY(
        verify_file(path, file, [&](std::int64_t) { return !interrupted || !interrupted(); }));
  }
  return Checkpoint{path, std::move(manifest)};
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
  return join_path(run_directory, fmt::format("step-{}", step));
}

namespace {

// The metadata "run" of a trainer's file, whose step must be that of the manifest.
Result<std::string> read_run_state(const SafetensorsFile& file, const Checkpoint& checkpoint) {
  const auto& metadata = file.metadata();
  const auto step = metadata.find("step");
  const auto run = metadata.find("run");
  if (step == metadata.end() || run == metadata.end()) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: its metadata lacks 'step' or 'run': no trainer wrote it", file.path()));
  }
  const auto number = parse_int<std::int64_t>(step->second, "step", 0, kMaxPlausibleCount);
  if (!number) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: the step in its metadata is '{}', which "
                                                     "is no number of updates",
                                                     file.path(), step->second));
  }
  if (*number != checkpoint.manifest.step) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} is of step {}, its manifest of step {}", file.path(), *number,
                            checkpoint.manifest.step));
  }
  return run->second;
}

// The first value that is not from `least` to the largest number, or nullopt. The loop without a
// branch runs at about memory bandwidth.
std::optional<std::int64_t> find_outside(std::span<const float> values, float least) {
  const auto is_outside = [least](float x) {
    return !(x >= least && x <= std::numeric_limits<float>::max());
  };
  unsigned outside = 0;
  for (const float x : values) outside |= static_cast<unsigned>(is_outside(x));
  if (outside == 0) return std::nullopt;
  return std::ranges::find_if(values, is_outside) - values.begin();
}

// Checks one tensor of an optimiser: all values are finite, and Adam's means of squares are not
// negative. `go_on` gets the number of bytes read of it.
Status check_moments(const SafetensorsFile& file, const SafetensorsEntry& entry,
                     FunctionRef<bool(std::int64_t)> go_on) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  if (entry.spec.dtype != DType::kF32) return {};  // Trainer::restore() refuses it.
  VOLTA_TRY(const Tensor tensor, file.map(entry.name));
  VOLTA_TRY(const std::span<const float> values, tensor.values<float>());
  const bool squares = entry.name.starts_with("adam.v.");
  const float least = squares ? 0.0f : std::numeric_limits<float>::lowest();
  for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
    if (!go_on(static_cast<std::int64_t>(begin * sizeof(float)))) {
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted reading {}", file.path()));
    }
    const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    const auto bad = find_outside(piece, least);
    if (!bad) continue;
    const std::size_t place = begin + static_cast<std::size_t>(*bad);
    const std::string value = std::isnan(values[place]) ? "nan" : fmt::format("{}", values[place]);
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: optimiser tensor '{}' {} is {} at element {}, where no training "
                            "gives {}",
                            file.path(), entry.name, to_string(entry.spec), value, place,
                            squares ? "a negative or non-finite value" : "a non-finite value"));
  }
  return {};
}

Status check_trainer_file(const Checkpoint& checkpoint, const ReadCallback& go_on) {
  VOLTA_TRY(const SafetensorsFile file,
            SafetensorsFile::open(join_path(checkpoint.path, kTrainerFile)));
  VOLTA_TRY(const std::string run, read_run_state(file, checkpoint));
  VOLTA_TRY(check_run_state(run, file.path() + ": run", checkpoint.manifest.step));
  std::int64_t done = 0, all = 0;
  for (const SafetensorsEntry& entry : file.entries()) all += entry.spec.bytes();
  for (const SafetensorsEntry& entry : file.entries()) {
    VOLTA_TRY(check_moments(
        file, entry, [&](std::int64_t bytes) { return !go_on || go_on(done + bytes, all); }));
    file.release(entry.name);
    done += entry.spec.bytes();
  }
  return file.check_unchanged();
}

Result<Checkpoint> open_for(CheckpointUse use, const std::string& path,
                            const Interruption& interrupted) {
  VOLTA_TRY(Checkpoint checkpoint, open_checkpoint(path, interrupted));
  if (use == CheckpointUse::kResume) {
    VOLTA_TRY(check_trainer_state(
        checkpoint, [&](std::int64_t, std::int64_t) { return !interrupted || !interrupted(); }));
  }
  return checkpoint;
}

}  // namespace

Status check_trainer_state(const Checkpoint& checkpoint, const ReadCallback& go_on) {
  Status checked = check_trainer_file(checkpoint, go_on);
  if (checked || checked.error().code() != ErrorCode::kInvalidFile) return checked;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: the checkpoint is damaged, and a run cannot go on from it",
                          checked.error().message()));
}

Result<std::optional<Checkpoint>> newest_valid_checkpoint(const std::string& run_directory,
                                                          const Interruption& interrupted,
                                                          CheckpointUse use) {
  VOLTA_TRY(const auto places, list_checkpoints(run_directory));
  for (const CheckpointPlace& place : places) {
    auto checkpoint = open_for(use, place.path, interrupted);
    if (checkpoint) return std::optional(*std::move(checkpoint));
    const ErrorCode code = checkpoint.error().code();
    if (code == ErrorCode::kInterrupted || code == ErrorCode::kOutOfMemory) {
      return std::unexpected(std::move(checkpoint).error());  // It may well be valid.
    }
    log(LogLevel::kWarning,
        fmt::format("skipping checkpoint {}: {}", place.path, checkpoint.error().message()));
  }
  return std::nullopt;
}

Result<Transformer> load_checkpoint_model(const Checkpoint& checkpoint,
                                          const TransformerConfig& expected,
                                          std::shared_ptr<Device> device) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(checkpoint.path));
  VOLTA_TRY(Transformer model, source.load(std::move(device)));
  if (model.config() != expected) {
    return fail(ErrorCode::kMismatch,
                fmt::format("{} holds a model of another architecture than this run's: {} "
                            "parameters instead of {}. Resume with its own settings, or start "
                            "a new run in another folder",
                            checkpoint.path, model.parameter_count(), parameter_count(expected)));
  }
  return model;
}

Result<TrainerState> load_trainer_state(const Checkpoint& checkpoint,
                                        const Interruption& interrupted) {
  const std::string path = join_path(checkpoint.path, kTrainerFile);
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  TrainerState state;
  VOLTA_TRY(state.run_state, read_run_state(file, checkpoint));
  state.step = checkpoint.manifest.step;
  VOLTA_TRY(state.optimizer, file.load_all(host_memory(), interrupted));
  return state;
}

}  // namespace volta
