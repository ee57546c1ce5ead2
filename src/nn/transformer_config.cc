#include "nn/transformer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "nn/weight_names.h"

namespace volta {
namespace {

// Models below these sizes have parameters and activations whose byte counts cannot overflow. No
// model that is trained today comes near them.
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

// Whether a list that is not empty has layers of a model, in ascending order.
bool lists_layers(const std::vector<std::int64_t>& list, std::int64_t layers) {
  const bool ascending = std::ranges::adjacent_find(list, std::greater_equal()) == list.end();
  return ascending && list.front() >= 0 && list.back() < layers;
}

// Each architecture has only one description, so full_layers is valid only if some layers use the
// window and others do not. A model without any rotation has no other description than its list.
Status check_layer_lists(const TransformerConfig& c) {
  const bool some_full = std::ssize(c.full_layers) < c.layers && c.window > 0;
  if (!c.full_layers.empty() && !(some_full && lists_layers(c.full_layers, c.layers))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("model: full_layers must be some, not all, of the layers 0 to {} of a "
                            "model with a window, in ascending order",
                            c.layers - 1));
  }
  const bool rotary = c.position == PositionKind::kRotary;
  if (!c.unrotated_layers.empty() && !(rotary && lists_layers(c.unrotated_layers, c.layers))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("model: unrotated_layers must be layers, from 0 to {}, of a model with "
                            "rotary positions, in ascending order",
                            c.layers - 1));
  }
  return {};
}

std::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, "model: " + std::move(message));
}

constexpr double kMaxFactor = 1e6;  // Of rotary scaling; above any model, and nothing overflows.

// Both lists must have a factor for each rotated pair of a head.
Status check_factors(const RopeScaling& s, std::int64_t pairs) {
  for (const std::vector<float>* const factors : {&s.short_factors, &s.long_factors}) {
    if (std::ssize(*factors) != pairs) {
      return invalid(fmt::format("rope_scaling: {} factors for {} rotated pairs of a head",
                                 factors->size(), pairs));
    }
    const auto sane = [](double f) { return f >= 1.0 / kMaxFactor && f <= kMaxFactor; };
    if (std::ranges::all_of(*factors, sane)) continue;
    return invalid(fmt::format("rope_scaling: a factor is not between {} and {}", 1.0 / kMaxFactor,
                               kMaxFactor));
  }
  return {};
}

Status check_rope_scaling(const TransformerConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeKind::kDefault) return {};
  if (c.position != PositionKind::kRotary) {
    return invalid("learned positions have no rotary scaling");
  }
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
  if (s.kind == RopeKind::kDynamic && c.rotated() < 4) {
    return invalid("dynamic rotary scaling needs heads of at least 4 rotated elements");
  }
  return s.kind == RopeKind::kLongrope ? check_factors(s, c.rotated() / 2) : Status();
}

Status check_rope(const TransformerConfig& c) {
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
  if (!(c.rope_local_theta >= 0.0f) || !std::isfinite(c.rope_local_theta)) {
    return invalid(
        fmt::format("rope_local_theta is {}; it must be positive, or 0 for one base in all layers",
                    c.rope_local_theta));
  }
  if (c.rope_local_theta > 0.0f && (c.position != PositionKind::kRotary || c.window == 0)) {
    return invalid("rope_local_theta is for models with rotary positions and a window");
  }
  return check_rope_scaling(c);
}

// Checks features of Gemma, OLMo 2 and Granite that other models lack.
Status check_numbers_and_norms(const TransformerConfig& c) {
  for (const ModelNumber& number : kModelNumbers) {
    const float value = c.*number.field, none = value_without(number.field);
    if (value == none || (value >= number.least && value <= number.most)) continue;
    return invalid(fmt::format("{} is {}; it must be between {} and {}, or {} for none",
                               number.name, value, number.least, number.most, none));
  }
  const int scales = (c.query_scalar > 0.0f) + (c.attention_scale > 0.0f) + !c.attention_scaled;
  if (scales > 1) {
    return invalid(
        "query_scalar and attention_scale each scale attention in place of head_dim, and "
        "attention_scaled = false says that nothing does; only one of them can be set");
  }
  if (c.norm_plus_one && c.norm != NormKind::kRms) {
    return invalid("norm_plus_one is for RMS norms");
  }
  if (c.qk_norm_whole && !c.qk_norm) {
    return invalid(
        "qk_norm_whole says where the norms of queries and keys are, and qk_norm that "
        "there are none");
  }
  return {};
}

// The parameters of a model, in the order in which they are appended.
class ParameterList {
 public:
  explicit ParameterList(const TransformerConfig& config)
      : c_(config), names_(weight_names(config)) {}

