// A model folder with narrower weights, from another one: what `volta quantize` writes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "tensor/spec.h"

namespace [[gnu::visibility("default")]] volta {

/// One tensor of the new folder.
struct QuantizedTensor {
  std::string name;
  TensorSpec before;
  TensorSpec after;
  /// The root of the mean squared difference over the root of the mean square; 0 when unchanged.
  double error = 0.0;
};
/// Told after every tensor, of so many; false ends the work.
using QuantizeCallback = std::function<bool(const QuantizedTensor& done, std::int64_t tensors)>;

/// Writes the model of folder `from` into the folder `to`: the weights of its matrix products in
/// `format`, what is read otherwise as it is, and the files that go with them (config, tokenizer,
/// ...). `to` is a new or empty folder; with `replace`, the model in it may be replaced (see
/// NewFolder::create). One tensor is held at a time, and the folder appears when it is complete.
/// The errors of check_source_stays and check_new_folder, and with `replace` of check_gives_way;
/// kUnsupported when the weights are integers already; kNonFinite, naming it, for a tensor that
/// holds NaN or infinity or would overflow its scales; kInterrupted when `on_tensor` said so, or
/// the device was told to stop; kInvalidFile soon after a file of the weights has changed.
Result<std::vector<QuantizedTensor>> quantize_model(const std::string& from, const std::string& to,
                                                    const WeightFormat& format, Device& device,
                                                    const QuantizeCallback& on_tensor = {},
                                                    bool replace = false);

}  // namespace volta
