// Whether an adapter belongs to the model that it is to be used with. Another model of the same
// sizes takes it without an error, and its answers are wrong.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"

namespace volta {

/// XXH3 over a model's weights: names, types, shapes and bytes, wherever they were loaded from.
/// kInterrupted when the model's device was told to stop.
Result<std::string> weights_hash(const Transformer& model);
/// The same of the model in a folder or .gguf file, as load_model() makes it, but one tensor is
/// held at a time. The errors of load_model().
Result<std::string> weights_hash(const std::string& model, const TransformerConfig& config,
                                 Device& device);

/// Compares the weights of `model`, loaded as f32 from `model_path` (a folder or a .gguf file),
/// with what the adapter in `folder` was trained on. Where Volta's manifest records their checksum
/// that decides: kMismatch when it differs (also for a quantised copy of the base). The weights are
/// read once for it, at the speed of memory. An adapter of another program records the name of its
/// base only: a warning is logged when that is not in `model_path`. kInvalidFile.
Status check_adapter_base(const std::string& folder, const Transformer& model,
                          const std::string& model_path);

/// What could be found out about an adapter's base model.
struct AdapterBaseReport {
  std::string base;  ///< Its path or name; empty when nothing tells.
  /// Why its weights were not compared with what the adapter was trained on; empty when they were.
  std::string unchecked;
  /// What is wrong: kMismatch for a model that the adapter does not fit or was not trained on,
  /// otherwise why the model or the adapter cannot be read.
  std::optional<Error> flaw;
};
/// The same as check_adapter_base() for a model that is not loaded: `model` (a folder or a .gguf
/// file), or, where that is empty, the one whose path or name in the hub's cache the adapter
/// records, if it is on this machine. kInterrupted, kOutOfMemory.
Result<AdapterBaseReport> verify_adapter_base(const std::string& folder, const std::string& model,
                                              Device& device);

/// Whether a path is that of the model that `base` names: a path to the same place, or
/// "ORGANISATION/NAME" where NAME is a folder on the path, also as in the hub's cache
/// ("models--ORGANISATION--NAME"), or the begin of a .gguf file's name up to a dot.
bool is_path_of_base(const std::string& base, const std::string& model_path);

}  // namespace volta
