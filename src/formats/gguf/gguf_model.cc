#include "formats/gguf/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/arithmetic.h"
#include "formats/gguf/float_elements.h"
#include "formats/gguf/gguf_rope.h"
#include "formats/model_config.h"
#include "nn/weight_names.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

// The metadata keys of one architecture: "llama." + "block_count".
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}
  std::string name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  Result<std::int64_t> size(std::string_view key) const {
    return file_.get_int(name(key), 1, kMaxPlausibleCount);
  }
  Result<std::int64_t> size_or(std::string_view key, std::int64_t fallback) const {
    return file_.get_int_or(name(key), fallback, 0, kMaxPlausibleCount);
  }
  Result<double> number(std::string_view key) const { return file_.get_float(name(key)); }
  Result<double> number_or(std::string_view key, double fallback) const {
    return file_.get_float_or(name(key), fallback);
  }

 private:
  const GgufFile& file_;
  std::string_view architecture_;
};

std::unexpected<Error> unsupported(const GgufFile& file, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", file.path(), what));
}

Result<const GgufArchitecture*> architecture_of(const GgufFile& file) {
  VOLTA_TRY(const auto name, file.get_string("general.architecture"));
  auto found = find_gguf_architecture(name);
  if (!found) return unsupported(file, found.error().message());
  return found;
}

// Reads what no key contains: which biases and norms exist.
void read_parts(const GgufFile& file, const GgufArchitecture& architecture, TransformerConfig& c) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  const bool packed = !weight_names(architecture.naming).qkv.empty();
  c.norm_bias = has("output_norm.bias");
  c.attention_bias = has(packed ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias");
  c.attention_out_bias = has("blk.0.attn_output.bias");
  c.ffn_bias = has("blk.0.ffn_up.bias");
  c.qk_norm = has("blk.0.attn_q_norm.weight");
  c.tied_output = !has("output.weight");
}

// Older converters store GPT-2's tied output as a copy of the embedding.
bool output_is_embedding(const GgufFile& file) {
  const GgufTensor* output = file.find_tensor("output.weight");
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  return output != nullptr && embedding != nullptr && output->type == embedding->type &&
         output->shape == embedding->shape &&
         std::ranges::equal(file.tensor_bytes(*output), file.tensor_bytes(*embedding));
}

Status read_gpt2(const GgufFile& file, TransformerConfig& c) {
  c.head_dim = c.dim / c.heads;
  c.tied_output = c.tied_output || output_is_embedding(file);
  return {};
}

Status read_rope(const GgufFile& file, const Keys& keys, const GgufArchitecture& architecture,
                 TransformerConfig& c) {
  VOLTA_TRY(const bool rotates, file.get_bool_or(keys.name("rope.scaling.finetuned"), true));
  if (architecture.rope_switch && !rotates) {
    return unsupported(file, fmt::format("{}.rope.scaling.finetuned is false: a {} without rotary "
                                         "positions is not supported",
                                         architecture.name, architecture.name));
  }
  VOLTA_TRY(const double theta, keys.number_or("rope.freq_base", 10000.0));
  c.rope_theta = static_cast<float>(theta);
  VOLTA_TRY(const std::int64_t rotary,
            file.get_int_or(keys.name("rope.dimension_count"), c.head_dim, 2, kMaxPlausibleCount));
  if (rotary != c.head_dim) {
    if (!architecture.partial_rotation) {
      return unsupported(file,
                         fmt::format("{}.rope.dimension_count is {}, but heads have {}: "
                                     "partial rotation is not supported for {}",
                                     architecture.name, rotary, c.head_dim, architecture.name));
    }
    c.rotary_dim = rotary;
  }
  if (architecture.local_theta > 0.0 && c.window > 0) {
    VOLTA_TRY(const double local, keys.number_or("rope.freq_base_swa", architecture.local_theta));
    c.rope_local_theta = static_cast<float>(local);
  }
  return read_gguf_rope(file, architecture, c);
}

// Keys that would change what the model computes, with the values that change nothing. An
// architecture that has a number under such a key reads it.
struct ChangingKey {
  std::string_view name;
  double neutral;
};
constexpr std::array kChangingKeys = {
    ChangingKey{"attention.clamp_kqv", 0.0}, ChangingKey{"attention.max_alibi_bias", 0.0},
    ChangingKey{"attn_logit_softcapping", 0.0}, ChangingKey{"final_logit_softcapping", 0.0},
    ChangingKey{"logit_scale", 1.0}};

