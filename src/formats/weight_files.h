// The weights of a model folder: model.safetensors, or the shards that
// model.safetensors.index.json lists. Finds the parameters of an architecture among their tensors,
// under the names of known exporters.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/safetensors.h"
#include "nn/transformer_config.h"
#include "nn/weight_source.h"

namespace volta {

/// The safetensors files of a folder, opened and checked, in the order of their names.
/// kNotFound when there are none; kInvalidFile for an index that names a file outside the folder or
/// a tensor that its file lacks, or that does not list all tensors of a file.
Result<std::vector<SafetensorsFile>> open_weight_files(const std::string& directory);

/// The key and the value in a file's metadata that mark a tensor as integers in rows of blocks
/// (tensor/encoding.h). Such a tensor is stored as bytes [columns of b, bytes per column].
std::string quant_key(std::string_view tensor);
std::string quant_text(const Encoding& encoding);
/// The encoding of a tensor, from the metadata of its file. kUnsupported for an unknown one.
Result<Encoding> stored_encoding(const SafetensorsFile& file, std::string_view tensor);

class WeightFiles final : public WeightSource {
 public:
  /// kInvalidFile, with the name, for the first parameter that is missing, has another shape, or is
  /// stored as integers in another arrangement than the model reads, and for the first tensor that
  /// belongs to no parameter. Reads no data except biases that must be zero.
  static Result<WeightFiles> open(const std::string& directory, const TransformerConfig& config);
  /// The same for files that are open already.
  static Result<WeightFiles> find(std::vector<SafetensorsFile> files,
                                  const TransformerConfig& config);

  /// The tensors of the parameters, in the order of parameters(), with their names in the files.
  std::vector<SafetensorsEntry> entries(const TransformerConfig& config) const;

  Result<TensorSpec> spec(const ParameterInfo& parameter) override;
  Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) override;
  void release(const ParameterInfo& parameter) override;
  Status check_unchanged(const ParameterInfo& parameter) const override;
  Status check_unchanged() const override;

 private:
  struct StoredTensor {
    std::size_t file = 0;
    SafetensorsEntry entry;
    Encoding encoding{};  ///< For tensors that are stored as integers.
  };
  Result<const StoredTensor*> find(const ParameterInfo& parameter) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor> tensors_;  ///< By the parameter's name.
};

}  // namespace volta
