#include "formats/model_folder.h"

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "device/helpers.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "nn/transformer.h"
#include "support/fault_device.h"
#include "support/file_faults.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

TransformerConfig small() {
  return {.vocab_size = 11,
          .context = 8,
          .layers = 2,
          .dim = 16,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 4,
          .ffn = 24};
}
TransformerConfig small_llama() {
  TransformerConfig c = small();
  c.naming = WeightNaming::kLlama;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  c.activation = Activation::kSilu;
  c.kv_heads = 2;
  c.tied_output = false;
  return c;
}

// An architecture, and the family whose keys must be written for it.
struct Case {
  std::string name;
  TransformerConfig config;
  std::string family;
};
TransformerConfig small_gemma() {
  TransformerConfig c = small_llama();
  c.naming = WeightNaming::kGemma;
  c.norm_place = NormPlace::kAround;
  c.activation = Activation::kGeluTanh;
  c.norm_plus_one = c.embedding_scaled = c.tied_output = true;
  c.window = 3;
  return c;
}

void add_later_families(const auto& add) {
  add("olmo2", small_llama(), "olmo2", [](auto& c) {
    c.naming = WeightNaming::kGemma;
    c.norm_place = NormPlace::kAfter;
    c.qk_norm = c.qk_norm_whole = true;
  });
  add("olmo2_norms_of_heads", small_llama(), "volta", [](auto& c) {
    c.naming = WeightNaming::kGemma;
    c.norm_place = NormPlace::kAfter;
    c.qk_norm = true;
  });
  add("smollm3", small_llama(), "smollm3", [](auto& c) {
    c.unrotated_layers = {0};
    c.ffn_bias = true;
  });
  add("smollm3_window", small_llama(), "smollm3", [](auto& c) {
    c.unrotated_layers = {1};
    c.window = 3;
    c.full_layers = {0};
  });
  add("phi3", small_llama(), "phi3", [](auto& c) { c.naming = WeightNaming::kPhi3; });
  add("phi3_longrope", small_llama(), "phi3", [](auto& c) {
    c.naming = WeightNaming::kPhi3;
    c.rotary_dim = 2;
    c.window = 5;
    c.rope_scaling = {.kind = RopeKind::kLongrope,
                      .original = 4,
                      .attention_factor = 1.25,
                      .short_factors = {1.5f},
                      .long_factors = {3.7f}};
  });
  add("phi3_biases", small_llama(), "volta", [](auto& c) {
    c.naming = WeightNaming::kPhi3;
    c.attention_bias = true;
  });
  add("packed_names_of_gpt2", small_llama(), "volta",
      [](auto& c) { c.naming = WeightNaming::kGpt2; });
  add("gemma2", small_gemma(), "gemma2", [](auto& c) {
    c.attention_softcap = 50.0f;
    c.logit_softcap = 30.0f;
    c.query_scalar = 9.0f;
    c.full_layers = {1};
  });
  add("gemma2_uncapped", small_gemma(), "gemma2", [](auto&) {});
  add("granite", small_llama(), "granite", [](auto& c) {
    c.embedding_scale = 12.0f;
    c.attention_scale = 0.015625f;
    c.residual_scale = 0.22f;
    c.logit_divisor = 16.0f;
  });
  const auto coder = [](auto& c) {
    c.naming = WeightNaming::kStarcoder2;
    c.norm = NormKind::kLayer;
    c.ffn_kind = FfnKind::kMlp;
    c.norm_bias = true;
    c.window = 3;
  };
  add("starcoder2", small_llama(), "starcoder2", coder);
  add("starcoder2_biases_of_some", small_llama(), "volta", [&](auto& c) {
    coder(c);
    c.attention_bias = true;
  });
  // Granite's attention_multiplier cannot say 1 / sqrt(head_dim) exactly.
  add("granite_attention_of_llama", small_llama(), "volta",
      [](auto& c) { c.embedding_scale = 12.0f; });
  add("gemma3", small_gemma(), "gemma3_text", [](auto& c) {
    c.qk_norm = true;
    c.full_layers = {0};
    c.rope_theta = 1e6f;
    c.rope_local_theta = 500.0f;
    c.rope_scaling = {.kind = RopeKind::kLinear, .factor = 8.0, .original = 8};
  });
  add("gemma_without_plus_one", small_gemma(), "volta", [](auto& c) { c.norm_plus_one = false; });
}

