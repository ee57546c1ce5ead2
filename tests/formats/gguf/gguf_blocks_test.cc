// GGUF's blocks of integers run as they are stored: read untouched, packed by the device, looked up
// in their rows. The models are of random blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "formats/gguf/block_model.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_model.h"
#include "formats/model_config.h"
#include "nn/generator.h"
#include "nn/sequence_scorer.h"
#include "support/model.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::all_of;
using test::expect_error;
using test::kBlockTypes;
using test::kVocab;
using test::write_block_model;

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
  for (const GgmlType type : kBlockTypes) {
    const std::string path = dir.file(std::string(ggml_type_info(type).name) + ".gguf");
    write_block_model(path, all_of(type), false);
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
  for (const GgmlType type : kBlockTypes) {
    SCOPED_TRACE(ggml_type_info(type).name);
    write_block_model(path, all_of(type), false);
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
  write_block_model(path, type_of, true);
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
  for (const GgmlType type : kBlockTypes) {
    write_block_model(path, all_of(type), true);
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
  for (const GgmlType type : kBlockTypes) {
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
