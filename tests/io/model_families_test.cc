// The families' config.json: what missing keys mean, which keys each family reads, and what is
// refused.
#include "io/model_families.h"

#include <nlohmann/json.hpp>

#include "device/helpers.h"
#include "io/model_config.h"

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

TEST(ModelFamilies, WhatCannotWorkIsRefused) {
  const auto refuse = [](const std::string& type, const json& more, ErrorCode code,
                         const std::string& text) {
    expect_error(parse(small(type, more)), code, text);
  };
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  refuse("phi3", json::object(), unsupported,
         "architecture 'phi3'; Volta runs gpt2, llama, mistral, ministral, qwen2 and qwen3");
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
}

}  // namespace
}  // namespace volta
