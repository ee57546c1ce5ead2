// How requests to a Generator end, and what their callers are told while they run.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "nn/generation.h"
#include "nn/generator.h"
#include "nn/helpers.h"

namespace volta {
namespace {

using test::expect_equal;
using test::generate;
using test::must;
using test::request;
using test::Results;
using Ints = std::vector<std::int32_t>;

TEST(GeneratorEvents, StopTokensEndARequest) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  GenerationRequest one = request(10, 12, {.temperature = 1.5f, .seed = 3});
  const Ints all = generate(model, {one}).at(0).tokens;
  const std::int32_t stop = all[5];
  one.stop_tokens = {60000, stop};
  const GenerationResult result = generate(model, {one, request(4, 9)}, {.slots = 2}).at(0);
  const auto end = std::find(all.begin(), all.end(), stop) + 1;
  EXPECT_EQ(result.tokens, Ints(all.begin(), end));
  EXPECT_EQ(result.logprobs.size(), result.tokens.size());
  EXPECT_EQ(result.reason, StopReason::kStopToken);
}

TEST(GeneratorEvents, NoTokensWantedAndNoRequests) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  EXPECT_TRUE(generate(model, {}).empty());
  const Results results = generate(model, {request(5, 0), request(5, 2), request(7, 0)});
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_EQ(results[0].reason, StopReason::kLength);
  EXPECT_EQ(results[1].tokens.size(), 2u);
  EXPECT_TRUE(results[2].tokens.empty());
}

TEST(GeneratorEvents, AFullContextEndsARequest) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  GenerationRequest longer = request(18, 100);
  const Ints all = generate(model, {longer}).at(0).tokens;
  for (const bool use_cache : {true, false}) {
    const GeneratorOptions options{.slots = 2, .capacity = 20, .use_cache = use_cache};
    const auto billions = std::numeric_limits<std::int64_t>::max();
    const Results results =
        generate(model, {longer, request(20, billions), request(20, 1)}, options);
    // Positions 18 and 19 are fed; the token after each, and the one after the prompt, are new.
    EXPECT_EQ(results[0].tokens, Ints(all.begin(), all.begin() + 3));
    EXPECT_EQ(results[0].reason, StopReason::kContextFull);
    EXPECT_EQ(results[1].tokens.size(), 1u);
    EXPECT_EQ(results[1].reason, StopReason::kContextFull);
    EXPECT_EQ(results[2].reason, StopReason::kLength);
  }
}

TEST(GeneratorEvents, CallbacksComeInOrderWithTheResults) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  Generator generator = must(Generator::create(model, {.slots = 2}));
  std::vector<std::size_t> order;
  Results heard(3);
  const std::vector requests = {request(3, 2), request(20, 2), request(4, 2)};
  const Results results = must(generator.generate(requests, [&](const TokenEvent& event) {
    order.push_back(event.request);
    heard.at(event.request).tokens.push_back(event.token);
    heard.at(event.request).logprobs.push_back(event.logprob);
    return true;
  }));
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 0, 1, 2, 2}));
  expect_equal(heard, results);
  EXPECT_GT(generator.timing().first_token_seconds, 0.0);
  // A step of two, the prompt of the one that waited, and its step.
  EXPECT_EQ(generator.timing().token_seconds.size(), 3u);
}

TEST(GeneratorEvents, Cancelling) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  const std::vector requests = {request(3, 6), request(20, 6), request(4, 6)};
  const Results all = generate(model, requests);
  for (const bool use_cache : {true, false}) {
    Generator generator = must(Generator::create(model, {.slots = 2, .use_cache = use_cache}));
    // The callback cancels after this many tokens of all requests together. The array says how many
    // tokens each request has by then. The cases cancel in the first prompt, in the second prompt,
    // after the first slot of a step, and after its last slot.
    const std::vector<std::pair<int, std::array<std::ptrdiff_t, 3>>> cases = {
        {1, {1, 0, 0}}, {2, {1, 1, 0}}, {5, {3, 2, 0}}, {6, {3, 3, 0}}, {15, {6, 6, 3}}};
    for (const auto& [last, counts] : cases) {
      SCOPED_TRACE(last);
      int events = 0;
      const Results results =
          must(generator.generate(requests, [&](const TokenEvent&) { return ++events < last; }));
      EXPECT_EQ(events, last);
      for (std::size_t i = 0; i < 3; ++i) {
        const auto wanted = all[i].tokens.begin();
        EXPECT_EQ(results[i].tokens, Ints(wanted, wanted + counts.at(i))) << i;
        EXPECT_EQ(results[i].reason,
                  counts.at(i) == 6 ? StopReason::kLength : StopReason::kCancelled);
      }
    }
    expect_equal(must(generator.generate(requests)), all);  // As good as new.
  }
}

