#include "io/quantize.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/file.h"
#include "device/tensor_ops.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "io/weight_files.h"
#include "nn/transformer.h"

namespace volta {
namespace {

// What belongs to a model folder beside its weights.
constexpr std::array<std::string_view, 11> kCompanions = {"tokenizer.json",
                                                          "tokenizer_config.json",
                                                          "special_tokens_map.json",
                                                          "added_tokens.json",
                                                          "vocab.json",
                                                          "merges.txt",
                                                          "tokenizer.model",
                                                          "chat_template.jinja",
                                                          "chat_template.json",
                                                          "generation_config.json",
                                                          "config.json"};

constexpr std::int64_t kMaxCompanionBytes = std::int64_t{256} << 20;

Status copy_companions(const std::string& from, const std::string& to) {
  for (const std::string_view name : kCompanions) {
    const std::string path = join_path(from, name);
    if (!path_exists(path)) continue;
    VOLTA_TRY(const auto bytes, read_binary_file(path, kMaxCompanionBytes));
    VOLTA_TRY(write_file_atomic(join_path(to, name), std::span<const std::byte>(bytes.span())));
  }
  return {};
}

// What one parameter becomes: its spec in memory, and what the file says of it.
struct Target {
  TensorSpec spec;
  TensorSpec stored;
};

Target target_of(const TensorSpec& before, const TensorSpec& packed) {
  TensorSpec spec{packed.dtype, before.shape};
  if (!packed.encoding.quantized()) return {spec, spec};
  spec.encoding = {.transposed = packed.encoding.transposed,
                   .quant = packed.encoding.quant,
                   .block = packed.encoding.block};
  const Encoding& e = spec.encoding;
  const Shape bytes(e.n(spec.shape), e.blocks(e.k(spec.shape)) * e.block_bytes());
  return {spec, {DType::kU8, bytes}};
}

Result<Tensor> encode(Device& device, const Tensor& tensor, const TensorSpec& spec) {
  if (!spec.encoding.quantized() && !tensor.spec().encoding.quantized()) {
    return tensor.dtype() == spec.dtype ? Result<Tensor>(tensor)
                                        : tensor_ops::cast(device, tensor, spec.dtype);
  }
  const std::array inputs = {tensor};
  VOLTA_TRY(auto outputs, tensor_ops::apply(device, Encode{spec.encoding}, inputs));
  return std::move(outputs.front());
}

// How far `after` is from `before`, both as f32; not a number when either is none.
Result<double> error_of(Device& device, const Tensor& before, const Tensor& after) {
  const auto widened = [&](const Tensor& tensor) -> Result<Tensor> {
    VOLTA_TRY(Tensor wide, encode(device, tensor, {DType::kF32, tensor.shape()}));
    return wide.host_accessible() ? std::move(wide) : wide.clone_to();
  };
  VOLTA_TRY(const Tensor x, widened(before));
  VOLTA_TRY(const Tensor y, widened(after));
  VOLTA_TRY(const auto a, x.values<float>());
  VOLTA_TRY(const auto b, y.values<float>());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += off * off;
    size += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return size == 0.0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace

Result<std::vector<QuantizedTensor>> quantize_model(const std::string& from, const std::string& to,
                                                    const WeightFormat& format, Device& device,
                                                    const QuantizeCallback& on_tensor) {
  VOLTA_TRY(const TransformerConfig config, load_model_config(from));
  VOLTA_TRY(WeightFiles files, WeightFiles::open(from, config));
  const std::string path = join_path(to, "model.safetensors");
  if (path_exists(path) || path_exists(join_path(to, "config.json"))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' holds a model already; choose another folder", to));
  }
  std::map<std::string, TensorSpec> before;
  std::map<std::string, ParameterInfo> parameter;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(before[info.name], files.spec(info));
    parameter.emplace(info.name, info);
  }
  VOLTA_TRY(const auto packed, packed_specs(config, device, format, before));
  std::map<std::string, Target> targets;
  std::map<std::string, TensorSpec> stored;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const auto& [name, spec] : before) {
    const Target target = target_of(spec, packed.at(name));
    targets.emplace(name, target);
    stored.emplace(name, target.stored);
    if (target.spec.encoding.quantized())
      metadata.emplace(quant_key(name), quant_text(target.spec.encoding));
  }

  VOLTA_TRY(create_directories(to));
  VOLTA_TRY(SafetensorsWriter writer, SafetensorsWriter::create(path, stored, metadata));
  std::vector<QuantizedTensor> report;
  for (const auto& [name, target] : targets) {  // In the order of the file.
    const ParameterInfo& info = parameter.at(name);
    VOLTA_TRY(const Tensor tensor, files.read(info));
    VOLTA_TRY(const Tensor narrow, encode(device, tensor, target.spec));
    QuantizedTensor done{name, before.at(name), target.spec, 0.0};
    if (done.before != done.after) {
      VOLTA_TRY(done.error, error_of(device, tensor, narrow));
      if (!std::isfinite(done.error)) {
        return fail(ErrorCode::kNonFinite,
                    fmt::format("tensor '{}' cannot be stored as {}: it holds NaN, infinity or "
                                "numbers too large (volta verify lists them)",
                                name, to_string(target.spec)));
      }
    }
    VOLTA_TRY(const Tensor host,
              narrow.host_accessible() ? Result<Tensor>(narrow) : narrow.clone_to());
    VOLTA_TRY(const auto bytes, host.host_bytes());
    VOLTA_TRY(writer.write(bytes));
    files.release(info);
    report.push_back(done);
    if (on_tensor && !on_tensor(report.back(), std::ssize(targets))) {
      return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
    }
  }
  VOLTA_TRY(copy_companions(from, to));
  VOLTA_TRY(writer.finish());
  return report;
}

}  // namespace volta
