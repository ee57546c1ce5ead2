#include "io/model_folder.h"

#include <map>
#include <utility>

#include "base/file.h"
#include "io/safetensors.h"
#include "io/tensor_names.h"
#include "io/weight_files.h"

namespace volta {

Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device,
                               const WeightOptions& options) {
  VOLTA_TRY(const TransformerConfig config, load_model_config(directory));
  VOLTA_TRY(WeightFiles files, WeightFiles::open(directory, config));
  return Transformer::load(config, files, std::move(device), options);
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
