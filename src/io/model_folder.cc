#include "io/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "io/gguf/gguf_model.h"

namespace volta {
namespace {

// The biases that transformers' GPT-2 always has and this model lacks.
std::vector<ParameterInfo> missing_biases(const TransformerConfig& config) {
  std::vector<ParameterInfo> missing;
  if (model_family(config) != "gpt2") return missing;
  TransformerConfig full = config;
  full.norm_bias = full.attention_bias = full.attention_out_bias = full.ffn_bias = true;
  std::set<std::string> present;
  for (const ParameterInfo& info : parameters(config)) present.insert(info.name);
  for (ParameterInfo& info : parameters(full)) {
    if (!present.contains(info.name)) missing.push_back(std::move(info));
  }
  return missing;
}

bool all_zero(const Tensor& tensor) {
  const auto bytes = tensor.host_bytes();
  return bytes &&
         std::all_of(bytes->begin(), bytes->end(), [](std::byte b) { return b == std::byte{0}; });
}

// Which tensor of a file is which parameter. Brings the names of known exporters to the ones
// parameters() lists, and knows what is no weight: attention masks, a copy of a tied output, zero
// biases that save_model added.
class TensorNames {
 public:
  explicit TensorNames(const TransformerConfig& config) : tied_(config.tied_output) {
    for (const ParameterInfo& info : parameters(config)) wanted_.insert(info.name);
    for (const ParameterInfo& info : missing_biases(config)) fillers_.insert(info.name);
  }
  /// With the prefix that some exporters leave out.
  std::string full(const std::string& name) const {
    const std::string prefixed = "transformer." + name;
    const bool bare =
        !wanted_.contains(name) && (wanted_.contains(prefixed) || fillers_.contains(prefixed));
    return bare ? prefixed : name;
  }
  /// Something that is not loaded, whatever it holds.
  bool ignored(const std::string& full) const {
    const bool mask = full.ends_with(".attn.bias") || full.ends_with(".attn.masked_bias");
    return !wanted_.contains(full) && (mask || (full == "lm_head.weight" && tied_));
  }
  /// A bias that the model lacks: zero, or the file is another model's.
  bool filler(const std::string& full) const { return fillers_.contains(full); }

 private:
  bool tied_;
  std::set<std::string> wanted_, fillers_;
};

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
  if (is_gguf_path(directory)) return load_gguf_model(directory, std::move(device));
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
