#include "nn/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/work_budget.h"
#include "device/tensor_ops.h"
#include "graph/passes.h"
#include "nn/rope_table.h"
#include "nn/transformer_graph.h"

namespace volta {
namespace {

// Sets every value to value_of(its index). Checks for interruption between blocks.
Status fill_values(std::span<float> values, const Device& device,
                   FunctionRef<double(std::uint64_t element)> value_of) {
  constexpr std::size_t kBlock = std::size_t{1} << 18;  // Some milliseconds of random numbers.
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    VOLTA_TRY(check_interrupted(device));
    std::uint64_t element = begin;
    for (float& value : values.subspan(begin, std::min(kBlock, values.size() - begin))) {
      value = static_cast<float>(value_of(element++));
    }
  }
  return {};
}

}  // namespace

Result<Tensor> fresh_parameter(const TransformerConfig& config, const ParameterInfo& info,
                               std::uint64_t seed, std::uint32_t stream, Device& device) {
  VOLTA_TRY(Tensor host, Tensor::zeros({DType::kF32, info.shape}));
  VOLTA_TRY(const std::span<float> values, host.mutable_values<float>());
  double std = 0.0;
  switch (info.init) {
    case InitKind::kZeros:
      break;
    case InitKind::kOnes:
      std::fill(values.begin(), values.end(), 1.0f);
      break;
    case InitKind::kNormal:
      std = static_cast<double>(config.init_std);
      break;
    case InitKind::kNormalResidual:  // Radford et al. 2019.
      std = static_cast<double>(config.init_std) /
            std::sqrt(2.0 * static_cast<double>(config.layers));
      break;
    case InitKind::kKaimingUniform: {  // He et al. 2015 with a = sqrt 5, as torch.nn.Linear.
      const double bound = 1.0 / std::sqrt(static_cast<double>(info.shape.columns()));
      VOLTA_TRY(fill_values(values, device, [&](std::uint64_t element) {
        const float uniform = uniform_float(random_bits_at(seed, stream, 0, element));
        return bound * (2.0 * static_cast<double>(uniform) - 1.0);
      }));
      break;
    }
  }
  if (std > 0.0) {
    VOLTA_TRY(fill_values(values, device, [&](std::uint64_t element) {
      return std * normal_at(seed, stream, 0, element);
    }));
  }
  return host.clone_to(device.memory());
}

namespace {

Status check_bytes(double needed, std::int64_t parameters, const Device& device) {
  const DeviceInfo info = device.info();
  if (info.memory_bytes <= 0 || needed <= static_cast<double>(info.memory_bytes)) return {};
  return fail(
      ErrorCode::kOutOfMemory,
      fmt::format("a model of {} parameters takes {} here, {} has {}", format_count(parameters),
                  format_bytes(static_cast<std::int64_t>(std::min(needed, 0x1p62))), info.id,
                  format_bytes(info.memory_bytes)));
}

}  // namespace

Status check_parameters_fit(const TransformerConfig& config, std::int64_t copies,
                            const Device& device) {
  return check_bytes(4.0 * static_cast<double>(parameter_count(config)) *
                         static_cast<double>(std::max<std::int64_t>(copies, 1)),
                     parameter_count(config), device);
}

Result<std::map<std::string, TensorSpec>> loaded_specs(const TransformerConfig& config,
                                                       WeightSource& source, const Device& device,
                                                       const WeightOptions& options) {
  VOLTA_TRY(validate(config));
  std::map<std::string, TensorSpec> specs;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(TensorSpec spec, source.spec(info));
    // Vectors become f32: they are small, and biases are added to sums in f32.
    const bool widened = options.widen && spec.encoding.quantized();
    if (!options.packed || info.shape.rank() < 2 || widened) spec = {DType::kF32, info.shape};
    specs.emplace(info.name, spec);
  }
  if (!options.packed) return specs;
  return packed_specs(config, device, options.format, specs);
}

Result<Transformer> Transformer::random(const TransformerConfig& config, std::uint64_t seed,
                                        std::shared_ptr<Device> device) {
  VOLTA_TRY(validate(config));
  VOLTA_TRY(check_parameters_fit(config, 1, *device));
  std::map<std::string, Tensor> weights;
  std::uint32_t index = 0;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(Tensor weight, fresh_parameter(config, info, seed, index++, *device));
    weights.emplace(info.name, std::move(weight));
  }
  return from_weights(config, std::move(weights), std::move(device));
}

