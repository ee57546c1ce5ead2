// Generator: how requests share the rows of a step and the pages of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/device_proxy.h"
#include "nn/generation.h"
#include "nn/generator.h"
#include "nn/helpers.h"
#include "nn/step_plans.h"
#include "nn/step_work.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_equal;
using test::generate;
using test::must;
using test::request;
using test::Results;

// For any number of decoding sequences, prompts get rows, and the step has a size that exists.
TEST(GeneratorSharing, AStepHasFewRowsForPromptsWhileOthersDecode) {
  constexpr StepCosts cpu;
  for (const std::int64_t slots : {1, 2, 7, 16, 100, 256, 300, 1000}) {
    for (std::int64_t decoding = 0; decoding < slots; ++decoding) {
      const std::int64_t rows = shared_step_rows(decoding, {.slots = slots}, cpu, false);
      EXPECT_GT(rows, decoding) << slots;
      EXPECT_GE(shared_step_rows(decoding, {.slots = slots}, cpu, true), rows)
          << decoding << " of " << slots;
      if (decoding == 0 || decoding > 192) continue;
      EXPECT_LE(rows, std::max<std::int64_t>(16, 4 * decoding)) << slots;
      EXPECT_EQ(std::ranges::count(step_sizes(), rows), 1) << decoding << " of " << slots;
    }
  }
  EXPECT_EQ(shared_step_rows(0, {.slots = 8}, cpu, false), 256);
  EXPECT_EQ(shared_step_rows(5, {.slots = 8}, cpu, false), 16);
  EXPECT_EQ(shared_step_rows(9, {.slots = 16}, cpu, false), 32);
  EXPECT_EQ(shared_step_rows(5, {.slots = 8}, cpu, true), 256);
  EXPECT_EQ(shared_step_rows(255, {.slots = 300}, cpu, false), 300);
  // Where a step of one row takes as long as 256 rows more, prompts get more rows.
  const KvCacheSizes large{.slots = 8, .step_rows = 2048};
  EXPECT_EQ(shared_step_rows(1, large, {.overhead_rows = 256}, false), 512);
  EXPECT_EQ(shared_step_rows(1, {.slots = 8}, {.overhead_rows = 256}, false), 256);
  EXPECT_EQ(shared_step_rows(200, {.slots = 200, .step_rows = 2048}, {.overhead_rows = 256}, false),
            512);
  EXPECT_EQ(shared_step_rows(0, large, {.overhead_rows = 256}, false), 2048);
  // Where more than 32 rows take much longer, prompts get the rest of 32, if that is half of them.
  constexpr StepCosts integers{.overhead_rows = 64, .fast_rows = 32};
  EXPECT_EQ(shared_step_rows(1, large, integers, false), 32);
  EXPECT_EQ(shared_step_rows(16, {.slots = 64, .step_rows = 2048}, integers, false), 32);
  EXPECT_EQ(shared_step_rows(17, {.slots = 64, .step_rows = 2048}, integers, false), 128);
  EXPECT_EQ(shared_step_rows(0, large, integers, false), 2048);
}

TEST(GeneratorSharing, PromptsFirstChangesNoToken) {
  const Transformer model = test::lively_model(test::llama_config(), test::device(2));
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
  const Transformer model = test::lively_model(config, test::device(2));
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

constexpr SamplingRow kGreedyRow = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};

