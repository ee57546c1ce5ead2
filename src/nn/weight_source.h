// WeightSource: where a model's weights come from, one at a time, so that no second copy of all of
// them is ever held. The files of a model folder are one (formats/weight_files.h).
#pragma once

#include "base/result.h"
#include "base/work_budget.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// What is stored of a parameter, in plain rows; no data is read. kInvalidFile when it is missing
  /// or not of the parameter's shape.
  virtual Result<TensorSpec> spec(const ParameterInfo& parameter) = 0;
  /// The parameter, in the host's memory, to be read only. `interrupted` is asked by work on many
  /// values: kInterrupted.
  virtual Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) = 0;
  /// What read() gave is no longer used; its memory may go.
  virtual void release(const ParameterInfo& parameter) = 0;
  /// Asked after the last use of what read() gave for a parameter, and of all of them: kInvalidFile
  /// when the source changed meanwhile, so that what was read is of no use.
  virtual Status check_unchanged(const ParameterInfo& parameter) const = 0;
  virtual Status check_unchanged() const = 0;
};

}  // namespace volta
