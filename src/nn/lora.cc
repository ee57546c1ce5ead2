#include "nn/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/tensor_ops.h"
#include "nn/transformer.h"
#include "nn/weight_names.h"

namespace volta {
namespace {

constexpr std::uint32_t kAdapterStream = 0x10A00000u;

// The projections of a model: the matrices of its blocks.
std::vector<LoraLayer> projections(const TransformerConfig& config) {
  constexpr std::string_view kSuffix = ".weight";
  const WeightNames& names = weight_names(config);
  const bool in_out = names.in_out;
  const std::string blocks = fmt::format("{}.", names.blocks);
  std::vector<LoraLayer> list;
  for (const ParameterInfo& info : parameters(config)) {
    if (info.shape.rank() != 2 || !info.name.starts_with(blocks)) continue;
    list.push_back({.name = info.name.substr(0, info.name.size() - kSuffix.size()),
                    .inputs = info.shape[in_out ? 0 : 1],
                    .outputs = info.shape[in_out ? 1 : 0]});
  }
  return list;
}

std::string last_name(std::string_view path) {
  return std::string(path.substr(path.rfind('.') + 1));
}

// A path and its dotted ends: "a.b.c", "b.c", "c".
std::vector<std::string_view> ends_of(std::string_view path) {
  std::vector<std::string_view> ends = {path};
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    path.remove_prefix(dot + 1);
    ends.push_back(path);
  }
  return ends;
}

std::set<std::string, std::less<>> names_of(const std::vector<LoraLayer>& layers) {
  std::set<std::string, std::less<>> names;
  for (const LoraLayer& layer : layers) names.insert(last_name(layer.name));
  return names;
}

Status check_targets(const LoraConfig& lora, const TransformerConfig& config) {
  const auto all = projections(config);
  std::set<std::string_view> known;
  for (const LoraLayer& layer : all) {
    const auto ends = ends_of(layer.name);
    known.insert(ends.begin(), ends.end());
  }
  for (const std::string& target : lora.targets) {
    if (known.contains(target)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("LoRA: the target '{}' names no projection of this model; it has {} "
                            "({} for all of them)",
                            target, fmt::join(names_of(all), ", "), kAllLinear));
  }
  return {};
}

}  // namespace

float LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rank_stabilized ? std::sqrt(r) : r));
}

LoraConfig LoraConfig::without_dropout() const {
  LoraConfig lora = *this;
  lora.dropout = 0.0f;
  return lora;
}

Result<LoraConfig> complete_lora(LoraConfig lora, const TransformerConfig& config) {
  const auto bad = [](std::string_view what, auto value, std::string_view range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("LoRA: {} is {}; it must be {}", what, value, range));
  };
  if (lora.rank < 1 || lora.rank > kMaxLoraRank) {
    return bad("the rank", lora.rank, fmt::format("between 1 and {}", kMaxLoraRank));
  }
  if (lora.alpha == 0.0) lora.alpha = 2.0 * static_cast<double>(lora.rank);
  if (!(lora.alpha > 0.0 && lora.alpha <= 1e6)) {
    return bad("alpha", lora.alpha, "positive and at most 1000000");
  }
  if (!(lora.dropout >= 0.0f && lora.dropout < 1.0f))
    return bad("dropout", lora.dropout, "in [0, 1)");
  if (lora.targets.empty()) {
    const WeightNames& names = weight_names(config);
    for (const std::string_view name : {names.qkv, names.q, names.v}) {
      if (!name.empty()) lora.targets.emplace(name);
    }
  }
  if (lora.targets.contains(kAllLinear)) lora.targets = names_of(projections(config));
  VOLTA_TRY(check_targets(lora, config));
  return lora;
}

bool is_target(const LoraConfig& lora, std::string_view projection) {
  return lora.active() && std::ranges::any_of(ends_of(projection), [&](std::string_view end) {
           return lora.targets.contains(end);
         });
}