// Rows of the steps that read a prompt of 1,900 tokens while `decoding` others get a token from
// every one of them. Each step's work is predicted as at most four times that of a step without
// the prompt, unless it reads a single token of it.
std::vector<std::int64_t> shared_steps(const Transformer& model, std::int64_t decoding) {
  const StepWork work(model.config());
  const auto short_ids = test::some_ids(9, 61), long_ids = test::some_ids(1900, 61);
  Decoder decoder = must(Decoder::create(model, {.slots = decoding + 1}));
  for (std::int64_t slot = 0; slot < decoding; ++slot) {
    must(decoder.begin(slot, short_ids, kGreedyRow, {}));
  }
  must(decoder.step());
  std::vector<std::int64_t> all;
  for (bool more = true; more;) {
    double attention = 0;
    for (std::int64_t slot = 0; slot < decoding; ++slot) {
      const DrawnToken drawn = must(decoder.drawn(slot));
      EXPECT_GE(drawn.token, 0);  // From every single step.
      attention += work.attention(decoder.cache().length(slot));
      must(decoder.set_next(slot, drawn.token, kGreedyRow, {}));
    }
    const std::int64_t before = decoder.cache().length(decoding);
    if (all.empty()) must(decoder.begin(decoding, long_ids, kGreedyRow, {}));
    must(decoder.step());
    more = decoder.waiting(decoding) > 0;
    const std::int64_t end = decoder.cache().length(decoding);
    EXPECT_GT(end, before);
    all.push_back(end - before);
    if (end - before == 1) continue;
    const double usual =
        work.matrices(step_size(decoding, {.slots = decoding + 1}), decoding) + attention;
    double shared = work.matrices(decoder.step_rows(), decoding) + attention;
    for (std::int64_t i = before; i < end; ++i) shared += work.attention(i);
    EXPECT_LE(shared, 4 * usual) << "tokens " << before << " to " << end;
  }
  Decoder alone = must(Decoder::create(model, {}));
  const DrawnToken wanted = must(alone.prefill(0, long_ids, kGreedyRow, {}));
  EXPECT_EQ(must(decoder.drawn(decoding)).token, wanted.token);
  EXPECT_EQ(must(decoder.drawn(decoding)).logprob, wanted.logprob);
  return all;
}

// Requests are being decoded while a long prompt arrives: they get their tokens, and it gets on.
TEST(GeneratorSharing, ALongPromptDoesNotStopTheOthers) {
  TransformerConfig config = test::llama_config();
  config.context = 2048;
  config.window = 0;
  for (const std::int64_t decoding : {1, 8}) {
    SCOPED_TRACE(decoding);
    const std::vector<std::int64_t> rows =
        shared_steps(test::lively_model(config, test::device(2)), decoding);
    // The further back its tokens look, the fewer of them a step takes.
    EXPECT_GT(rows.front(), 2 * rows.back());
    EXPECT_TRUE(std::is_sorted(rows.rbegin() + 1, rows.rend()));  // The last step has the rest.
  }
  // Where attention costs little beside the matrices, a step takes as many rows to the end.
  config.ffn = 4000;
  const std::vector<std::int64_t> rows =
      shared_steps(test::lively_model(config, test::device(2)), 8);
  EXPECT_EQ(rows.front(), 24);
  EXPECT_EQ(*(rows.end() - 2), 24);
}

// A device on which a step of one row takes as long as one with 256 rows of a prompt more.
class SlowStart final : public DeviceProxy {
 public:
  explicit SlowStart(std::shared_ptr<Device> inner) : DeviceProxy(std::move(inner)) {}
  InferenceChoices inference_choices(DType dtype) const override {
    InferenceChoices choices = inner()->inference_choices(dtype);
    choices.step_rows = 512;
    choices.costs = {.overhead_rows = 256};
    choices.integer_costs = {.overhead_rows = 64, .fast_rows = 32};
    return choices;
  }
};

// There prompts get more rows beside a sequence that is being decoded; fewer with weights of
// integers.
TEST(GeneratorSharing, PromptsGetMoreRowsWhereStepsStartSlowly) {
  TransformerConfig config = test::llama_config();
  config.context = 2048;
  config.window = 0;
  config.dim = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 64;
  config.ffn = 4096;
  for (const auto& [quant, rows] : {std::pair(Quant::kNone, 512), std::pair(Quant::kInt8, 32)}) {
    Transformer model = test::lively_model(config, std::make_shared<SlowStart>(test::cpu(2)));
    must(model.prepack({.quant = quant}));
    Decoder decoder = must(Decoder::create(model, {.slots = 2}));
    must(decoder.begin(0, test::some_ids(9, config.vocab_size), kGreedyRow, {}));
    must(decoder.step());
    must(decoder.set_next(0, must(decoder.drawn(0)).token, kGreedyRow, {}));
    must(decoder.begin(1, test::some_ids(1900, config.vocab_size), kGreedyRow, {}));
    must(decoder.step());
    EXPECT_EQ(decoder.step_rows(), rows);
    EXPECT_GE(must(decoder.drawn(0)).token, 0);
  }
}

