#include "formats/gguf/gguf_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/model_config.h"
#include "formats/model_families.h"
#include "formats/rope_config.h"
#include "nn/weight_names.h"

namespace volta {
namespace {

// The kind of a tensor in a block of GGUF.
enum class Role : std::uint8_t {
  kNorm,
  kMatrix,
  kRotated
};  // kRotated: the matrices of queries and keys.
enum class Half : std::uint8_t { kBlock, kAttention, kMlp };  // The prefix of Volta's name.

struct Name {
  std::string_view WeightNames::* ours;
  std::string_view theirs;
  Role role = Role::kMatrix;
  Half half = Half::kBlock;
};

constexpr std::array kModel = {
    Name{&WeightNames::embedding, "token_embd"},
    Name{&WeightNames::positions, "position_embd"},
    Name{&WeightNames::final_norm, "output_norm", Role::kNorm},
    Name{&WeightNames::output, "output"},
};
constexpr std::array kBlock = {
    Name{&WeightNames::attention_norm, "attn_norm", Role::kNorm},
    Name{&WeightNames::attention_norm_after, "post_attention_norm", Role::kNorm},
    Name{&WeightNames::ffn_norm, "ffn_norm", Role::kNorm},
    Name{&WeightNames::ffn_norm_after, "post_ffw_norm", Role::kNorm},
    Name{&WeightNames::qkv, "attn_qkv", Role::kMatrix, Half::kAttention},
    Name{&WeightNames::q, "attn_q", Role::kRotated, Half::kAttention},
    Name{&WeightNames::k, "attn_k", Role::kRotated, Half::kAttention},
    Name{&WeightNames::v, "attn_v", Role::kMatrix, Half::kAttention},
    Name{&WeightNames::attention_output, "attn_output", Role::kMatrix, Half::kAttention},
    Name{&WeightNames::q_norm, "attn_q_norm", Role::kNorm, Half::kAttention},
    Name{&WeightNames::k_norm, "attn_k_norm", Role::kNorm, Half::kAttention},
    Name{&WeightNames::gate_up, "ffn_up", Role::kMatrix, Half::kMlp},
    Name{&WeightNames::gate, "ffn_gate", Role::kMatrix, Half::kMlp},
    Name{&WeightNames::up, "ffn_up", Role::kMatrix, Half::kMlp},
    Name{&WeightNames::down, "ffn_down", Role::kMatrix, Half::kMlp},
};

constexpr std::array kGgufGemma2Numbers = {
    GgufNumber{"attn_logit_softcapping", &TransformerConfig::attention_softcap, 50.0f},
    GgufNumber{"final_logit_softcapping", &TransformerConfig::logit_softcap, 30.0f}};
constexpr std::array kGgufGemma3Numbers = {
    GgufNumber{"final_logit_softcapping", &TransformerConfig::logit_softcap}};
constexpr std::array kGgufGraniteNumbers = {
    GgufNumber{"embedding_scale", &TransformerConfig::embedding_scale},
    GgufNumber{"attention.scale", &TransformerConfig::attention_scale},
    GgufNumber{"residual_scale", &TransformerConfig::residual_scale},
    GgufNumber{"logit_scale", &TransformerConfig::logit_divisor}};

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "gpt2",
                     .families = {"gpt2"},
                     .naming = WeightNaming::kGpt2,
                     .activation = Activation::kGeluTanh,
                     .norm = NormKind::kLayer,
                     .ffn_kind = FfnKind::kMlp},
    GgufArchitecture{.name = "llama", .families = {"llama", "mistral"}, .rotary_pairs = true},
    GgufArchitecture{.name = "qwen2", .families = {"qwen2"}, .partial_rotation = true},
    GgufArchitecture{.name = "qwen3", .families = {"qwen3"}, .partial_rotation = true},
    GgufArchitecture{.name = "olmo2",
                     .families = {"olmo2"},
                     .naming = WeightNaming::kGemma,
                     .norm_place = NormPlace::kAfter,
                     .qk_norm_whole = true,
                     .windows = false},
    GgufArchitecture{
        .name = "smollm3", .families = {"smollm3"}, .rotary_pairs = true, .unrotated_every = 4},
    GgufArchitecture{.name = "phi3",
                     .families = {"phi3"},
                     .naming = WeightNaming::kPhi3,
                     .longrope = true,
                     .partial_rotation = true},
    GgufArchitecture{.name = "gemma2",
                     .families = {"gemma2"},
                     .naming = WeightNaming::kGemma,
                     .activation = Activation::kGeluTanh,
                     .norm_place = NormPlace::kAround,
                     .full_every = 2,
                     .gemma = true,
                     .window = 4096,
                     .layers_scaled_by_width = 46,
                     .numbers = kGgufGemma2Numbers},
    GgufArchitecture{.name = "gemma3",
                     .families = {"gemma3_text"},
                     .naming = WeightNaming::kGemma,
                     .activation = Activation::kGeluTanh,
                     .norm_place = NormPlace::kAround,
                     .full_every = 6,
                     .gemma = true,
                     .local_theta = 10000.0,
                     .layers_scaled_by_width = 62,
                     .numbers = kGgufGemma3Numbers},
    GgufArchitecture{.name = "granite",
                     .families = {"granite"},
                     .rotary_pairs = true,
                     .rope_switch = true,
                     .numbers = kGgufGraniteNumbers},
    GgufArchitecture{.name = "starcoder2",
                     .families = {"starcoder2"},
                     .naming = WeightNaming::kStarcoder2,
                     .activation = Activation::kGeluTanh,
                     .norm = NormKind::kLayer,
                     .ffn_kind = FfnKind::kMlp,
                     .windows = false},
};

