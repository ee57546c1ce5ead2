#include "nn/memory_estimate.h"

#include "nn/generator.h"
#include "nn/helpers.h"

namespace volta {
namespace {

using test::expect_error;
using test::must;

std::map<std::string, TensorSpec> specs_of(const Transformer& model) {
  std::map<std::string, TensorSpec> specs;
  for (const auto& [name, weight] : model.weights()) specs.emplace(name, weight.spec());
  return specs;
}

TEST(MemoryEstimate, IsWhatGenerationTakes) {
  for (const auto& config : {test::gpt2_config(), test::llama_config()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Transformer model = test::lively_model(config, test::device(2));
      must(model.prepack({.dtype = dtype}));
      auto generator =
          must(Generator::create(model, {.slots = 3, .capacity = 300, .compute_dtype = dtype}));
      must(generator.prepare(KvCacheSizes{}.step_rows));
      const GeneratorMemory real = generator.memory();
      const MemoryEstimate estimate = must(
          estimate_memory(config, specs_of(model),
                          {.slots = 3, .capacity = 300, .compute_dtype = dtype}, *model.device()));
      EXPECT_EQ(estimate.weights, real.weight_bytes);
      EXPECT_EQ(estimate.cache, real.cache_bytes);
      EXPECT_EQ(estimate.activations, real.activation_bytes);
      EXPECT_EQ(estimate.rows, 256);
      EXPECT_GE(estimate.tables, 3 * config.vocab_size * 4);
      EXPECT_EQ(estimate.total(),
                estimate.weights + estimate.cache + estimate.activations + estimate.tables);
    }
  }
}

TEST(MemoryEstimate, GrowsWithTheCapacityAndRefusesTooMuch) {
  const auto config = test::gpt2_config();
  const auto device = test::device(1);
  const auto estimate = [&](std::int64_t slots, std::int64_t capacity) {
    return estimate_memory(config, {}, {.slots = slots, .capacity = capacity}, *device);
  };
  const MemoryEstimate whole = must(estimate(1, 0));
  const MemoryEstimate half = must(estimate(1, 160));  // In blocks of 64: 192 of 320.
  EXPECT_EQ(3 * whole.cache, 5 * half.cache);
  EXPECT_EQ(must(estimate(2, 160)).cache, 2 * half.cache);
  EXPECT_EQ(whole.rows, 256);
  EXPECT_EQ(half.rows, 256);  // A step of 160 rows is one of 256.
  EXPECT_EQ(must(estimate(1, 30)).rows, 32);
  EXPECT_EQ(whole.weights, 0);
  expect_error(estimate(1, 321), ErrorCode::kInvalidArgument, "321");
  expect_error(estimate(0, 1), ErrorCode::kInvalidArgument, "0 sequences");
}

}  // namespace
}  // namespace volta