  void matrix(std::string_view name, const Shape& shape) {
    list_.push_back({fmt::format("{}.weight", name), shape, InitKind::kNormal});
  }
  void norm(const std::string& name, std::int64_t dim, bool bias) {
    const InitKind init = c_.norm_plus_one ? InitKind::kZeros : InitKind::kOnes;
    list_.push_back({name + ".weight", Shape(dim), init});
    if (bias) list_.push_back({name + ".bias", Shape(dim), InitKind::kZeros});
  }
  void block(std::int64_t layer) {
    const std::string path = names_.block(layer) + ".";
    const bool before = c_.norm_place != NormPlace::kAfter;
    const bool after = c_.norm_place != NormPlace::kBefore;
    const auto block_norm = [&](bool wanted, std::string_view name) {
      if (wanted) norm(fmt::format("{}{}", path, name), c_.dim, c_.norm_bias);
    };
    block_norm(before, names_.attention_norm);
    attention(fmt::format("{}{}.", path, names_.attention));
    block_norm(after, names_.attention_norm_after);
    block_norm(before, names_.ffn_norm);
    feed_forward(fmt::format("{}{}.", path, names_.mlp));
    block_norm(after, names_.ffn_norm_after);
  }
  std::vector<ParameterInfo> take() && { return std::move(list_); }

 private:
  // Does nothing for an empty name.
  void linear(const std::string& path, std::string_view name, std::int64_t inputs,
              std::int64_t outputs, bool bias, InitKind init = InitKind::kNormal) {
    if (name.empty()) return;
    const Shape shape = names_.in_out ? Shape(inputs, outputs) : Shape(outputs, inputs);
    list_.push_back({fmt::format("{}{}.weight", path, name), shape, init});
    if (bias) {
      list_.push_back({fmt::format("{}{}.bias", path, name), Shape(outputs), InitKind::kZeros});
    }
  }
  void attention(const std::string& path) {
    const std::int64_t q = c_.heads * c_.head_dim, kv = c_.kv_heads * c_.head_dim;
    linear(path, names_.qkv, c_.dim, q + 2 * kv, c_.attention_bias);
    linear(path, names_.q, c_.dim, q, c_.attention_bias);
    linear(path, names_.k, c_.dim, kv, c_.attention_bias);
    linear(path, names_.v, c_.dim, kv, c_.attention_bias);
    linear(path, names_.attention_output, q, c_.dim, c_.attention_out_bias,
           InitKind::kNormalResidual);
    if (!c_.qk_norm) return;
    norm(fmt::format("{}{}", path, names_.q_norm), c_.qk_norm_whole ? q : c_.head_dim, false);
    norm(fmt::format("{}{}", path, names_.k_norm), c_.qk_norm_whole ? kv : c_.head_dim, false);
  }
  void feed_forward(const std::string& path) {
    if (c_.ffn_kind == FfnKind::kGated) {
      linear(path, names_.gate_up, c_.dim, 2 * c_.ffn, c_.ffn_bias);
      linear(path, names_.gate, c_.dim, c_.ffn, c_.ffn_bias);
    }
    if (names_.gate_up.empty()) linear(path, names_.up, c_.dim, c_.ffn, c_.ffn_bias);
    linear(path, names_.down, c_.ffn, c_.dim, c_.ffn_bias, InitKind::kNormalResidual);
  }

  const TransformerConfig& c_;
  const WeightNames& names_;
  std::vector<ParameterInfo> list_;
};

}  // namespace

std::int32_t TransformerConfig::layer_window(std::int64_t layer) const {
  return std::ranges::binary_search(full_layers, layer) ? 0 : window;
}

bool TransformerConfig::rotates() const {
  return position == PositionKind::kRotary && std::ssize(unrotated_layers) < layers;
}

bool TransformerConfig::layer_rotates(std::int64_t layer) const {
  return position == PositionKind::kRotary && !std::ranges::binary_search(unrotated_layers, layer);
}

bool TransformerConfig::layer_rotates_locally(std::int64_t layer) const {
  return rope_local_theta > 0.0f && layer_window(layer) > 0 && layer_rotates(layer);
}

TransformerConfig tiny_lm_config() { return {}; }

Status validate(const TransformerConfig& c) {
  VOLTA_TRY(check_sizes(c));
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
  VOLTA_TRY(check_layer_lists(c));
  VOLTA_TRY(check_numbers_and_norms(c));
  VOLTA_TRY(check_names(c));
  if (!(c.init_std > 0.0f && c.init_std < 100.0f)) {
    return invalid(fmt::format("init_std is {}; it must be positive and below 100", c.init_std));
  }
  for (const ParameterInfo& parameter : parameters(c)) {
    VOLTA_TRY(check_spec({DType::kF32, parameter.shape}));
  }
  return {};
}

std::vector<ParameterInfo> parameters(const TransformerConfig& c) {
  const WeightNames& names = weight_names(c);
  ParameterList list(c);
  list.matrix(names.embedding, Shape(c.vocab_size, c.dim));
  if (c.position == PositionKind::kLearned) list.matrix(names.positions, Shape(c.context, c.dim));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) list.block(layer);
  list.norm(std::string(names.final_norm), c.dim, c.norm_bias);
  if (!c.tied_output) list.matrix(names.output, Shape(c.vocab_size, c.dim));
  return std::move(list).take();
}

std::int64_t parameter_count(const TransformerConfig& config) {
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : parameters(config)) count += parameter.shape.elements();
  return count;
}

}  // namespace volta