Status refuse_changing_keys(const GgufFile& file, const Keys& keys,
                            const GgufArchitecture& architecture) {
  for (const ChangingKey& key : kChangingKeys) {
    if (std::ranges::find(architecture.numbers, key.name, &GgufNumber::key) !=
        architecture.numbers.end()) {
      continue;
    }
    VOLTA_TRY(const double value, keys.number_or(key.name, key.neutral));
    if (value == 0.0 || value == key.neutral) continue;
    return unsupported(file, fmt::format("{} is {}: Volta runs {} without it", keys.name(key.name),
                                         value, architecture.name));
  }
  VOLTA_TRY(const bool parallel, file.get_bool_or(keys.name("use_parallel_residual"), false));
  if (!parallel) return {};
  return unsupported(file, fmt::format("{} is true: Volta runs {} without parallel residuals",
                                       keys.name("use_parallel_residual"), architecture.name));
}

Status read_numbers(const Keys& keys, const GgufArchitecture& architecture, TransformerConfig& c) {
  for (const GgufNumber& number : architecture.numbers) {
    VOLTA_TRY(const double value, keys.number_or(number.key, static_cast<double>(number.missing)));
    c.*number.field = number.from_file(static_cast<float>(value));
  }
  return {};
}

Status read_llama(const GgufFile& file, const Keys& keys, const GgufArchitecture& architecture,
                  TransformerConfig& c) {
  c.position = PositionKind::kRotary;
  VOLTA_TRY(c.kv_heads, keys.size_or("attention.head_count_kv", c.heads));
  VOLTA_TRY(c.head_dim,
            keys.size_or("attention.key_length", std::max<std::int64_t>(c.dim / c.heads, 1)));
  VOLTA_TRY(const auto value_length, keys.size_or("attention.value_length", c.head_dim));
  if (value_length != c.head_dim) {
    return unsupported(file, "keys and values of different lengths are not supported");
  }
  VOLTA_TRY(const auto experts, keys.size_or("expert_count", 0));
  if (experts != 0) {
    return unsupported(file, fmt::format("a mixture of {} experts is not supported", experts));
  }
  VOLTA_TRY(const std::int64_t window,
            file.get_int_or(keys.name("attention.sliding_window"), architecture.window, 0,
                            std::int64_t{1} << 30));
  if (window > 0 && !architecture.windows) {
    return unsupported(
        file, fmt::format("{}.attention.sliding_window is {}: Volta runs {} without "
                          "windows{}",
                          architecture.name, window, architecture.name,
                          architecture.name == "olmo2" ? ", and does not know OLMo 3" : ""));
  }
  c.window = static_cast<std::int32_t>(window);
  architecture.set_implied(c);
  VOLTA_TRY(refuse_changing_keys(file, keys, architecture));
  VOLTA_TRY(read_numbers(keys, architecture, c));
  return read_rope(file, keys, architecture, c);
}

bool is_no_parameter(std::string_view name, const TransformerConfig& config) {
  return name == kGgufRopeFactors || name == kGgufLongFactors || name == kGgufShortFactors ||
         name.ends_with(".attn_rot_embd") || (name == "output.weight" && config.tied_output);
}

// The rows of a tensor in the file, and the places of their values in the parameter.
struct Rows {
  GgufLayout layout = GgufLayout::kSame;
  std::int64_t head_dim = 1;
  std::int64_t count = 1, columns = 1;

  Rows(const GgufParameter& parameter, std::int64_t head)
      : layout(parameter.layout), head_dim(head) {
    const Shape& shape = parameter.info.shape;
    const bool same_order = layout == GgufLayout::kSame || layout == GgufLayout::kPlusOne;
    count = same_order ? 1 : parameter.tensor->shape[0];
    columns = shape.elements() / count;
  }
  std::int64_t begin(std::int64_t row, std::int64_t column) const {
    if (layout == GgufLayout::kTransposed) return column * count + row;
    if (layout != GgufLayout::kRotaryPairs) return column;
    return gguf_row_source(row, head_dim) * columns + column;
  }
  std::int64_t stride() const { return layout == GgufLayout::kTransposed ? count : 1; }
};

}  // namespace

