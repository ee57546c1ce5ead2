#include "formats/gguf/gguf_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/parallel.h"
#include "base/work_budget.h"
#include "formats/gguf/float_elements.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_rope.h"
#include "formats/gguf/gguf_tokenizer.h"
#include "formats/gguf/gguf_tokenizer_writer.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/model_config.h"
#include "formats/new_folder.h"
#include "formats/non_finite.h"
#include "formats/safetensors.h"
#include "formats/tensor_names.h"
#include "formats/weight_files.h"

namespace volta {
namespace {

constexpr std::size_t kBytesBetweenQuestions = std::size_t{32} << 20;

// No model can run with such values, so they are not converted.
std::unexpected<Error> non_finite(std::string_view tensor) {
  return fail(
      ErrorCode::kNonFinite,
      fmt::format("tensor '{}' holds NaN or infinity (volta verify lists them); nothing was "
                  "written",
                  tensor));
}

std::unexpected<Error> stopped() {
  return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
}

// Checks one tensor of a folder for NaN and infinity and writes it, in pieces.
Status write_finite(const Tensor& tensor, std::string_view name, ThreadPool& pool,
                    SafetensorsWriter& out, const Interruption& interrupted) {
  VOLTA_TRY(const std::span<const std::byte> bytes, tensor.host_bytes());
  for (std::size_t at = 0; at < bytes.size(); at += kBytesBetweenQuestions) {
    if (interrupted()) return stopped();
    const auto piece = bytes.subspan(at, std::min(kBytesBetweenQuestions, bytes.size() - at));
    if (count_non_finite(piece, tensor.dtype(), pool).first >= 0) return non_finite(name);
    VOLTA_TRY(out.write(piece));
  }
  return {};
}

Status write_weights(const std::string& path, const GgufFile& file, const TransformerConfig& config,
                     DType dtype, ConvertProgress progress) {
  VOLTA_TRY(auto parameters, find_gguf_parameters(config, file));
  std::ranges::sort(parameters, {}, [](const GgufParameter& p) { return p.info.name; });
  std::map<std::string, TensorSpec> specs;
  for (const GgufParameter& p : parameters)
    specs.emplace(p.info.name, TensorSpec{dtype, p.info.shape});
  VOLTA_TRY(ThreadPool pool, ThreadPool::create(1));  // Dequantising uses one thread, too.
  VOLTA_TRY(SafetensorsWriter out, SafetensorsWriter::create(path, specs, {{"format", "pt"}}));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Interruption ask = [&, i] { return !progress(i, parameters.size()); };
    auto tensor = load_gguf_parameter(file, config, parameters[i], dtype, ask);
    VOLTA_TRY(file.check_unchanged());  // May be the cause of another error.
    if (!tensor) {
      if (tensor.error().code() == ErrorCode::kInterrupted) return stopped();
      return std::unexpected(std::move(tensor).error());
    }
    file.release(*parameters[i].tensor);
    VOLTA_TRY(write_finite(*tensor, parameters[i].info.name, pool, out, ask));
  }
  return out.finish();
}

Status write_folder(const GgufFile& file, const std::string& directory, DType dtype,
                    ConvertProgress progress) {
  VOLTA_TRY(const TransformerConfig config, gguf_config(file));
  VOLTA_TRY(
      write_weights(join_path(directory, "model.safetensors"), file, config, dtype, progress));
  VOLTA_TRY(
      write_file_atomic(join_path(directory, "config.json"), model_config_json(config, dtype)));
  VOLTA_TRY(const std::string generation, gguf_generation_config(file));
  if (!generation.empty()) {
    VOLTA_TRY(write_file_atomic(join_path(directory, "generation_config.json"), generation));
  }
  auto tokenizer = gguf_tokenizer(file);
  if (!tokenizer && tokenizer.error().code() == ErrorCode::kNotFound) return {};
  if (!tokenizer) return std::unexpected(std::move(tokenizer).error());
  VOLTA_TRY(const std::string tokenizer_config, gguf_tokenizer_config(file));
  VOLTA_TRY(write_file_atomic(join_path(directory, "tokenizer.json"), (*tokenizer)->to_json()));
  return write_file_atomic(join_path(directory, "tokenizer_config.json"), tokenizer_config);
}

// One tensor to be written: its place in GGUF and the parameter that it holds. A filler is a bias
// of zeros that GGUF requires and the model lacks.
struct Output {
  GgufTensorSpec spec;
  GgufLayout layout = GgufLayout::kSame;
  ParameterInfo parameter;
  bool filler = false;
};

Status write_tensor(const Output& output, const Tensor& tensor, std::int64_t head_dim,
                    GgufSink sink, const Interruption& interrupted) {
  VOLTA_TRY(const FloatElements elements, FloatElements::of(tensor));
  const Shape& shape = output.spec.shape;
  const bool same = output.layout == GgufLayout::kSame || output.layout == GgufLayout::kPlusOne;
  const std::int64_t rows = same ? 1 : shape[0], columns = shape.elements() / rows;
  const bool transposed = output.layout == GgufLayout::kTransposed;
  std::array<float, kGgmlPiece> piece{};
  std::array<std::byte, kGgmlPiece * sizeof(float)> blocks{};
  const GgmlTypeInfo& info = ggml_type_info(output.spec.type);
  std::int64_t until_question = kGgmlPiecesPerCheck;
  for (std::int64_t row = 0; row < rows; ++row) {
    // The first element of GGUF's row `row` in the tensor of Hugging Face.
    const std::int64_t begin = transposed ? row
                               : same     ? 0
                                          : gguf_row_source(row, head_dim) * columns;
    for (std::int64_t column = 0; column < columns; column += kGgmlPiece) {
      if (--until_question < 0) {
        until_question = kGgmlPiecesPerCheck;
        if (interrupted()) return stopped();
      }
      const std::int64_t count = std::min(kGgmlPiece, columns - column);
      const auto values = std::span(piece).first(static_cast<std::size_t>(count));
      const std::int64_t stride = transposed ? rows : 1;
      elements.get(begin + column * stride, stride, values);
      if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
        return non_finite(output.parameter.name);
      }
      if (output.layout == GgufLayout::kPlusOne) {
        for (float& value : values) value += 1.0f;
      }
      const auto bytes = std::span(blocks).first(
          static_cast<std::size_t>(count / info.block_values * info.block_bytes));
      auto done = quantize(info.type, values, bytes);
      if (!done) {
        return std::unexpected(
            std::move(done).error().with_context(fmt::format("tensor '{}'", output.spec.name)));
      }
      VOLTA_TRY(sink(bytes));
    }
  }
  return {};
}

