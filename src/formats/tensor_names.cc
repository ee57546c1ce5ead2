#include "formats/tensor_names.h"

#include <string_view>
#include <utility>

#include "formats/model_config.h"

namespace volta {

std::vector<ParameterInfo> missing_biases(const TransformerConfig& config) {
  std::vector<ParameterInfo> missing;
  if (model_family(config) != "gpt2") return missing;
  TransformerConfig full = config;
  full.norm_bias = full.attention_bias = full.attention_out_bias = full.ffn_bias = true;
  std::set<std::string> present;
  for (const ParameterInfo& info : parameters(config)) present.insert(info.name);
  for (ParameterInfo& info : parameters(full)) {
    if (!present.contains(info.name)) missing.push_back(std::move(info));
  }
  return missing;
}

TensorNames::TensorNames(const TransformerConfig& config) : tied_(config.tied_output) {
  for (const ParameterInfo& info : parameters(config)) wanted_.insert(info.name);
  for (const ParameterInfo& info : missing_biases(config)) {
    fillers_.emplace(info.name, info.shape);
  }
}

std::string TensorNames::full(const std::string& name) const {
  for (const std::string_view prefix : {"transformer.", "model."}) {
    const std::string prefixed = std::string(prefix) + name;
    const bool bare =
        !wanted_.contains(name) && (wanted_.contains(prefixed) || fillers_.contains(prefixed));
    if (bare) return prefixed;
  }
  return name;
}

bool TensorNames::filler(const std::string& full, const Shape& shape) const {
  const auto found = fillers_.find(full);
  return found != fillers_.end() && found->second == shape;
}

bool TensorNames::ignored(const std::string& full) const {
  const bool computed = full.ends_with(".attn.bias") || full.ends_with(".attn.masked_bias") ||
                        full.ends_with(".rotary_emb.inv_freq");
  return !wanted_.contains(full) && (computed || (full == "lm_head.weight" && tied_));
}

}  // namespace volta