std::vector<Case> cases(bool of_families_only = false) {
  std::vector<Case> all;
  const auto add = [&](std::string name, TransformerConfig c, std::string family, auto change) {
    change(c);
    if (of_families_only && family == "volta") return;
    all.push_back({std::move(name), c, std::move(family)});
  };
  add("gpt2_without_biases", small(), "gpt2", [](auto&) {});
  add("gpt2", small(), "gpt2", [](auto& c) {
    c.norm_bias = c.attention_bias = c.attention_out_bias = c.ffn_bias = true;
    c.activation = Activation::kGeluTanh;
  });
  add("gpt2_relu_untied", small(), "gpt2", [](auto& c) {
    c.activation = Activation::kRelu;
    c.tied_output = false;
  });
  add("gpt2_scales", small(), "gpt2", [](auto& c) {
    c.attention_scaled = false;
    c.attention_scaled_by_layer = true;
  });
  add("gpt2_grouped", small(), "volta", [](auto& c) { c.kv_heads = 2; });
  add("gpt2_gated", small(), "volta", [](auto& c) { c.ffn_kind = FfnKind::kGated; });
  add("gpt2_qk_norm", small(), "volta", [](auto& c) { c.qk_norm = true; });
  add("llama", small_llama(), "llama", [](auto&) {});
  add("llama_biases", small_llama(), "llama", [](auto& c) {
    c.attention_bias = c.attention_out_bias = c.ffn_bias = true;
    c.tied_output = true;
  });
  add("qwen2", small_llama(), "qwen2", [](auto& c) { c.attention_bias = true; });
  add("qwen3", small_llama(), "qwen3", [](auto& c) {
    c.qk_norm = true;
    c.head_dim = 8;
    c.rope_theta = 1e6f;
  });
  add("mistral", small_llama(), "mistral", [](auto& c) { c.window = 4; });
  // Mistral has no biases, but SmolLM 3 has both.
  add("window_and_biases", small_llama(), "smollm3", [](auto& c) {
    c.window = 4;
    c.ffn_bias = true;
  });
  add("qwen3_window", small_llama(), "qwen3", [](auto& c) {
    c.qk_norm = true;
    c.window = 4;
  });
  add("qwen2_front", small_llama(), "qwen2", [](auto& c) {
    c.attention_bias = true;
    c.window = 4;
    c.full_layers = {0};
  });
  add("ministral", small_llama(), "ministral", [](auto& c) {
    c.window = 4;
    c.full_layers = {1};
  });
  // Llama's heads must divide its width.
  add("mistral_heads", small_llama(), "mistral", [](auto& c) {
    c.heads = c.kv_heads = 3;
    c.head_dim = 6;
  });
  add("yarn", small_llama(), "llama", [](auto& c) {
    c.rope_scaling.kind = RopeKind::kYarn;
    c.rope_scaling.factor = 2.0;
    c.rope_scaling.original = 4;
    c.rope_scaling.attention_factor = 1.5;
  });
  add("dynamic", small_llama(), "llama", [](auto& c) {
    c.rope_scaling.kind = RopeKind::kDynamic;
    c.rope_scaling.factor = 2.0;
    c.rope_scaling.original = 4;
  });
  add("quick_gelu", small_llama(), "llama", [](auto& c) { c.activation_scale = 1.702f; });
  add("other_scale", small_llama(), "volta", [](auto& c) { c.activation_scale = 1.5f; });
  add("unscaled_llama", small_llama(), "volta", [](auto& c) { c.attention_scaled = false; });
  add("partly_rotary", small_llama(), "volta", [](auto& c) { c.rotary_dim = 2; });
  add("layer_norm_rotary", small_llama(), "volta", [](auto& c) { c.norm = NormKind::kLayer; });
  add("attention_out_bias_only", small_llama(), "volta",
      [](auto& c) { c.attention_out_bias = true; });
  add_later_families(add);
  return all;
}

class ModelFolder : public testing::TestWithParam<Case> {};

