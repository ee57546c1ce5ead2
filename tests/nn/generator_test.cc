// Generator: tokens do not depend on the cache, on the batch, on the pieces of prompts or on the
// threads; every error. How requests end and what callers are told: generator_events_test.cc. How
// requests share steps and pages: generator_sharing_test.cc.
#include "nn/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/generation.h"
#include "nn/helpers.h"
#include "support/alloc_counter.h"

namespace volta {
namespace {

using test::expect_equal;
using test::generate;
using test::kGreedy;
using test::must;
using test::request;
using test::Results;
using Ints = std::vector<std::int32_t>;

// Requests of all kinds: lengths around the chunks, seeds, filters, penalties.
std::vector<GenerationRequest> mixed_requests() {
  std::vector<GenerationRequest> out;
  std::uint64_t seed = 40;
  for (const std::size_t length : {5, 1, 16, 17, 64, 100, 33}) {
    SamplingParams sampling{.temperature = 0.9f, .seed = ++seed};
    if (length % 2 == 0) sampling.top_k = 20;
    if (length > 30) sampling.top_p = 0.9f;
    if (length == 1) sampling.min_p = 0.02f;
    if (length == 33) sampling.repetition_penalty = 1.3f;
    if (length == 17) sampling.frequency_penalty = 0.7f;
    if (length == 64) sampling.presence_penalty = -1.5f;
    out.push_back(request(length, 4 + static_cast<std::int64_t>(length % 5), sampling));
  }
  out.push_back(request(9, 7));
  return out;
}

class GeneratorOfBothKinds : public testing::TestWithParam<bool> {
 protected:
  static TransformerConfig config() {
    return GetParam() ? test::llama_config() : test::gpt2_config();
  }
};
INSTANTIATE_TEST_SUITE_P(, GeneratorOfBothKinds, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Llama" : "Gpt2"; });

TEST_P(GeneratorOfBothKinds, GreedyWithCacheEqualsGreedyWithout) {
  const Transformer model = test::lively_model(config(), test::device(2));
  Generator cached = must(Generator::create(model, {}));
  Generator whole = must(Generator::create(model, {.use_cache = false}));
  for (const std::size_t length : {1, 15, 16, 17, 64, 100, 300}) {
    SCOPED_TRACE(length);
    const std::vector requests = {request(length, 12)};
    const Results results = must(cached.generate(requests));
    EXPECT_EQ(results.at(0).tokens.size(), 12u);
    expect_equal(results, must(whole.generate(requests)));
  }
}

// Longrope rotates a sequence by other factors once it is longer than the original length: its keys
// are then made anew.
TEST(Generator, KeysFollowTheFactorsOfLongrope) {
  TransformerConfig config = test::llama_config();
  config.rope_scaling = {.kind = RopeKind::kLongrope,
                         .factor = 1.0,
                         .original = 100,
                         .attention_factor = 1.25,
                         .short_factors = {1.0f, 1.25f, 1.5f, 2.0f},
                         .long_factors = {2.0f, 4.0f, 8.0f, 16.0f}};
  must(validate(config));
  const Transformer model = test::lively_model(config, test::device(2));
  const std::vector requests = {request(95, 12), request(30, 20), request(100, 5), request(101, 5)};
  const Results whole = generate(model, requests, {.use_cache = false});
  expect_equal(generate(model, requests), whole);
  expect_equal(generate(model, requests, {.slots = 4}), whole);
  expect_equal(generate(model, requests, {.slots = 2, .reuse_prefix = true}), whole);
}

TEST_P(GeneratorOfBothKinds, BatchEqualsSingle) {
  const Transformer model = test::lively_model(config(), test::device(2));
  const auto requests = mixed_requests();
  Generator single = must(Generator::create(model, {}));
  Results alone;
  for (const auto& one : requests) alone.push_back(must(single.generate({&one, 1})).at(0));
  for (const std::int64_t slots : {1, 3, 8, 9}) {
    SCOPED_TRACE(slots);
    expect_equal(generate(model, requests, {.slots = slots}), alone);
  }
  expect_equal(generate(model, requests, {.slots = 3, .use_cache = false}), alone);
  expect_equal(generate(model, requests, {.slots = 2, .capacity = 110}), alone);
}

TEST_P(GeneratorOfBothKinds, ThreadsDoNotMatter) {
  const auto requests = mixed_requests();
  const Results one =
      generate(test::lively_model(config(), test::device(1)), requests, {.slots = 3});
  for (const int threads : {2, 3}) {
    SCOPED_TRACE(threads);
    expect_equal(
        generate(test::lively_model(config(), test::device(threads)), requests, {.slots = 3}), one);
  }
}

TEST_P(GeneratorOfBothKinds, HalfPrecision) {
  const Transformer model = test::lively_model(config(), test::device(2));
  const std::vector requests = {request(64, 6), request(17, 6), request(3, 6)};
  const Results exact = generate(model, requests, {.slots = 3});
  const std::vector<GeneratorOptions> kinds = {
      {.cache_dtype = DType::kBF16},
      {.cache_dtype = DType::kF16},
      {.cache_dtype = DType::kF32, .compute_dtype = DType::kBF16},
      {.cache_dtype = DType::kBF16, .compute_dtype = DType::kBF16}};
  for (GeneratorOptions options : kinds) {
    SCOPED_TRACE(std::string(dtype_name(*options.cache_dtype)) + " cache, " +
                 std::string(dtype_name(options.compute_dtype)) + " compute");
    Results alone;
    for (const auto& one : requests) alone.push_back(generate(model, {one}, options).at(0));
    options.slots = 3;
    const Results batch = generate(model, requests, options);
    expect_equal(batch, alone);
    bool differs = false;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      differs = differs || batch[i].logprobs != exact[i].logprobs;
      // bf16 rounds by 2^-9. Some ten rounded operands lie between a token and its logits, whose
      // size is a few: an error of a few percent, a tenth at worst.
      if (batch[i].tokens[0] != exact[i].tokens[0]) continue;
      EXPECT_NEAR(batch[i].logprobs[0], exact[i].logprobs[0], 0.1) << i;
    }
    EXPECT_TRUE(differs);  // It really computed in another type.
  }
}

// Greedy tokens under the penalties of what was generated, from logits without any cache.
TEST_P(GeneratorOfBothKinds, FrequencyAndPresenceEqualTheirDefinition) {
  const Transformer model = test::lively_model(config(), test::device(2));
  GenerationRequest one =
      request(200, 25, {.temperature = 0.0f, .frequency_penalty = 1.1f, .presence_penalty = 0.6f});
  const GenerationResult result = generate(model, {one}).at(0);
  Ints sequence = one.prompt;
  std::vector<double> count(61);
  std::size_t changed = 0;
  for (const std::int32_t token : result.tokens) {
    const auto logits = test::evaluate(model, sequence, 1, sequence).logits;
    const std::span<const float> row = std::span(logits).last(61);
    std::vector<double> penalised(row.begin(), row.end());
    for (std::size_t i = 0; i < 61; ++i) {
      penalised[i] -= 1.1 * count[i] + 0.6 * (count[i] > 0 ? 1 : 0);
    }
    const auto best = std::max_element(penalised.begin(), penalised.end()) - penalised.begin();
    ASSERT_EQ(token, best) << sequence.size();
    if (std::max_element(row.begin(), row.end()) - row.begin() != best) ++changed;
    ++count[static_cast<std::size_t>(token)];
    sequence.push_back(token);
  }
  EXPECT_GT(changed, 0u);
}

TEST(Generator, TopLogprobsComeWithEveryToken) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  const auto requests = mixed_requests();
  const Results plain = generate(model, requests, {.slots = 3});
  Generator generator = must(Generator::create(model, {.slots = 3, .top_logprobs = 4}));
  std::size_t heard = 0;
  const Results results = must(generator.generate(requests, [&](const TokenEvent& event) {
    heard += event.top.size();
    return true;
  }));
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].tokens, plain[i].tokens);
    EXPECT_EQ(results[i].logprobs, plain[i].logprobs);
    EXPECT_TRUE(plain[i].top.empty());
    ASSERT_EQ(results[i].top.size(), results[i].tokens.size());
    for (std::size_t t = 0; t < results[i].top.size(); ++t) {
      ASSERT_EQ(results[i].top[t].size(), 4u);
      for (const TokenLogprob& one : results[i].top[t]) {
        const bool drawn = one.token == results[i].tokens[t];
        EXPECT_TRUE(!drawn || one.logprob == results[i].logprobs[t]);
        EXPECT_GE(results[i].top[t][0].logprob, one.logprob);
      }
      ++tokens;
    }
  }
  EXPECT_EQ(heard, 4 * tokens);
  test::expect_error(Generator::create(model, {.top_logprobs = 62}), ErrorCode::kInvalidArgument,
                     "62 log-probabilities a token; the vocabulary has 61");
  test::expect_error(Generator::create(model, {.top_logprobs = -1}), ErrorCode::kInvalidArgument,
                     "-1 log-probabilities");
}

