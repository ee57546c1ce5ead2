#include "formats/gguf/gguf_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "device/helpers.h"

namespace volta {
namespace {

const GgufArchitecture& architecture(std::string_view name) {
  return **find_gguf_architecture(name);
}
GgufPlace place_in(std::string_view name, std::string_view parameter) {
  return gguf_place(architecture(name), parameter);
}

TEST(GgufLayout, EveryParameterHasAPlaceOfItsOwn) {
  for (const std::string_view name : {"gpt2", "llama", "qwen2", "qwen3", "olmo2", "smollm3", "phi3",
                                      "gemma2", "gemma3", "granite", "starcoder2"}) {
    TransformerConfig c;
    c.norm_bias = name == "gpt2" || name == "starcoder2";
    c.attention_bias = c.attention_out_bias = c.ffn_bias = true;
    c.tied_output = false;
    if (name != "gpt2") {
      c.position = PositionKind::kRotary;
      c.norm = NormKind::kRms;
      c.ffn_kind = FfnKind::kGated;
      c.qk_norm = true;
    }
    architecture(name).set_implied(c);
    std::set<std::string> names;
    for (const ParameterInfo& info : parameters(c)) {
      const GgufPlace place = place_in(name, info.name);
      EXPECT_FALSE(place.name.empty()) << info.name;
      EXPECT_TRUE(names.insert(place.name).second) << place.name;
      EXPECT_EQ(gguf_shape(place.layout, info.shape).elements(), info.shape.elements());
      const bool shifted = c.norm_plus_one && info.name.find("norm") != std::string::npos;
      EXPECT_EQ(place.layout == GgufLayout::kPlusOne, shifted) << info.name;
    }
  }
}

// As gguf's own tables (gguf-py, constants.py) have them.
TEST(GgufLayout, NormsAfterAHalfAndPackedMatricesHaveNamesOfTheirOwn) {
  const std::string layer = "model.layers.3.";
  EXPECT_EQ(place_in("llama", layer + "post_attention_layernorm.weight").name,
            "blk.3.ffn_norm.weight");
  EXPECT_EQ(place_in("olmo2", layer + "post_attention_layernorm.weight").name,
            "blk.3.post_attention_norm.weight");
  EXPECT_EQ(place_in("gemma2", layer + "pre_feedforward_layernorm.weight").name,
            "blk.3.ffn_norm.weight");
  EXPECT_EQ(place_in("gemma3", layer + "post_feedforward_layernorm.weight").name,
            "blk.3.post_ffw_norm.weight");
  EXPECT_EQ(place_in("phi3", layer + "mlp.gate_up_proj.weight").name, "blk.3.ffn_up.weight");
  EXPECT_EQ(place_in("phi3", layer + "self_attn.qkv_proj.weight").name, "blk.3.attn_qkv.weight");
  EXPECT_EQ(place_in("smollm3", layer + "self_attn.q_proj.weight").layout,
            GgufLayout::kRotaryPairs);
  EXPECT_EQ(place_in("olmo2", layer + "self_attn.q_proj.weight").layout, GgufLayout::kSame);
  EXPECT_EQ(place_in("starcoder2", layer + "mlp.c_fc.bias").name, "blk.3.ffn_up.bias");
  EXPECT_EQ(place_in("starcoder2", layer + "mlp.c_proj.weight").name, "blk.3.ffn_down.weight");
  EXPECT_EQ(place_in("starcoder2", layer + "input_layernorm.bias").name, "blk.3.attn_norm.bias");
  EXPECT_EQ(place_in("starcoder2", layer + "self_attn.q_proj.weight").layout, GgufLayout::kSame);
}

TEST(GgufArchitecture, OthersAreNamed) {
  test::expect_error(find_gguf_architecture("mamba"), ErrorCode::kUnsupported,
                     "architecture 'mamba'; Volta runs gpt2, llama, qwen2, qwen3, olmo2, smollm3, "
                     "phi3, gemma2, gemma3, granite, starcoder2");
}

TEST(GgufLayout, RowsAndAxesMoveWhereTheArchitectureSaysSo) {
  EXPECT_EQ(place_in("llama", "model.layers.3.self_attn.q_proj.weight").name,
            "blk.3.attn_q.weight");
  EXPECT_EQ(place_in("llama", "model.layers.3.self_attn.k_proj.bias").layout,
            GgufLayout::kRotaryPairs);
  EXPECT_EQ(place_in("qwen2", "model.layers.3.self_attn.k_proj.bias").layout, GgufLayout::kSame);
  const GgufPlace packed = place_in("gpt2", "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(packed.layout, GgufLayout::kTransposed);
  EXPECT_EQ(gguf_shape(packed.layout, Shape(4, 12)), Shape(12, 4));
  EXPECT_EQ(place_in("gpt2", "transformer.h.0.attn.c_attn.bias").layout, GgufLayout::kSame);
  for (const char* name : {"", "weight", "model.layers.weight", "model.layers.0.weight",
                           "model.layers.0.other.weight", "other.weight"}) {
    EXPECT_EQ(place_in("llama", name).name, "") << name;
  }
}

TEST(GgufLayout, RowsThatRotateTogetherAreNeighbours) {
  const std::vector<std::int64_t> wanted = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  for (std::int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(gguf_row_source(row, 8), wanted[static_cast<std::size_t>(row)]);
  }
}

TEST(GgufArchitecture, SaysWhatGgufCannot) {
  using test::expect_error;
  const auto unsupported = ErrorCode::kUnsupported;
  TransformerConfig gpt2;
  expect_error(gguf_architecture(gpt2), unsupported,
               "the model's activation is the exact GELU (gelu). A GGUF file cannot name an "
               "activation: llama.cpp runs every model of the architecture gpt2 with the tanh "
               "approximation of the GELU (gelu_tanh, also called gelu_new). Train again with "
               "--activation gelu_tanh, or use the model folder, which Volta and transformers "
               "read");
  gpt2.activation = Activation::kRelu;
  expect_error(gguf_architecture(gpt2), unsupported, "activation is the ReLU (relu)");
  gpt2.activation = Activation::kSilu;
  gpt2.activation_scale = 1.702f;
  expect_error(gguf_architecture(gpt2), unsupported, "activation is quick_gelu");
  gpt2.activation_scale = 1.0f;
  gpt2.activation = Activation::kGeluTanh;
  EXPECT_EQ((*gguf_architecture(gpt2))->name, "gpt2");
  TransformerConfig llama;
  llama.naming = WeightNaming::kLlama;
  llama.position = PositionKind::kRotary;
  llama.norm = NormKind::kRms;
  llama.ffn_kind = FfnKind::kGated;
  llama.activation = Activation::kRelu;
  expect_error(gguf_architecture(llama), unsupported,
               "with the SiLU (silu). Train again with --activation silu");
  llama.activation = Activation::kGeluTanh;  // gelu_new in a config.json.
  expect_error(
      gguf_architecture(llama), unsupported,
      "the model's activation is the tanh approximation of the GELU (gelu_tanh, also "
      "called gelu_new). A GGUF file cannot name an activation: llama.cpp runs every model "
      "of the architecture llama with the SiLU (silu)");
  llama.activation = Activation::kSilu;
  llama.init_std = 1.0f;
  EXPECT_EQ((*gguf_architecture(llama))->name, "llama");
  llama.window = 8;
  EXPECT_EQ((*gguf_architecture(llama))->name, "llama");
  llama.norm = NormKind::kLayer;
  expect_error(gguf_architecture(llama), unsupported,
               "this combination of parts; it has GPT-2, Llama, Qwen and their kin. Train again "
               "with --position rotary --norm rms --ffn-kind gated --activation silu");
}

// The message lists each option of the model that GGUF cannot express, with the value it would
// need.
TEST(GgufArchitecture, OptionsThatItLacksAreNamed) {
  using test::expect_error;
  const auto unsupported = ErrorCode::kUnsupported;
  TransformerConfig llama;
  llama.naming = WeightNaming::kLlama;
  llama.position = PositionKind::kRotary;
  llama.norm = NormKind::kRms;
  llama.ffn_kind = FfnKind::kGated;
  llama.activation = Activation::kSilu;
  llama.rope_scaling = {.kind = RopeKind::kDynamic, .factor = 2.0, .original = 512};
  expect_error(gguf_architecture(llama), unsupported,
               "GGUF's architecture llama cannot express this model: rotary scaling dynamic "
               "(needed: default). Use the model folder instead: Volta and transformers read it");
  TransformerConfig gpt2;
  gpt2.activation = Activation::kGeluTanh;
  gpt2.attention_scaled_by_layer = true;
  expect_error(gguf_architecture(gpt2), unsupported,
               "scores divided by the layer's number yes (needed: no). Use");
}

// What a reader of GGUF would take for something else is not written.
TEST(GgufArchitecture, WindowsAndCapsThatReadersReplaceAreRefused) {
  TransformerConfig olmo;
  olmo.position = PositionKind::kRotary;
  olmo.norm = NormKind::kRms;
  olmo.ffn_kind = FfnKind::kGated;
  olmo.qk_norm = true;
  architecture("olmo2").set_implied(olmo);
  const auto written = gguf_architecture(olmo);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ((*written)->name, "olmo2");
  olmo.window = 8;
  EXPECT_FALSE(gguf_architecture(olmo));

  TransformerConfig gemma;
  gemma.position = PositionKind::kRotary;
  gemma.norm = NormKind::kRms;
  gemma.ffn_kind = FfnKind::kGated;
  gemma.window = 8;
  gemma.attention_softcap = 40.0f;
  gemma.logit_softcap = 20.0f;
  architecture("gemma2").set_implied(gemma);
  const auto capped = gguf_architecture(gemma);
  ASSERT_TRUE(capped) << capped.error().message();
  EXPECT_EQ((*capped)->name, "gemma2");
  for (float TransformerConfig::* const cap :
       {&TransformerConfig::attention_softcap, &TransformerConfig::logit_softcap}) {
    TransformerConfig uncapped = gemma;
    uncapped.*cap = 0.0f;
    EXPECT_FALSE(gguf_architecture(uncapped));
  }
  TransformerConfig whole = gemma;
  whole.window = 0;
  EXPECT_FALSE(gguf_architecture(whole));
}

}  // namespace
}  // namespace volta