TEST(GeneratorEvents, AConditionEndsARequest) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  GenerationRequest one = request(10, 12, {.temperature = 1.5f, .seed = 3});
  const Ints all = generate(model, {one}).at(0).tokens;
  Ints asked;
  one.stop_when = [&](std::int32_t token) {
    asked.push_back(token);
    return asked.size() == 5;
  };
  const Results results = generate(model, {one, request(4, 9)}, {.slots = 2});
  EXPECT_EQ(results[0].tokens, Ints(all.begin(), all.begin() + 5));
  EXPECT_EQ(results[0].reason, StopReason::kStopCondition);
  EXPECT_EQ(asked, results[0].tokens);
  EXPECT_EQ(results[1].tokens.size(), 9u);
}

TEST(GeneratorEvents, AConditionIsNotAskedOfStopTokens) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  GenerationRequest one = request(10, 12, {.temperature = 1.5f, .seed = 3});
  const Ints all = generate(model, {one}).at(0).tokens;
  Ints asked;
  one.stop_when = [&](std::int32_t token) {
    asked.push_back(token);
    return false;
  };
  one.stop_tokens = {all[4]};
  const Results results = generate(model, {one});
  EXPECT_EQ(results[0].reason, StopReason::kStopToken);
  ASSERT_FALSE(results[0].tokens.empty());
  EXPECT_EQ(asked, Ints(results[0].tokens.begin(), results[0].tokens.end() - 1));
}

TEST(GeneratorEvents, PromptsTellTheirPiecesAndResultsTheirEnd) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  const std::vector requests = {request(300, 4), request(5, 0), request(9, 2), request(290, 2)};
  const Results all = generate(model, requests);
  Generator generator = must(Generator::create(model, {.slots = 2}));
  std::vector<std::array<std::int64_t, 3>> pieces;
  std::vector<std::size_t> ended;
  std::size_t enough = 99;
  const GenerationCallbacks callbacks = {
      .prompt =
          [&](const PromptEvent& event) {
            pieces.push_back({static_cast<std::int64_t>(event.request), event.done, event.total});
            return pieces.size() < enough;
          },
      .finished =
          [&](std::size_t index, const GenerationResult& result) {
            expect_equal(result, all.at(index));
            ended.push_back(index);
            return true;
          }};
  expect_equal(must(generator.generate(requests, callbacks)), all);
  // Request 2 waits while 256 rows of request 0 run. Request 3 reads 15 tokens a step while request
  // 0 is decoded, which has two more to come, and then all it can.
  using Piece = std::array<std::int64_t, 3>;
  EXPECT_EQ(pieces, (std::vector<Piece>{{0, 256, 300}, {3, 15, 290}, {3, 30, 290}, {3, 286, 290}}));
  EXPECT_EQ(ended, (std::vector<std::size_t>{1, 2, 0, 3}));
  // Cancelled within a prompt: nothing of it, nothing after it; others keep what they have.
  pieces.clear();
  ended.clear();
  enough = 2;
  const Results some = must(generator.generate(requests, callbacks));
  EXPECT_EQ(ended, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(some[0].reason, StopReason::kCancelled);
  EXPECT_EQ(some[3].reason, StopReason::kCancelled);
  EXPECT_TRUE(some[3].tokens.empty());
  EXPECT_EQ(some[0].tokens.size(), 3u);
}

// The device gives up a step or a part of a prompt: what was drawn before stays.
TEST(GeneratorEvents, IsInterruptedWithinAStep) {
  std::int64_t asked = 0, allowed = 0;
  const auto device = CpuDevice::create(
      {.threads = 1, .interrupted = [&] { return allowed > 0 && ++asked > allowed; }});
  ASSERT_TRUE(device);
  const Transformer model = test::lively_model(test::llama_config(), *device);
  Generator generator = must(Generator::create(model, {}));
  const std::vector<GenerationRequest> requests = {request(20, 6)};
  allowed = std::int64_t{1} << 40;
  const Results whole = must(generator.generate(requests));
  const std::int64_t all = asked;
  std::size_t most = 0;
  for (std::int64_t stop = 1; stop < all; stop += all / 7 + 1) {
    asked = 0;
    allowed = stop;
    const Results cut = must(generator.generate(requests));
    allowed = 0;
    EXPECT_EQ(cut[0].reason, StopReason::kCancelled);
    ASSERT_LT(cut[0].tokens.size(), whole[0].tokens.size());
    EXPECT_TRUE(std::equal(cut[0].tokens.begin(), cut[0].tokens.end(), whole[0].tokens.begin()));
    most = std::max(most, cut[0].tokens.size());
    expect_equal(must(generator.generate(requests)), whole);
  }
  EXPECT_GT(most, 2U);
}

}  // namespace
}  // namespace volta