TEST_P(ModelFolder, RoundTrips) {
  const TransformerConfig& config = GetParam().config;
  const test::TempDir dir;
  const auto model = Transformer::random(config, 3, test::cpu(1));
  ASSERT_TRUE(model) << model.error().message();
  const auto tokenizer = make_byte_tokenizer();
  const Status saved = save_model(dir.path(), *model, tokenizer.get());
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_THAT(*read_text_file(dir.file("config.json")),
              HasSubstr("\"model_type\": \"" + GetParam().family + "\""));
  const auto back = test::load_model(dir.path(), test::cpu(1));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->config(), config);
  ASSERT_EQ(back->weights().size(), model->weights().size());
  for (const auto& [name, weight] : model->weights()) {
    EXPECT_EQ(test::values(back->weights().at(name)), test::values(weight)) << name;
  }
  EXPECT_TRUE(load_tokenizer(dir.path()));
}

// Without Volta's own keys, as another tool would write it, the family's keys say the same.
class FamilyKeys : public testing::TestWithParam<Case> {};

TEST_P(FamilyKeys, SayEverything) {
  TransformerConfig config = GetParam().config;
  std::string json = model_config_json(config);
  const std::size_t own = json.find("\"volta\": {");
  ASSERT_NE(own, std::string::npos);
  json.replace(own, 7, "\"other\"");
  const auto back = parse_model_config(json, "config.json");
  ASSERT_TRUE(back) << back.error().message();
  // What a family's model always has, and Volta reads as zeros that add nothing.
  if (GetParam().family == "gpt2") {
    config.norm_bias = config.attention_bias = config.attention_out_bias = config.ffn_bias = true;
  }
  EXPECT_EQ(*back, config);
}

INSTANTIATE_TEST_SUITE_P(Architectures, FamilyKeys, testing::ValuesIn(cases(true)),
                         [](const auto& test_info) { return test_info.param.name; });
INSTANTIATE_TEST_SUITE_P(Architectures, ModelFolder, testing::ValuesIn(cases()),
                         [](const auto& test_info) { return test_info.param.name; });

// A value that another tool changed must not be passed over because Volta's own keys say otherwise.
TEST(ModelConfig, FamilyKeysThatContradictVoltasOwnAreRefused) {
  const auto changed = [](const TransformerConfig& config, const std::string& from,
                          const std::string& to) {
    std::string json = model_config_json(config);
    const std::size_t place = json.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return parse_model_config(json.replace(place, from.size(), to), "c.json");
  };
  const auto code = ErrorCode::kInvalidFile;
  expect_error(changed(small(), R"("n_embd": 16)", R"("n_embd": 999)"), code,
               "c.json: n_embd is 999, but the keys under 'volta' amount to 16");
  expect_error(changed(small(), R"("n_layer": 2)", R"("n_layer": 3)"), code, "n_layer is 3");
  expect_error(changed(small(), R"("vocab_size": 11)", R"("vocab_size": -1)"), code,
               "vocab_size is -1");
  expect_error(changed(small(), R"("model_type": "gpt2")", R"("model_type": "foo")"), code,
               "model_type is foo, but the keys under 'volta' amount to gpt2");
  // As an earlier version wrote it, which had no family for the model.
  EXPECT_TRUE(changed(small(), R"("model_type": "gpt2")", R"("model_type": "volta")"));
  expect_error(
      changed(small(), R"("tie_word_embeddings": true)", R"("tie_word_embeddings": false)"), code,
      "tie_word_embeddings is false");
  expect_error(changed(small(), R"("n_head": 4)", R"("n_head": "4 of them")"), code,
               "n_head is 4 of them");
  expect_error(changed(small(), R"("layer_norm_epsilon": 1e-05)", R"("layer_norm_epsilon": 1e-06)"),
               code, "layer_norm_epsilon");
  expect_error(changed(small_llama(), R"("rope_type": "default")", R"("rope_type": "yarn")"), code,
               "rope_parameters.rope_type is yarn");
  TransformerConfig mixed = small_llama();
  mixed.window = 4;
  mixed.full_layers = {0};
  expect_error(changed(mixed, R"("full_attention")", R"("sliding_attention")"), code,
               "layer_types is an array");
  expect_error(changed(mixed, R"("layer_types": [)", R"("layer_types": [3, )"), code,
               "layer_types is an array");
  expect_error(changed(small_llama(), R"("rope_parameters": {)", R"("rope_parameters": 3, "x": {)"),
               ErrorCode::kInvalidFile, "rope_parameters is 3");
  // What says the same in other words, says nothing, or is no part of the architecture.
  EXPECT_TRUE(changed(small(), R"("n_layer": 2)", R"("n_layer": null)"));
  EXPECT_TRUE(changed(small(), R"("n_layer": 2,)", ""));
  EXPECT_TRUE(changed(small(), R"("layer_norm_epsilon": 1e-05)",
                      R"("layer_norm_epsilon": 0.000010000000001)"));
  EXPECT_TRUE(changed(small(), R"("dtype": "float32")", R"("dtype": "bfloat16")"));
  EXPECT_TRUE(changed(small(), R"("eos_token_id": null)", R"("eos_token_id": 3)"));
}

