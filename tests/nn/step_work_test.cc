#include "nn/step_work.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "nn/helpers.h"

namespace volta {
namespace {

// What a row costs is what the weights of its matrix products say.
TEST(StepWork, CountsEveryMatrix) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    double weights = 0, head = 0;
    for (const ParameterInfo& info : parameters(config)) {
      if (info.shape.rank() != 2) continue;
      const auto elements = static_cast<double>(info.shape.elements());
      if (info.shape[0] == config.vocab_size) {
        head = elements;  // The embedding or the output projection: they are as large.
      } else if (info.shape[0] != config.context) {
        weights += elements;
      }
    }
    const StepWork work(config);
    EXPECT_EQ(work.matrices(5, 3) - work.matrices(4, 3), 2 * weights);
    EXPECT_EQ(work.matrices(5, 3) - work.matrices(5, 2), 2 * head);
    EXPECT_EQ(work.matrices(0, 0), 8 * 2 * (weights + head));
    EXPECT_EQ(StepWork(config, 256).matrices(0, 0), 256 * 2 * (weights + head));
  }
}

TEST(StepWork, AttentionCountsTheKeysThatARowSees) {
  TransformerConfig config = test::llama_config();
  config.window = 0;
  const double key = StepWork::kAttentionCost * 4 * 4 * 8;  // 4 heads of 8.
  EXPECT_EQ(StepWork(config).attention(0), 2 * key);        // 2 layers.
  EXPECT_EQ(StepWork(config).attention(99), 200 * key);
  config.window = 70;
  EXPECT_EQ(StepWork(config).attention(68), 2 * 69 * key);
  EXPECT_EQ(StepWork(config).attention(99), 2 * 70 * key);
  config.full_layers = {0};
  EXPECT_EQ(StepWork(config).attention(99), (100 + 70) * key);
}

}  // namespace
}  // namespace volta
