// Models in GGUF files against transformers' logits and greedy ids of the same files.
#include "formats/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/file.h"
#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_writer.h"
#include "nn/generator.h"
#include "support/model.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using test::GgufSample;

class GgufModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufModel, GivesTheIdsAndLogitsOfOthers) {
  const auto golden = test::gguf_goldens()[GetParam()];
  const std::string path = test::gguf_data(GetParam() + ".gguf");
  for (const WeightOptions& options :
       {WeightOptions{}, WeightOptions{.packed = true},
        WeightOptions{.packed = true, .format = {}, .widen = true}}) {
    // Packed, blocks of integers stay unless they are widened, and products with them round their
    // activations to 8 bits.
    const bool integers = options.packed && !options.widen;
    const auto model = test::load_model(path, test::cpu(), options);
    ASSERT_TRUE(model) << model.error().message();
    auto generator = Generator::create(*model, {.slots = 1});
    ASSERT_TRUE(generator) << generator.error().message();
    const auto prompt = golden["ids"].get<std::vector<std::int32_t>>();
    const std::vector<GenerationRequest> requests = {{.prompt = prompt,
                                                      .max_new_tokens = 8,
                                                      .sampling = {.temperature = 0.0f},
                                                      .stop_tokens = {}}};
    const auto results = generator->generate(requests, [](const TokenEvent&) { return true; });
    ASSERT_TRUE(results) << results.error().message();
    auto ids = prompt;
    ids.insert(ids.end(), (*results)[0].tokens.begin(), (*results)[0].tokens.end());
    if (!integers) {
      EXPECT_EQ(ids, golden["greedy"].get<std::vector<std::int32_t>>());
    }
    const auto logits = golden["logits"].get<std::vector<double>>();
    double sum = 0.0;
    for (const double logit : logits)
      sum += std::exp(logit - logits[static_cast<std::size_t>((*results)[0].tokens[0])]);
    EXPECT_NEAR((*results)[0].logprobs[0], -std::log(sum), integers ? 0.05 : 2e-5);
    const bool any = std::ranges::any_of(model->weights(), [](const auto& entry) {
      return entry.second.spec().encoding.quantized();
    });
    EXPECT_EQ(any, integers);  // All of these files hold some.
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufModel,
                         ::testing::Values("llama", "qwen2", "qwen3", "gpt2"),
                         [](const auto& test) { return test.param; });

// The metadata and tensors of a small model, to be changed.
struct Small {
  GgufSample sample;
  std::string architecture = "llama";
  bool tensors = true;

  void size(const std::string& key, std::uint32_t value) {
    sample.metadata.add_u32(architecture + "." + key, value);
  }
  void start() {
    sample.metadata.add_string("general.architecture", architecture);
    size("context_length", 8);
    size("embedding_length", 8);
    size("block_count", 1);
    size("feed_forward_length", 12);
    size("attention.head_count", 2);
    sample.metadata.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    if (!tensors) return;
    auto& list = sample.tensors;
    list = {{"token_embd.weight", Shape(10, 8)}, {"output_norm.weight", Shape(8)}};
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      list.emplace_back(std::string("blk.0.") + name + ".weight", Shape(8, 8));
    }
    list.emplace_back("blk.0.attn_norm.weight", Shape(8));
    list.emplace_back("blk.0.ffn_norm.weight", Shape(8));
    list.emplace_back("blk.0.ffn_gate.weight", Shape(12, 8));
    list.emplace_back("blk.0.ffn_up.weight", Shape(12, 8));
    list.emplace_back("blk.0.ffn_down.weight", Shape(8, 12));
  }
};

Result<TransformerConfig> config_of(auto change, bool tensors = true,
                                    const std::string& architecture = "llama") {
  Small small;
  small.architecture = architecture;
  small.tensors = tensors;
  small.start();
  change(small);
  const auto file = small.sample.parse();
  if (!file) return std::unexpected(file.error());
  VOLTA_TRY(const TransformerConfig config, gguf_config(*file));
  VOLTA_TRY(find_gguf_parameters(config, *file));
  return config;
}

