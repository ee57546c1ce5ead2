// Decoder: how a prompt is cut into steps, how many rows a step has, which plans that needs, and
// that prompts and decoding share steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "nn/decoder.h"
#include "nn/helpers.h"
#include "nn/step_plans.h"

namespace volta {
namespace {

using test::must;

constexpr SamplingRow kGreedy = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};

TEST(DecoderSteps, PrefillTellsItsPiecesAndCanBeEnded) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Decoder decoder = must(Decoder::create(model, {}));
  const auto ids = test::some_ids(300, 61);
  std::vector<std::int64_t> heard;
  std::size_t last = 9;
  const auto progress = [&](std::int64_t done) {
    heard.push_back(done);
    return heard.size() < last;
  };
  const DrawnToken whole = must(decoder.prefill(0, ids, kGreedy, {}, progress));
  EXPECT_THAT(heard, testing::ElementsAre(256));
  for (const std::size_t few : {2, 3, 15, 16, 200}) {  // In one run.
    must(decoder.prefill(0, std::span(ids).first(few), kGreedy, {}, progress));
    EXPECT_EQ(heard.size(), 1u) << few;
  }
  last = 2;
  test::expect_error(decoder.prefill(0, ids, kGreedy, {}, progress), ErrorCode::kInterrupted,
                     "interrupted after 256 of 300 prompt tokens");
  EXPECT_EQ(decoder.cache().length(0), 256);
  const DrawnToken again = must(decoder.extend(0, ids, kGreedy, {}));  // What is there is good.
  EXPECT_EQ(again.token, whole.token);
  EXPECT_EQ(again.logprob, whole.logprob);
}

// A device may read more of a prompt at once: the same bits, with windows, too.
TEST(DecoderSteps, LargerStepsGiveTheSameBits) {
  TransformerConfig config = test::llama_config();
  config.context = 1200;
  for (const std::int32_t window : {0, 70}) {
    config.window = window;
    const auto ids = test::some_ids(1100, 61);
    DrawnToken wanted;
    for (const std::int64_t rows : {256, 512, 2048}) {
      const auto device = std::make_shared<test::StepRowsDevice>(test::device(2), rows);
      const Transformer model = test::lively_model(config, device);
      Decoder decoder = must(Decoder::create(model, {.slots = 2}));
      int pieces = 1;
      const auto progress = [&](std::int64_t) { return ++pieces > 0; };
      DrawnToken drawn = must(decoder.prefill(1, ids, kGreedy, {}, progress));
      EXPECT_EQ(pieces, ceil_div(std::int64_t{1100}, rows));
      must(decoder.set_next(1, drawn.token, kGreedy, {}));
      must(decoder.step());
      drawn = must(decoder.drawn(1));
      if (rows == 256) wanted = drawn;
      EXPECT_EQ(drawn.token, wanted.token) << rows;
      EXPECT_EQ(drawn.logprob, wanted.logprob) << rows;
    }
  }
}

TEST(DecoderSteps, PlansAreFewAndKnownBeforehand) {
  EXPECT_THAT(step_sizes(),
              testing::ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048));
  EXPECT_EQ(step_size(3, {.slots = 1}), 4);
  EXPECT_EQ(step_size(3, {.slots = 3}), 3);  // As many as there are slots.
  EXPECT_EQ(step_size(5, {.slots = 3}), 8);
  EXPECT_EQ(step_size(300, {.slots = 500}), 500);
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  Decoder decoder = must(Decoder::create(model, {.slots = 2}));
  EXPECT_EQ(decoder.plan_count(), 0);
  EXPECT_EQ(decoder.activation_bytes(), 0);
  // 256, then 44 in a step of 64; one token, and two; and the largest step, with logits of both.
  must(decoder.prepare(300));
  EXPECT_EQ(decoder.plan_count(), 5);
  const std::int64_t bytes = decoder.activation_bytes();
  EXPECT_GT(bytes, 256 * 32 * 4);
  must(decoder.prefill(0, test::some_ids(300, 61), kGreedy, {}));
  must(decoder.prefill(1, test::some_ids(300, 61), kGreedy, {}));
  must(decoder.set_next(0, 1, kGreedy, {}));
  must(decoder.step());
  EXPECT_EQ(decoder.step_rows(), 1);
  must(decoder.set_next(0, 1, kGreedy, {}));
  must(decoder.set_next(1, 1, kGreedy, {}));
  must(decoder.step());
  EXPECT_EQ(decoder.step_rows(), 2);
  EXPECT_EQ(decoder.plan_count(), 5);
  EXPECT_EQ(decoder.activation_bytes(), bytes);
  for (std::size_t n = 1; n <= 320; n += 29) {
    must(decoder.prefill(0, test::some_ids(n, 61), kGreedy, {}));
  }
  EXPECT_LE(decoder.plan_count(), 11);  // A size each, and two rows of logits twice.
  EXPECT_EQ(decoder.activation_bytes(), bytes);
}

// Prompts of many lengths beside slots that are being decoded, in the same steps: what each gives
// alone, and no token waits for a prompt. A sequence's pages are never those of another.
TEST(DecoderSteps, PromptsAndDecodingShareSteps) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    const Transformer model = test::lively_model(config, test::device(2));
    Decoder alone = must(Decoder::create(model, {}));
    Decoder decoder = must(Decoder::create(model, {.slots = 5}));
    const auto prompt = [](std::int64_t slot) {
      return test::some_ids(static_cast<std::size_t>(30 + 53 * slot), 61,
                            static_cast<std::uint64_t>(40 + slot));
    };
    std::vector<std::vector<DrawnToken>> wanted(5), drawn(5);
    for (std::int64_t slot = 0; slot < 5; ++slot) {
      auto& all = wanted[static_cast<std::size_t>(slot)];
      all.push_back(must(alone.prefill(0, prompt(slot), kGreedy, {})));
      for (int i = 0; i < 12; ++i) {
        must(alone.set_next(0, all.back().token, kGreedy, {}));
        must(alone.step());
        all.push_back(must(alone.drawn(0)));
      }
    }
    for (int step = 0; step < 200; ++step) {
      if (step % 3 == 0 && step < 15) {  // Another one arrives.
        must(decoder.begin(step / 3, prompt(step / 3), kGreedy, {}));
      }
      std::int64_t decoding = 0;
      for (std::int64_t slot = 0; slot < 5; ++slot) {
        const auto& all = drawn[static_cast<std::size_t>(slot)];
        if (all.empty() || all.size() == 13) continue;
        must(decoder.set_next(slot, all.back().token, kGreedy, {}));
        ++decoding;
      }
      must(decoder.step());
      for (std::int64_t slot = 0; slot < 5; ++slot) {
        const DrawnToken one = must(decoder.drawn(slot));
        if (one.token >= 0) drawn[static_cast<std::size_t>(slot)].push_back(one);
        if (one.token >= 0) --decoding;
      }
      EXPECT_LE(decoding, 0);  // All of them got their next one.
    }
    for (std::size_t slot = 0; slot < 5; ++slot) {
      ASSERT_EQ(drawn[slot].size(), 13u);
      for (std::size_t i = 0; i < 13; ++i) {
        EXPECT_EQ(drawn[slot][i].token, wanted[slot][i].token) << slot << " " << i;
        EXPECT_EQ(drawn[slot][i].logprob, wanted[slot][i].logprob) << slot << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace volta