// A conversation: each prompt is all that was said so far and something new.
TEST_P(GeneratorOfBothKinds, AReusedPrefixGivesTheSameTokens) {
  const Transformer model = test::lively_model(config(), test::device(2));
  for (const bool use_cache : {true, false}) {
    Generator talking =
        must(Generator::create(model, {.slots = 2, .use_cache = use_cache, .reuse_prefix = true}));
    Generator fresh = must(Generator::create(model, {}));
    GenerationRequest turn = request(40, 9, {.temperature = 0.9f, .seed = 5});
    for (const std::size_t words : {5, 30, 1, 70}) {
      const Results results = must(talking.generate({&turn, 1}));
      expect_equal(results, must(fresh.generate({&turn, 1})));
      const auto before = static_cast<std::int64_t>(turn.prompt.size());
      EXPECT_EQ(talking.timing().prompt_tokens, before);
      EXPECT_EQ(talking.timing().reused_tokens > 0, use_cache && before > 40);
      const Ints more = test::some_ids(words, 61, words);
      turn.prompt.insert(turn.prompt.end(), results[0].tokens.begin(), results[0].tokens.end());
      turn.prompt.insert(turn.prompt.end(), more.begin(), more.end());
    }
    // Another conversation takes the other slot; this one goes on where it was.
    GenerationRequest other = request(90, 3);
    must(talking.generate({&other, 1}));
    expect_equal(must(talking.generate({&turn, 1})), must(fresh.generate({&turn, 1})));
    EXPECT_EQ(talking.timing().reused_tokens > 100, use_cache);
  }
}

