#include "nn/weight_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace volta {
namespace {

constexpr WeightNames kLlama = {.naming = WeightNaming::kLlama,
                                .word = "llama",
                                .embedding = "model.embed_tokens",
                                .final_norm = "model.norm",
                                .output = "lm_head",
                                .blocks = "model.layers",
                                .attention = "self_attn",
                                .mlp = "mlp",
                                .attention_norm = "input_layernorm",
                                .ffn_norm = "post_attention_layernorm",
                                .q = "q_proj",
                                .k = "k_proj",
                                .v = "v_proj",
                                .q_norm = "q_norm",
                                .k_norm = "k_norm",
                                .attention_output = "o_proj",
                                .gate = "gate_proj",
                                .up = "up_proj",
                                .down = "down_proj"};

constexpr WeightNames phi3_names() {
  WeightNames names = kLlama;
  names.naming = WeightNaming::kPhi3;
  names.word = "phi3";
  names.qkv = "qkv_proj";
  names.gate_up = "gate_up_proj";
  names.q = names.k = names.v = names.gate = {};
  return names;
}

// Llama's name for the norm before the feed-forward half, "post attention", is here what it says:
// the norm after attention.
constexpr WeightNames gemma_names() {
  WeightNames names = kLlama;
  names.naming = WeightNaming::kGemma;
  names.word = "gemma";
  names.attention_norm_after = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_norm_after = "post_feedforward_layernorm";
  return names;
}

constexpr WeightNames starcoder2_names() {
  WeightNames names = kLlama;
  names.naming = WeightNaming::kStarcoder2;
  names.word = "starcoder2";
  names.gate = {};
  names.up = "c_fc";
  names.down = "c_proj";
  return names;
}

constexpr std::array kTable = {WeightNames{.naming = WeightNaming::kGpt2,
                                           .word = "gpt2",
                                           .in_out = true,
                                           .embedding = "transformer.wte",
                                           .positions = "transformer.wpe",
                                           .final_norm = "transformer.ln_f",
                                           .output = "lm_head",
                                           .blocks = "transformer.h",
                                           .attention = "attn",
                                           .mlp = "mlp",
                                           .attention_norm = "ln_1",
                                           .ffn_norm = "ln_2",
                                           .qkv = "c_attn",
                                           .q_norm = "q_norm",
                                           .k_norm = "k_norm",
                                           .attention_output = "c_proj",
                                           .gate = "c_gate",
                                           .up = "c_fc",
                                           .down = "c_proj"},
                               kLlama, phi3_names(), gemma_names(), starcoder2_names()};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].naming) != i) return false;
  }
  return true;
}
static_assert(in_order(), "a row for each WeightNaming, in the order of the enum");

}  // namespace

std::string WeightNames::block(std::int64_t layer) const {
  return fmt::format("{}.{}", blocks, layer);
}

const WeightNames& weight_names(WeightNaming naming) {
  return kTable[static_cast<std::size_t>(naming)];
}

std::optional<WeightNaming> find_naming(std::string_view word) {
  const auto* const found = std::ranges::find(kTable, word, &WeightNames::word);
  if (found == kTable.end()) return std::nullopt;
  return found->naming;
}

std::string naming_words() {
  std::vector<std::string_view> words;
  for (const WeightNames& names : kTable) words.push_back(names.word);
  return fmt::format("{}", fmt::join(words, ", "));
}

Status check_names(const TransformerConfig& c) {
  const WeightNames& names = weight_names(c);
  struct Need {
    bool wanted;
    std::string_view name, what;
  };
  const bool before = c.norm_place != NormPlace::kAfter, after = c.norm_place != NormPlace::kBefore;
  const std::array needs = {
      Need{c.position == PositionKind::kLearned, names.positions, "learned positions"},
      Need{before, names.attention_norm, "norms before each half of a block"},
      Need{after, names.attention_norm_after, "norms after each half of a block"},
      Need{c.qk_norm, names.q_norm, "norms of queries and keys"},
      Need{c.ffn_kind == FfnKind::kGated, names.gate_up.empty() ? names.gate : names.gate_up,
           "gated units"},
      Need{c.ffn_kind == FfnKind::kMlp, names.gate_up.empty() ? names.up : "",
           "a feed-forward block without a gate"}};
  for (const Need& need : needs) {
    if (!need.wanted || !need.name.empty()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("model: the names of '{}' have none for {}; choose other names ({})",
                            names.word, need.what, naming_words()));
  }
  return {};
}

}  // namespace volta
