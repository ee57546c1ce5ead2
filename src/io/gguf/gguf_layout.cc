#include "io/gguf/gguf_layout.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "io/model_config.h"

namespace volta {
namespace {

struct Name {
  std::string_view ours, theirs;
  GgufLayout layout = GgufLayout::kSame;
};

constexpr std::string_view kGpt2Block = "transformer.h.";
constexpr std::array kGpt2 = {
    Name{"transformer.wte", "token_embd"},
    Name{"transformer.wpe", "position_embd"},
    Name{"transformer.ln_f", "output_norm"},
    Name{"lm_head", "output"},
};
constexpr std::array kGpt2Blocks = {
    Name{"ln_1", "attn_norm"},
    Name{"attn.c_attn", "attn_qkv", GgufLayout::kTransposed},
    Name{"attn.c_proj", "attn_output", GgufLayout::kTransposed},
    Name{"ln_2", "ffn_norm"},
    Name{"mlp.c_fc", "ffn_up", GgufLayout::kTransposed},
    Name{"mlp.c_proj", "ffn_down", GgufLayout::kTransposed},
};

constexpr std::string_view kLlamaBlock = "model.layers.";
constexpr std::array kLlama = {
    Name{"model.embed_tokens", "token_embd"},
    Name{"model.norm", "output_norm"},
    Name{"lm_head", "output"},
};
constexpr std::array kLlamaBlocks = {
    Name{"input_layernorm", "attn_norm"},
    Name{"self_attn.q_proj", "attn_q", GgufLayout::kRotaryPairs},
    Name{"self_attn.k_proj", "attn_k", GgufLayout::kRotaryPairs},
    Name{"self_attn.v_proj", "attn_v"},
    Name{"self_attn.o_proj", "attn_output"},
    Name{"self_attn.q_norm", "attn_q_norm"},
    Name{"self_attn.k_norm", "attn_k_norm"},
    Name{"post_attention_layernorm", "ffn_norm"},
    Name{"mlp.gate_proj", "ffn_gate"},
    Name{"mlp.up_proj", "ffn_up"},
    Name{"mlp.down_proj", "ffn_down"},
};

GgufPlace find(std::span<const Name> names, std::string_view stem, std::string_view prefix,
               std::string_view suffix) {
  for (const Name& name : names) {
    if (name.ours != stem) continue;
    // A vector has nothing to transpose.
    const bool plain = name.layout == GgufLayout::kTransposed && suffix != ".weight";
    return {fmt::format("{}{}{}", prefix, name.theirs, suffix),
            plain ? GgufLayout::kSame : name.layout};
  }
  return {};
}

// The config with what GGUF has no word for at its default, so that a field that is added one day
// is not lost in silence.
TransformerConfig said_by_gguf(const TransformerConfig& c) {
  TransformerConfig said;
  said.vocab_size = c.vocab_size;
  said.context = c.context;
  said.layers = c.layers;
  said.dim = c.dim;
  said.heads = c.heads;
  said.kv_heads = c.kv_heads;
  said.head_dim = c.head_dim;
  said.ffn = c.ffn;
  said.position = c.position;
  said.norm = c.norm;
  said.ffn_kind = c.ffn_kind;
  said.activation =
      c.position == PositionKind::kLearned ? Activation::kGeluTanh : Activation::kSilu;
  said.norm_eps = c.norm_eps;
  said.norm_bias = c.norm_bias;
  said.attention_bias = c.attention_bias;
  said.attention_out_bias = c.attention_out_bias;
  said.ffn_bias = c.ffn_bias;
  said.qk_norm = c.qk_norm;
  said.tied_output = c.tied_output;
  said.window = c.window;
  said.rope_theta = c.rope_theta;
  said.rope_scaling = c.rope_scaling;
  if (c.rope_scaling.kind == RopeKind::kDynamic) said.rope_scaling = {};
  said.rope_scaling.truncate = true;
  said.init_std = c.init_std;  // Of no use to a trained model.
  return said;
}

}  // namespace

Result<std::string_view> gguf_architecture(const TransformerConfig& config) {
  const std::string_view family = model_family(config);
  const auto refuse = [](std::string_view what) {
    return fail(ErrorCode::kUnsupported, fmt::format("GGUF cannot say {}", what));
  };
  if (family == "volta") {
    return refuse(
        "this combination of parts; it knows GPT-2, Llama and Qwen. A run of the Llama kind can be "
        "converted: volta train --position rotary --norm rms --ffn-kind gated --activation silu");
  }
  const TransformerConfig said = said_by_gguf(config);
  if (said.activation != config.activation) {
    return refuse(config.position == PositionKind::kLearned
                      ? "another activation than gelu_new for a model with learned positions; a "
                        "run that is to be converted is trained with --activation gelu_tanh"
                      : "another activation than silu for a model with rotary positions; a run "
                        "that is to be converted is trained with --activation silu");
  }
  if (said != config) return refuse("all options of this architecture");
  return family == "mistral" ? "llama" : family;
}

GgufPlace gguf_place(std::string_view architecture, std::string_view parameter) {
  const bool gpt2 = architecture == "gpt2";
  const std::size_t dot = parameter.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view suffix = parameter.substr(dot);
  std::string_view stem = parameter.substr(0, dot);
  const std::string_view block = gpt2 ? kGpt2Block : kLlamaBlock;
  if (!stem.starts_with(block)) {
    return find(gpt2 ? std::span<const Name>(kGpt2) : kLlama, stem, "", suffix);
  }
  stem.remove_prefix(block.size());
  const std::size_t end = stem.find('.');
  if (end == std::string_view::npos) return {};
  const std::string prefix = fmt::format("blk.{}.", stem.substr(0, end));
  GgufPlace place = find(gpt2 ? std::span<const Name>(kGpt2Blocks) : kLlamaBlocks,
                         stem.substr(end + 1), prefix, suffix);
  // Only ggml's llama rotates neighbours; its qwen2 and qwen3 rotate halves as Hugging Face does.
  if (architecture != "llama" && place.layout == GgufLayout::kRotaryPairs) {
    place.layout = GgufLayout::kSame;
  }
  return place;
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
