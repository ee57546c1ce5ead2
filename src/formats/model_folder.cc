#include "formats/model_folder.h"

#include <map>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/tensor_names.h"

namespace volta {
namespace {

// A tokenizer_config.json that only says that tokenizer.json is to be used unchanged. Without it,
// transformers would use the tokenizer class of the model's family, which splits texts differently
// and adds tokens with ids beyond the end of the embedding.
std::string plain_tokenizer_config(std::int64_t context) {
  JsonWriter json(2);
  json.begin_object().field("tokenizer_class", "PreTrainedTokenizerFast");
  json.field("clean_up_tokenization_spaces", false);
  json.field("model_max_length", context).end_object();
  return std::move(json).take() + "\n";
}

}  // namespace

Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer, const Interruption& interrupted) {
  std::map<std::string, Tensor> tensors = model.weights();
  for (const ParameterInfo& info : missing_biases(model.config())) {
    VOLTA_TRY(Tensor zeros, Tensor::zeros({DType::kF32, info.shape}));
    tensors.emplace(info.name, std::move(zeros));
  }
  VOLTA_TRY(
      write_file_atomic(join_path(directory, "config.json"), model_config_json(model.config())));
  VOLTA_TRY(write_safetensors(join_path(directory, "model.safetensors"), tensors,
                              {{"format", "pt"}}, interrupted));
  if (tokenizer == nullptr) return {};
  VOLTA_TRY(write_file_atomic(join_path(directory, "tokenizer.json"), tokenizer->to_json()));
  return write_file_atomic(join_path(directory, "tokenizer_config.json"),
                           plain_tokenizer_config(model.config().context));
}

}  // namespace volta