TEST(GgufConfig, TellsTheArchitecture) {
  const auto plain = config_of([](Small&) {});
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->vocab_size, 10);
  EXPECT_EQ(plain->kv_heads, 2);
  EXPECT_EQ(plain->head_dim, 4);
  EXPECT_TRUE(plain->tied_output);
  EXPECT_FALSE(plain->attention_bias);
  EXPECT_EQ(plain->rope_theta, 10000.0f);
  EXPECT_EQ(plain->norm_eps, 1e-5f);
  const auto rich = config_of([](Small& s) {
    s.size("attention.head_count_kv", 2);
    s.size("attention.sliding_window", 4);
    s.size("rope.dimension_count", 4);
    s.sample.metadata.add_f32("llama.rope.freq_base", 1e6f);
    s.sample.tensors.emplace_back("output.weight", Shape(10, 8));
    s.sample.tensors.emplace_back("blk.0.attn_rot_embd", Shape(4));
  });
  ASSERT_TRUE(rich) << rich.error().message();
  EXPECT_EQ(rich->window, 4);
  EXPECT_EQ(rich->rope_theta, 1e6f);
  EXPECT_FALSE(rich->tied_output);
  const auto partly = config_of([](Small& s) { s.size("rope.dimension_count", 2); }, true, "qwen2");
  ASSERT_TRUE(partly) << partly.error().message();
  EXPECT_EQ(partly->rotary_dim, 2);
}

// What a file of Gemma 2 does not say has the values that llama.cpp takes; 0 means none.
TEST(GgufConfig, Gemma2HasCapsAndAWindowUnlessItSaysOtherwise) {
  const auto gemma = [](auto change) {
    return config_of(
        [&](Small& s) {
          s.sample.tensors.emplace_back("blk.0.post_attention_norm.weight", Shape(8));
          s.sample.tensors.emplace_back("blk.0.post_ffw_norm.weight", Shape(8));
          change(s);
        },
        true, "gemma2");
  };
  const auto usual = gemma([](Small&) {});
  ASSERT_TRUE(usual) << usual.error().message();
  EXPECT_EQ(usual->attention_softcap, 50.0f);
  EXPECT_EQ(usual->logit_softcap, 30.0f);
  EXPECT_EQ(usual->window, 4096);
  const auto none = gemma([](Small& s) {
    s.sample.metadata.add_f32("gemma2.attn_logit_softcapping", 0.0f);
    s.sample.metadata.add_f32("gemma2.final_logit_softcapping", 0.0f);
    s.size("attention.sliding_window", 0);
  });
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_EQ(none->attention_softcap, 0.0f);
  EXPECT_EQ(none->logit_softcap, 0.0f);
  EXPECT_EQ(none->window, 0);
}

// Layer norms have a key of their own for their epsilon, and the feed-forward block has no gate.
TEST(GgufConfig, Starcoder2HasLayerNorms) {
  const auto with = [](auto change) {
    return config_of(
        [&](Small& s) {
          auto& list = s.sample.tensors;
          std::erase_if(list,
                        [](const auto& tensor) { return tensor.first == "blk.0.ffn_gate.weight"; });
          for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
            list.emplace_back(std::string(name) + ".bias", Shape(8));
          }
          list.emplace_back("blk.0.ffn_up.bias", Shape(12));
          list.emplace_back("blk.0.ffn_down.bias", Shape(8));
          change(s);
        },
        true, "starcoder2");
  };
  const auto set_epsilon = [](Small& s) {
    s.sample.metadata.add_f32("starcoder2.attention.layer_norm_epsilon", 1e-3f);
  };
  const auto config = with(set_epsilon);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->naming, WeightNaming::kStarcoder2);
  EXPECT_EQ(config->norm, NormKind::kLayer);
  EXPECT_EQ(config->norm_eps, 1e-3f);
  EXPECT_EQ(config->ffn_kind, FfnKind::kMlp);
  EXPECT_EQ(config->activation, Activation::kGeluTanh);
  EXPECT_TRUE(config->norm_bias && config->ffn_bias);
  EXPECT_FALSE(config->attention_bias);
  expect_error(with([](Small&) {}), ErrorCode::kInvalidFile,
               "starcoder2.attention.layer_norm_epsilon");
  expect_error(with([&](Small& s) {
                 set_epsilon(s);
                 s.size("attention.sliding_window", 4);
               }),
               ErrorCode::kUnsupported, "Volta runs starcoder2 without windows");
}