Result<TransformerConfig> gguf_config(const GgufFile& file) {
  VOLTA_TRY(const GgufArchitecture* const architecture, architecture_of(file));
  const Keys keys(file, architecture->name);
  const bool gpt2 = architecture->naming == WeightNaming::kGpt2;
  TransformerConfig c;
  VOLTA_TRY(c.context, keys.size("context_length"));
  VOLTA_TRY(c.dim, keys.size("embedding_length"));
  VOLTA_TRY(c.layers, keys.size("block_count"));
  VOLTA_TRY(c.ffn, keys.size("feed_forward_length"));
  VOLTA_TRY(c.heads, keys.size("attention.head_count"));
  c.kv_heads = c.heads;
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor 'token_embd.weight' is missing", file.path()));
  }
  c.vocab_size = embedding->shape[0];
  if (c.layers > std::ssize(file.tensors())) {  // Rejects an impossible count before it is used.
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} blocks are claimed, but there are {} tensors", file.path(),
                            c.layers, file.tensors().size()));
  }
  VOLTA_TRY(const double eps, keys.number(architecture->epsilon_key()));
  c.norm_eps = static_cast<float>(eps);
  read_parts(file, *architecture, c);
  architecture->set_implied(c);
  VOLTA_TRY(gpt2 ? read_gpt2(file, c) : read_llama(file, keys, *architecture, c));
  if (auto ok = validate(c); !ok) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", file.path(), ok.error().message()));
  }
  return c;
}

Result<std::vector<GgufParameter>> find_gguf_parameters(const TransformerConfig& config,
                                                        const GgufFile& file) {
  const auto refuse = [&](std::string what) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", file.path(), what));
  };
  VOLTA_TRY(const GgufArchitecture* const architecture, architecture_of(file));
  std::vector<GgufParameter> found;
  std::set<std::string_view> used;
  for (ParameterInfo& info : parameters(config)) {
    const GgufPlace place = gguf_place(*architecture, info.name);
    const GgufTensor* tensor = file.find_tensor(place.name);
    if (tensor == nullptr || tensor->shape != gguf_shape(place.layout, info.shape)) {
      return refuse(fmt::format("tensor '{}' is {}; the metadata asks for {}", place.name,
                                tensor == nullptr ? "missing" : to_string(tensor->shape),
                                to_string(gguf_shape(place.layout, info.shape))));
    }
    used.insert(tensor->name);
    found.push_back({std::move(info), place.layout, tensor});
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.contains(tensor.name) || is_no_parameter(tensor.name, config)) continue;
    return refuse(
        fmt::format("tensor '{}' belongs to no parameter of {}", tensor.name, architecture->name));
  }
  return found;
}

DType gguf_native_dtype(GgmlType type) {
  if (type == GgmlType::kF16) return DType::kF16;
  return type == GgmlType::kBF16 ? DType::kBF16 : DType::kF32;
}

Result<Tensor> load_gguf_parameter(const GgufFile& file, const TransformerConfig& config,
                                   const GgufParameter& parameter, DType dtype,
                                   const Interruption& interrupted) {
  VOLTA_TRY(Tensor tensor, Tensor::empty({dtype, parameter.info.shape}));
  VOLTA_TRY(FloatElements elements, FloatElements::of(tensor));
  const Rows rows(parameter, config.head_dim);
  if (rows.columns % ggml_type_info(parameter.tensor->type).block_values != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: tensor '{}': a vector of a quantised type is not supported",
                            file.path(), parameter.tensor->name));
  }
  std::array<float, kGgmlPiece> piece{};
  std::int64_t until_question = 0;
  bool fit = true;  // All values, in `dtype`.
  for (std::int64_t row = 0; row < rows.count; ++row) {
    for (std::int64_t column = 0; column < rows.columns; column += kGgmlPiece) {
      if (--until_question < 0) {
        until_question = kGgmlPiecesPerCheck;
        if (interrupted && interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
      }
      const auto values = std::span(piece).first(
          static_cast<std::size_t>(std::min(kGgmlPiece, rows.columns - column)));
      file.read_values(*parameter.tensor, row * rows.columns + column, values);
      if (rows.layout == GgufLayout::kPlusOne) {
        for (float& value : values) value -= 1.0f;
      }
      fit = elements.put(rows.begin(row, column), rows.stride(), values) && fit;
    }
  }
  if (fit) return tensor;
  return fail(
      ErrorCode::kNonFinite,
      fmt::format("tensor '{}' has values beyond f16; choose bf16 or f32", parameter.info.name));
}