// The biases that transformers' GPT-2 always has are in the file, as zeros.
TEST(SaveModel, WritesTheBiasesThatOtherToolsExpect) {
  const test::TempDir dir;
  const auto model = Transformer::random(small(), 3, test::cpu(1));
  ASSERT_TRUE(save_model(dir.path(), *model, nullptr));
  EXPECT_FALSE(path_exists(dir.file("tokenizer.json")));
  const auto file = SafetensorsFile::open(dir.file("model.safetensors"));
  ASSERT_TRUE(file);
  const auto bias = file->load("transformer.h.1.attn.c_attn.bias");
  ASSERT_TRUE(bias);
  EXPECT_EQ(test::values(*bias), std::vector<float>(48, 0.0f));
  EXPECT_EQ(file->metadata().at("format"), "pt");
}

// Without it transformers takes GPT-2's tokenizer class, which drops the spaces of a char
// vocabulary.
TEST(SaveModel, TellsTransformersToTakeTheTokenizerAsItIs) {
  const auto model = Transformer::random(small(), 3, test::cpu(1));
  for (const auto& tokenizer : {make_byte_tokenizer(), *make_char_tokenizer("abc")}) {
    const test::TempDir dir;
    ASSERT_TRUE(save_model(dir.path(), *model, tokenizer.get()));
    const auto text = read_text_file(dir.file("tokenizer_config.json"));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text,
              "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
              "  \"clean_up_tokenization_spaces\": false,\n"
              "  \"model_max_length\": " +
                  std::to_string(small().context) + "\n}\n");
    EXPECT_EQ((*load_tokenizer(dir.path()))->kind(), tokenizer->kind());
  }
}

TEST(SaveModel, FailuresLeaveTheOldFiles) {
  const test::TempDir dir;
  const auto model = Transformer::random(small(), 3, test::cpu(1));
  const auto tokenizer = make_byte_tokenizer();
  ASSERT_TRUE(save_model(dir.path(), *model, tokenizer.get()));
  for (int nth = 1; nth <= 3; ++nth) {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kRename, nth, ENOSPC, 1);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(save_model(dir.path(), *model, tokenizer.get()));
    EXPECT_TRUE(test::load_model(dir.path(), test::cpu(1)));
  }
  expect_error(save_model(dir.file("none"), *model, nullptr), ErrorCode::kIo, "none");
}

class LoadModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = Transformer::random(small(), 3, test::cpu(1));
    ASSERT_TRUE(save_model(dir_.path(), *model, nullptr));
    tensors_ = *SafetensorsFile::open(weights_)->load_all();
  }
  Result<Transformer> load_with(const std::map<std::string, Tensor>& tensors) {
    EXPECT_TRUE(write_safetensors(weights_, tensors));
    return test::load_model(dir_.path(), test::cpu(1));
  }
  test::TempDir dir_;
  std::string weights_ = dir_.file("model.safetensors");
  std::map<std::string, Tensor> tensors_;
};

TEST_F(LoadModel, SaysWhatIsMissing) {
  expect_error(test::load_model(dir_.file("none"), test::cpu(1)), ErrorCode::kNotFound,
               "config.json");
  std::filesystem::remove(weights_);
  expect_error(test::load_model(dir_.path(), test::cpu(1)), ErrorCode::kNotFound,
               "model.safetensors");
  std::ofstream(dir_.file("config.json")) << "{}";
  expect_error(test::load_model(dir_.path(), test::cpu(1)), ErrorCode::kInvalidFile, "model_type");
}