// llama.cpp does not scale by a number that is missing or 0.
TEST(GgufConfig, GraniteHasItsNumbers) {
  const auto plain = config_of([](Small&) {}, true, "granite");
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->attention_scale, 0.0f);
  EXPECT_EQ(plain->residual_scale, 1.0f);
  const auto scaled = config_of(
      [](Small& s) {
        s.sample.metadata.add_f32("granite.attention.scale", 0.25f);
        s.sample.metadata.add_f32("granite.embedding_scale", 12.0f);
        s.sample.metadata.add_f32("granite.residual_scale", 0.0f);
        s.sample.metadata.add_f32("granite.logit_scale", 16.0f);
      },
      true, "granite");
  ASSERT_TRUE(scaled) << scaled.error().message();
  EXPECT_EQ(scaled->attention_scale, 0.25f);
  EXPECT_EQ(scaled->embedding_scale, 12.0f);
  EXPECT_EQ(scaled->residual_scale, 1.0f);
  EXPECT_EQ(scaled->logit_divisor, 16.0f);
}

TEST(GgufConfig, WhatCannotRunIsRefused) {
  const auto invalid = ErrorCode::kInvalidFile, unsupported = ErrorCode::kUnsupported;
  expect_error(config_of([](Small&) {}, true, "gemma4"), unsupported,
               "architecture 'gemma4'; Volta runs gpt2, llama, qwen2, qwen3, olmo2");
  expect_error(config_of([](Small&) {}, false), invalid, "'token_embd.weight' is missing");
  expect_error(config_of([](Small& s) { s.sample.tensors.pop_back(); }), invalid,
               "tensor 'blk.0.ffn_down.weight' is missing; the metadata asks for [8, 12]");
  expect_error(config_of([](Small& s) { s.sample.tensors.back().second = Shape(12, 8); }), invalid,
               "is [12, 8]; the metadata asks for [8, 12]");
  expect_error(config_of([](Small& s) { s.sample.tensors.emplace_back("blk.0.extra", Shape(1)); }),
               invalid, "tensor 'blk.0.extra' belongs to no parameter of llama");
  expect_error(config_of([](Small& s) { s.size("rope.dimension_count", 2); }), unsupported,
               "partial rotation is not supported for llama");
  expect_error(config_of([](Small& s) { s.size("rope.dimension_count", 0); }, true, "qwen2"),
               invalid, "rope.dimension_count");
  expect_error(config_of([](Small& s) { s.size("attention.sliding_window", 4); }, true, "olmo2"),
               unsupported, "without windows, and does not know OLMo 3");
  const auto unrotated = [](Small& s) {
    s.sample.metadata.add_bool(s.architecture + ".rope.scaling.finetuned", false);
  };
  expect_error(config_of(unrotated, true, "granite"), unsupported, "without rotary positions");
  EXPECT_TRUE(config_of(unrotated, true, "llama"));
  expect_error(config_of([](Small& s) { s.size("expert_count", 8); }), unsupported,
               "a mixture of 8 experts");
  for (const std::string key : {"attention.clamp_kqv", "attention.max_alibi_bias",
                                "attn_logit_softcapping", "logit_scale"}) {
    const auto with = [&](float value) {
      return config_of([&](Small& s) { s.sample.metadata.add_f32("llama." + key, value); });
    };
    expect_error(with(0.5f), unsupported, "llama." + key + " is 0.5: Volta runs llama without it");
    EXPECT_TRUE(with(0.0f));
  }
  expect_error(
      config_of([](Small& s) { s.sample.metadata.add_bool("llama.use_parallel_residual", true); }),
      unsupported, "without parallel residuals");
  expect_error(config_of([](Small& s) { s.size("attention.value_length", 2); }), unsupported,
               "different lengths");
  expect_error(config_of([](Small& s) { s.size("attention.head_count_kv", 0); }), invalid,
               "kv_heads is 0");
  Small few;
  few.sample.metadata.add_string("general.architecture", "llama");
  expect_error(gguf_config(*few.sample.parse()), invalid, "'llama.context_length' is missing");
  expect_error(gguf_config(*GgufSample().parse()), invalid, "'general.architecture' is missing");
  Small deep;
  deep.sample.metadata.add_string("general.architecture", "gpt2");
  deep.architecture = "gpt2";
  for (const char* key :
       {"context_length", "embedding_length", "feed_forward_length", "attention.head_count"}) {
    deep.size(key, 2);
  }
  deep.size("block_count", 4000);
  deep.sample.tensors = {{"token_embd.weight", Shape(2, 2)}};
  expect_error(gguf_config(*deep.sample.parse()), invalid,
               "4000 blocks are claimed, but there are 1 tensors");
}