// The numbers of every n-th layer of a model.
std::vector<std::int64_t> every(std::int64_t n, std::int64_t layers) {
  std::vector<std::int64_t> list;
  for (std::int64_t layer = n - 1; n > 0 && layer < layers; layer += n) list.push_back(layer);
  return list;
}

// A copy of the config in which all fields that GGUF cannot express have their defaults. The caller
// compares it with the config, so that a new field of the config cannot get lost unnoticed.
TransformerConfig config_in_file(const GgufArchitecture& architecture, const TransformerConfig& c) {
  TransformerConfig in_file;
  in_file.vocab_size = c.vocab_size;
  in_file.context = c.context;
  in_file.layers = c.layers;
  in_file.dim = c.dim;
  in_file.heads = c.heads;
  in_file.kv_heads = c.kv_heads;
  in_file.head_dim = c.head_dim;
  in_file.ffn = c.ffn;
  in_file.position = c.position;
  in_file.norm_eps = c.norm_eps;
  in_file.norm_bias = c.norm_bias;
  in_file.attention_bias = c.attention_bias;
  in_file.attention_out_bias = c.attention_out_bias;
  in_file.ffn_bias = c.ffn_bias;
  in_file.qk_norm = c.qk_norm;
  in_file.tied_output = c.tied_output;
  // If a file lacks these values or has 0, llama.cpp uses the architecture's defaults.
  if (architecture.windows) in_file.window = c.window > 0 ? c.window : architecture.window;
  in_file.rope_theta = c.rope_theta;
  if (architecture.local_theta > 0.0) in_file.rope_local_theta = c.rope_local_theta;
  for (const GgufNumber& number : architecture.numbers) {
    const bool written = c.*number.field != value_without(number.field);
    in_file.*number.field = written ? c.*number.field : number.from_file(number.missing);
  }
  if (architecture.partial_rotation) in_file.rotary_dim = c.rotary_dim;
  const RopeKind kind = c.rope_scaling.kind;
  const bool scaled =
      kind != RopeKind::kDynamic && (kind != RopeKind::kLongrope || architecture.longrope);
  if (scaled) in_file.rope_scaling = c.rope_scaling;
  in_file.rope_scaling.truncate = true;
  in_file.init_std = c.init_std;  // init_std does not matter for a trained model.
  architecture.set_implied(in_file);
  return in_file;
}

