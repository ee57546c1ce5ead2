#include "io/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "io/tensor_names.h"

namespace volta {
namespace {

bool all_zero(const Tensor& tensor) {
  const auto bytes = tensor.host_bytes();
  return bytes &&
         std::all_of(bytes->begin(), bytes->end(), [](std::byte b) { return b == std::byte{0}; });
}

Result<std::map<std::string, Tensor>> canonical(std::map<std::string, Tensor> tensors,
                                                const TransformerConfig& config) {
  const TensorNames names(config);
  std::map<std::string, Tensor> out;
  for (auto& [name, tensor] : tensors) {
    const std::string full = names.full(name);
    if (names.ignored(full) || (names.filler(full) && all_zero(tensor))) continue;
    if (!out.emplace(full, std::move(tensor)).second) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("tensor '{}' is there twice, with and without its prefix", full));
    }
  }
  return out;
}

}  // namespace

Result<std::vector<SafetensorsEntry>> find_parameters(const TransformerConfig& config,
                                                      const SafetensorsFile& file) {
  const TensorNames names(config);
  std::map<std::string, SafetensorsEntry> found;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string full = names.full(entry.name);
    if (!names.ignored(full) && !names.filler(full)) found.emplace(full, entry);
  }
  std::vector<SafetensorsEntry> list;
  for (const ParameterInfo& info : parameters(config)) {
    const auto entry = found.find(info.name);
    if (entry == found.end() || entry->second.spec.shape != info.shape) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("tensor '{}' is {}; the config asks for {}", info.name,
                              entry == found.end() ? "missing" : to_string(entry->second.spec),
                              to_string(info.shape)));
    }
    list.push_back(entry->second);
    found.erase(entry);
  }
  if (found.empty()) return list;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("tensor '{}' belongs to no parameter of this architecture",
                          found.begin()->first));
}

Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device) {
  VOLTA_TRY(const TransformerConfig config, load_model_config(directory));
  const std::string weights_path = join_path(directory, "model.safetensors");
  VOLTA_TRY(const SafetensorsFile file, SafetensorsFile::open(weights_path));
  VOLTA_TRY(auto tensors, file.load_all());
  auto named = canonical(std::move(tensors), config);
  if (!named) return std::unexpected(std::move(named).error().with_context(weights_path));
  auto model = Transformer::from_weights(config, *std::move(named), std::move(device));
  if (!model) return std::unexpected(std::move(model).error().with_context(weights_path));
  return model;
}

Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer) {
  std::map<std::string, Tensor> tensors = model.weights();
  for (const ParameterInfo& info : missing_biases(model.config())) {
    VOLTA_TRY(Tensor zeros, Tensor::zeros({DType::kF32, info.shape}));
    tensors.emplace(info.name, std::move(zeros));
  }
  VOLTA_TRY(
      write_file_atomic(join_path(directory, "config.json"), model_config_json(model.config())));
  VOLTA_TRY(
      write_safetensors(join_path(directory, "model.safetensors"), tensors, {{"format", "pt"}}));
  if (tokenizer == nullptr) return {};
  return write_file_atomic(join_path(directory, "tokenizer.json"), tokenizer->to_json());
}

}  // namespace volta