std::vector<LoraLayer> lora_layers(const TransformerConfig& config, const LoraConfig& lora) {
  std::vector<LoraLayer> layers;
  for (LoraLayer& layer : projections(config)) {
    if (is_target(lora, layer.name)) layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<ParameterInfo> lora_parameters(const TransformerConfig& config,
                                           const LoraConfig& lora) {
  std::vector<ParameterInfo> list;
  for (const LoraLayer& layer : lora_layers(config, lora)) {
    list.push_back({layer.a(), Shape(lora.rank, layer.inputs), InitKind::kKaimingUniform});
    list.push_back({layer.b(), Shape(layer.outputs, lora.rank), InitKind::kZeros});
  }
  return list;
}

std::vector<ParameterInfo> trained_parameters(const TransformerConfig& config,
                                              const LoraConfig& lora) {
  return lora.active() ? lora_parameters(config, lora) : parameters(config);
}

Result<Adapter> Adapter::random(const TransformerConfig& config, const LoraConfig& lora,
                                std::uint64_t seed, Device& device) {
  Adapter adapter;
  VOLTA_TRY(adapter.config, complete_lora(lora, config));
  std::uint32_t stream = kAdapterStream;
  for (const ParameterInfo& info : lora_parameters(config, adapter.config)) {
    VOLTA_TRY(check_spec({DType::kF32, info.shape}));
    VOLTA_TRY(Tensor tensor, fresh_parameter(config, info, seed, stream++, device));
    adapter.weights.emplace(info.name, std::move(tensor));
  }
  return adapter;
}

Status check_adapter(const TransformerConfig& config, const LoraConfig& lora,
                     const std::map<std::string, TensorSpec>& specs) {
  std::set<std::string_view> wanted;
  const auto infos = lora_parameters(config, lora);
  for (const ParameterInfo& info : infos) {
    wanted.insert(info.name);
    const auto found = specs.find(info.name);
    if (found == specs.end()) {
      return fail(ErrorCode::kInvalidFile, fmt::format("the adapter has no tensor '{}' {}",
                                                       info.name, to_string(info.shape)));
    }
    const TensorSpec& spec = found->second;
    if (spec.shape != info.shape || !is_float(spec.dtype) || !spec.encoding.plain()) {
      return fail(
          ErrorCode::kInvalidFile,
          fmt::format("the adapter's tensor '{}' is {}; in this model a rank of {} asks for "
                      "a float tensor {}",
                      info.name, to_string(spec), lora.rank, to_string(info.shape)));
    }
  }
  for (const auto& [name, spec] : specs) {
    if (wanted.contains(name)) continue;
    return fail(ErrorCode::kInvalidFile,
                fmt::format("the adapter's tensor '{}' {} belongs to no target of this model", name,
                            to_string(spec)));
  }
  return {};
}

Status check_adapter(const TransformerConfig& config, const Adapter& adapter) {
  std::map<std::string, TensorSpec> specs;
  for (const auto& [name, tensor] : adapter.weights) specs.emplace(name, tensor.spec());
  return check_adapter(config, adapter.config, specs);
}

Status apply_adapter(Transformer& model, const Adapter& adapter) {
  VOLTA_TRY(check_adapter(model.config(), adapter));
  Device& device = *model.device();
  const bool in_out = weight_names(model.config()).in_out;
  for (const LoraLayer& layer : lora_layers(model.config(), adapter.config)) {
    VOLTA_TRY(check_interrupted(device));
    const std::string name = layer.name + ".weight";
    VOLTA_TRY(const Tensor stored, model.weight(name));
    if (!stored.spec().encoding.plain()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is packed ({}): adapters are merged into plain weights", name,
                              to_string(stored.spec())));
    }
    const auto as_f32 = [&](const Tensor& tensor) {
      return tensor_ops::as_spec(device, tensor, {DType::kF32, tensor.shape()});
    };
    VOLTA_TRY(const Tensor weight, as_f32(stored));
    VOLTA_TRY(const Tensor a, as_f32(adapter.weights.find(layer.a())->second));
    VOLTA_TRY(const Tensor b, as_f32(adapter.weights.find(layer.b())->second));
    VOLTA_TRY(const Tensor scaled, tensor_ops::scale(device, a, adapter.config.scale()));
    VOLTA_TRY(Tensor delta, tensor_ops::matmul(device, b, scaled));  // [outputs, inputs]
    if (in_out) {
      VOLTA_TRY(delta, tensor_ops::transpose(device, delta));
    }
    VOLTA_TRY(Tensor merged, tensor_ops::add(device, weight, delta));
    VOLTA_TRY(model.replace_weight(name, std::move(merged)));
  }
  return {};
}

}  // namespace volta
