#include "nn/transformer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

namespace volta {
namespace {

// A model whose sizes stay below these has parameters and activations whose byte counts cannot
// overflow; nothing people train comes near them.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 4096;

struct NamedSize {
  std::string_view name;
  std::int64_t value;
  std::int64_t max;
};

Status check_sizes(const TransformerConfig& c) {
  const std::array sizes = {
      NamedSize{"vocab_size", c.vocab_size, kMaxSize}, NamedSize{"context", c.context, kMaxSize},
      NamedSize{"layers", c.layers, kMaxLayers},       NamedSize{"dim", c.dim, kMaxSize},
      NamedSize{"heads", c.heads, kMaxSize},           NamedSize{"kv_heads", c.kv_heads, kMaxSize},
      NamedSize{"head_dim", c.head_dim, 1 << 12},      NamedSize{"ffn", c.ffn, kMaxSize},
  };
  for (const NamedSize& size : sizes) {
    if (size.value < 1 || size.value > size.max) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model: {} is {}; it must be between 1 and {}", size.name, size.value,
                              size.max));
    }
  }
  return {};
}

// One way to say each architecture: a list only where some layers slide and others do not.
Status check_full_layers(const TransformerConfig& c) {
  if (c.full_layers.empty()) return {};
  const bool some = c.window > 0 && std::ssize(c.full_layers) < c.layers;
  const bool ascending =
      std::ranges::adjacent_find(c.full_layers, std::greater_equal()) == c.full_layers.end();
  if (some && ascending && c.full_layers.front() >= 0 && c.full_layers.back() < c.layers) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("model: full_layers must be some, not all, of the layers 0 to {} of a "
                          "model with a window, in ascending order",
                          c.layers - 1));
}

Status check_rope(const TransformerConfig& c) {
  const auto invalid = [](std::string message) {
    return fail(ErrorCode::kInvalidArgument, "model: " + std::move(message));
  };
  const std::int64_t rotary = c.rotated();
  if (c.position == PositionKind::kRotary && (rotary < 2 || rotary > c.head_dim || rotary % 2)) {
    return invalid(
        fmt::format("rotary positions rotate {} elements of a head of {}; that must be an "
                    "even number of at most the head",
                    rotary, c.head_dim));
  }
  if (!(c.rope_theta > 0.0f) || !std::isfinite(c.rope_theta)) {
    return invalid(fmt::format("rope_theta is {}; it must be positive and finite", c.rope_theta));
  }
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeKind::kDefault) return {};
  if (c.position != PositionKind::kRotary) {
    return invalid("learned positions have no rotary scaling");
  }
  constexpr double kMaxFactor = 1e6;  // Far above any model; nothing below overflows.
  using Number = std::pair<std::string_view, double>;
  const std::array numbers = {Number{"factor", s.factor},
                              Number{"low_freq_factor", s.low_freq_factor},
                              Number{"high_freq_factor", s.high_freq_factor},
                              Number{"beta_fast", s.beta_fast},
                              Number{"beta_slow", s.beta_slow},
                              Number{"attention_factor", s.attention_factor}};
  for (const auto& [name, value] : numbers) {
    if (!(value >= 1.0 / kMaxFactor && value <= kMaxFactor)) {
      return invalid(fmt::format("rope_scaling: {} is {}; it must be between {} and {}", name,
                                 value, 1.0 / kMaxFactor, kMaxFactor));
    }
  }
  if (s.original < 1 || s.original > kMaxSize) {
    return invalid(
        fmt::format("rope_scaling: the original context is {}; it must be between 1 "
                    "and {}",
                    s.original, kMaxSize));
  }
  if (s.kind == RopeKind::kLlama3 && !(s.low_freq_factor < s.high_freq_factor)) {
    return invalid(fmt::format("rope_scaling: low_freq_factor {} must be below high_freq_factor {}",
                               s.low_freq_factor, s.high_freq_factor));
  }
  if (s.kind == RopeKind::kYarn && !(c.rope_theta > 1.0f)) {
    return invalid(fmt::format("rope_theta is {}; yarn needs one above 1", c.rope_theta));
  }
  if (s.kind == RopeKind::kDynamic && rotary < 4) {
    return invalid("dynamic rotary scaling needs heads of at least 4 rotated elements");
  }
  return {};
}

// Appends the parameters of one weight and, if wanted, its bias.
void add_linear(std::vector<ParameterInfo>& out, const std::string& name, Shape shape,
                std::int64_t outputs, bool bias, InitKind init = InitKind::kNormal) {
  out.push_back({name + ".weight", shape, init});
  if (bias) out.push_back({name + ".bias", Shape(outputs), InitKind::kZeros});
}

void add_norm(std::vector<ParameterInfo>& out, const std::string& name, std::int64_t dim,
              bool bias) {
  out.push_back({name + ".weight", Shape(dim), InitKind::kOnes});
  if (bias) out.push_back({name + ".bias", Shape(dim), InitKind::kZeros});
}