TEST(GgufConfig, Gpt2OutputThatIsTheEmbeddingIsTied) {
  Small small;
  small.architecture = "gpt2";
  small.tensors = false;
  small.start();
  small.sample.metadata.add_f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  small.sample.tensors = {{"token_embd.weight", Shape(10, 8)}, {"output.weight", Shape(10, 8)}};
  EXPECT_TRUE(gguf_config(*small.sample.parse())->tied_output);
  small.sample.tensors.back().second = Shape(9, 8);
  EXPECT_FALSE(gguf_config(*small.sample.parse())->tied_output);
}

TEST(GgufWeights, AreReadInTheirNativeTypes) {
  const std::string path = test::gguf_data("qwen3.gguf");
  const auto config = test::load_config(path);
  ASSERT_TRUE(config) << config.error().message();
  auto weights = GgufWeights::find(test::open_gguf(path), *config);
  ASSERT_TRUE(weights) << weights.error().message();
  for (const ParameterInfo& info : parameters(*config)) {
    const auto spec = weights->spec(info);
    const auto tensor = weights->read(info, {});
    ASSERT_TRUE(tensor) << tensor.error().message();
    EXPECT_EQ(tensor->spec(), *spec);
    weights->release(info);
    if (info.name.ends_with("norm.weight")) {
      EXPECT_EQ(spec->dtype, DType::kF32);
    } else if (info.name.ends_with("q_proj.weight")) {
      EXPECT_EQ(spec->dtype, DType::kBF16);
    }
  }
  const ParameterInfo other{"other", Shape(1)};
  expect_error(weights->spec(other), ErrorCode::kNotFound, "has no parameter 'other'");
  expect_error(weights->read(other, {}), ErrorCode::kNotFound, "has no parameter 'other'");
  weights->release(other);
  EXPECT_EQ(gguf_native_dtype(GgmlType::kF16), DType::kF16);
  EXPECT_EQ(gguf_native_dtype(GgmlType::kQ4_K), DType::kF32);
}