// An option that an architecture of GGUF may fix, and its value in words.
struct FixedOption {
  std::string_view name;
  std::string (*value)(const TransformerConfig& config);
};
std::string yes_or_no(bool yes) { return yes ? "yes" : "no"; }
std::string layers_in_words(const std::vector<std::int64_t>& layers) {
  return layers.empty() ? "none" : fmt::format("{}", fmt::join(layers, " "));
}
constexpr std::array kFixedOptions = {
    FixedOption{"sliding window", [](const auto& c) { return fmt::format("{}", c.window); }},
    FixedOption{"layers with full attention",
                [](const auto& c) { return layers_in_words(c.full_layers); }},
    FixedOption{"layers without rotary positions",
                [](const auto& c) { return layers_in_words(c.unrotated_layers); }},
    FixedOption{"rotary scaling",
                [](const auto& c) { return std::string(rope_kind_name(c.rope_scaling.kind)); }},
    FixedOption{"truncate of rotary scaling",
                [](const auto& c) { return yes_or_no(c.rope_scaling.truncate); }},
    FixedOption{"rotated elements of a head",
                [](const auto& c) { return fmt::format("{}", c.rotated()); }},
    FixedOption{"rotary base of layers with a window",
                [](const auto& c) { return fmt::format("{}", c.rope_local_theta); }},
    FixedOption{"scale of the activation",
                [](const auto& c) { return fmt::format("{}", c.activation_scale); }},
    FixedOption{"scores divided by sqrt(head_dim)",
                [](const auto& c) { return yes_or_no(c.attention_scaled); }},
    FixedOption{"scores divided by the layer's number",
                [](const auto& c) { return yes_or_no(c.attention_scaled_by_layer); }},
    FixedOption{"norm of whole queries and keys",
                [](const auto& c) { return yes_or_no(c.qk_norm_whole); }},
};

// Lists the options in which a model differs from what the file would express, with the value that
// the architecture needs.
std::string differences(const TransformerConfig& model, const TransformerConfig& expressed) {
  std::vector<std::string> list;
  const auto compare = [&](std::string_view name, const std::string& has, const std::string& need) {
    if (has != need) list.push_back(fmt::format("{} {} (needed: {})", name, has, need));
  };
  for (const FixedOption& option : kFixedOptions) {
    compare(option.name, option.value(model), option.value(expressed));
  }
  for (const ModelNumber& number : kModelNumbers) {
    compare(number.name, fmt::format("{}", model.*number.field),
            fmt::format("{}", expressed.*number.field));
  }
  return list.empty() ? "some of its options" : fmt::format("{}", fmt::join(list, ", "));
}

// Where a model cannot be trained with other options.
constexpr std::string_view kUseFolder =
    "Use the model folder instead: Volta and transformers read it";

// An activation in words, with the value of --activation.
std::string_view activation_in_words(Activation activation) {
  if (activation == Activation::kGelu) return "the exact GELU (gelu)";
  if (activation == Activation::kGeluTanh) {
    return "the tanh approximation of the GELU (gelu_tanh, also called gelu_new)";
  }
  return activation == Activation::kRelu ? "the ReLU (relu)" : "the SiLU (silu)";
}

// What is wrong with the activation of a model of an architecture that has another one.
std::string refused_activation(const GgufArchitecture& architecture,
                               const TransformerConfig& config) {
  std::string model(activation_in_words(config.activation));
  if (config.activation_scale != 1.0f) {
    const std::string_view name = activation_name(config);
    model = name.empty() ? fmt::format("{} of {} x", model, config.activation_scale) : name;
  }
  std::string remedy(kUseFolder);
  if (!architecture.gemma) {
    remedy = fmt::format(
        "Train again with --activation {}, or use the model folder, which Volta "
        "and transformers read",
        architecture.activation == Activation::kGeluTanh ? "gelu_tanh" : "silu");
  }
  return fmt::format(
      "the model's activation is {}. A GGUF file cannot name an activation: llama.cpp runs every "
      "model of the architecture {} with {}. {}",
      model, architecture.name, activation_in_words(architecture.activation), remedy);
}

}  // namespace

float GgufArchitecture::query_scalar(const TransformerConfig& config) const {
  if (layers_scaled_by_width == 0 || config.layers != layers_scaled_by_width) return 0.0f;
  const std::int64_t width = config.dim / config.heads;
  return width == config.head_dim ? 0.0f : static_cast<float>(width);
}