Result<GgufWeights> GgufWeights::find(GgufFile file, const TransformerConfig& config) {
  GgufWeights weights(std::move(file), config);
  VOLTA_TRY(const auto list, find_gguf_parameters(config, weights.file_));
  for (const GgufParameter& parameter : list) {
    weights.found_.emplace(parameter.info.name, parameter);
  }
  return weights;
}

Result<const GgufParameter*> GgufWeights::find(const ParameterInfo& parameter) const {
  const auto found = found_.find(parameter.name);
  if (found != found_.end()) return &found->second;
  return fail(ErrorCode::kNotFound,
              fmt::format("{} has no parameter '{}'", file_.path(), parameter.name));
}

// The parameter's spec as stored. GGUF stores every matrix as rows along K.
TensorSpec GgufWeights::spec_of(const GgufParameter& parameter) {
  TensorSpec spec{gguf_native_dtype(parameter.tensor->type), parameter.info.shape};
  if (parameter.layout == GgufLayout::kPlusOne) spec.dtype = DType::kF32;
  const Quant quant = ggml_quant(parameter.tensor->type);
  if (quant == Quant::kNone || spec.shape.rank() != 2) return spec;
  const auto block = ggml_type_info(parameter.tensor->type).block_values;
  spec.encoding = {.transposed = parameter.layout != GgufLayout::kTransposed,
                   .quant = quant,
                   .block = static_cast<std::int32_t>(block)};
  return spec;
}

Result<TensorSpec> GgufWeights::spec(const ParameterInfo& parameter) {
  VOLTA_TRY(const GgufParameter* found, find(parameter));
  return spec_of(*found);
}

// Reads rows of blocks, in Hugging Face's order of rows.
Result<Tensor> GgufWeights::read_blocks(const GgufParameter& parameter,
                                        const Interruption& interrupted) const {
  const TensorSpec spec = spec_of(parameter);
  if (parameter.layout != GgufLayout::kRotaryPairs) {
    VOLTA_TRY(DeviceBuffer buffer, file_.map(*parameter.tensor));
    return Tensor::from_buffer(std::make_shared<DeviceBuffer>(std::move(buffer)), 0, spec);
  }
  VOLTA_TRY(Tensor tensor, Tensor::empty(spec));
  VOLTA_TRY(const std::span<std::byte> to, tensor.host_bytes());
  const std::span<const std::byte> from = file_.tensor_bytes(*parameter.tensor);
  const auto rows = static_cast<std::size_t>(spec.shape[0]);
  const std::size_t row_bytes = from.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    if (row % kGgmlPiecesPerCheck == 0 && interrupted && interrupted()) {
      return fail(ErrorCode::kInterrupted, "interrupted");
    }
    const auto place =
        static_cast<std::size_t>(gguf_row_source(static_cast<std::int64_t>(row), config_.head_dim));
    std::ranges::copy(from.subspan(row * row_bytes, row_bytes),
                      to.subspan(place * row_bytes, row_bytes).begin());
  }
  return tensor;
}

Result<Tensor> GgufWeights::read(const ParameterInfo& parameter, const Interruption& interrupted) {
  VOLTA_TRY(const GgufParameter* found, find(parameter));
  if (spec_of(*found).encoding.quantized()) return read_blocks(*found, interrupted);
  const DType dtype = spec_of(*found).dtype;
  const bool plain = ggml_type_info(found->tensor->type).block_values == 1;
  // A file may use an alignment of one byte. Unaligned values are copied.
  const bool aligned = found->tensor->offset % dtype_size(dtype) == 0;
  if (found->layout == GgufLayout::kSame && plain && aligned) {
    VOLTA_TRY(DeviceBuffer buffer, file_.map(*found->tensor));
    return Tensor::from_buffer(std::make_shared<DeviceBuffer>(std::move(buffer)), 0,
                               {dtype, found->info.shape});
  }
  return load_gguf_parameter(file_, config_, *found, dtype, interrupted);
}

void GgufWeights::release(const ParameterInfo& parameter) {
  const auto found = find(parameter);
  if (found) file_.release(*(*found)->tensor);
}

}  // namespace volta
