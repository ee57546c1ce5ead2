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

/// The architecture that a file describes (docs/models.md; Mistral models use llama). The tensors
/// in the file determine which parts have a bias and whether the output is tied. kInvalidFile for
/// missing or out-of-range values; kUnsupported for other architectures or options.
Result<TransformerConfig> gguf_config(const GgufFile& file);

/// One parameter of a model, and the tensor that holds it.
struct GgufParameter {
  ParameterInfo info;
  GgufLayout layout = GgufLayout::kSame;
  const GgufTensor* tensor = nullptr;
};
/// The file's tensors that hold the model's parameters, in the order of parameters(). kInvalidFile,
/// with the name, for the first tensor that is missing, has another shape, or belongs to no
/// parameter. Reads no data.
Result<std::vector<GgufParameter>> find_gguf_parameters(const TransformerConfig& config,
                                                        const GgufFile& file);

/// The type that loses no precision: bf16 and f16 stay, f32 and all quantised types become f32.
DType gguf_native_dtype(GgmlType type);

/// A copy of one parameter in host memory, dequantised and in Hugging Face's order of rows and
/// axes. `dtype` is f32, bf16 or f16. kOutOfMemory; kNonFinite when a finite value becomes infinite
/// in f16; kInterrupted when `interrupted` returned true.
Result<Tensor> load_gguf_parameter(const GgufFile& file, const TransformerConfig& config,
                                   const GgufParameter& parameter, DType dtype,
                                   const Interruption& interrupted = {});

/// The parameters of a model in a file. Types that Volta can use stay as stored: F32, F16, BF16,
/// and matrices of Q8_0, Q4_0, Q4_K, Q5_K and Q6_K, whose blocks are unchanged. Such tensors are
/// views of the mapping if they are aligned and need no reordering. Other types are read as f32.
class GgufWeights final : public WeightSource {
 public:
  /// Finds the parameters in an open file. Checks all names and shapes; reads no data.
  static Result<GgufWeights> find(GgufFile file, const TransformerConfig& config);

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
