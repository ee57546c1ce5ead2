// Checks that an adapter belongs to the model that it is used with. Another model of the same sizes
// would load it without an error and give wrong answers.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "formats/model_source.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"

namespace volta {

/// The XXH3 checksum of a model's weights: their names, types, shapes and bytes. It does not depend
/// on the file that they were loaded from. kInterrupted when the model's device is interrupted.
Result<std::string> weights_hash(const Transformer& model);
/// The same checksum for the weights that ModelSource::load() would return. `config` is that of the
/// model. Only one tensor is in memory at a time. The errors of ModelSource::load().
Result<std::string> weights_hash(const ModelSource& model, const TransformerConfig& config,
                                 Device& device);

/// Compares the weights of `model`, loaded as f32 from `model_path` (a folder or a .gguf file),
/// with those that the adapter in `folder` was trained on. If Volta's manifest records their
/// checksum, the checksum decides: kMismatch when it differs, also for a quantised copy of the
/// base. Computing it reads all weights once, at the speed of memory. An adapter of another program
/// records only the name of its base; a warning is logged when `model_path` does not match that
/// name (is_path_of_base()). kInvalidFile.
Status check_adapter_base(const std::string& folder, const Transformer& model,
                          const std::string& model_path);

/// What is known about an adapter's base model.
struct AdapterBaseReport {
  std::string base;  ///< Its path or name; empty when it is not known.
  /// Why its weights were not compared with what the adapter was trained on; empty when they were.
  std::string unchecked;
  /// The problem that was found: kMismatch for a model that the adapter does not fit or was not
  /// trained on. Other codes say why the model or the adapter cannot be read.
  std::optional<Error> flaw;
};
/// The same check as check_adapter_base(), for a model that is not loaded. `model` is a folder or a
/// .gguf file. When it is empty, the base is the model whose path or name in the hub's cache the
/// adapter records, if that model is on this machine. kInterrupted, kOutOfMemory, and the errors of
/// reading the adapter's own record of its base.
Result<AdapterBaseReport> verify_adapter_base(const std::string& folder, const std::string& model,
                                              Device& device);

/// Whether `model_path` is a path of the model that `base` names. This is so when both are paths to
/// the same place, when NAME of "ORGANISATION/NAME" is a folder on the path, also in the form of
/// the hub's cache ("models--ORGANISATION--NAME"), and when the name of a .gguf file begins with
/// NAME and a dot.
bool is_path_of_base(const std::string& base, const std::string& model_path);

}  // namespace volta