// The file with its tensors aligned to single bytes, the first one at an odd address.
std::string misaligned(const std::string& path) {
  const GgufFile file = test::open_gguf(path);
  const std::string bytes = *read_text_file(path);
  std::int64_t data = std::ssize(bytes);
  std::size_t header = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    data = std::min(data, tensor.offset);
    const std::size_t name = bytes.rfind(tensor.name, static_cast<std::size_t>(data));
    // Its name, rank, sizes, type and offset.
    header = std::max(header, name + tensor.name.size() + 4 +
                                  8 * static_cast<std::size_t>(tensor.shape.rank()) + 4 + 8);
  }
  GgufMetadata more;
  more.add_u32("general.alignment", 1);
  const auto length = [&] { return header + more.bytes().size(); };
  if (length() % 2 == 0) more.add_bool("pad", true);
  if (length() % 2 == 0) more.add_bool("pad2", true);
  std::string out = bytes.substr(0, 24) + std::string(more.bytes()) +
                    bytes.substr(24, header - 24) + bytes.substr(static_cast<std::size_t>(data));
  out[16] = static_cast<char>(out[16] + static_cast<char>(more.count()));
  return out;
}

TEST(GgufWeights, AtOddAddressesAreCopied) {
  const std::string path = test::gguf_data("qwen3.gguf");
  const test::TempDir dir;
  const std::string odd = dir.file("odd.gguf");
  ASSERT_TRUE(write_file_atomic(odd, misaligned(path)));
  ASSERT_EQ(test::open_gguf(odd).tensors().front().offset % 2, 1);
  const auto config = test::load_config(path);
  ASSERT_TRUE(config);
  auto expected = GgufWeights::find(test::open_gguf(path), *config);
  auto weights = GgufWeights::find(test::open_gguf(odd), *config);
  ASSERT_TRUE(weights) << weights.error().message();
  for (const ParameterInfo& info : parameters(*config)) {
    const auto a = expected->read(info, {}), b = weights->read(info, {});
    ASSERT_TRUE(a && b);
    EXPECT_TRUE(std::ranges::equal(*a->host_bytes(), *b->host_bytes())) << info.name;
    if (b->dtype() == DType::kF32 && !b->spec().encoding.quantized()) {
      const auto values = b->values<float>();
      ASSERT_TRUE(values);
      EXPECT_EQ(std::bit_cast<std::uintptr_t>(values->data()) % alignof(float), 0u) << info.name;
    }
  }
}

TEST(GgufWeights, BecomeAnyFloatType) {
  const GgufFile file = test::open_gguf(test::gguf_data("llama.gguf"));
  const auto config = gguf_config(file);
  const auto list = find_gguf_parameters(*config, file);
  ASSERT_TRUE(list) << list.error().message();
  for (const GgufParameter& parameter : *list) {
    const auto wide = load_gguf_parameter(file, *config, parameter, DType::kF32);
    const auto half = load_gguf_parameter(file, *config, parameter, DType::kF16);
    ASSERT_TRUE(wide && half);
    EXPECT_EQ(half->bytes() * 2, wide->bytes());
  }
}

TEST(GgufWeights, VectorsOfBlocksAndValuesBeyondF16AreRefused) {
  const test::GgufBytes bytes =
      test::GgufBytes().header(2, 0).tensor("v", 32, 0, 8).tensor("w", 1, 64).data(64).number(1e6f);
  const auto file = bytes.parse();
  ASSERT_TRUE(file) << file.error().message();
  const GgufParameter vector{{"v", Shape(32)}, GgufLayout::kRotaryPairs, file->find_tensor("v")};
  expect_error(load_gguf_parameter(*file, {}, vector, DType::kF32), ErrorCode::kUnsupported,
               "a vector of a quantised type is not supported");
  const GgufParameter large{{"w", Shape(1)}, GgufLayout::kSame, file->find_tensor("w")};
  EXPECT_TRUE(load_gguf_parameter(*file, {}, large, DType::kBF16));
  expect_error(load_gguf_parameter(*file, {}, large, DType::kF16), ErrorCode::kNonFinite,
               "tensor 'w' has values beyond f16");
}

}  // namespace
}  // namespace volta
