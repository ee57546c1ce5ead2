// Whether an adapter belongs to the model that it is to be used with. Another model of the same
// sizes takes it without an error, and its answers are wrong.
#pragma once

#include <string>

#include "base/result.h"
#include "nn/transformer.h"

namespace volta {

/// Compares the weights of `model`, loaded as f32 from `model_path` (a folder or a .gguf file),
/// with what the adapter in `folder` was trained on. Where Volta's manifest records their checksum
/// that decides: kMismatch when it differs (also for a quantised copy of the base). The weights are
/// read once for it, at the speed of memory. An adapter of another program records the name of its
/// base only: a warning is logged when that is not in `model_path`. kInvalidFile.
Status check_adapter_base(const std::string& folder, const Transformer& model,
                          const std::string& model_path);

/// Whether a path is that of the model that `base` names: a path to the same place, or
/// "ORGANISATION/NAME" where NAME is a folder on the path, also as in the hub's cache
/// ("models--ORGANISATION--NAME"), or the begin of a .gguf file's name up to a dot.
bool is_path_of_base(const std::string& base, const std::string& model_path);

}  // namespace volta
