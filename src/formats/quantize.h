// Makes a model folder with narrower weights from another one; the library part of `volta
// quantize`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "formats/model_source.h"
#include "tensor/spec.h"

namespace [[gnu::visibility("default")]] volta {

/// One tensor of the new folder.
struct QuantizedTensor {
  std::string name;
  TensorSpec before;
  TensorSpec after;
  /// The root mean square of the rounding error, relative to that of the values; 0 when unchanged.
  double error = 0.0;
};
/// Called after every tensor, with the number of all tensors; false stops the work.
using QuantizeCallback = std::function<bool(const QuantizedTensor& done, std::int64_t tensors)>;

/// Writes the model of the folder `source` into the folder `to`. The weights of matrix products are
/// stored in `format`. Other weights are unchanged, and the files that go with them (config,
/// tokenizer, ...) are copied. `to` is a new or empty folder; with `replace`, the model in it may
/// be replaced (see NewFolder::create). Only one tensor is in memory at a time, and the folder
/// appears when it is complete.
/// The errors of check_source_stays and check_new_folder, and with `replace` of check_gives_way.
/// kUnsupported when the weights are integers already. kNonFinite, with the name, for a tensor that
/// holds NaN or infinity or whose scales would overflow. kInterrupted when `on_tensor` returned
/// false or the device received a request to stop. kInvalidFile soon after a file of the weights
/// has changed. kInvalidArgument when the source is a .gguf file.
Result<std::vector<QuantizedTensor>> quantize_model(const ModelSource& source,
                                                    const std::string& to,
                                                    const WeightFormat& format, Device& device,
                                                    const QuantizeCallback& on_tensor = {},
                                                    bool replace = false);

}  // namespace volta
