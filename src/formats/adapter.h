// LoRA adapters in the layout of peft: adapter_config.json and adapter_model.safetensors. Every
// file may be hostile. Adapters that Volta cannot compute exactly are refused with an error that
// names the reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "nn/lora.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsFile = "adapter_model.safetensors";

/// Parses the settings in an adapter_config.json; targets stay as the file has them. kInvalidFile
/// for missing or out-of-range values. kUnsupported, with the key's name, for everything beyond
/// plain LoRA (DoRA, other ranks or alphas for some layers, trained biases, tensors of other
/// modules, a regular expression for targets): a key that Volta does not know must be null, false
/// or empty.
Result<LoraConfig> parse_adapter_config(std::string_view json, std::string_view name);

/// Lists the flaws of an adapter that can be found without its base model, one message each:
/// tensors that belong to no target, a tensor without its A or B counterpart, a tensor that is not
/// float or whose rank differs from the config, targets without tensors, and targets that only some
/// blocks have. Reads no values.
std::vector<std::string> find_adapter_flaws(const LoraConfig& lora, const SafetensorsFile& file);

/// The base_model_name_or_path of DIR/adapter_config.json; empty when the file has no such key.
/// kInvalidFile.
Result<std::string> adapter_base_name(const std::string& directory);

/// Returns an adapter_config.json that peft can read. `lora` must be complete (see
/// complete_lora()); `base` is the path of the adapter's base model.
std::string adapter_config_json(const TransformerConfig& config, const LoraConfig& lora,
                                std::string_view base);

/// Loads DIR/adapter_config.json and DIR/adapter_model.safetensors for a model of `config`. The
/// tensors are in host memory, in the type they are stored in. kInvalidFile, with the name, for a
/// target that the model lacks and for a tensor that is missing, surplus, or of another shape or
/// type. No data is read before all tensors have been checked.
Result<Adapter> load_adapter(const std::string& directory, const TransformerConfig& config);

/// Writes both files into an existing folder, each atomically.
Status save_adapter(const std::string& directory, const TransformerConfig& config,
                    const Adapter& adapter, std::string_view base);

}  // namespace volta
