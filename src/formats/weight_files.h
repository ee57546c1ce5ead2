// The weights of a model folder: model.safetensors, or the shards that
// model.safetensors.index.json lists. Finds the parameters of an architecture among their tensors,
// by the names of known exporters.
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
/// kNotFound when there are none; kInvalidFile for an index that names a file outside the folder, a
/// tensor that its file lacks, or a file whose tensors it does not list.
Result<std::vector<SafetensorsFile>> open_weight_files(const std::string& directory);

/// How a file says that a tensor, then of bytes, [columns of b, bytes of one], holds integers in
/// rows (tensor/encoding.h): the key of its metadata, and the value.
std::string quant_key(std::string_view tensor);
std::string quant_text(const Encoding& encoding);
/// The encoding of a tensor, by the metadata of its file. kUnsupported for one that is not known.
Result<Encoding> stored_encoding(const SafetensorsFile& file, std::string_view tensor);

class WeightFiles final : public WeightSource {
 public:
  /// kInvalidFile, naming it, for the first parameter that is missing, of another shape, or of
  /// integers that lie otherwise than the model reads them, or the first tensor that is of no
  /// parameter. Reads no data but of biases that must be zero.
  static Result<WeightFiles> open(const std::string& directory, const TransformerConfig& config);
  /// The same of files that are open already.
  static Result<WeightFiles> find(std::vector<SafetensorsFile> files,
                                  const TransformerConfig& config);

  /// The tensors of the parameters, in the order of parameters(), as their files name them.
  std::vector<SafetensorsEntry> entries(const TransformerConfig& config) const;

  Result<TensorSpec> spec(const ParameterInfo& parameter) override;
  Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) override;
  void release(const ParameterInfo& parameter) override;
  Status check_unchanged(const ParameterInfo& parameter) const override;
  Status check_unchanged() const override;

 private:
  struct Place {
    std::size_t file = 0;
    SafetensorsEntry entry;
    Encoding encoding{};  ///< Of what is stored as integers.
  };
  Result<const Place*> place(const ParameterInfo& parameter) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;  ///< By the parameter's name.
};

}  // namespace volta
