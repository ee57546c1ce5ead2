// GGUF's blocks of integers run as they are stored: read untouched, packed by the device, looked up
// in their rows. The models are written here, of random blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/model_config.h"
#include "nn/generator.h"
#include "nn/sequence_scorer.h"
#include "support/model.h"
#include "support/temp_dir.h"
#include "tensor/float16.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

using test::expect_error;

constexpr std::int64_t kVocab = 48, kDim = 256, kFfn = 512;
constexpr std::int64_t kLayers = 2;

// The element type of each matrix, by its name in the file.
using TypeOf = std::function<GgmlType(const std::string& tensor)>;

// Whole blocks of random integers whose values are of the size of trained weights.
std::vector<std::byte> random_blocks(GgmlType type, std::int64_t values, std::mt19937& random) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const auto size = static_cast<std::size_t>(info.block_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(values / info.block_values) * size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 256);
  const auto put_half = [&](std::size_t at, float value) {
    const std::uint16_t bits = f16_from_f32(value);
    bytes[at] = static_cast<std::byte>(bits & 0xFF);
    bytes[at + 1] = static_cast<std::byte>(bits >> 8);
  };
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const float size_of_one = 1.0f + static_cast<float>(random() % 100) / 100.0f;
    if (type == GgmlType::kQ8_0) put_half(at, 4e-4f * size_of_one);
    if (type == GgmlType::kQ4_0) put_half(at, 6e-3f * size_of_one);
    if (type == GgmlType::kQ4_K) {
      put_half(at, 2e-4f * size_of_one);
      put_half(at + 2, 15e-4f * size_of_one);
    }
    if (type == GgmlType::kQ6_K) put_half(at + 208, 3e-5f * size_of_one);
  }
  return bytes;
}

// A Llama of two layers, 256 wide, with an output of its own unless it is tied.
void write_model(const std::string& path, const TypeOf& type_of, bool tied) {
  GgufMetadata metadata;
  metadata.add_string("general.architecture", "llama");
  const auto size = [&](std::string_view key, std::int64_t value) {
    metadata.add_u32("llama." + std::string(key), static_cast<std::uint32_t>(value));
  };
  size("context_length", 64);
  size("embedding_length", kDim);
  size("block_count", kLayers);
  size("feed_forward_length", kFfn);
  size("attention.head_count", 4);
  size("attention.head_count_kv", 2);
  metadata.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<GgufTensorSpec> tensors;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors.push_back({name + ".weight", type_of(name), Shape(rows, columns)});
  };
  const auto vector = [&](const std::string& name) {
    tensors.push_back({name + ".weight", GgmlType::kF32, Shape(kDim)});
  };
  matrix("token_embd", kVocab, kDim);
  if (!tied) matrix("output", kVocab, kDim);
  vector("output_norm");
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    vector(block + "attn_norm");
    vector(block + "ffn_norm");
    matrix(block + "attn_q", kDim, kDim);
    matrix(block + "attn_k", kDim / 2, kDim);
    matrix(block + "attn_v", kDim / 2, kDim);
    matrix(block + "attn_output", kDim, kDim);
    matrix(block + "ffn_gate", kFfn, kDim);
    matrix(block + "ffn_up", kFfn, kDim);
    matrix(block + "ffn_down", kDim, kFfn);
  }
  std::mt19937 random(11);
  const auto write = [&](std::size_t i, GgufSink sink) -> Status {
    const GgufTensorSpec& tensor = tensors[i];
    if (tensor.shape.rank() == 2 && tensor.type != GgmlType::kF32) {
      return sink(random_blocks(tensor.type, tensor.shape.elements(), random));
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()), 1.0f);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (float& value : values) value = tensor.shape.rank() == 1 ? 1.0f : normal(random);
    return sink(std::as_bytes(std::span(values)));
  };
  const Status written = write_gguf(path, metadata, tensors, write);
  ASSERT_TRUE(written) << written.error().message();
}

TypeOf all_of(GgmlType type) {
  return [type](const std::string&) { return type; };
}

constexpr GgmlType kTypes[] = {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_K, GgmlType::kQ6_K};

