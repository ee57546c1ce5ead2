// What the tests of Generator share: short ways to make requests, to run them and to compare
// results.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/generator.h"
#include "nn/helpers.h"

namespace volta::test {

using Results = std::vector<GenerationResult>;

inline constexpr SamplingParams kGreedy{.temperature = 0.0f};

inline GenerationRequest request(std::size_t prompt, std::int64_t tokens,
                                 const SamplingParams& sampling = kGreedy) {
  return {.prompt = some_ids(prompt, 61, 100 + prompt),
          .max_new_tokens = tokens,
          .sampling = sampling,
          .stop_tokens = {}};
}

inline Results generate(const Transformer& model, const std::vector<GenerationRequest>& requests,
                        const GeneratorOptions& options = {}) {
  Generator generator = must(Generator::create(model, options));
  return must(generator.generate(requests));
}

// Bit for bit.
inline void expect_equal(const GenerationResult& a, const GenerationResult& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.top, b.top);
  EXPECT_EQ(a.reason, b.reason);
}
inline void expect_equal(const Results& a, const Results& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    expect_equal(a[i], b[i]);
  }
}

}  // namespace volta::test