void GgufArchitecture::set_implied(TransformerConfig& config) const {
  config.naming = naming;
  config.activation = activation;
  config.norm = norm;
  config.ffn_kind = ffn_kind;
  config.norm_place = norm_place;
  config.qk_norm_whole = qk_norm_whole;
  config.norm_plus_one = config.embedding_scaled = gemma;
  config.query_scalar = query_scalar(config);
  config.unrotated_layers = every(unrotated_every, config.layers);
  if (config.window > 0) config.full_layers = every(full_every, config.layers);
}

Result<const GgufArchitecture*> find_gguf_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  if (found != kArchitectures.end()) return found;
  std::vector<std::string_view> names;
  for (const GgufArchitecture& known : kArchitectures) names.push_back(known.name);
  return fail(ErrorCode::kUnsupported,
              fmt::format("architecture '{}'; Volta runs {}", name, fmt::join(names, ", ")));
}

Result<const GgufArchitecture*> gguf_architecture(const TransformerConfig& config) {
  const std::string_view family = model_family(config);
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::kUnsupported, std::move(message));
  };
  const auto* const found = std::ranges::find_if(kArchitectures, [&](const auto& known) {
    return std::ranges::find(known.families, family) != known.families.end();
  });
  if (family == "volta" || found == kArchitectures.end()) {
    return refuse(
        "GGUF has no architecture with this combination of parts; it has GPT-2, Llama, Qwen and "
        "their kin. Train again with --position rotary --norm rms --ffn-kind gated --activation "
        "silu, which is a Llama");
  }
  const TransformerConfig in_file = config_in_file(*found, config);
  if (in_file.activation != config.activation) return refuse(refused_activation(*found, config));
  if (in_file != config) {
    return refuse(fmt::format("GGUF's architecture {} cannot express this model: {}. {}",
                              found->name, differences(config, in_file), kUseFolder));
  }
  return found;
}

GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view parameter) {
  const WeightNames& names = weight_names(architecture.naming);
  const std::size_t dot = parameter.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = parameter.substr(dot), path = parameter.substr(0, dot);
  const auto layout_of = [&](Role role) {
    const bool matrix = role != Role::kNorm && suffix == ".weight";
    if (role == Role::kNorm) return architecture.gemma ? GgufLayout::kPlusOne : GgufLayout::kSame;
    if (names.in_out && matrix) return GgufLayout::kTransposed;
    const bool pairs = role == Role::kRotated && architecture.rotary_pairs;
    return pairs ? GgufLayout::kRotaryPairs : GgufLayout::kSame;
  };
  for (const Name& name : kModel) {
    if (names.*name.ours != path) continue;
    // The embeddings and the output have one row per token in both formats.
    const GgufLayout layout = name.role == Role::kNorm ? layout_of(name.role) : GgufLayout::kSame;
    return {fmt::format("{}{}", name.theirs, suffix), layout};
  }
  const std::string blocks = fmt::format("{}.", names.blocks);
  if (!path.starts_with(blocks)) return {};
  const std::string_view rest = path.substr(blocks.size());
  const std::size_t end = rest.find('.');
  if (end == std::string_view::npos) return {};
  const std::string_view within = rest.substr(end + 1);
  for (const Name& name : kBlock) {
    const std::string_view own = names.*name.ours;
    if (own.empty()) continue;
    const std::string_view half = name.half == Half::kAttention ? names.attention : names.mlp;
    const bool same =
        name.half == Half::kBlock ? within == own : within == fmt::format("{}.{}", half, own);
    if (!same) continue;
    return {fmt::format("blk.{}.{}{}", rest.substr(0, end), name.theirs, suffix),
            layout_of(name.role)};
  }
  return {};
}

Shape gguf_shape(GgufLayout layout, const Shape& shape) {
  if (layout != GgufLayout::kTransposed) return shape;
  return Shape(shape[1], shape[0]);
}

std::int64_t gguf_row_source(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t within = row % head_dim;
  return row - within + within % 2 * (head_dim / 2) + within / 2;
}

}  // namespace volta