TEST_F(LoadModel, EveryTensorMustFit) {
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  auto tensors = tensors_;
  tensors.erase(name);
  expect_error(load_with(tensors), ErrorCode::kInvalidFile, "has no tensor '" + name + "'");
  tensors[name] = *Tensor::zeros({DType::kF32, Shape(16, 25)});
  expect_error(load_with(tensors), ErrorCode::kInvalidFile, "f32[16, 25]");
  tensors[name] = *Tensor::zeros({DType::kI32, Shape(16, 24)});
  expect_error(load_with(tensors), ErrorCode::kInvalidFile, "i32[16, 24]");
  tensors = tensors_;
  tensors["transformer.h.0.adapter"] = *Tensor::zeros({DType::kF32, Shape(1)});
  expect_error(load_with(tensors), ErrorCode::kInvalidFile,
               "'transformer.h.0.adapter' f32[1] belongs to no parameter");
}

TEST_F(LoadModel, ABiasThatIsNotZeroIsNotDropped) {
  auto tensors = tensors_;
  const std::string name = "transformer.ln_f.bias";
  ASSERT_TRUE(tensors.contains(name));
  tensors[name] = test::floats(Shape(16), std::vector<float>(16, 0.5f));
  expect_error(load_with(tensors), ErrorCode::kInvalidFile, name);
}

TEST_F(LoadModel, TheSameWeightTwiceIsRefused) {
  auto tensors = tensors_;
  tensors["wte.weight"] = tensors_.at("transformer.wte.weight");
  expect_error(load_with(tensors), ErrorCode::kInvalidFile, "there twice");
}

TEST_F(LoadModel, ParametersAreFoundWithoutReadingThem) {
  const auto config = test::load_config(dir_.path());
  ASSERT_TRUE(config);
  const auto found = [&](const std::map<std::string, Tensor>& tensors) {
    EXPECT_TRUE(write_safetensors(weights_, tensors, {}));
    return WeightFiles::open(dir_.path(), *config);
  };
  const auto all = found(tensors_);
  ASSERT_TRUE(all) << all.error().message();
  EXPECT_EQ(all->entries(*config).size(), parameters(*config).size());
  auto tensors = tensors_;
  tensors.erase("transformer.wte.weight");
  expect_error(found(tensors), ErrorCode::kInvalidFile, "has no tensor 'transformer.wte.weight'");
  tensors["transformer.wte.weight"] = *Tensor::zeros({DType::kF32, Shape(3, 3)});
  expect_error(found(tensors), ErrorCode::kInvalidFile, "f32[3, 3]");
  tensors = tensors_;
  tensors["adapter"] = *Tensor::zeros({DType::kF32, Shape(1)});
  expect_error(found(tensors), ErrorCode::kInvalidFile, "'adapter' f32[1] belongs to no parameter");
}

TEST_F(LoadModel, NamesOfOtherExportersAreKnown) {
  std::map<std::string, Tensor> tensors;
  const std::string prefix = "transformer.";
  for (const auto& [name, tensor] : tensors_) tensors[name.substr(prefix.size())] = tensor;
  tensors["h.0.attn.bias"] = *Tensor::zeros({DType::kU8, Shape(1, 1, 8, 8)});
  tensors["h.0.attn.masked_bias"] = *Tensor::zeros({DType::kF32, Shape()});
  tensors["lm_head.weight"] = tensors_.at("transformer.wte.weight");
  const auto model = load_with(tensors);
  ASSERT_TRUE(model) << model.error().message();
}

TEST_F(LoadModel, HalfPrecisionIsWidened) {
  auto tensors = tensors_;
  const std::string name = "transformer.ln_f.weight";
  const std::vector<std::uint16_t> ones(16, 0x3F80);  // 1.0 in bf16.
  Tensor half = *Tensor::empty({DType::kBF16, Shape(16)});
  ASSERT_TRUE(half.write_bytes(std::as_bytes(std::span(ones))));
  tensors[name] = half;
  const auto model = load_with(tensors);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(test::values(model->weights().at(name)), std::vector<float>(16, 1.0f));
}