TEST(Generator, SeedsMatterAndRepeat) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  const auto with_seed = [&](std::uint64_t seed) {
    return generate(model, {request(10, 20, {.temperature = 1.5f, .seed = seed})}).at(0).tokens;
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
  EXPECT_NE(with_seed(1), with_seed(std::numeric_limits<std::uint64_t>::max()));
}

// Greedy tokens under a penalty, from the logits of the model without any cache.
TEST_P(GeneratorOfBothKinds, RepetitionPenaltyEqualsItsDefinition) {
  const Transformer model = test::lively_model(config(), test::device(2));
  const SamplingParams sampling{.temperature = 0.0f, .repetition_penalty = 2.5f};
  GenerationRequest one = request(300, 8, sampling);
  for (auto& id : one.prompt) id %= 40;  // Leave tokens that have not been seen.
  const GenerationResult result = generate(model, {one}).at(0);
  Ints sequence = one.prompt;
  std::size_t changed = 0;
  for (std::size_t step = 0; step < 8; ++step) {
    const auto logits = test::evaluate(model, sequence, 1, sequence).logits;
    const std::span<const float> row = std::span(logits).last(61);
    std::vector<double> penalised(row.begin(), row.end());
    for (const std::int32_t id : std::vector<std::int32_t>(sequence)) {
      const double x = static_cast<double>(row[static_cast<std::size_t>(id)]);
      penalised[static_cast<std::size_t>(id)] = x > 0 ? x / 2.5 : x * 2.5;
    }
    const auto best = std::max_element(penalised.begin(), penalised.end()) - penalised.begin();
    ASSERT_EQ(result.tokens.at(step), best) << step;
    if (std::max_element(row.begin(), row.end()) - row.begin() != best) ++changed;
    double sum = 0.0;
    for (const float x : row) sum += std::exp(static_cast<double>(x));
    EXPECT_NEAR(result.logprobs[step],
                static_cast<double>(row[static_cast<std::size_t>(best)]) - std::log(sum), 1e-4);
    sequence.push_back(result.tokens[step]);
  }
  EXPECT_GT(changed, 0u);  // The penalty had something to do.
}