Result<Transformer> Transformer::from_weights(const TransformerConfig& config,
                                              std::map<std::string, Tensor> weights,
                                              std::shared_ptr<Device> device) {
  for (auto& [name, weight] : weights) {
    if (weight.dtype() == DType::kF32 || !is_float(weight.dtype())) continue;
    if (weight.spec().encoding.plain()) {
      VOLTA_TRY(weight, tensor_ops::cast(*device, weight, DType::kF32));
    }
  }
  return assemble(config, std::move(weights), std::move(device));
}

Result<Transformer> Transformer::assemble(const TransformerConfig& config,
                                          std::map<std::string, Tensor> weights,
                                          std::shared_ptr<Device> device) {
  VOLTA_TRY(validate(config));
  Transformer model;
  for (const ParameterInfo& info : parameters(config)) {
    auto found = weights.find(info.name);
    if (found == weights.end()) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("the model has no tensor '{}' {}; the weights do not fit the config",
                              info.name, to_string(info.shape)));
    }
    Tensor& weight = found->second;
    if (weight.shape() != info.shape || !is_float(weight.dtype())) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("tensor '{}' is {}; the config asks for a float tensor {}", info.name,
                              to_string(weight.spec()), to_string(info.shape)));
    }
    VOLTA_TRY(weight, tensor_ops::as_spec(*device, weight, weight.spec()));
    model.weights_.insert(weights.extract(found));
  }
  if (!weights.empty()) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("tensor '{}' {} belongs to no parameter of this architecture",
                            weights.begin()->first, to_string(weights.begin()->second.spec())));
  }
  model.config_ = config;
  model.device_ = std::move(device);
  return model;
}

Result<Tensor> Transformer::weight(std::string_view name) const {
  const auto found = weights_.find(std::string(name));
  if (found != weights_.end()) return found->second;
  return fail(ErrorCode::kNotFound, fmt::format("the model has no parameter '{}'", name));
}

Status Transformer::replace_weight(const std::string& name, Tensor weight) {
  VOLTA_TRY(const Tensor old, this->weight(name));
  if (weight.shape() != old.shape() || !is_float(weight.dtype())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("weight '{}' is {}; {} cannot take its place", name,
                            to_string(old.spec()), to_string(weight.spec())));
  }
  weights_[name] = std::move(weight);
  return {};
}

Status Transformer::attach(Adapter adapter) {
  VOLTA_TRY(check_adapter(config_, adapter));
  for (auto& [name, tensor] : adapter.weights) {
    VOLTA_TRY(tensor, tensor_ops::as_spec(*device_, tensor, {DType::kF32, tensor.shape()}));
  }
  adapter_ = std::move(adapter);
  return {};
}

Status check_integer_weights(const TransformerConfig& config,
                             const std::map<std::string, TensorSpec>& stored) {
  const auto in_rows = [](const auto& entry) {
    return entry.second.encoding.quantized() && entry.second.encoding.packing == Packing::kRows;
  };
  if (std::ranges::none_of(stored, in_rows)) return {};
  VOLTA_TRY(const Graph graph, build_cached_graph(config, {.sampling = false}));
  for (const Node& node : graph.nodes()) {
    const auto* matmul = std::get_if<MatMul>(&node.op);
    if (matmul == nullptr) continue;
    const auto found = stored.find(graph.value(node.inputs[1]).name);
    if (found == stored.end() || !in_rows(*found)) continue;
    if (found->second.encoding.transposed == matmul->transpose_b) continue;
    return fail(ErrorCode::kInvalidFile,
                fmt::format("tensor '{}' is stored as integers in blocks along the other axis than "
                            "the model reads; quantize the model again",
                            found->first));
  }
  return {};
}

Result<std::map<std::string, TensorSpec>> packed_specs(
    const TransformerConfig& config, const Device& device, const WeightFormat& format,
    const std::map<std::string, TensorSpec>& stored) {
  const auto spec_of = [&](const Value& value) {
    const auto found = stored.find(value.name);
    return found == stored.end() ? value.spec : found->second;
  };
  VOLTA_TRY(const Graph graph, build_cached_graph(config, {.sampling = false}));
  // Until the device has chosen their form, weights stored in rows of integers count as f32.
  VOLTA_TRY(const Graph as_stored, set_parameter_specs(graph, [&](const Value& value) {
              const TensorSpec spec = spec_of(value);
              return spec.encoding.packing == Packing::kRows ? TensorSpec{spec.dtype, spec.shape}
                                                             : spec;
            }));
  VOLTA_TRY(const Graph packed, prepack(as_stored, device, [&](const Value& value) {
              return narrowed(spec_of(value), format);
            }));
  std::map<std::string, TensorSpec> specs;
  for (const ParameterInfo& info : parameters(config)) {
    if (const auto id = packed.find(info.name)) specs.emplace(info.name, packed.spec(*id));
  }
  return specs;
}

