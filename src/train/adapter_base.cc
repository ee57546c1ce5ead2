#include "train/adapter_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/work_budget.h"
#include "device/tensor_ops.h"
#include "formats/adapter.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_name.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "nn/weight_source.h"
#include "tensor/spec.h"
#include "tensor/tensor.h"
#include "train/checkpoint_manifest.h"

namespace volta {
namespace {

// One line of the text whose checksum weights_hash() returns; the lines are sorted by name.
Result<std::string> hash_line(const std::string& name, const Tensor& tensor, const Device& device) {
  Tensor host = tensor;
  if (!tensor.host_accessible()) {
    VOLTA_TRY(host, tensor.clone_to());
  }
  VOLTA_TRY(const auto bytes, host.host_bytes());
  const auto hash = hash64(bytes, [&](std::int64_t) { return !device.interrupted(); });
  if (!hash) return fail(ErrorCode::kInterrupted, "interrupted");
  return fmt::format("{} {} {}\n", name, to_string(tensor.spec()), hex(*hash));
}

// `otherwise` says what the user can do instead of giving the right model; it may be empty.
std::unexpected<Error> other_weights(const std::string& folder, const BaseModel& base,
                                     const std::string& model, const std::string& hash,
                                     std::string_view otherwise) {
  const std::vector<std::string> snapshots = other_snapshots(model);
  const std::string hint =
      snapshots.empty() ? "" : fmt::format(" (perhaps another revision: {})", snapshots.front());
  return fail(ErrorCode::kMismatch,
              fmt::format("the adapter {} was trained on other weights (those of {}, XXH3 {}) "
                          "than {} has (XXH3 {}): give it its own base model{}{}",
                          folder, base.path, base.xxh3, model, hash, hint, otherwise));
}

}  // namespace

Result<std::string> weights_hash(const Transformer& model) {
  std::string summary;
  for (const auto& [name, tensor] : model.weights()) {
    VOLTA_TRY(const std::string line, hash_line(name, tensor, *model.device()));
    summary += line;
  }
  return hex(hash64(summary));
}

Result<std::string> weights_hash(const ModelSource& model, const TransformerConfig& config,
                                 Device& device) {
  VOLTA_TRY(const auto source, model.weights(config));
  const Interruption interrupted = [&device] { return device.interrupted(); };
  std::vector<ParameterInfo> infos = parameters(config);
  std::ranges::sort(infos, {}, [](const ParameterInfo& info) { return info.name; });
  std::string summary;
  for (const ParameterInfo& info : infos) {
    VOLTA_TRY(check_interrupted(device));
    VOLTA_TRY(const Tensor stored, source->read(info, interrupted));
    auto weight = tensor_ops::as_spec(device, stored, {DType::kF32, info.shape});
    VOLTA_TRY(source->check_unchanged(info));  // Comes first: it may explain the error.
    if (!weight) return std::unexpected(std::move(weight).error());
    VOLTA_TRY(const std::string line, hash_line(info.name, *weight, device));
    summary += line;
    source->release(info);
  }
  VOLTA_TRY(source->check_unchanged());
  return hex(hash64(summary));
}

bool is_path_of_base(const std::string& base, const std::string& model_path) {
  if (is_same_place(base, model_path)) return true;
  const std::string name = file_name(base);
  const std::string in_cache = fmt::format("--{}", name);
  for (std::string path = model_path; path != "." && path != "/"; path = parent_path(path)) {
    const std::string folder = file_name(path);
    if (folder == name || (folder.starts_with("models--") && folder.ends_with(in_cache))) {
      return true;
    }
  }
  const std::string file = file_name(model_path);
  return has_gguf_name(file) && file.starts_with(name + ".");
}

Status check_adapter_base(const std::string& folder, const Transformer& model,
                          const std::string& model_path) {
  VOLTA_TRY(const auto base, recorded_base(folder));
  if (base) {
    VOLTA_TRY(const std::string hash, weights_hash(model));
    if (hash == base->xxh3) return {};
    return other_weights(folder, *base, model_path, hash,
                         ", or use it on this one all the same with --any-base");
  }
  VOLTA_TRY(const std::string name, adapter_base_name(folder));
  if (!name.empty() && !is_path_of_base(name, model_path)) {
    log(LogLevel::kWarning,
        fmt::format(
            "the adapter {} names '{}' as its base model; {} may be another one (--any-base "
            "leaves out this warning)",
            folder, name, model_path));
  }
  return {};
}

namespace {

// Checks that the adapter fits the model at `path` and was trained on it.
Result<AdapterBaseReport> compare(const std::string& folder, const std::optional<BaseModel>& base,
                                  const std::string& path, Device& device) {
  VOLTA_TRY(const ModelSource model, ModelSource::open(path));
  VOLTA_TRY(const TransformerConfig config, model.config());
  const auto adapter = load_adapter(folder, config);
  if (!adapter) {
    const ErrorCode code = adapter.error().code();
    if (code != ErrorCode::kInvalidFile && code != ErrorCode::kInvalidArgument) {
      return std::unexpected(adapter.error());
    }
    return fail(ErrorCode::kMismatch,
                fmt::format("it does not fit the model {}: {}", path, adapter.error().message()));
  }
  AdapterBaseReport report{.base = path, .unchecked = {}, .flaw = {}};
  if (!base) {
    report.unchecked = "the adapter does not record the checksum of its base's weights; it fits";
    return report;
  }
  VOLTA_TRY(const std::string hash, weights_hash(model, config, device));
  if (hash != base->xxh3) return other_weights(folder, *base, path, hash, "");
  return report;
}

}  // namespace

Result<AdapterBaseReport> verify_adapter_base(const std::string& folder, const std::string& model,
                                              Device& device) {
  VOLTA_TRY(const auto base, recorded_base(folder));
  AdapterBaseReport report{.base = model, .unchecked = {}, .flaw = {}};
  if (model.empty() && base) {
    report.base = base->path;
  } else if (model.empty()) {
    VOLTA_TRY(report.base, adapter_base_name(folder));
  }
  if (report.base.empty()) {
    report.unchecked = "the adapter does not say which model it is; name it with --model";
    return report;
  }
  const auto path = find_model_path(report.base);
  const bool present = path && (path_exists(join_path(*path, "config.json")) ||
                                (is_gguf_path(*path) && path_exists(*path)));
  if (!present) {
    report.unchecked =
        "it is not on this machine under this name; if it is elsewhere, name it "
        "with --model";
    return report;
  }
  auto compared = compare(folder, base, *path, device);
  if (compared) return compared;
  const ErrorCode code = compared.error().code();
  if (code == ErrorCode::kInterrupted || code == ErrorCode::kOutOfMemory) return compared;
  report.flaw = std::move(compared).error();
  return report;
}

}  // namespace volta