TEST(Generator, RequestsAreChecked) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Generator generator = must(Generator::create(model, {.capacity = 30}));
  const auto refused = [&](const GenerationRequest& bad, const std::string& text) {
    const std::vector requests = {request(3, 1), bad};
    int events = 0;
    test::expect_error(generator.generate(requests, [&](const auto&) { return ++events > 0; }),
                       ErrorCode::kInvalidArgument, "request 1: " + text);
    EXPECT_EQ(events, 0);
  };
  refused(request(0, 1), "the prompt is empty");
  refused(request(31, 1), "the prompt has 31 tokens and the context holds 30");
  GenerationRequest shorter = request(11, 1);
  shorter.context = 10;
  refused(shorter, "the prompt has 11 tokens and the context holds 10");
  shorter.context = -1;
  refused(shorter, "context is -1");
  GenerationRequest bad = request(3, 1);
  bad.prompt[1] = 61;
  refused(bad, "token 1 of the prompt is 61; the vocabulary has ids 0 to 60");
  bad.prompt[1] = -1;
  refused(bad, "token 1 of the prompt is -1");
  refused(request(3, -1), "max_new_tokens is -1");
  refused(request(3, 1, {.top_p = 2.0f}), "sampling: top_p is 2");
  test::expect_error(Generator::create(model, {.slots = 0}), ErrorCode::kInvalidArgument,
                     "0 sequences");
}

// Otherwise a damaged model would give endless copies of token 0.
TEST(Generator, LogitsThatAreNotNumbersEndWithTheStepNamed) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Tensor norm = must(model.weight("transformer.ln_f.weight"));
  std::vector<float> values(32, 1.0f);
  for (const bool cached : {true, false}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      values[3] = bad;
      must(norm.write<float>(values));
      Generator generator = must(Generator::create(model, {.use_cache = cached}));
      for (const SamplingParams& sampling : {kGreedy, SamplingParams{.top_k = 5, .seed = 3}}) {
        const std::vector<GenerationRequest> requests = {request(5, 4, sampling)};
        std::size_t told = 0;
        test::expect_error(generator.generate(requests,
                                              [&](const TokenEvent&) {
                                                ++told;
                                                return true;
                                              }),
                           ErrorCode::kNonFinite, "request 0, step 0: the logits are not finite");
        EXPECT_EQ(told, 0u);
      }
    }
  }
  // Weights that go bad on the way: the step says when.
  values[3] = 1.0f;
  must(norm.write<float>(values));
  Generator generator = must(Generator::create(model, {}));
  const std::vector<GenerationRequest> requests = {request(5, 4)};
  const auto result = generator.generate(requests, [&](const TokenEvent&) {
    values[3] = std::numeric_limits<float>::quiet_NaN();
    return norm.write<float>(values).has_value();
  });
  test::expect_error(result, ErrorCode::kNonFinite, "request 0, step 1");
}