// Decoded by the device, they are the values that the file's own reader gives, bit for bit: rows in
// their order (Llama's q and k lie otherwise in GGUF), along the right axis (GPT-2's).
void expect_decoded(const std::string& path, std::size_t least) {
  const auto device = test::cpu();
  const GgufFile file = test::open_gguf(path);
  const auto config = test::load_config(path);
  ASSERT_TRUE(config) << config.error().message();
  auto weights = GgufWeights::find(test::open_gguf(path), *config);
  ASSERT_TRUE(weights) << weights.error().message();
  const auto list = find_gguf_parameters(*config, file);
  ASSERT_TRUE(list) << list.error().message();
  std::size_t blocks = 0;
  for (const GgufParameter& parameter : *list) {
    const auto stored = weights->read(parameter.info, {});
    ASSERT_TRUE(stored) << stored.error().message();
    EXPECT_EQ(stored->spec(), *weights->spec(parameter.info));
    EXPECT_EQ(stored->spec().encoding.quant,
              parameter.info.shape.rank() == 2 ? ggml_quant(parameter.tensor->type) : Quant::kNone);
    if (!stored->spec().encoding.quantized()) continue;
    ++blocks;
    EXPECT_EQ(stored->bytes(), parameter.tensor->bytes) << parameter.info.name;
    const auto decoded = tensor_ops::as_spec(*device, *stored, {DType::kF32, parameter.info.shape});
    EXPECT_EQ(test::values(decoded),
              test::values(load_gguf_parameter(file, *config, parameter, DType::kF32)))
        << parameter.info.name;
  }
  EXPECT_GE(blocks, least) << path;
}

TEST(GgufBlocks, AreReadAsTheyAreStored) {
  const test::TempDir dir;
  for (const GgmlType type : kTypes) {
    const std::string path = dir.file(std::string(ggml_type_info(type).name) + ".gguf");
    write_model(path, all_of(type), false);
    expect_decoded(path, 16);
  }
  expect_decoded(test::gguf_data("llama.gguf"), 8);
  expect_decoded(test::gguf_data("gpt2.gguf"), 1);  // Its matrices are [in, out] in memory.
}

std::vector<float> losses_of(const Transformer& model) {
  std::vector<std::int32_t> ids, targets;
  for (std::int32_t i = 0; i < 32; ++i) ids.push_back(i * 29 % static_cast<std::int32_t>(kVocab));
  targets.assign(ids.begin() + 1, ids.end());
  targets.push_back(0);
  auto scorer = SequenceScorer::create(model, {.score = Score::kLoss, .batch = 1, .time = 32});
  EXPECT_TRUE(scorer) << scorer.error().message();
  std::vector<float> losses(ids.size());
  const Status done = scorer->losses(ids, targets, losses);
  EXPECT_TRUE(done) << done.error().message();
  return losses;
}

struct Loaded {
  std::map<std::string, TensorSpec> specs;
  std::vector<float> losses;
  std::int64_t bytes = 0;
};
Loaded load(const std::string& path, bool packed, int threads = 2) {
  const auto model = test::load_model(path, test::cpu(threads), {.packed = packed});
  EXPECT_TRUE(model) << model.error().message();
  Loaded loaded{{}, losses_of(*model), model->weight_bytes()};
  for (const auto& [name, weight] : model->weights()) loaded.specs[name] = weight.spec();
  return loaded;
}

// The losses differ from those of the values in f32 by what rounding the activations to int8 costs
// (matmul_k_test.cc and matmul_quant_test.cc hold the products to their bits), and the weights take
// no more memory than the file's tensors: a panel is filled up, and those of Q4_K hold 148 bytes
// for 144.
TEST(GgufBlocks, RunInTheMemoryTheyTakeInTheFile) {
  const test::TempDir dir;
  const std::string path = dir.file("model.gguf");
  for (const GgmlType type : kTypes) {
    SCOPED_TRACE(ggml_type_info(type).name);
    write_model(path, all_of(type), false);
    const Loaded stored = load(path, true), wide = load(path, false);
    for (const auto& [name, spec] : stored.specs) {
      if (spec.shape.rank() != 2) continue;
      EXPECT_EQ(spec.encoding.quant, ggml_quant(type)) << name;
      const bool looked_up = name.find("embed_tokens") != std::string::npos;
      EXPECT_EQ(spec.encoding.packing, looked_up ? Packing::kRows : Packing::kPanels) << name;
    }
    for (const auto& [name, spec] : wide.specs) EXPECT_TRUE(spec.encoding.plain()) << name;
    std::int64_t in_file = 0;
    const GgufFile file = test::open_gguf(path);
    for (const GgufTensor& tensor : file.tensors()) in_file += tensor.bytes;
    EXPECT_GE(stored.bytes, in_file);
    EXPECT_LE(static_cast<double>(stored.bytes), 1.04 * static_cast<double>(in_file));
    ASSERT_EQ(stored.losses.size(), wide.losses.size());
    double error = 0;
    for (std::size_t i = 0; i < wide.losses.size(); ++i) {
      EXPECT_NEAR(stored.losses[i], wide.losses[i], 0.1) << i;
      error += std::abs(static_cast<double>(stored.losses[i] - wide.losses[i]));
    }
    EXPECT_LT(error / static_cast<double>(wide.losses.size()), 0.04);
    EXPECT_EQ(load(path, true, 1).losses, stored.losses);  // The same bits by one thread.
  }
}

