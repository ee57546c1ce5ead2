// Models in GGUF files: the architecture from the metadata, parameters by their Hugging Face names.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_layout.h"
#include "nn/transformer_config.h"
#include "nn/weight_source.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// The architecture a file describes (docs/models.md; Mistral comes as llama). What has a bias, and
/// whether the output is tied, is told by the tensors. kInvalidFile for missing or
/// absurd values; kUnsupported for other architectures or options.
Result<TransformerConfig> gguf_config(const GgufFile& file);

/// One parameter of a model, and the tensor that holds it.
struct GgufParameter {
  ParameterInfo info;
  GgufLayout layout = GgufLayout::kSame;
  const GgufTensor* tensor = nullptr;
};
/// The file's tensors that are the model's parameters, in the order of parameters(). kInvalidFile,
/// naming it, for the first that is missing, of another shape, or of no parameter. Reads no data.
Result<std::vector<GgufParameter>> find_gguf_parameters(const TransformerConfig& config,
                                                        const GgufFile& file);

/// The type that loses nothing: bf16 and f16 for themselves, f32 for f32 and every quantised type.
DType gguf_native_dtype(GgmlType type);

/// A copy of one parameter as Hugging Face has it, in host memory: dequantised, its rows or axes
/// put back. f32, bf16 or f16. kOutOfMemory; kNonFinite when a finite value becomes infinite in
/// f16; kInterrupted when `interrupted` said so.
Result<Tensor> load_gguf_parameter(const GgufFile& file, const TransformerConfig& config,
                                   const GgufParameter& parameter, DType dtype,
                                   const Interruption& interrupted = {});

/// The parameters of a model in a file, as it stores them where Volta has a format for that: F32,
/// F16, BF16, and matrices of Q8_0, Q4_0, Q4_K and Q6_K, whose blocks are not touched. They lie in
/// the mapping where they are in order and aligned. Those of other types are read as f32.
class GgufWeights final : public WeightSource {
 public:
  /// Checks all names and shapes; reads no data.
  static Result<GgufWeights> open(const std::string& path, const TransformerConfig& config);

  Result<TensorSpec> spec(const ParameterInfo& parameter) override;
  Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) override;
  void release(const ParameterInfo& parameter) override;
  Status check_unchanged(const ParameterInfo& /*parameter*/) const override {
    return file_.check_unchanged();
  }
  Status check_unchanged() const override { return file_.check_unchanged(); }

 private:
  GgufWeights(GgufFile file, const TransformerConfig& config)
      : file_(std::move(file)), config_(config) {}
  static TensorSpec spec_of(const GgufParameter& parameter);
  Result<Tensor> read_blocks(const GgufParameter& parameter, const Interruption& interrupted) const;
  Result<const GgufParameter*> find(const ParameterInfo& parameter) const;

  GgufFile file_;
  TransformerConfig config_;
  std::map<std::string, GgufParameter> found_;  ///< By the parameter's name.
};

}  // namespace volta