TEST(Generator, SamplingParamsAreChecked) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(validate(SamplingParams{}));
  EXPECT_TRUE(validate(kGreedy));
  const std::vector<std::pair<SamplingParams, std::string>> cases = {
      {{.temperature = -0.1f}, "temperature is -0.1"},
      {{.temperature = nan}, "temperature is nan; it must be 0 (greedy) or a positive number"},
      {{.temperature = infinity}, "temperature is inf"},
      {{.top_k = -1}, "top_k is -1"},
      {{.top_k = (1 << 24) + 1}, "top_k is 16777217; it must be 0 (off) to 16777216"},
      {{.top_p = 0.0f}, "top_p is 0"},
      {{.top_p = 1.5f}, "top_p is 1.5; it must be in (0, 1]"},
      {{.top_p = nan}, "top_p is nan"},
      {{.min_p = -0.5f}, "min_p is -0.5"},
      {{.min_p = 1.0f}, "min_p is 1; it must be in [0, 1)"},
      {{.min_p = nan}, "min_p is nan"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty is 0; it must be positive"},
      {{.repetition_penalty = infinity}, "repetition_penalty is inf"},
      {{.repetition_penalty = nan}, "repetition_penalty is nan"},
      {{.frequency_penalty = 2.5f}, "frequency_penalty is 2.5; it must be from -2 to 2"},
      {{.presence_penalty = nan}, "presence_penalty is nan"}};
  for (const auto& [params, text] : cases) {
    test::expect_error(validate(params), ErrorCode::kInvalidArgument, text);
  }
}

TEST(Generator, CapacityIsWhatARunNeeds) {
  TransformerConfig config = test::gpt2_config();  // Context 320.
  for (const auto& [tokens, capacity] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 64}, {1, 64}, {64, 64}, {65, 128}, {300, 320}, {1 << 30, 320}}) {
    EXPECT_EQ(capacity_for(config, tokens), capacity) << tokens;
  }
  config.context = 50;
  EXPECT_EQ(capacity_for(config, 3), 50);
}

TEST(Generator, MemoryIsKnownBeforeTheStart) {
  const Transformer model = test::lively_model(test::llama_config(), test::device(2));
  Generator generator =
      must(Generator::create(model, {.slots = 3, .capacity = 90, .cache_dtype = DType::kBF16}));
  const GeneratorMemory bare = generator.memory();
  EXPECT_EQ(bare.weight_bytes, 4 * model.parameter_count());
  EXPECT_EQ(bare.cache_bytes,
            must(TransformerKvCache::bytes_for(
                model.config(), {.slots = 3, .capacity = 90, .dtype = DType::kBF16})));
  EXPECT_EQ(bare.activation_bytes, 0);
  EXPECT_EQ(bare.plans, 0);
  must(generator.prepare(80));
  const GeneratorMemory before = generator.memory();
  EXPECT_GT(before.activation_bytes, 0);
  must(generator.generate(std::vector{request(80, 3)}));
  const GeneratorMemory after = generator.memory();
  EXPECT_EQ(after.activation_bytes, before.activation_bytes);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.plans, 5);  // The largest, a prompt's step of 128, and one, two or three tokens.
}

// From the second step on, between one token and the next.
TEST(Generator, StepsAllocateNothing) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  const Transformer model = test::lively_model(test::llama_config(), test::device(2));
  Generator generator = must(Generator::create(model, {.slots = 3}));
  const SamplingParams sampling{.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .seed = 1};
  const std::vector requests = {request(30, 40, sampling), request(9, 40), request(1, 40)};
  std::vector<std::int64_t> counts;
  counts.reserve(200);
  must(generator.generate(requests, [&](const TokenEvent&) {
    counts.push_back(test::allocation_count());
    return true;
  }));
  ASSERT_EQ(counts.size(), 120u);
  // 3 first tokens, then the first step's. A GPU records a plan at its second run.
  EXPECT_EQ(counts.back() - counts[test::on_gpu() ? 9 : 3], 0);
}

// A token with the cache takes less than a third of the time that it takes without one.
TEST(Generator, TheCachePaysOff) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "sanitizers distort time";
  if (test::on_gpu()) GTEST_SKIP() << "a GPU computes 256 small rows in the time of one";
  const Transformer model = must(Transformer::random(tiny_lm_config(), 1, test::device(2)));
  const auto median = [&](bool use_cache) {
    Generator generator = must(Generator::create(model, {.use_cache = use_cache}));
    must(generator.generate(std::vector{request(252, 8)}));  // Positions 252 to 259.
    auto times = generator.timing().token_seconds;
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times.at(3);
  };
  EXPECT_LT(3.0 * median(true), median(false));
}

}  // namespace
}  // namespace volta