// The largest plan's arena is that of all, and there are two plans for a number of rows at most.
TEST(GeneratorSharing, AllPlansHaveOneArena) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    const Transformer model = test::lively_model(config, test::device(2));
    for (const std::int64_t slots : {1, 2, 5, 9, 300}) {
      const KvCacheSizes cache{.slots = slots, .capacity = config.context};
      StepPlans plans({.cache = cache}, DType::kF32);
      EXPECT_EQ(plans.activation_bytes(), 0);
      must(plans.prepare(model, {1, 1}));
      const std::int64_t bytes = plans.activation_bytes();
      EXPECT_GT(bytes, 0);
      std::int64_t sizes = 0;
      for (std::int64_t rows = 1; rows <= most_step_rows(cache); ++sizes) {
        const std::int64_t size = step_size(rows, cache);
        for (std::int64_t draws = 0; draws <= std::min(size, slots); ++draws) {
          must(plans.prepare(model, size_for(rows, draws, cache)));
        }
        rows = size + 1;
      }
      EXPECT_EQ(plans.activation_bytes(), bytes) << slots;
      EXPECT_LE(plans.count(), 2 * sizes);
    }
  }
  EXPECT_EQ(most_step_rows({.slots = 1, .capacity = 3}), 4);
  EXPECT_EQ(most_step_rows({.slots = 2, .capacity = 100}), 256);
  EXPECT_EQ(most_step_rows({.slots = 2, .capacity = 60}), 128);
  EXPECT_EQ(most_step_rows({.slots = 500, .capacity = 1 << 20}), 500);
}

// A plan that is loaded in the middle of a run takes no memory for activations.
TEST(GeneratorSharing, FurtherPlansTakeLittleMemory) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const Transformer model = test::lively_model(test::gpt2_config(), device);
  Decoder decoder = must(Decoder::create(model, {}));
  must(decoder.prefill(0, test::some_ids(100, 61), kGreedyRow, {}));
  const std::int64_t before = device->faulty_memory().live_bytes();
  must(decoder.prefill(0, test::some_ids(256, 61), kGreedyRow, {}));  // The largest step.
  const std::int64_t more = device->faulty_memory().live_bytes() - before;
  EXPECT_EQ(decoder.plan_count(), 2);
  EXPECT_GT(more, 0);
  EXPECT_LT(4 * more, decoder.activation_bytes());
}

TEST(GeneratorSharing, ACacheWithFewPagesIsShared) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  const std::vector requests = {request(100, 20), request(120, 4), request(60, 30),
                                request(190, 5)};
  const Results all = generate(model, requests);
  // Each fits by itself: prompts wait for the pages of those before.
  expect_equal(generate(model, requests, {.slots = 3, .pages = 8}), all);
  expect_equal(generate(model, requests, {.slots = 3, .pages = 4, .reuse_prefix = true}), all);
  // Both prompts would fit five pages at once, but not all their tokens: the second request waits
  // until the first one has ended, and neither loses a token.
  const std::vector crowded = {request(100, 60), request(120, 60)};
  Generator shared = must(Generator::create(model, {.slots = 2, .pages = 5}));
  std::vector<std::size_t> order;
  const Results few = must(shared.generate(crowded, [&](const TokenEvent& event) {
    order.push_back(event.request);
    return true;
  }));
  expect_equal(few, generate(model, crowded));
  EXPECT_TRUE(std::ranges::is_sorted(order));
  // With six of them they run side by side.
  Generator larger = must(Generator::create(model, {.slots = 2, .pages = 6}));
  order.clear();
  expect_equal(must(larger.generate(crowded,
                                    [&](const TokenEvent& event) {
                                      order.push_back(event.request);
                                      return true;
                                    })),
               few);
  EXPECT_FALSE(std::ranges::is_sorted(order));
  // What can never fit is told before anything runs.
  Generator generator = must(Generator::create(model, {.slots = 2, .pages = 2}));
  int events = 0;
  test::expect_error(
      generator.generate(std::vector{request(9, 2), request(129, 2)},
                         [&](const TokenEvent&) { return ++events > 0; }),
      ErrorCode::kInvalidArgument,
      "request 1: the prompt has 129 tokens, more than the 2 pages of 64 tokens of the KV cache");
  EXPECT_EQ(events, 0);
  // A request that may bring more than all pages hold runs by itself until they are full.
  const Results alone = must(generator.generate(std::vector{request(120, 20), request(9, 2)}));
  EXPECT_EQ(alone[0].reason, StopReason::kCacheFull);
  EXPECT_EQ(alone[1].reason, StopReason::kLength);
  EXPECT_EQ(alone[0].tokens.size(), 9u);  // Positions 120 to 127, and the token after them.
  test::expect_error(Generator::create(model, {.pages = -1}), ErrorCode::kInvalidArgument,
                     "of -1 pages");
}

}  // namespace
}  // namespace volta
