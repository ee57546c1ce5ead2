// TransformerConfig: every field's check, and the parameters of every architecture.
#include "nn/transformer_config.h"

#include <cmath>
#include <functional>
#include <limits>

#include "nn/helpers.h"

namespace volta {
namespace {

struct BadField {
  std::string text;
  std::function<void(TransformerConfig&)> set;
};

// A window in all layers but these.
auto with_full_layers(std::vector<std::int64_t> layers) {
  return [layers](TransformerConfig& c) {
    c.window = 3;
    c.full_layers = layers;
  };
}
// Rotary positions with a scaling that is right but for one change.
std::function<void(TransformerConfig&)> with_scaling(RopeKind kind,
                                                     std::function<void(RopeScaling&)> change) {
  return [kind, change](TransformerConfig& c) {
    c.naming = WeightNaming::kLlama;
    c.position = PositionKind::kRotary;
    c.rope_scaling.kind = kind;
    c.rope_scaling.factor = 2.0;
    c.rope_scaling.original = 64;
    change(c.rope_scaling);
  };
}

TEST(TransformerConfig, EveryFieldIsChecked) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<BadField> cases = {
      {"vocab_size is 0", [](auto& c) { c.vocab_size = 0; }},
      {"context is -1", [](auto& c) { c.context = -1; }},
      {"context is 16777217", [](auto& c) { c.context = (1 << 24) + 1; }},
      {"layers is 0", [](auto& c) { c.layers = 0; }},
      {"layers is 4097; it must be between 1 and 4096", [](auto& c) { c.layers = 4097; }},
      {"dim is -128", [](auto& c) { c.dim = -128; }},
      {"heads is 0", [](auto& c) { c.heads = 0; }},
      {"kv_heads is 0", [](auto& c) { c.kv_heads = 0; }},
      {"head_dim is 4097", [](auto& c) { c.head_dim = 4097; }},
      {"ffn is -9223372036854775808",
       [](auto& c) { c.ffn = std::numeric_limits<std::int64_t>::min(); }},
      {"4 heads cannot be shared by 3 kv_heads", [](auto& c) { c.kv_heads = 3; }},
      {"heads * head_dim is 33554432", [](auto& c) { c.heads = c.kv_heads = 1 << 20; }},
      {"rotate 31 elements of a head of 31",
       [](auto& c) {
         c.naming = WeightNaming::kLlama;
         c.position = PositionKind::kRotary;
         c.head_dim = 31;
       }},
      {"rotate 64 elements of a head of 32",
       [](auto& c) {
         c.naming = WeightNaming::kLlama;
         c.position = PositionKind::kRotary;
         c.rotary_dim = 64;
       }},
      {"rotate -2 elements",
       [](auto& c) {
         c.naming = WeightNaming::kLlama;
         c.position = PositionKind::kRotary;
         c.rotary_dim = -2;
       }},
      {"rope_theta is 0", [](auto& c) { c.rope_theta = 0.0f; }},
      {"rope_theta is nan", [=](auto& c) { c.rope_theta = nan; }},
      {"rope_theta is inf", [=](auto& c) { c.rope_theta = infinity; }},
      {"norm_eps is 0", [](auto& c) { c.norm_eps = 0.0f; }},
      {"norm_eps is 1", [](auto& c) { c.norm_eps = 1.0f; }},
      {"norm_eps is nan", [=](auto& c) { c.norm_eps = nan; }},
      {"an RMS norm has no bias",
       [](auto& c) {
         c.norm = NormKind::kRms;
         c.norm_bias = true;
       }},
      {"needs an activation", [](auto& c) { c.activation = Activation::kNone; }},
      {"window is -1", [](auto& c) { c.window = -1; }},
      {"activation_scale is 0", [](auto& c) { c.activation_scale = 0.0f; }},
      {"activation_scale is nan", [=](auto& c) { c.activation_scale = nan; }},
      {"some, not all, of the layers 0 to 3", [](auto& c) { c.full_layers = {1}; }},
      {"in ascending order", with_full_layers({2, 1})},
      {"in ascending order", with_full_layers({1, 1})},
      {"of the layers 0 to 3", with_full_layers({0, 4})},
      {"of the layers 0 to 3", with_full_layers({-1})},
      {"not all", with_full_layers({0, 1, 2, 3})},
      {"attention_softcap is -1; it must be between", [](auto& c) { c.attention_softcap = -1.0f; }},
      {"logit_softcap is inf", [=](auto& c) { c.logit_softcap = infinity; }},
      {"query_scalar is nan", [=](auto& c) { c.query_scalar = nan; }},
      {"attention_scaled = false says that nothing does",
       [](auto& c) {
         c.query_scalar = 9.0f;
         c.attention_scaled = false;
       }},
      {"only one of them can be set",
       [](auto& c) {
         c.query_scalar = 9.0f;
         c.attention_scale = 0.25f;
       }},
      {"attention_scale is -1; it must be between 1e-06 and 1000000, or 0 for none",
       [](auto& c) { c.attention_scale = -1.0f; }},
      {"embedding_scale is 0; it must be between 1e-06 and 1000000, or 1 for none",
       [](auto& c) { c.embedding_scale = 0.0f; }},
      {"residual_scale is inf", [=](auto& c) { c.residual_scale = infinity; }},
      {"logit_divisor is nan", [=](auto& c) { c.logit_divisor = nan; }},
      {"norm_plus_one is for RMS norms", [](auto& c) { c.norm_plus_one = true; }},
      {"qk_norm that there are none", [](auto& c) { c.qk_norm_whole = true; }},
      {"unrotated_layers must be layers, from 0 to 3, of a model with rotary positions",
       [](auto& c) { c.unrotated_layers = {1}; }},
      {"unrotated_layers must be layers, from 0 to 3",
       [](auto& c) {
         c.position = PositionKind::kRotary;
         c.unrotated_layers = {3, 4};
       }},
      {"rope_local_theta is -1", [](auto& c) { c.rope_local_theta = -1.0f; }},
      {"rope_local_theta is for models with rotary positions and a window",
       [](auto& c) { c.rope_local_theta = 100.0f; }},
      {"the names of 'llama' have none for learned positions",
       [](auto& c) { c.naming = WeightNaming::kLlama; }},
      {"the names of 'gpt2' have none for norms after each half",
       [](auto& c) { c.norm_place = NormPlace::kAfter; }},
      {"learned positions have no rotary scaling",
       [](auto& c) { c.rope_scaling.kind = RopeKind::kLinear; }},
      {"factor is 0; it must be between 1e-06 and 1000000",
       with_scaling(RopeKind::kLinear, [](auto& s) { s.factor = 0.0; })},
      {"factor is nan", with_scaling(RopeKind::kLinear, [=](auto& s) { s.factor = nan; })},
      {"attention_factor is inf",
       with_scaling(RopeKind::kYarn, [=](auto& s) { s.attention_factor = infinity; })},
      {"original context is 0", with_scaling(RopeKind::kLinear, [](auto& s) { s.original = 0; })},
      {"low_freq_factor 4 must be below high_freq_factor 4",
       with_scaling(RopeKind::kLlama3, [](auto& s) { s.low_freq_factor = 4.0; })},
      {"dynamic rotary scaling needs heads of at least 4",
       [](auto& c) {
         with_scaling(RopeKind::kDynamic, [](auto&) {})(c);
         c.rotary_dim = 2;
       }},
      {"yarn needs one above 1",
       [](auto& c) {
         with_scaling(RopeKind::kYarn, [](auto&) {})(c);
         c.rope_theta = 1.0f;
       }},
      {"init_std is 0", [](auto& c) { c.init_std = 0.0f; }},
      {"init_std is nan", [=](auto& c) { c.init_std = nan; }},
      {"init_std is 100", [](auto& c) { c.init_std = 100.0f; }},
      {"[16777216, 16777216]", [](auto& c) { c.vocab_size = c.dim = 1 << 24; }},
  };
  EXPECT_TRUE(validate(tiny_lm_config()));
  for (const BadField& bad : cases) {
    TransformerConfig config = tiny_lm_config();
    bad.set(config);
    test::expect_error(validate(config), ErrorCode::kInvalidArgument, bad.text);
  }
}

TEST(TransformerConfig, PartialRotationAndItsLimits) {
  TransformerConfig config = test::llama_config();
  for (const std::int64_t rotary : {0, 2, 8}) {
    config.rotary_dim = rotary;
    EXPECT_TRUE(validate(config)) << rotary;
  }
}

TEST(TransformerConfig, EachLayerHasItsWindow) {
  TransformerConfig config = test::llama_config();
  config.layers = 4;
  EXPECT_EQ(config.layer_window(0), 70);
  config.full_layers = {0, 2};
  EXPECT_TRUE(validate(config));
  std::vector<std::int32_t> windows;
  for (std::int64_t layer = 0; layer < 4; ++layer) windows.push_back(config.layer_window(layer));
  EXPECT_EQ(windows, (std::vector<std::int32_t>{0, 70, 0, 70}));
}

// "name[shape]" of every parameter.
std::vector<std::string> listing(const TransformerConfig& config) {
  std::vector<std::string> out;
  for (const ParameterInfo& info : parameters(config)) {
    out.push_back(info.name + to_string(info.shape));
  }
  return out;
}

TEST(TransformerConfig, ParametersOfGpt2) {
  TransformerConfig config = test::gpt2_config();
  config.layers = 1;
  const std::string p = "transformer.h.0.";
  EXPECT_EQ(
      listing(config),
      (std::vector<std::string>{
          "transformer.wte.weight[61, 32]", "transformer.wpe.weight[320, 32]",
          p + "ln_1.weight[32]", p + "ln_1.bias[32]", p + "attn.c_attn.weight[32, 96]",
          p + "attn.c_attn.bias[96]", p + "attn.c_proj.weight[32, 32]", p + "attn.c_proj.bias[32]",
          p + "ln_2.weight[32]", p + "ln_2.bias[32]", p + "mlp.c_fc.weight[32, 64]",
          p + "mlp.c_fc.bias[64]", p + "mlp.c_proj.weight[64, 32]", p + "mlp.c_proj.bias[32]",
          "transformer.ln_f.weight[32]", "transformer.ln_f.bias[32]"}));
}

TEST(TransformerConfig, ParametersOfGpt2WithEverythingElse) {
  TransformerConfig config = test::gpt2_config();
  config.layers = 1;
  config.kv_heads = 2;
  config.ffn_kind = FfnKind::kGated;
  config.qk_norm = true;
  config.tied_output = false;
  config.norm_bias = config.attention_bias = config.attention_out_bias = config.ffn_bias = false;
  const std::string p = "transformer.h.0.";
  EXPECT_EQ(listing(config),
            (std::vector<std::string>{
                "transformer.wte.weight[61, 32]", "transformer.wpe.weight[320, 32]",
                p + "ln_1.weight[32]", p + "attn.c_attn.weight[32, 64]",
                p + "attn.c_proj.weight[32, 32]", p + "attn.q_norm.weight[8]",
                p + "attn.k_norm.weight[8]", p + "ln_2.weight[32]", p + "mlp.c_gate.weight[32, 64]",
                p + "mlp.c_fc.weight[32, 64]", p + "mlp.c_proj.weight[64, 32]",
                "transformer.ln_f.weight[32]", "lm_head.weight[61, 32]"}));
}

TEST(TransformerConfig, ParametersOfLlama) {
  TransformerConfig config = test::llama_config();
  config.layers = 1;
  config.head_dim = 10;  // Not dim / heads.
  config.qk_norm = true;
  config.attention_bias = config.attention_out_bias = config.ffn_bias = true;
  const std::string p = "model.layers.0.";
  EXPECT_EQ(listing(config), (std::vector<std::string>{"model.embed_tokens.weight[61, 32]",
                                                       p + "input_layernorm.weight[32]",
                                                       p + "self_attn.q_proj.weight[40, 32]",
                                                       p + "self_attn.q_proj.bias[40]",
                                                       p + "self_attn.k_proj.weight[20, 32]",
                                                       p + "self_attn.k_proj.bias[20]",
                                                       p + "self_attn.v_proj.weight[20, 32]",
                                                       p + "self_attn.v_proj.bias[20]",
                                                       p + "self_attn.o_proj.weight[32, 40]",
                                                       p + "self_attn.o_proj.bias[32]",
                                                       p + "self_attn.q_norm.weight[10]",
                                                       p + "self_attn.k_norm.weight[10]",
                                                       p + "post_attention_layernorm.weight[32]",
                                                       p + "mlp.gate_proj.weight[48, 32]",
                                                       p + "mlp.gate_proj.bias[48]",
                                                       p + "mlp.up_proj.weight[48, 32]",
                                                       p + "mlp.up_proj.bias[48]",
                                                       p + "mlp.down_proj.weight[32, 48]",
                                                       p + "mlp.down_proj.bias[32]",
                                                       "model.norm.weight[32]",
                                                       "lm_head.weight[61, 32]"}));
}

TEST(TransformerConfig, DecayIsForMatricesAndInitKindsFollowTheRole) {
  for (const ParameterInfo& info : parameters(test::gpt2_config())) {
    EXPECT_EQ(info.decay(), info.shape.rank() == 2) << info.name;
    const bool residual = info.name.ends_with("c_proj.weight");
    const InitKind wanted = residual                       ? InitKind::kNormalResidual
                            : info.decay()                 ? InitKind::kNormal
                            : info.name.ends_with(".bias") ? InitKind::kZeros
                                                           : InitKind::kOnes;
    EXPECT_EQ(info.init, wanted) << info.name;
  }
}

// nanoGPT's config/train_shakespeare_char.py with its CPU overrides; its own count leaves the 64
// position rows of 128 out: 0.80M.
TEST(TransformerConfig, ParameterCountOfNanoGpt) {
  TransformerConfig config = tiny_lm_config();
  config.vocab_size = 65;
  config.context = 64;
  EXPECT_EQ(parameter_count(config), 804096);
  EXPECT_EQ(parameter_count(config) - 64 * 128, 795904);
}

TEST(TransformerConfig, TinyLmIsWhatTheDocsSay) {
  const TransformerConfig c = tiny_lm_config();
  EXPECT_EQ((std::vector{c.layers, c.heads, c.dim, c.context, c.vocab_size}),
            (std::vector<std::int64_t>{4, 4, 128, 512, 256}));
}

}  // namespace
}  // namespace volta
