// The families' config.json: what missing keys mean, which keys each family reads, and what is
// refused.
#include "formats/model_families.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "device/helpers.h"
#include "formats/model_config.h"

namespace volta {
namespace {

using nlohmann::json;
using test::expect_error;

Result<TransformerConfig> parse(const json& config) {
  return parse_model_config(config.dump(), "config.json");
}
TransformerConfig must_parse(const json& config) {
  auto parsed = parse(config);
  if (!parsed) throw std::runtime_error(parsed.error().message());
  return *std::move(parsed);
}

// A small model of one family; `more` adds keys or changes them.
json small(const std::string& type, const json& more = json::object()) {
  json config = {{"model_type", type},          {"vocab_size", 11},
                 {"hidden_size", 16},           {"intermediate_size", 24},
                 {"num_hidden_layers", 4},      {"num_attention_heads", 4},
                 {"max_position_embeddings", 8}};
  config.update(more);
  return config;
}

// transformers 5.23's classes without arguments.
TEST(ModelFamilies, MissingKeysHaveTransformersDefaults) {
  const TransformerConfig gpt2 = must_parse({{"model_type", "gpt2"}});
  EXPECT_EQ((std::vector{gpt2.vocab_size, gpt2.context, gpt2.dim, gpt2.layers, gpt2.heads,
                         gpt2.head_dim, gpt2.ffn}),
            (std::vector<std::int64_t>{50257, 1024, 768, 12, 12, 64, 3072}));
  EXPECT_TRUE(gpt2.tied_output);
  EXPECT_EQ(gpt2.activation, Activation::kGeluTanh);
  EXPECT_EQ(gpt2.norm_eps, 1e-5f);
  struct Wanted {
    std::string type;
    std::vector<std::int64_t> sizes;  // vocabulary, context, ffn, kv_heads, head_dim, window
  };
  const std::vector<Wanted> all = {{"llama", {32000, 2048, 11008, 32, 128, 0}},
                                   {"mistral", {32000, 131072, 14336, 8, 128, 4096}},
                                   {"ministral", {32000, 131072, 14336, 8, 128, 4096}},
                                   {"qwen2", {151936, 32768, 22016, 32, 128, 0}},
                                   {"qwen3", {151936, 32768, 22016, 32, 128, 0}}};
  for (const auto& [type, sizes] : all) {
    const TransformerConfig c = must_parse({{"model_type", type}});
    EXPECT_EQ((std::vector{c.vocab_size, c.context, c.ffn, c.kv_heads, c.head_dim,
                           std::int64_t{c.window}}),
              sizes)
        << type;
    EXPECT_EQ((std::vector{c.dim, c.layers, c.heads}), (std::vector<std::int64_t>{4096, 32, 32}));
    EXPECT_EQ(c.norm_eps, 1e-6f);
    EXPECT_EQ(c.rope_theta, 10000.0f);
    EXPECT_EQ(c.activation, Activation::kSilu);
    EXPECT_FALSE(c.tied_output);
    EXPECT_EQ(c.attention_bias, type == "qwen2");
    EXPECT_FALSE(c.attention_out_bias || c.ffn_bias);
    EXPECT_EQ(c.qk_norm, type == "qwen3");
  }
}

TEST(ModelFamilies, HeadsAreTheFamilysOrAllOrAsSaid) {
  EXPECT_EQ(must_parse(small("llama")).kv_heads, 4);
  EXPECT_EQ(must_parse(small("llama")).head_dim, 4);
  EXPECT_EQ(must_parse(small("mistral")).kv_heads, 4);  // Its 8 cannot be.
  EXPECT_EQ(must_parse(small("mistral", {{"num_attention_heads", 16}, {"head_dim", 2}})).kv_heads,
            8);
  const json null = {
      {"num_attention_heads", 16}, {"head_dim", 2}, {"num_key_value_heads", nullptr}};
  EXPECT_EQ(must_parse(small("mistral", null)).kv_heads, 16);
  EXPECT_EQ(must_parse(small("qwen3")).head_dim, 128);
  EXPECT_EQ(must_parse(small("qwen3", {{"head_dim", 6}})).head_dim, 6);
  EXPECT_EQ(must_parse(small("qwen2", {{"head_dim", nullptr}})).head_dim, 4);
  EXPECT_EQ(must_parse(small("llama", {{"num_attention_heads", 3}, {"head_dim", 6}})).heads, 3);
}

TEST(ModelFamilies, EachReadsOnlyItsOwnKeys) {
  const json more = {{"attention_bias", true}, {"mlp_bias", true},        {"sliding_window", 5},
                     {"torch_dtype", "none"},  {"dtype", nullptr},        {"architectures", 3},
                     {"pretraining_tp", 2},    {"attention_dropout", 0.1}};
  const auto biases = [&](const std::string& type) {
    const TransformerConfig c = must_parse(small(type, more));
    return std::vector<bool>{c.attention_bias, c.attention_out_bias, c.ffn_bias};
  };
  EXPECT_EQ(biases("llama"), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(biases("mistral"), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(biases("qwen2"), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(biases("qwen3"), (std::vector<bool>{true, true, false}));
  EXPECT_TRUE(must_parse(small("qwen2", {{"attention_bias", false}})).attention_bias);
  EXPECT_EQ(must_parse(small("llama", more)).window, 0);
  EXPECT_EQ(must_parse(small("qwen2", more)).window, 0);  // use_sliding_window is not set.
  EXPECT_EQ(must_parse(small("mistral", more)).window, 5);
}

TEST(ModelFamilies, Gpt2sVariants) {
  const auto gpt2 = [](const json& more) {
    json config = {{"model_type", "gpt2"}, {"vocab_size", 11}, {"n_positions", 8},
                   {"n_embd", 16},         {"n_layer", 2},     {"n_head", 4}};
    config.update(more);
    return must_parse(config);
  };
  EXPECT_EQ(gpt2({{"n_inner", nullptr}}).ffn, 64);
  EXPECT_EQ(gpt2({{"n_inner", 20}}).ffn, 20);
  EXPECT_FALSE(gpt2({{"scale_attn_weights", false}}).attention_scaled);
  EXPECT_TRUE(gpt2({{"scale_attn_by_inverse_layer_idx", true}}).attention_scaled_by_layer);
  EXPECT_FALSE(gpt2({{"tie_word_embeddings", false}}).tied_output);
  const TransformerConfig later = must_parse({{"model_type", "gpt2"},
                                              {"hidden_size", 32},
                                              {"num_hidden_layers", 3},
                                              {"num_attention_heads", 2},
                                              {"max_position_embeddings", 9}});
  EXPECT_EQ((std::vector{later.dim, later.layers, later.heads, later.context}),
            (std::vector<std::int64_t>{32, 3, 2, 9}));
}

TEST(ModelFamilies, ActivationsByTheirManyNames) {
  const auto activation = [](const std::string& name) {
    const TransformerConfig c = must_parse(small("llama", {{"hidden_act", name}}));
    return std::pair(c.activation, c.activation_scale);
  };
  for (const std::string name : {"gelu", "gelu_python"}) {
    EXPECT_EQ(activation(name), std::pair(Activation::kGelu, 1.0f)) << name;
  }
  for (const std::string name :
       {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"}) {
    EXPECT_EQ(activation(name), std::pair(Activation::kGeluTanh, 1.0f)) << name;
  }
  EXPECT_EQ(activation("silu"), activation("swish"));
  EXPECT_EQ(activation("relu"), std::pair(Activation::kRelu, 1.0f));
  EXPECT_EQ(activation("quick_gelu"), std::pair(Activation::kSilu, 1.702f));
  expect_error(parse(small("llama", {{"hidden_act", "mish"}})), ErrorCode::kUnsupported,
               "activation 'mish'; Volta has gelu, gelu_python, gelu_new");
}

// The windows of four layers.
using Windows = std::vector<std::int32_t>;
Windows windows(const json& config) {
  const TransformerConfig c = must_parse(config);
  Windows out;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) out.push_back(c.layer_window(layer));
  return out;
}

TEST(ModelFamilies, WindowsByLayer) {
  const json full = "full_attention", sliding = "sliding_attention";
  const json qwen = {{"use_sliding_window", true}, {"sliding_window", 5}};
  const auto qwen_with = [&](const char* key, const json& value) {
    json more = qwen;
    more[key] = value;
    return windows(small("qwen2", more));
  };
  EXPECT_EQ(windows(small("qwen3", qwen)), (Windows{0, 0, 0, 0}));  // 28 layers have none.
  EXPECT_EQ(qwen_with("max_window_layers", 0), (Windows{5, 5, 5, 5}));
  EXPECT_EQ(qwen_with("max_window_layers", 3), (Windows{0, 0, 0, 5}));
  EXPECT_EQ(qwen_with("max_window_layers", 4), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(qwen_with("layer_types", {full, sliding, full, sliding}), (Windows{0, 5, 0, 5}));
  EXPECT_EQ(qwen_with("layer_types", {"attention", full, full, full}), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(qwen_with("layer_types", {sliding, sliding, sliding, sliding}), (Windows{5, 5, 5, 5}));
  EXPECT_EQ(qwen_with("sliding_window", nullptr), (Windows{0, 0, 0, 0}));
  const auto mistral = [](const json& more) { return windows(small("mistral", more)); };
  EXPECT_EQ(mistral({{"max_window_layers", 2}}), (Windows{4096, 4096, 4096, 4096}));
  EXPECT_EQ(mistral({{"sliding_window", nullptr}}), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(mistral({{"sliding_window", 3}, {"layer_types", {full, sliding, sliding, full}}}),
            (Windows{0, 3, 3, 0}));
  EXPECT_EQ(windows(small("llama", {{"sliding_window", 3}, {"layer_types", {sliding}}})),
            (Windows{0, 0, 0, 0}));
}

// transformers 5.23's classes without arguments.
TEST(ModelFamilies, LaterFamiliesHaveTheirOwnDefaults) {
  const TransformerConfig olmo = must_parse({{"model_type", "olmo2"}});
  EXPECT_EQ((std::vector{olmo.vocab_size, olmo.context, olmo.ffn, olmo.kv_heads}),
            (std::vector<std::int64_t>{50304, 2048, 11008, 32}));
  EXPECT_EQ(olmo.norm_eps, 1e-5f);
  EXPECT_EQ(olmo.norm_place, NormPlace::kAfter);
  EXPECT_TRUE(olmo.qk_norm && olmo.qk_norm_whole);
  const TransformerConfig smol = must_parse({{"model_type", "smollm3"}});
  EXPECT_EQ((std::vector{smol.layers, smol.heads, smol.kv_heads, smol.head_dim}),
            (std::vector<std::int64_t>{36, 16, 4, 128}));
  EXPECT_EQ(smol.unrotated_layers, (std::vector<std::int64_t>{3, 7, 11, 15, 19, 23, 27, 31, 35}));
  EXPECT_EQ(smol.rope_theta, 2000000.0f);
  EXPECT_TRUE(smol.tied_output);
  EXPECT_EQ(smol.window, 0);
  const TransformerConfig phi = must_parse({{"model_type", "phi3"}});
  EXPECT_EQ((std::vector{phi.vocab_size, phi.dim, phi.ffn, phi.kv_heads, phi.context}),
            (std::vector<std::int64_t>{32064, 3072, 8192, 32, 4096}));
  EXPECT_EQ(phi.naming, WeightNaming::kPhi3);
  EXPECT_EQ(phi.window, 0);
  const TransformerConfig coder = must_parse({{"model_type", "starcoder2"}});
  EXPECT_EQ((std::vector{coder.vocab_size, coder.dim, coder.ffn, coder.layers, coder.kv_heads,
                         coder.head_dim, coder.context}),
            (std::vector<std::int64_t>{49152, 3072, 12288, 30, 2, 128, 4096}));
  EXPECT_EQ(coder.norm, NormKind::kLayer);
  EXPECT_EQ(coder.norm_eps, 1e-5f);
  EXPECT_EQ(coder.ffn_kind, FfnKind::kMlp);
  EXPECT_EQ(coder.activation, Activation::kGeluTanh);
  EXPECT_EQ(coder.window, 0);
  EXPECT_TRUE(coder.norm_bias && coder.attention_bias && coder.attention_out_bias &&
              coder.ffn_bias && coder.tied_output);
  const TransformerConfig gemma2 = must_parse({{"model_type", "gemma2"}});
  EXPECT_EQ((std::vector{gemma2.vocab_size, gemma2.dim, gemma2.heads, gemma2.head_dim}),
            (std::vector<std::int64_t>{256000, 2304, 8, 256}));
  EXPECT_EQ(gemma2.attention_softcap, 50.0f);
  EXPECT_EQ(gemma2.logit_softcap, 30.0f);
  EXPECT_EQ(gemma2.query_scalar, 0.0f);  // 256, which is the head's width.
  EXPECT_EQ(gemma2.layer_window(0), 4096);
  EXPECT_EQ(gemma2.layer_window(1), 0);
  const TransformerConfig gemma3 = must_parse({{"model_type", "gemma3_text"}});
  EXPECT_EQ(gemma3.attention_softcap, 0.0f);
  EXPECT_EQ(gemma3.logit_softcap, 0.0f);
  EXPECT_EQ(gemma3.rope_theta, 1e6f);
  EXPECT_EQ(gemma3.rope_local_theta, 1e4f);
  EXPECT_EQ(gemma3.full_layers, (std::vector<std::int64_t>{5, 11, 17, 23}));
}

TEST(ModelFamilies, LaterFamiliesKeys) {
  EXPECT_EQ(must_parse(small("gemma2", {{"attn_logit_softcapping", nullptr}})).attention_softcap,
            0.0f);
  EXPECT_EQ(must_parse(small("gemma2", {{"query_pre_attn_scalar", 9}})).query_scalar, 9.0f);
  // Gemma 3 in the words of transformers 4.
  const TransformerConfig old = must_parse(
      small("gemma3_text", {{"sliding_window", 3},
                            {"sliding_window_pattern", 2},
                            {"rope_theta", 5e5},
                            {"rope_local_base_freq", 500},
                            {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  EXPECT_EQ(old.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(old.rope_theta, 5e5f);
  EXPECT_EQ(old.rope_local_theta, 500.0f);
  EXPECT_EQ(old.rope_scaling.factor, 8.0);
  EXPECT_EQ(old.context, 8);
  // Without its keys, Granite multiplies by 1, also the scores.
  const TransformerConfig plain = must_parse(small("granite", json::object()));
  EXPECT_EQ(plain.attention_scale, 1.0f);
  EXPECT_EQ((std::vector{plain.embedding_scale, plain.residual_scale, plain.logit_divisor}),
            std::vector(3, 1.0f));
  const TransformerConfig granite = must_parse(small("granite", {{"embedding_multiplier", 12.0},
                                                                 {"attention_multiplier", 0.0156},
                                                                 {"residual_multiplier", 0.22},
                                                                 {"logits_scaling", 16}}));
  EXPECT_EQ((std::vector{granite.embedding_scale, granite.attention_scale, granite.residual_scale,
                         granite.logit_divisor}),
            (std::vector{12.0f, 0.0156f, 0.22f, 16.0f}));
  const TransformerConfig coder = must_parse(
      small("starcoder2", {{"use_bias", false}, {"norm_epsilon", 1e-3}, {"sliding_window", 3}}));
  EXPECT_FALSE(coder.attention_bias || coder.attention_out_bias || coder.ffn_bias);
  EXPECT_TRUE(coder.norm_bias);
  EXPECT_EQ(coder.norm_eps, 1e-3f);
  EXPECT_EQ(coder.window, 3);
  // Without a window no layer has the other base.
  const json no_window = {{"sliding_window", nullptr}, {"layer_types", json(4, "full_attention")}};
  EXPECT_EQ(must_parse(small("gemma3_text", no_window)).rope_local_theta, 0.0f);
  const auto unrotated = [](const json& more) {
    return must_parse(small("smollm3", more)).unrotated_layers;
  };
  EXPECT_EQ(unrotated({{"no_rope_layers", {0, 1, 1, 0}}}), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(unrotated({{"no_rope_layer_interval", 2}}), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(unrotated({{"no_rope_layer_interval", 1}}), (std::vector<std::int64_t>{0, 1, 2, 3}));
  // SmolLM 3's layers that do not rotate are the ones with the window.
  const TransformerConfig smol =
      must_parse(small("smollm3", {{"use_sliding_window", true}, {"sliding_window", 3}}));
  EXPECT_EQ(smol.full_layers, (std::vector<std::int64_t>{0, 1, 2}));
  // Phi-3's older words, and its attention factor when none is said.
  const TransformerConfig phi = must_parse(small(
      "phi3", {{"original_max_position_embeddings", 4},
               {"partial_rotary_factor", 0.5},
               {"rope_scaling", {{"type", "su"}, {"short_factor", {1}}, {"long_factor", {2}}}}}));
  EXPECT_EQ(phi.rotated(), 2);
  EXPECT_EQ(phi.rope_scaling.kind, RopeKind::kLongrope);
  EXPECT_EQ(phi.rope_scaling.original, 4);
  EXPECT_DOUBLE_EQ(phi.rope_scaling.attention_factor, std::sqrt(1.5));  // 1 + ln 2 / ln 4
}

TEST(ModelFamilies, AMixtureOfTwoFamiliesKeysIsRefused) {
  const auto refuse = [](const std::string& type, const json& more, const std::string& text) {
    expect_error(parse(small(type, more)), ErrorCode::kInvalidFile, text);
  };
  refuse(
      "llama", {{"attn_logit_softcapping", 50.0}},
      "'attn_logit_softcapping' is a key of gemma2, not of 'llama'; the config mixes the keys of "
      "two families");
  refuse("gemma3_text", {{"attn_logit_softcapping", 50.0}}, "not of 'gemma3_text'");
  refuse("qwen3", {{"query_pre_attn_scalar", 256}}, "is a key of gemma2 and gemma3_text");
  refuse("gemma2", {{"rope_local_base_freq", 10000}}, "is a key of gemma3_text");
  refuse("llama", {{"no_rope_layers", {1, 1, 1, 0}}}, "is a key of smollm3");
  refuse("llama", {{"residual_multiplier", 0.22}}, "is a key of granite, not of 'llama'");
  refuse("granite", {{"final_logit_softcapping", 30.0}}, "is a key of gemma2 and gemma3_text");
  refuse("llama", {{"n_embd", 32}},
         "n_embd is 32 and hidden_size is 16; the config mixes the keys of two families: keep "
         "those of 'llama'");
  refuse("gpt2", {{"n_layer", 3}}, "n_layer is 3 and num_hidden_layers is 4");
  refuse("llama", {{"hidden_activation", "gelu"}}, "is a key of gemma2 and gemma3_text");
  refuse("llama", {{"scale_attn_weights", false}}, "is a key of gpt2, not of 'llama'");
  refuse("qwen2", {{"use_bidirectional_attention", true}}, "is a key of gemma2 and gemma3_text");
  const std::vector<std::pair<std::string, json>> foreign = {
      {"alibi", true},
      {"parallel_attn", true},
      {"use_parallel_residual", true},
      {"rotary_pct", 0.25},
      {"qk_layernorm", true},
      {"lm_head_bias", true},
      {"use_qk_norm", true},
      {"logit_scale", 0.0625},
      {"clip_qkv", 8.0},
      {"scale_emb", 12},
      {"scale_depth", 1.4},
      {"apply_residual_connection_post_layernorm", true}};
  for (const auto& [key, value] : foreign) {
    for (const char* type : {"gpt2", "llama", "qwen3", "gemma2"}) {
      refuse(type, {{key, value}},
             "'" + key + "' is a key of families that Volta does not run, not of '" + type + "'");
    }
  }
  refuse("gpt2", {{"n_inner", 20}}, "n_inner is 20 and intermediate_size is 24");
  refuse("llama", {{"layer_norm_epsilon", 1e-5}, {"rms_norm_eps", 1e-6}},
         "layer_norm_epsilon is 1e-05 and rms_norm_eps is 1e-06");
  // Values that change nothing are no mixture.
  EXPECT_TRUE(parse(small("llama", {{"alibi", false},
                                    {"clip_qkv", nullptr},
                                    {"rotary_pct", 1.0},
                                    {"logit_scale", 1},
                                    {"scale_attn_weights", true},
                                    {"add_cross_attention", false},
                                    {"n_inner", 24},
                                    {"layer_norm_epsilon", 1e-6},
                                    {"rms_norm_eps", 1e-6}})));
  // head_dim is 4, so that scores are divided by 2 anyway.
  const json neutral = {{"embedding_multiplier", 1.0},
                        {"residual_multiplier", 1},
                        {"attention_multiplier", 0.5},
                        {"logits_scaling", 1.0},
                        {"no_rope_layers", {1, 1, 1, 1}}};
  EXPECT_EQ(must_parse(small("llama", neutral)), must_parse(small("llama")));
  EXPECT_EQ(must_parse(small("qwen3", {{"head_dim", 64}, {"attention_multiplier", 0.125}})),
            must_parse(small("qwen3", {{"head_dim", 64}})));
  refuse("llama", {{"attention_multiplier", 1.0}}, "'attention_multiplier' is a key of granite");
  refuse("llama", {{"attention_multiplier", 0.5000001}}, "is a key of granite");
  refuse("llama", {{"attention_multiplier", "0.5"}}, "is a key of granite");
  refuse("gpt2", {{"scale_attn_by_inverse_layer_idx", true}, {"attention_multiplier", 0.5}},
         "is a key of granite");
  refuse("gemma2", {{"attention_multiplier", 0.5}}, "is a key of granite");  // Not 1 / sqrt(256).
  refuse("gemma2", {{"embedding_multiplier", 1.0}}, "is a key of granite");  // Not sqrt(16).
  refuse("llama", {{"attn_logit_softcapping", 1.0}}, "is a key of gemma2");
  refuse("llama", {{"no_rope_layers", {1, 1, 1}}}, "is a key of smollm3");
  refuse("llama", {{"no_rope_layers", json::array()}}, "is a key of smollm3");
  refuse("gpt2", {{"no_rope_layers", {1, 1, 1, 1}}}, "is a key of smollm3");
  // What is null says nothing, and what is the same is no contradiction.
  EXPECT_TRUE(parse(small("gemma3_text", {{"attn_logit_softcapping", nullptr}})));
  EXPECT_TRUE(parse(small("llama", {{"n_embd", 16}})));
}

TEST(ModelFamilies, WhatCannotWorkIsRefused) {
  const auto refuse = [](const std::string& type, const json& more, ErrorCode code,
                         const std::string& text) {
    expect_error(parse(small(type, more)), code, text);
  };
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  refuse("phimoe", json::object(), unsupported,
         "architecture 'phimoe'; Volta runs gpt2, llama, mistral, ministral, qwen2, qwen3, olmo2, "
         "smollm3, phi3, gemma2, gemma3_text, granite, starcoder2");
  refuse("gemma3", json::object(), unsupported, "whose model_type is gemma3_text");
  refuse("qwen2", {{"layer_types", {"full_attention"}}}, invalid, "1 types for 4 layers");
  refuse("qwen2", {{"layer_types", json(4, "chunked_attention")}}, unsupported,
         "'chunked_attention'; Volta has full_attention and sliding_attention");
  refuse("qwen3", {{"layer_types", json(4, "sliding_attention")}}, invalid,
         "no sliding_window is set");
  refuse("qwen2", {{"layer_types", 3}}, invalid, "layer_types");
  refuse("qwen2", {{"layer_types", {1, 2, 3, 4}}}, invalid, "layer_types[0]");
  refuse("mistral", {{"sliding_window", 0}}, invalid, "sliding_window");
  refuse("mistral", {{"sliding_window", -1}}, invalid, "sliding_window");
  refuse("qwen2", {{"use_sliding_window", 1}}, invalid, "use_sliding_window");
  // Nothing is as long as these numbers say.
  refuse("qwen2",
         {{"num_hidden_layers", 1LL << 40},
          {"use_sliding_window", true},
          {"max_window_layers", (1LL << 40) - 1}},
         invalid, "num_hidden_layers");
  refuse("llama", {{"num_hidden_layers", 5000}}, invalid, "layers is 5000");
  refuse("llama", {{"max_position_embeddings", 1LL << 40}}, invalid, "context is 1099511627776");
  refuse("llama", {{"num_attention_heads", 0}}, invalid, "num_attention_heads");
  refuse("llama", {{"num_key_value_heads", 3}}, invalid, "kv_heads");
  refuse("llama", {{"head_dim", 3}}, invalid, "even number");
  refuse("llama", {{"rms_norm_eps", -1.0}}, invalid, "norm_eps is -1");
  refuse("smollm3", {{"no_rope_layers", {1, 0}}}, invalid, "2 numbers for 4 layers");
  refuse("smollm3", {{"no_rope_layers", {1, 2, 1, 1}}}, invalid, "no_rope_layers[1]");
  refuse("gemma2", {{"query_pre_attn_scalar", 0}}, invalid, "query_pre_attn_scalar is 0");
  refuse("gemma2", {{"final_logit_softcapping", -1.0}}, invalid, "logit_softcap is -1");
  refuse("gemma2", {{"final_logit_softcapping", 0}}, invalid,
         "final_logit_softcapping is 0; it must be positive, or null for none");
  refuse("granite", {{"attention_multiplier", 0}}, invalid,
         "attention_multiplier is 0; it must be positive");
  refuse("granite", {{"attention_multiplier", 1e-60}}, invalid, "is 1e-60; it must be positive");
  refuse("granite", {{"logits_scaling", -2.0}}, invalid, "logit_divisor is -2");
  refuse("gemma3_text", {{"use_bidirectional_attention", true}}, unsupported,
         "use_bidirectional_attention");
  refuse("gemma3_text",
         {{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}, {"factor", 2}}}}}},
         unsupported, "'yarn' in layers with a window");
  refuse("starcoder2", {{"norm_epsilon", 0.0}}, invalid, "norm_eps is 0");
  refuse("starcoder2", {{"use_bias", 1}}, invalid, "use_bias");
  refuse("phi3", {{"partial_rotary_factor", 1.5}}, invalid, "partial_rotary_factor is 1.5");
  refuse("phi3", {{"partial_rotary_factor", 0.1}}, invalid, "leaves nothing to rotate");
}

}  // namespace
}  // namespace volta