TEST(GgufBlocks, FilesMixTypesAndTieTheOutput) {
  const test::TempDir dir;
  const std::string path = dir.file("mixed.gguf");
  const auto type_of = [](const std::string& name) {
    if (name == "token_embd" || name.ends_with("attn_v")) return GgmlType::kQ8_0;
    if (name.ends_with("ffn_down")) return GgmlType::kQ6_K;
    if (name.ends_with("ffn_up")) return GgmlType::kQ4_K;
    return name.ends_with("attn_k") ? GgmlType::kF32 : GgmlType::kQ4_0;
  };
  write_model(path, type_of, true);
  const Loaded stored = load(path, true), wide = load(path, false);
  const auto quant_of = [&](const std::string& name) {
    return stored.specs.at("model." + name + ".weight").encoding.quant;
  };
  EXPECT_EQ(quant_of("embed_tokens"), Quant::kInt8);
  EXPECT_EQ(quant_of("layers.1.self_attn.v_proj"), Quant::kInt8);
  EXPECT_EQ(quant_of("layers.0.self_attn.q_proj"), Quant::kInt4);
  EXPECT_EQ(quant_of("layers.0.self_attn.k_proj"), Quant::kNone);
  for (const auto& [name, type] : {std::pair{"layers.0.mlp.up_proj", GgmlType::kQ4_K},
                                   {"layers.1.mlp.down_proj", GgmlType::kQ6_K}}) {
    EXPECT_EQ(quant_of(name), ggml_quant(type)) << name;
  }
  EXPECT_EQ(stored.specs.at("model.embed_tokens.weight").encoding.packing, Packing::kPanels);
  for (std::size_t i = 0; i < wide.losses.size(); ++i) {
    EXPECT_NEAR(stored.losses[i], wide.losses[i], 0.1) << i;
  }
}

TEST(GgufBlocks, ARequestInABatchGivesWhatItGivesAlone) {
  const test::TempDir dir;
  const std::string path = dir.file("model.gguf");
  for (const GgmlType type : kTypes) {
    write_model(path, all_of(type), true);
    const auto model = test::load_model(path, test::cpu(), {.packed = true});
    ASSERT_TRUE(model) << model.error().message();
    std::vector<GenerationRequest> requests;
    for (const std::int32_t first : {1, 5, 9}) {
      requests.push_back({.prompt = {first, first + 1, 40 - first},
                          .max_new_tokens = 6,
                          .sampling = {.temperature = 0.0f},
                          .stop_tokens = {}});
    }
    const auto generated = [&](std::span<const GenerationRequest> some) {
      auto generator = Generator::create(*model, {.slots = std::ssize(some)});
      EXPECT_TRUE(generator) << generator.error().message();
      auto results = generator->generate(some, [](const TokenEvent&) { return true; });
      EXPECT_TRUE(results) << results.error().message();
      return *std::move(results);
    };
    const auto together = generated(requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto alone = generated(std::span(requests).subspan(i, 1));
      EXPECT_EQ(alone[0].tokens, together[i].tokens);
      EXPECT_EQ(alone[0].logprobs, together[i].logprobs);
    }
  }
}

// 100 values are no whole number of blocks, of 32 or of 256.
TEST(GgufBlocks, RowsOfNoWholeBlocksAreAnInvalidFile) {
  for (const GgmlType type : kTypes) {
    const auto file = test::GgufBytes()
                          .header(1, 0)
                          .tensor("w", 100, 0, static_cast<std::uint32_t>(type))
                          .data(256)
                          .parse();
    expect_error(file, ErrorCode::kInvalidFile, "of whole blocks");
  }
}

}  // namespace
}  // namespace volta
