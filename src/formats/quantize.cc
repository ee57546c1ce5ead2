#include "formats/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/work_budget.h"
#include "device/tensor_ops.h"
#include "formats/carried_files.h"
#include "formats/new_folder.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "nn/transformer.h"

namespace volta {
namespace {

// The target format of one parameter: its spec in memory, and its spec in the file.
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

// The relative error of `after` against `before`, both as f32; NaN or infinity if one of them has
// such values.
Result<double> error_of(Device& device, const Tensor& before, const Tensor& after) {
  const auto widened = [&](const Tensor& tensor) -> Result<Tensor> {
    VOLTA_TRY(Tensor wide, encode(device, tensor, {DType::kF32, tensor.shape()}));
    return wide.host_accessible() ? std::move(wide) : wide.clone_to();
  };
  VOLTA_TRY(const Tensor x, widened(before));
  VOLTA_TRY(const Tensor y, widened(after));
  VOLTA_TRY(const auto a, x.values<float>());
  VOLTA_TRY(const auto b, y.values<float>());
  constexpr std::size_t kValuesBetweenQuestions = std::size_t{1} << 20;  // About a millisecond.
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i % kValuesBetweenQuestions == 0) VOLTA_TRY(check_interrupted(device));
    const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += off * off;
    size += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return size == 0.0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

// One parameter to be written.
struct Entry {
  ParameterInfo info;
  TensorSpec before;
  Target target;
};

// The model's parameters, sorted by name as in the file.
Result<std::vector<Entry>> make_entries(const TransformerConfig& config, WeightFiles& files,
                                        const WeightFormat& format, const Device& device) {
  // A model that runs has its vectors in f32 (loaded_specs()). In the file they keep their type.
  std::map<std::string, TensorSpec> before, as_run;
  for (const ParameterInfo& info : parameters(config)) {
    VOLTA_TRY(const TensorSpec spec, files.spec(info));
    if (spec.encoding.quantized()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("the model's weights are integers already ('{}' is {}); start from "
                              "the folder that they were made from",
                              info.name, to_string(spec)));
    }
    before.emplace(info.name, spec);
    const bool vector = info.shape.rank() < 2;
    as_run.emplace(info.name, vector ? TensorSpec{DType::kF32, info.shape} : spec);
  }
  VOLTA_TRY(const auto packed, packed_specs(config, device, format, as_run));
  std::vector<Entry> entries;
  for (const ParameterInfo& info : parameters(config)) {
    const auto spec = before.find(info.name);
    const auto encoded = packed.find(info.name);
    if (spec == before.end() || encoded == packed.end()) continue;  // Both have every parameter.
    const bool vector = info.shape.rank() < 2;
    entries.push_back(
        {info, spec->second, target_of(spec->second, vector ? spec->second : encoded->second)});
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return entry.info.name; });
  return entries;
}

// The type of a tensor's values: "int8", "bf16".
std::string type_of(const TensorSpec& spec) {
  if (!spec.encoding.quantized()) return std::string(dtype_name(spec.dtype));
  return std::string(format_info(spec.encoding.quant).elements);
}

// Rounds one parameter and writes it.
Result<QuantizedTensor> write_entry(const Entry& entry, WeightFiles& files, Device& device,
                                    SafetensorsWriter& writer) {
  const Interruption interrupted = [&device] { return device.interrupted(); };
  VOLTA_TRY(const Tensor tensor, files.read(entry.info, interrupted));
  VOLTA_TRY(const Tensor narrow, encode(device, tensor, entry.target.spec));
  QuantizedTensor done{entry.info.name, entry.before, entry.target.spec, 0.0};
  if (done.before != done.after || !done.after.encoding.quantized()) {
    VOLTA_TRY(done.error, error_of(device, tensor, narrow));
    if (!std::isfinite(done.error)) {
      return fail(ErrorCode::kNonFinite,
                  fmt::format("tensor '{}' cannot be stored in {}: it holds NaN, infinity or "
                              "numbers too large (volta verify lists them)",
                              done.name, type_of(done.after)));
    }
  }
  VOLTA_TRY(const Tensor host,
            narrow.host_accessible() ? Result<Tensor>(narrow) : narrow.clone_to());
  VOLTA_TRY(const auto bytes, host.host_bytes());
  VOLTA_TRY(writer.write(bytes, interrupted));
  files.release(entry.info);
  return done;
}

Result<std::vector<QuantizedTensor>> write_folder(const std::string& from, const std::string& to,
                                                  const std::vector<Entry>& entries,
                                                  WeightFiles& files, Device& device,
                                                  const QuantizeCallback& on_tensor) {
  std::map<std::string, TensorSpec> stored;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const Entry& entry : entries) {
    stored.emplace(entry.info.name, entry.target.stored);
    const Encoding& encoding = entry.target.spec.encoding;
    if (encoding.quantized()) metadata.emplace(quant_key(entry.info.name), quant_text(encoding));
  }
  VOLTA_TRY(copy_model_files(from, to));
  VOLTA_TRY(SafetensorsWriter writer,
            SafetensorsWriter::create(join_path(to, "model.safetensors"), stored, metadata));
  std::vector<QuantizedTensor> report;
  for (const Entry& entry : entries) {
    VOLTA_TRY(check_interrupted(device));
    auto done = write_entry(entry, files, device, writer);
    // A changed file may be the cause of another error, so it is reported first.
    VOLTA_TRY(files.check_unchanged(entry.info));
    if (!done) return std::unexpected(std::move(done).error());
    report.push_back(*std::move(done));
    if (on_tensor && !on_tensor(report.back(), std::ssize(entries))) {
      return fail(ErrorCode::kInterrupted, "interrupted");
    }
  }
  VOLTA_TRY(writer.finish());
  return report;
}

}  // namespace

Result<std::vector<QuantizedTensor>> quantize_model(const ModelSource& source,
                                                    const std::string& to,
                                                    const WeightFormat& format, Device& device,
                                                    const QuantizeCallback& on_tensor,
                                                    bool replace) {
  const std::string& from = source.path();
  if (source.gguf() != nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a folder", from));
  }
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(check_source_stays(from, to));
  if (replace) VOLTA_TRY(check_gives_way(to, from));
  VOLTA_TRY(WeightFiles files, WeightFiles::open(from, config));
  VOLTA_TRY(const auto entries, make_entries(config, files, format, device));
  // The folder is filled under a temporary name, so that an incomplete model never appears.
  VOLTA_TRY(NewFolder folder, NewFolder::create(to, replace));
  auto report = write_folder(from, folder.path(), entries, files, device, on_tensor);
  VOLTA_TRY(files.check_unchanged());  // May be the cause of another error.
  if (!report && report.error().code() == ErrorCode::kInterrupted) {
    return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
  }
  if (report) VOLTA_TRY(folder.publish());
  return report;
}

}  // namespace volta