TEST_F(LoadModel, DeviceMemoryThatRunsOutIsAnError) {
  for (const std::int64_t nth : {1, 4}) {
    const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
    device->faulty_memory().allocation_fuse.arm(nth);
    expect_error(test::load_model(dir_.path(), device), ErrorCode::kOutOfMemory, "injected");
  }
}

// One change to a config.json that is right otherwise.
void expect_refused(const std::string& json, const std::string& from, const std::string& to,
                    ErrorCode code, const std::string& text) {
  std::string bad = json;
  const std::size_t at = bad.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  bad.replace(at, from.size(), to);
  expect_error(parse_model_config(bad, "config.json"), code, text);
}

TEST(ParseModelConfig, WhatCannotWorkIsRefused) {
  const std::string gpt2 =
      R"({"model_type":"gpt2","vocab_size":11,"n_positions":8,"n_embd":16,"n_layer":2,"n_head":4})";
  ASSERT_TRUE(parse_model_config(gpt2, "config.json"));
  const auto invalid = ErrorCode::kInvalidFile;
  const auto unsupported = ErrorCode::kUnsupported;
  expect_refused(gpt2, "gpt2", "bert", unsupported, "architecture 'bert'");
  expect_refused(gpt2, "\"n_head\":4", "\"n_head\":3", invalid, "n_head 3 does not divide");
  expect_refused(gpt2, "\"n_head\":4", "\"n_head\":0", invalid, "n_head");
  expect_refused(gpt2, "\"n_head\":4", "\"n_head\":-4", invalid, "n_head");
  expect_refused(gpt2, "\"n_layer\":2", "\"n_layer\":99999999", invalid, "layers is 99999999");
  expect_refused(gpt2, "\"n_embd\":16", "\"n_embd\":9223372036854775807", invalid, "n_embd");
  expect_refused(gpt2, "\"n_embd\":16", "\"n_embd\":16.5", invalid, "n_embd");
  expect_refused(gpt2, "}", R"(,"activation_function":"mish"})", unsupported, "'mish'");
  expect_refused(gpt2, "}", R"(,"add_cross_attention":true})", unsupported, "cross");
  expect_refused(gpt2, "}", R"(,"quantization_config":{"bits":4}})", unsupported, "quantised");
  expect_refused(gpt2, "}", R"(,"layer_norm_epsilon":0})", invalid, "norm_eps");
  expect_refused(gpt2, "}", "", invalid, "config.json");
  const std::string llama = R"({"model_type":"llama","vocab_size":11,"max_position_embeddings":8,)"
                            R"("hidden_size":16,"num_hidden_layers":2,"num_attention_heads":4,)"
                            R"("intermediate_size":24})";
  ASSERT_TRUE(parse_model_config(llama, "config.json"));
  expect_refused(llama, "}", R"(,"num_key_value_heads":3})", invalid, "kv_heads");
  expect_refused(llama, "}", R"(,"hidden_act":7})", invalid, "hidden_act");
}

TEST(ConfigFields, UnknownWordsAreRefused) {
  const std::string json = model_config_json(small());
  const auto refuse = [&](const std::string& from, const std::string& to, const std::string& text) {
    expect_refused(json, from, to, ErrorCode::kInvalidFile, text);
  };
  refuse("\"learned\"", "\"absolute\"", "position is 'absolute'; it must be learned or rotary");
  refuse("\"layer\"", "\"batch\"", "norm is 'batch'");
  refuse("\"mlp\"", "\"moe\"", "ffn_kind is 'moe'");
  refuse("\"window\": 0", "\"window\": -1", "window");
  refuse("\"qk_norm\": false", "\"qk_norm\": 0", "qk_norm");
  refuse("\"init_std\": 0.02", "\"init_std\": \"x\"", "init_std");
}

// The folders that others made.
TEST(LoadModelOfOthers, Loads) {
  for (const std::string name :
       {"gpt2-tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny", "mistral-tiny-sliding"}) {
    VOLTA_NEEDS_SHARED("models/" + name);
    const auto model = test::load_model(test::shared_path("models/" + name), test::cpu(1));
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_EQ(model->config().layers, 2) << name;
  }
}

}  // namespace
}  // namespace volta