// GPT-2's block: weights [in, out], packed q | k | v.
void add_gpt2_block(std::vector<ParameterInfo>& out, const TransformerConfig& c,
                    std::int64_t layer) {
  const std::string p = fmt::format("transformer.h.{}.", layer);
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t qkv = q + 2 * c.kv_heads * c.head_dim;
  add_norm(out, p + "ln_1", c.dim, c.norm_bias);
  add_linear(out, p + "attn.c_attn", Shape(c.dim, qkv), qkv, c.attention_bias);
  add_linear(out, p + "attn.c_proj", Shape(q, c.dim), c.dim, c.attention_out_bias,
             InitKind::kNormalResidual);
  if (c.qk_norm) {
    add_norm(out, p + "attn.q_norm", c.head_dim, false);
    add_norm(out, p + "attn.k_norm", c.head_dim, false);
  }
  add_norm(out, p + "ln_2", c.dim, c.norm_bias);
  if (c.ffn_kind == FfnKind::kGated) {
    add_linear(out, p + "mlp.c_gate", Shape(c.dim, c.ffn), c.ffn, c.ffn_bias);
  }
  add_linear(out, p + "mlp.c_fc", Shape(c.dim, c.ffn), c.ffn, c.ffn_bias);
  add_linear(out, p + "mlp.c_proj", Shape(c.ffn, c.dim), c.dim, c.ffn_bias,
             InitKind::kNormalResidual);
}

// Llama's block: weights [out, in], separate q, k and v.
void add_llama_block(std::vector<ParameterInfo>& out, const TransformerConfig& c,
                     std::int64_t layer) {
  const std::string p = fmt::format("model.layers.{}.", layer);
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t kv = c.kv_heads * c.head_dim;
  add_norm(out, p + "input_layernorm", c.dim, c.norm_bias);
  add_linear(out, p + "self_attn.q_proj", Shape(q, c.dim), q, c.attention_bias);
  add_linear(out, p + "self_attn.k_proj", Shape(kv, c.dim), kv, c.attention_bias);
  add_linear(out, p + "self_attn.v_proj", Shape(kv, c.dim), kv, c.attention_bias);
  add_linear(out, p + "self_attn.o_proj", Shape(c.dim, q), c.dim, c.attention_out_bias,
             InitKind::kNormalResidual);
  if (c.qk_norm) {
    add_norm(out, p + "self_attn.q_norm", c.head_dim, false);
    add_norm(out, p + "self_attn.k_norm", c.head_dim, false);
  }
  add_norm(out, p + "post_attention_layernorm", c.dim, c.norm_bias);
  if (c.ffn_kind == FfnKind::kGated) {
    add_linear(out, p + "mlp.gate_proj", Shape(c.ffn, c.dim), c.ffn, c.ffn_bias);
  }
  add_linear(out, p + "mlp.up_proj", Shape(c.ffn, c.dim), c.ffn, c.ffn_bias);
  add_linear(out, p + "mlp.down_proj", Shape(c.dim, c.ffn), c.dim, c.ffn_bias,
             InitKind::kNormalResidual);
}

}  // namespace

std::int32_t TransformerConfig::layer_window(std::int64_t layer) const {
  return std::ranges::binary_search(full_layers, layer) ? 0 : window;
}

TransformerConfig tiny_lm_config() { return {}; }

Status validate(const TransformerConfig& c) {
  VOLTA_TRY(check_sizes(c));
  const auto invalid = [](std::string message) {
    return fail(ErrorCode::kInvalidArgument, "model: " + std::move(message));
  };
  if (c.heads % c.kv_heads != 0) {
    return invalid(
        fmt::format("{} heads cannot be shared by {} kv_heads; kv_heads must divide heads", c.heads,
                    c.kv_heads));
  }
  if (c.heads * c.head_dim > kMaxSize) {
    return invalid(fmt::format("heads * head_dim is {}; it must be at most {}",
                               c.heads * c.head_dim, kMaxSize));
  }
  VOLTA_TRY(check_rope(c));
  if (!(c.norm_eps > 0.0f && c.norm_eps < 1.0f)) {
    return invalid(fmt::format("norm_eps is {}; it must be between 0 and 1", c.norm_eps));
  }
  if (c.norm == NormKind::kRms && c.norm_bias) return invalid("an RMS norm has no bias");
  if (c.activation == Activation::kNone)
    return invalid("the feed-forward block needs an activation");
  if (!(c.activation_scale > 0.0f && c.activation_scale < 1e6f)) {
    return invalid(fmt::format("activation_scale is {}; it must be positive and below 1000000",
                               c.activation_scale));
  }
  if (c.window < 0) {
    return invalid(
        fmt::format("window is {}; it must be 0 (full attention) or positive", c.window));
  }
  VOLTA_TRY(check_full_layers(c));
  if (!(c.init_std > 0.0f && c.init_std < 100.0f)) {
    return invalid(fmt::format("init_std is {}; it must be positive and below 100", c.init_std));
  }
  for (const ParameterInfo& parameter : parameters(c)) {
    VOLTA_TRY(check_spec({DType::kF32, parameter.shape}));
  }
  return {};
}

std::vector<ParameterInfo> parameters(const TransformerConfig& c) {
  const bool gpt2 = c.position == PositionKind::kLearned;
  std::vector<ParameterInfo> out;
  const auto normal = InitKind::kNormal;
  if (gpt2) {
    out.push_back({"transformer.wte.weight", Shape(c.vocab_size, c.dim), normal});
    out.push_back({"transformer.wpe.weight", Shape(c.context, c.dim), normal});
  } else {
    out.push_back({"model.embed_tokens.weight", Shape(c.vocab_size, c.dim), normal});
  }
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    gpt2 ? add_gpt2_block(out, c, layer) : add_llama_block(out, c, layer);
  }
  add_norm(out, gpt2 ? "transformer.ln_f" : "model.norm", c.dim, c.norm_bias);
  if (!c.tied_output) out.push_back({"lm_head.weight", Shape(c.vocab_size, c.dim), normal});
  return out;
}

std::int64_t parameter_count(const TransformerConfig& config) {
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : parameters(config)) count += parameter.shape.elements();
  return count;
}

}  // namespace volta
