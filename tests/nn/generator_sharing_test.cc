// Generator: how requests share the rows of a step and the pages of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nn/generation.h"
#include "nn/generator.h"
#include "nn/helpers.h"
#include "nn/step_plans.h"

namespace volta {
namespace {

using test::expect_equal;
using test::generate;
using test::must;
using test::request;
using test::Results;
using Ints = std::vector<std::int32_t>;

// For any number of decoding sequences, prompts get rows, and the step has a size that exists.
TEST(GeneratorSharing, AStepHasFewRowsForPromptsWhileOthersDecode) {
  for (const std::int64_t slots : {1, 2, 7, 16, 100, 256, 300, 1000}) {
    for (std::int64_t decoding = 0; decoding < slots; ++decoding) {
      const std::int64_t rows = shared_step_rows(decoding, slots, false);
      EXPECT_GT(rows, decoding) << slots;
      EXPECT_GE(shared_step_rows(decoding, slots, true), rows) << decoding << " of " << slots;
      if (decoding == 0 || decoding > 192) continue;
      EXPECT_LE(rows, std::max<std::int64_t>(16, 4 * decoding)) << slots;
      EXPECT_EQ(std::ranges::count(step_sizes(), rows), 1) << decoding << " of " << slots;
    }
  }
  EXPECT_EQ(shared_step_rows(0, 8, false), 256);
  EXPECT_EQ(shared_step_rows(5, 8, false), 16);
  EXPECT_EQ(shared_step_rows(9, 16, false), 32);
  EXPECT_EQ(shared_step_rows(5, 8, true), 256);
  EXPECT_EQ(shared_step_rows(255, 300, false), 300);
}

TEST(GeneratorSharing, PromptsFirstChangesNoToken) {
  const Transformer model = test::lively_model(test::llama_config(), test::cpu(2));
  const std::vector requests = {request(100, 20), request(120, 4), request(60, 30),
                                request(110, 5)};
  expect_equal(generate(model, requests, {.slots = 2, .prompts_first = true}),
               generate(model, requests, {.slots = 2}));
}

// A request that was cancelled while its prompt was read, or before, holds no pages that another
// one needs.
TEST(GeneratorSharing, CancelledPromptsGiveTheirPagesBack) {
  TransformerConfig config = test::llama_config();
  config.context = 1024;
  const Transformer model = test::lively_model(config, test::cpu(2));
  Generator generator = must(Generator::create(model, {.slots = 2, .pages = 10}));
  GenerationCallbacks callbacks;
  callbacks.prompt = [](const PromptEvent&) { return false; };
  const Results cancelled =
      must(generator.generate(std::vector{request(320, 2), request(320, 2)}, callbacks));
  EXPECT_EQ(cancelled[0].reason, StopReason::kCancelled);
  const Results whole = must(generator.generate(std::vector{request(600, 5)}));
  EXPECT_EQ(whole[0].reason, StopReason::kLength);
  expect_equal(whole, generate(model, {request(600, 5)}));
}

// Eight requests are being decoded while a prompt of 1,900 tokens arrives: each of them gets a
// token from every step, and no step has more than four times the rows of theirs.
TEST(GeneratorSharing, ALongPromptDoesNotStopTheOthers) {
  TransformerConfig config = test::llama_config();
  config.context = 2048;
  const Transformer model = test::lively_model(config, test::cpu(2));
  const auto short_ids = test::some_ids(9, 61), long_ids = test::some_ids(1900, 61);
  Decoder decoder = must(Decoder::create(model, {.slots = 9}));
  const SamplingRow greedy = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};
  for (std::int64_t slot = 0; slot < 8; ++slot) {
    must(decoder.begin(slot, short_ids, greedy, {}));
  }
  must(decoder.step());
  const auto step = [&] {
    for (std::int64_t slot = 0; slot < 8; ++slot) {
      const DrawnToken drawn = must(decoder.drawn(slot));
      ASSERT_GE(drawn.token, 0);  // From every single step.
      must(decoder.set_next(slot, drawn.token, greedy, {}));
    }
    must(decoder.step());
  };
  step();
  const std::int64_t usual = decoder.step_rows();
  EXPECT_EQ(usual, 8);
  must(decoder.begin(8, long_ids, greedy, {}));
  std::int64_t steps = 0;
  for (; decoder.waiting(8) > 0; ++steps) {
    step();
    EXPECT_LE(decoder.step_rows(), 4 * usual);
  }
  EXPECT_LE(steps, 1900 / 24 + 1);  // And it gets on.
  Decoder alone = must(Decoder::create(model, {}));
  const DrawnToken wanted = must(alone.prefill(0, long_ids, greedy, {}));
  EXPECT_EQ(must(decoder.drawn(8)).token, wanted.token);
  EXPECT_EQ(must(decoder.drawn(8)).logprob, wanted.logprob);
}

TEST(GeneratorSharing, ACacheWithFewPagesIsShared) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::cpu(2));
  const std::vector requests = {request(100, 20), request(120, 4), request(60, 30),
                                request(190, 5)};
  const Results all = generate(model, requests);
  // Each fits by itself: prompts wait for the pages of those before.
  expect_equal(generate(model, requests, {.slots = 3, .pages = 8}), all);
  expect_equal(generate(model, requests, {.slots = 3, .pages = 4, .reuse_prefix = true}), all);
  // Two pages each, and one more: request 1 takes it for its ninth token, so that request 0 finds
  // none for its 29th and ends; the other does not notice.
  const std::vector crowded = {request(100, 60), request(120, 60)};
  const Results whole = generate(model, crowded);
  const Results few = generate(model, crowded, {.slots = 2, .pages = 5});
  EXPECT_EQ(few[1].reason, StopReason::kLength);
  expect_equal(few[1], whole[1]);
  EXPECT_EQ(few[0].reason, StopReason::kCacheFull);
  EXPECT_EQ(few[0].tokens, Ints(whole[0].tokens.begin(), whole[0].tokens.begin() + 29));
  // What can never fit is told before anything runs.
  Generator generator = must(Generator::create(model, {.slots = 2, .pages = 2}));
  int events = 0;
  test::expect_error(
      generator.generate(std::vector{request(9, 2), request(129, 2)},
                         [&](const TokenEvent&) { return ++events > 0; }),
      ErrorCode::kInvalidArgument,
      "request 1: the prompt has 129 tokens, more than the 2 pages of 64 tokens of the KV cache");
  EXPECT_EQ(events, 0);
  const Results alone = must(generator.generate(std::vector{request(120, 20)}));
  EXPECT_EQ(alone[0].reason, StopReason::kCacheFull);
  EXPECT_EQ(alone[0].tokens.size(), 9u);  // Positions 120 to 127, and the token after them.
  test::expect_error(Generator::create(model, {.pages = -1}), ErrorCode::kInvalidArgument,
                     "of -1 pages");
}

}  // namespace
}  // namespace volta
