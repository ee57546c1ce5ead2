// WeightSource: where a model's weights come from, one at a time, so that there is never a second
// copy of all of them. The files of a model folder are one source (formats/weight_files.h).
#pragma once

#include "base/result.h"
#include "base/work_budget.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The spec in which a parameter is stored, in plain rows. Reads no data. kInvalidFile if it is
  /// missing or does not have the parameter's shape.
  virtual Result<TensorSpec> spec(const ParameterInfo& parameter) = 0;
  /// The parameter in host memory, to be read only. Work on many values calls `interrupted` and
  /// returns kInterrupted if that returns true.
  virtual Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) = 0;
  /// Tells the source that the result of read() is no longer used; its memory may be freed.
  virtual void release(const ParameterInfo& parameter) = 0;
  /// Called after the last use of a parameter that read() returned, and after that of all
  /// parameters. kInvalidFile if the source has changed meanwhile, because what was read cannot be
  /// used then.
  virtual Status check_unchanged(const ParameterInfo& parameter) const = 0;
  virtual Status check_unchanged() const = 0;
};

}  // namespace volta