GgmlType type_for(const GgufTensorSpec& spec, GgmlType wanted) {
  if (spec.shape.rank() < 2 || spec.name.starts_with("position_embd")) return GgmlType::kF32;
  const bool whole = spec.shape.columns() % ggml_type_info(wanted).block_values == 0;
  return whole ? wanted : GgmlType::kF16;
}

GgmlType float_type_of(DType dtype) {
  return dtype == DType::kBF16  ? GgmlType::kBF16
         : dtype == DType::kF16 ? GgmlType::kF16
                                : GgmlType::kF32;
}

// All tensors that GGUF needs for the model, with matrices of `type`, or of the folder's types.
// ggml's gpt2 requires all biases.
Result<std::vector<Output>> plan_outputs(const TransformerConfig& config,
                                         const GgufArchitecture& architecture,
                                         std::optional<GgmlType> type, WeightFiles& weights) {
  std::vector<Output> outputs;
  const auto add = [&](ParameterInfo info, bool filler) -> Status {
    const GgufPlace place = gguf_place(architecture, info.name);
    if (place.name.empty()) {
      return fail(ErrorCode::kUnsupported, fmt::format("GGUF has no place for '{}'", info.name));
    }
    GgufTensorSpec spec{place.name, GgmlType::kF32, gguf_shape(place.layout, info.shape)};
    GgmlType wanted = type.value_or(GgmlType::kF32);
    if (!type && !filler) {
      VOLTA_TRY(const TensorSpec stored, weights.spec(info));
      wanted = float_type_of(stored.dtype);
    }
    spec.type = type_for(spec, wanted);
    outputs.push_back({std::move(spec), place.layout, std::move(info), filler});
    return {};
  };
  for (ParameterInfo& info : parameters(config)) VOLTA_TRY(add(std::move(info), false));
  for (ParameterInfo& info : missing_biases(config)) VOLTA_TRY(add(std::move(info), true));
  return outputs;
}

// Refuses weights that are integers already, because rounding them again would lose precision.
Status refuse_integers(const std::vector<Output>& outputs, WeightFiles& weights) {
  for (const Output& output : outputs) {
    if (output.filler) continue;
    VOLTA_TRY(const TensorSpec spec, weights.spec(output.parameter));
    if (!spec.encoding.quantized()) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("tensor '{}' is stored as integers by volta quantize; convert the "
                            "folder that it was made from, e.g. with --type q8_0",
                            output.parameter.name));
  }
  return {};
}

// The type of most values in matrices.
GgmlType main_type(const std::vector<Output>& outputs) {
  std::map<GgmlType, std::int64_t> values;
  for (const Output& output : outputs) {
    if (output.spec.shape.rank() > 1) values[output.spec.type] += output.spec.shape.elements();
  }
  const auto most =
      std::ranges::max_element(values, {}, [](const auto& entry) { return entry.second; });
  return most == values.end() ? GgmlType::kF32 : most->first;
}

// general.file_type: the type of most tensors in the file, in llama.cpp's numbers.
std::uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ4_0:
      return 2;
    case GgmlType::kQ4_1:
      return 3;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBF16:
      return 32;
    default:
      return 0;
  }
}