Status Transformer::prepack(const WeightFormat& format) {
  std::map<std::string, TensorSpec> stored;
  for (const auto& [name, weight] : weights_) stored.emplace(name, weight.spec());
  VOLTA_TRY(const auto specs, packed_specs(config_, *device_, format, stored));
  for (auto& [name, weight] : weights_) {
    const auto wanted = specs.find(name);  // Every parameter is in it.
    if (wanted == specs.end()) continue;
    VOLTA_TRY(weight, tensor_ops::as_spec(*device_, weight, wanted->second));
  }
  return {};
}

namespace {

// Converts a stored weight to the form in which the model keeps it. Integers that become floats are
// converted to plain f32 first.
Result<Tensor> as_wanted(Device& device, const Tensor& stored, const TensorSpec& wanted) {
  const TensorSpec plain{DType::kF32, stored.shape()};
  if (!stored.spec().encoding.quantized() || wanted.encoding.quantized() || wanted == plain) {
    return tensor_ops::as_spec(device, stored, wanted);
  }
  VOLTA_TRY(const Tensor values, tensor_ops::as_spec(device, stored, plain));
  return tensor_ops::as_spec(device, values, wanted);
}

}  // namespace

Result<Transformer> Transformer::load(const TransformerConfig& config, WeightSource& source,
                                      std::shared_ptr<Device> device,
                                      const WeightOptions& options) {
  VOLTA_TRY(const auto specs, loaded_specs(config, source, *device, options));
  double bytes = 0;
  for (const auto& [name, spec] : specs) bytes += static_cast<double>(spec.bytes());
  VOLTA_TRY(check_bytes(bytes, volta::parameter_count(config), *device));
  const Interruption interrupted = [&device] { return device->interrupted(); };
  std::map<std::string, Tensor> weights;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(check_interrupted(*device));
    VOLTA_TRY(const Tensor stored, source.read(info, interrupted));
    const auto wanted = specs.find(info.name);
    if (wanted == specs.end()) continue;  // assemble() reports what is missing.
    auto weight = as_wanted(*device, stored, wanted->second);
    VOLTA_TRY(source.check_unchanged(info));  // First, as a change may cause other errors.
    if (!weight) return std::unexpected(std::move(weight).error());
    weights.emplace(info.name, *std::move(weight));
    source.release(info);
  }
  VOLTA_TRY(source.check_unchanged());
  return assemble(config, std::move(weights), std::move(device));
}

Result<Plan> plan_for_weights(const Graph& graph, const ParameterSpecs& stored, DType compute_dtype,
                              Device& device) {
  const OptimizeOptions passes{.compute_dtype = compute_dtype,
                               .rounding = device.inference_choices(compute_dtype).rounding};
  VOLTA_TRY(const Graph as_stored, set_parameter_specs(graph, stored));
  VOLTA_TRY(const Graph optimized, optimize(as_stored, device, passes));
  return make_plan(optimized, device);
}

Result<Plan> Transformer::plan(const Graph& graph, DType compute_dtype) const {
  const auto stored = [&](const Value& value) {
    const auto found = weights_.find(value.name);
    return found == weights_.end() ? value.spec : found->second.spec();
  };
  return plan_for_weights(graph, stored, compute_dtype, *device_);
}

std::int64_t Transformer::parameter_count() const { return volta::parameter_count(config_); }

std::int64_t Transformer::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, weight] : weights_) bytes += weight.bytes();
  for (const auto& [name, weight] : adapter_.weights) bytes += weight.bytes();
  return bytes;
}

Result<Tensor> Transformer::bind(const PlanBinding& binding) const {
  const bool local = config_.rope_local_theta > 0.0f && binding.name == kLocalRopeTable;
  if (local || (config_.position == PositionKind::kRotary && binding.name == kRopeTable)) {
    const Shape& shape = binding.spec.shape;
    const std::int64_t rows = shape.rank() == 2 ? shape[0] : 0;
    VOLTA_TRY(RopeTable table,
              RopeTable::create(local ? local_rope_config(config_) : config_, rows, *device_));
    VOLTA_TRY(table.cover(rows));
    return table.tensor();
  }
  const auto adapted = adapter_.weights.find(std::string(binding.name));
  if (adapted != adapter_.weights.end()) return adapted->second;
  return weight(binding.name);
}

}  // namespace volta
