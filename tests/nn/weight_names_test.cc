// Tests of the table of weight names. A naming can be combined with any other part of a config.
#include "nn/weight_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/helpers.h"

namespace volta {
namespace {

// The name and shape of a parameter of layer 1 that ends so, or nothing.
std::string find(const TransformerConfig& config, std::string_view end) {
  for (const ParameterInfo& info : parameters(config)) {
    const bool of_layer = info.name.find(".1.") != std::string::npos;
    if (of_layer && info.name.ends_with(end)) return info.name + " " + to_string(info.shape);
  }
  return "";
}

TEST(WeightNames, SayHowMatricesLieWhateverThePositionsAre) {
  TransformerConfig c = test::llama_config();  // 32 wide, 4 heads of 8, 2 for keys, 48 within.
  EXPECT_EQ(find(c, "q_proj.weight"), "model.layers.1.self_attn.q_proj.weight [32, 32]");
  EXPECT_EQ(find(c, "down_proj.weight"), "model.layers.1.mlp.down_proj.weight [32, 48]");
  c.naming = WeightNaming::kPhi3;
  EXPECT_EQ(find(c, "qkv_proj.weight"), "model.layers.1.self_attn.qkv_proj.weight [64, 32]");
  EXPECT_EQ(find(c, "gate_up_proj.weight"), "model.layers.1.mlp.gate_up_proj.weight [96, 32]");
  EXPECT_EQ(find(c, "q_proj.weight"), "");
  c.naming = WeightNaming::kGpt2;  // With rotary positions.
  EXPECT_EQ(find(c, "c_attn.weight"), "transformer.h.1.attn.c_attn.weight [32, 64]");
  EXPECT_EQ(find(c, "c_gate.weight"), "transformer.h.1.mlp.c_gate.weight [32, 48]");
}

TEST(WeightNames, NormsAreWhereTheBlockHasThem) {
  TransformerConfig c = test::llama_config();
  EXPECT_NE(find(c, "post_attention_layernorm.weight"), "");
  EXPECT_EQ(find(c, "post_feedforward_layernorm.weight"), "");
  c.naming = WeightNaming::kGemma;
  c.norm_place = NormPlace::kAfter;
  EXPECT_EQ(find(c, "input_layernorm.weight"), "");
  EXPECT_EQ(find(c, "pre_feedforward_layernorm.weight"), "");
  EXPECT_NE(find(c, "post_feedforward_layernorm.weight"), "");
  c.norm_place = NormPlace::kAround;
  EXPECT_NE(find(c, "input_layernorm.weight"), "");
  EXPECT_NE(find(c, "pre_feedforward_layernorm.weight"), "");
  c.qk_norm = c.qk_norm_whole = true;
  EXPECT_EQ(find(c, "k_norm.weight"), "model.layers.1.self_attn.k_norm.weight [16]");
}

TEST(WeightNames, WordsAreFoundAgain) {
  for (const WeightNaming naming : {WeightNaming::kGpt2, WeightNaming::kLlama, WeightNaming::kPhi3,
                                    WeightNaming::kGemma, WeightNaming::kStarcoder2}) {
    EXPECT_EQ(find_naming(weight_names(naming).word), naming);
  }
  EXPECT_FALSE(find_naming("bloom"));
  EXPECT_EQ(naming_words(), "gpt2, llama, phi3, gemma, starcoder2");
}

}  // namespace
}  // namespace volta
