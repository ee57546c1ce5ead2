// LoRA adapters in the layout of peft: adapter_config.json and adapter_model.safetensors. Every
// file is hostile; what Volta cannot do to the last digit is refused by name.
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

/// The settings in an adapter_config.json, targets as they are written there. kInvalidFile for
/// missing or absurd values; kUnsupported, naming the key, for whatever asks for more than plain
/// LoRA (DoRA, other ranks or alphas for some layers, trained biases, tensors of other modules, a
/// regular expression for targets): any key that Volta does not know must be null, false or empty.
Result<LoraConfig> parse_adapter_config(std::string_view json, std::string_view name);

/// What is wrong with an adapter whatever its base model is, a message for each: tensors that
/// belong to no target, that lack their partner, whose type or rank is not the config's, targets
/// without tensors, and targets that only some blocks have. Reads no values.
std::vector<std::string> find_adapter_flaws(const LoraConfig& lora, const SafetensorsFile& file);

/// The base_model_name_or_path of DIR/adapter_config.json; empty when it has none. kInvalidFile.
Result<std::string> adapter_base_name(const std::string& directory);

/// An adapter_config.json that peft reads. `lora` is a completed one (complete_lora()); `base` the
/// path of the model it belongs to.
std::string adapter_config_json(const TransformerConfig& config, const LoraConfig& lora,
                                std::string_view base);

/// Loads DIR/adapter_config.json and DIR/adapter_model.safetensors for a model of `config`, tensors
/// as stored, in host memory. kInvalidFile, naming it, for a target that the model lacks, and for a
/// tensor that is missing, too many, or of another shape or type; nothing is read before all of
/// them are known to fit.
Result<Adapter> load_adapter(const std::string& directory, const TransformerConfig& config);

/// Writes both files into an existing folder, each atomically.
Status save_adapter(const std::string& directory, const TransformerConfig& config,
                    const Adapter& adapter, std::string_view base);

}  // namespace volta