void add_architecture(const TransformerConfig& c, const GgufArchitecture& architecture,
                      GgufMetadata& metadata) {
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", architecture.name, name);
  };
  const auto size = [&](std::string_view name, std::int64_t value) {
    metadata.add_u32(key(name), static_cast<std::uint32_t>(value));
  };
  size("vocab_size", c.vocab_size);
  size("context_length", c.context);
  size("embedding_length", c.dim);
  size("block_count", c.layers);
  size("feed_forward_length", c.ffn);
  size("attention.head_count", c.heads);
  metadata.add_f32(key(architecture.epsilon_key()), c.norm_eps);
  if (architecture.naming == WeightNaming::kGpt2) return;
  size("attention.head_count_kv", c.kv_heads);
  size("attention.key_length", c.head_dim);
  size("attention.value_length", c.head_dim);
  if (c.window != 0) size("attention.sliding_window", c.window);
  for (const GgufNumber& number : architecture.numbers) {
    if (c.*number.field != 0.0f) metadata.add_f32(key(number.key), c.*number.field);
  }
  size("rope.dimension_count", c.rotated());
  metadata.add_f32(key("rope.freq_base"), c.rope_theta);
  if (c.rope_local_theta > 0.0f) metadata.add_f32(key("rope.freq_base_swa"), c.rope_local_theta);
  add_gguf_rope(c, architecture, metadata);
}

}  // namespace

Status gguf_to_folder(const ModelSource& source, const std::string& directory, DType dtype,
                      bool replace, ConvertProgress progress) {
  if (source.gguf() == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a .gguf file", source.path()));
  }
  const GgufFile& file = *source.gguf();
  VOLTA_TRY(check_source_stays(source.path(), directory));
  VOLTA_TRY(NewFolder folder, NewFolder::create(directory, replace));
  Status written = write_folder(file, folder.path(), dtype, progress);
  VOLTA_TRY(file.check_unchanged());  // May be the cause of another error.
  VOLTA_TRY(std::move(written));
  return folder.publish();
}

Result<bool> folder_to_gguf(const ModelSource& source, const std::string& gguf,
                            std::optional<GgmlType> wanted, bool replace,
                            ConvertProgress progress) {
  if (source.gguf() != nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a folder", source.path()));
  }
  if (path_exists(gguf) && !replace) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is there; name another file, or use --force to replace it", gguf));
  }
  VOLTA_TRY(check_replaceable(gguf));  // Checked before anything is computed.
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(const GgufArchitecture* const architecture, gguf_architecture(config));
  VOLTA_TRY(WeightFiles weights, WeightFiles::open(source.path(), config));
  VOLTA_TRY(const auto outputs, plan_outputs(config, *architecture, wanted, weights));
  VOLTA_TRY(refuse_integers(outputs, weights));
  const GgmlType type = wanted.value_or(main_type(outputs));

  GgufMetadata metadata;
  metadata.add_string("general.architecture", architecture->name);
  metadata.add_string("general.type", "model");
  metadata.add_u32("general.file_type", file_type(type));
  if (ggml_type_info(type).block_values > 1) metadata.add_u32("general.quantization_version", 2);
  add_architecture(config, *architecture, metadata);
  VOLTA_TRY(const TokenizerFiles files, read_tokenizer_files(source.path()));
  VOLTA_TRY(const bool complete, add_gguf_tokenizer(files, config.vocab_size, metadata));

  std::vector<GgufTensorSpec> specs;
  for (const Output& output : outputs) specs.push_back(output.spec);
  const std::vector<GgufFactors> factors = gguf_rope_factors(config);
  for (const GgufFactors& list : factors) {
    specs.push_back({std::string(list.tensor), GgmlType::kF32, Shape(std::ssize(list.values))});
  }
  const auto write_data = [&](std::size_t i, GgufSink sink) -> Status {
    if (!progress(std::min(i, outputs.size()), outputs.size())) return stopped();
    if (i >= outputs.size()) {
      return sink(std::as_bytes(std::span(factors[i - outputs.size()].values)));
    }
    const Output& output = outputs[i];
    const Interruption ask = [&, i] { return !progress(i, outputs.size()); };
    if (output.filler) {
      VOLTA_TRY(const Tensor zeros, Tensor::zeros({DType::kF32, output.parameter.shape}));
      return write_tensor(output, zeros, config.head_dim, sink, ask);
    }
    VOLTA_TRY(const Tensor tensor, weights.read(output.parameter, ask));
    Status done = write_tensor(output, tensor, config.head_dim, sink, ask);
    weights.release(output.parameter);
    // A changed file may be the cause of another error, so it is reported first.
    VOLTA_TRY(weights.check_unchanged(output.parameter));
    return done;
  };
  VOLTA_TRY(create_directories(parent_path(gguf)));
  VOLTA_TRY(write_gguf(gguf, metadata, specs, write_data,
                       replace ? Existing::kReplace : Existing::kKeep));
  return complete;
}

}  // namespace volta
