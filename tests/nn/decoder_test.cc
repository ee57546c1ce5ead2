// Decoder: slots, windows, pages, faults, and that a running decoder allocates nothing.
#include "nn/decoder.h"

#include <algorithm>
#include <cmath>

#include "device/profiling_device.h"
#include "nn/helpers.h"
#include "support/alloc_counter.h"
#include "support/async_device.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::must;

constexpr SamplingRow kGreedy = {0.0f, 0.0f, 1.0f, 0.0f, 1.0f};

TEST(Decoder, StepsContinueWhatPrefillBegan) {
  const Transformer model = test::lively_model(test::llama_config(), test::device(2));
  Decoder decoder = must(Decoder::create(model, {.slots = 2, .capacity = 40}));
  EXPECT_EQ(decoder.slots(), 2);
  EXPECT_EQ(decoder.capacity(), 40);
  EXPECT_EQ(decoder.model().config(), model.config());
  auto ids = test::some_ids(20, 61);
  DrawnToken next = must(decoder.prefill(1, ids, kGreedy, {}));
  for (int i = 0; i < 10; ++i) {
    must(decoder.set_next(1, next.token, kGreedy, {}));
    must(decoder.step());
    ids.push_back(next.token);
    next = must(decoder.drawn(1));
    EXPECT_EQ(must(decoder.drawn(0)).token, -1);  // Nobody feeds slot 0.
    Decoder fresh = must(Decoder::create(model, {}));
    const DrawnToken again = must(fresh.prefill(0, ids, kGreedy, {}));
    EXPECT_EQ(next.token, again.token);
    EXPECT_EQ(next.logprob, again.logprob);
  }
  EXPECT_EQ(decoder.cache().length(1), 30);
  EXPECT_EQ(decoder.cache().length(0), 0);
  must(decoder.set_idle(1));
  must(decoder.step());
  EXPECT_EQ(decoder.cache().length(1), 30);
  EXPECT_EQ(must(decoder.drawn(1)).token, -1);
}

// A slot goes on from what it holds of a longer, a shorter and a different prompt.
TEST(Decoder, ExtendingGivesTheBitsOfAFreshPrefill) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    const Transformer model = test::lively_model(config, test::device(2));
    Decoder decoder = must(Decoder::create(model, {.slots = 2}));
    Decoder fresh = must(Decoder::create(model, {}));
    auto ids = test::some_ids(300, 61);
    const auto check = [&](std::span<const std::int32_t> prompt, std::int64_t reused) {
      EXPECT_EQ(decoder.reusable(1, prompt), reused);
      const DrawnToken wanted = must(fresh.prefill(0, prompt, kGreedy, {}));
      const DrawnToken drawn = must(decoder.extend(1, prompt, kGreedy, {}));
      EXPECT_EQ(drawn.token, wanted.token);
      EXPECT_EQ(drawn.logprob, wanted.logprob);
      EXPECT_EQ(decoder.cache().length(1), static_cast<std::int64_t>(prompt.size()));
    };
    const std::span all(ids);
    check(all.first(100), 0);
    must(decoder.set_next(1, ids[100], kGreedy, {}));
    must(decoder.step());
    check(all.first(290), 101);
    check(all.first(290), 289);  // The last one runs in any case.
    check(all.first(33), 32);
    ids[20] = (ids[20] + 1) % 61;
    check(all.first(299), 20);
    EXPECT_EQ(decoder.reusable(0, all), 0);
    EXPECT_EQ(decoder.reusable(2, all), 0);
    EXPECT_EQ(decoder.reusable(1, {}), 0);
  }
}

// Long after a window's first pages were given back, beside a slot of another length: what an
// evaluation without any cache gives, and the bits of a prefill in other steps.
TEST(Decoder, WindowsGiveWhatNoCacheGives) {
  TransformerConfig config = test::llama_config();
  config.context = 1200;
  for (const std::int32_t window : {5, 64, 70, 300}) {
    for (const bool mixed : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (mixed ? " mixed" : ""));
      config.window = window;
      config.full_layers = mixed ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{};
      const Transformer model = test::lively_model(config, test::device(2));
      Decoder decoder = must(Decoder::create(model, {.slots = 2}));
      auto ids = test::some_ids(1000, 61);
      const auto expect_evaluation = [&](const DrawnToken& drawn) {
        const auto logits = test::evaluate(model, ids, 1, ids).logits;
        const std::span<const float> row = std::span(logits).last(61);
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        EXPECT_EQ(drawn.token, best);
        double sum = 0.0;
        for (const float x : row) sum += std::exp(static_cast<double>(x));
        EXPECT_NEAR(drawn.logprob,
                    static_cast<double>(row[static_cast<std::size_t>(best)]) - std::log(sum), 1e-5);
      };
      const auto other = test::some_ids(300, 61, 8);
      must(decoder.prefill(0, other, kGreedy, {}));
      DrawnToken next = must(decoder.prefill(1, ids, kGreedy, {}));
      expect_evaluation(next);
      for (int i = 0; i < 70; ++i) {
        must(decoder.set_next(1, next.token, kGreedy, {}));
        ids.push_back(next.token);
        must(decoder.step());
        next = must(decoder.drawn(1));
      }
      expect_evaluation(next);
      // A prefill over the same tokens, in other chunks: the same bits.
      Decoder fresh = must(Decoder::create(model, {}));
      const DrawnToken again = must(fresh.prefill(0, ids, kGreedy, {}));
      EXPECT_EQ(again.token, next.token);
      EXPECT_EQ(again.logprob, next.logprob);
      // Back by a little, and by more than a window keeps.
      const std::span all(ids);
      const std::int64_t little = decoder.reusable(1, all.first(1050));
      EXPECT_EQ(little, 1049);
      EXPECT_EQ(decoder.reusable(1, all.first(100)), 0);
      for (const std::size_t length : {1050u, 100u}) {
        const DrawnToken back = must(decoder.extend(1, all.first(length), kGreedy, {}));
        const DrawnToken wanted = must(fresh.prefill(0, all.first(length), kGreedy, {}));
        EXPECT_EQ(back.token, wanted.token);
        EXPECT_EQ(back.logprob, wanted.logprob);
      }
    }
  }
}

TEST(Decoder, TellsTheLikeliestTokens) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(2));
  Decoder decoder = must(Decoder::create(model, {.slots = 2, .top = 3}));
  Decoder plain = must(Decoder::create(model, {.slots = 2}));
  const auto ids = test::some_ids(40, 61);
  DrawnToken drawn = must(decoder.prefill(1, ids, kGreedy, {}));
  const DrawnToken same = must(plain.prefill(1, ids, kGreedy, {}));
  EXPECT_EQ(drawn.token, same.token);
  EXPECT_TRUE(same.top.empty());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(drawn.top.size(), 3u);
    EXPECT_EQ(drawn.top[0], (TokenLogprob{drawn.token, drawn.logprob}));
    EXPECT_GE(drawn.top[0].logprob, drawn.top[1].logprob);
    EXPECT_GE(drawn.top[1].logprob, drawn.top[2].logprob);
    must(decoder.set_next(1, drawn.token, kGreedy, {}));
    must(decoder.step());
    drawn = must(decoder.drawn(1));
  }
}

// A device may run several calls of a step at once, but not if something listens to each.
TEST(Decoder, StepsThatAreWatchedGiveTheSameBits) {
  TransformerConfig config = test::llama_config();
  config.dim = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 64;
  config.ffn = 256;
  const auto ids = test::some_ids(70, config.vocab_size);
  for (const Quant quant : {Quant::kNone, Quant::kInt8, Quant::kInt4}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      std::vector<DrawnToken> wanted;
      for (const bool watched : {true, false}) {
        std::shared_ptr<Device> device = test::device(2);
        if (watched) device = must(ProfilingDevice::create(device));
        Transformer model = test::lively_model(config, device);
        must(model.prepack({.dtype = dtype, .quant = quant}));
        Decoder decoder = must(
            Decoder::create(model, {.slots = 1, .cache_dtype = dtype, .compute_dtype = dtype}));
        std::vector<DrawnToken> drawn = {must(decoder.prefill(0, ids, kGreedy, {}))};
        for (int i = 0; i < 8; ++i) {
          must(decoder.set_next(0, drawn.back().token, kGreedy, {}));
          must(decoder.step());
          drawn.push_back(must(decoder.drawn(0)));
        }
        if (watched) wanted = drawn;
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          EXPECT_EQ(drawn[i].token, wanted[i].token) << i << " " << dtype_name(dtype);
          EXPECT_EQ(drawn[i].logprob, wanted[i].logprob) << i << " " << dtype_name(dtype);
        }
      }
    }
  }
}

TEST(Decoder, FeedsASlotOnlyWhatWasSetSinceTheLastStep) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Decoder decoder = must(Decoder::create(model, {.slots = 2}));
  must(decoder.prefill(0, test::some_ids(3, 61), kGreedy, {}));
  must(decoder.set_next(0, 5, kGreedy, {}));
  must(decoder.step());
  EXPECT_EQ(decoder.cache().length(0), 4);
  must(decoder.step());
  EXPECT_EQ(decoder.cache().length(0), 4);
  must(decoder.set_next(0, 6, kGreedy, {}));
  must(decoder.step());
  EXPECT_EQ(decoder.cache().length(0), 5);
  EXPECT_EQ(decoder.cache().length(1), 0);
}

TEST(Decoder, RefusesWhatDoesNotFit) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  const auto invalid = ErrorCode::kInvalidArgument;
  test::expect_error(Decoder::create(model, {.slots = 0}), invalid, "0 sequences");
  test::expect_error(Decoder::create(model, {.capacity = 321}), invalid, "321 tokens");
  test::expect_error(Decoder::create(model, {.capacity = -1}), invalid, "-1 tokens");
  test::expect_error(Decoder::create(model, {.cache_dtype = DType::kI32}), invalid, "i32");
  Decoder decoder = must(Decoder::create(model, {.slots = 2, .capacity = 12}));
  test::expect_error(decoder.drawn(0), ErrorCode::kInternal, "no step has run");
  must(decoder.set_idle(1));
  test::expect_error(decoder.prefill(0, {}, kGreedy, {}), invalid, "a prompt of 0 tokens");
  test::expect_error(decoder.prefill(0, test::some_ids(13, 61), kGreedy, {}), invalid,
                     "a prompt of 13 tokens; it must be between 1 and 12");
  const auto ids = test::some_ids(12, 61);
  for (const std::int64_t slot : {-1, 2}) {
    test::expect_error(decoder.extend(slot, ids, kGreedy, {}), invalid, "no slot");
    test::expect_error(decoder.prefill(slot, ids, kGreedy, {}), invalid, "no slot");
    test::expect_error(decoder.set_next(slot, 1, kGreedy, {}), invalid, "no slot");
    test::expect_error(decoder.set_idle(slot), invalid, "no slot");
    test::expect_error(decoder.set_counts(slot, ids), invalid, "no slot");
  }
  must(decoder.prefill(0, ids, kGreedy, {}));
  test::expect_error(decoder.set_next(0, 1, kGreedy, {}), invalid, "slot 0 is full");
  must(decoder.set_next(1, 1, kGreedy, {}));  // The other one goes on.
  must(decoder.step());
  EXPECT_FALSE(decoder.drawn(2));
  // A piece with an id that is none is the device's error, and the slot can be filled again.
  test::expect_error(decoder.prefill(0, std::vector<std::int32_t>{61}, kGreedy, {}), invalid,
                     "Embedding");
  must(decoder.prefill(0, ids, kGreedy, {}));
}

// Frequencies that depend on the length: prompts longer than the original context read a table of
// their own, one after another, while others are decoded from the other one.
TEST(Decoder, RotationsThatDependOnTheLengthAreEachSequencesOwn) {
  TransformerConfig config = test::llama_config();
  config.rope_scaling = {.kind = RopeKind::kDynamic, .factor = 2.0, .original = 100};
  const Transformer model = test::lively_model(config, test::device(2));
  Decoder alone = must(Decoder::create(model, {}));
  Decoder decoder = must(Decoder::create(model, {.slots = 4}));
  const std::array<std::size_t, 4> lengths = {20, 300, 150, 280};
  std::vector<std::vector<DrawnToken>> wanted(4), drawn(4);
  for (std::size_t slot = 0; slot < 4; ++slot) {
    const auto ids = test::some_ids(lengths.at(slot), 61, slot);
    wanted[slot].push_back(must(alone.prefill(0, ids, kGreedy, {})));
    for (int i = 0; i < 9; ++i) {
      must(alone.set_next(0, wanted[slot].back().token, kGreedy, {}));
      must(alone.step());
      wanted[slot].push_back(must(alone.drawn(0)));
    }
    must(decoder.begin(static_cast<std::int64_t>(slot), ids, kGreedy, {}));
  }
  for (int step = 0; step < 100; ++step) {
    must(decoder.step());
    for (std::size_t slot = 0; slot < 4; ++slot) {
      const auto place = static_cast<std::int64_t>(slot);
      const DrawnToken one = must(decoder.drawn(place));
      if (one.token < 0) continue;
      drawn[slot].push_back(one);
      if (drawn[slot].size() < 10) must(decoder.set_next(place, one.token, kGreedy, {}));
    }
  }
  for (std::size_t slot = 0; slot < 4; ++slot) {
    ASSERT_EQ(drawn[slot].size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(drawn[slot][i].token, wanted[slot][i].token) << slot << " " << i;
      EXPECT_EQ(drawn[slot][i].logprob, wanted[slot][i].logprob) << slot << " " << i;
    }
  }
}

TEST(Decoder, TellsWhenNoPageIsFree) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Decoder decoder = must(Decoder::create(model, {.slots = 2, .pages = 4}));
  const auto ids = test::some_ids(320, 61);
  const std::span all(ids);
  must(decoder.prefill(0, all.first(192), kGreedy, {}));
  const auto none = ErrorCode::kOutOfMemory;
  test::expect_error(decoder.begin(1, all.first(65), kGreedy, {}), none,
                     "too few free pages for slot 1: 1 of 64 tokens are left");
  EXPECT_EQ(decoder.waiting(1), 0);
  must(decoder.begin(1, all.first(64), kGreedy, {}));
  test::expect_error(decoder.set_next(0, 1, kGreedy, {}), none, "for slot 0: 0 of 64 tokens");
  must(decoder.step());  // The other one goes on.
  EXPECT_EQ(decoder.cache().length(0), 192);
  EXPECT_EQ(decoder.cache().length(1), 64);
  must(decoder.forget(1));
  must(decoder.set_next(0, 1, kGreedy, {}));
  must(decoder.step());
  EXPECT_EQ(decoder.cache().length(0), 193);
}

// A slot that got its pages when it began has them to its end, whatever others ask for.
TEST(Decoder, ASlotKeepsThePagesItBeganWith) {
  const Transformer model = test::lively_model(test::gpt2_config(), test::device(1));
  Decoder decoder = must(Decoder::create(model, {.slots = 2, .pages = 4}));
  const auto nobody = [](std::int64_t) { return false; };
  const auto ids = test::some_ids(130, 61);
  const std::span all(ids);
  ASSERT_TRUE(decoder.has_room(0, 192, nobody));
  must(decoder.begin(0, all.first(60), kGreedy, {}, 192));
  EXPECT_FALSE(decoder.has_room(1, 65, nobody));
  EXPECT_TRUE(decoder.has_room(1, 65, [](std::int64_t slot) { return slot == 0; }));
  EXPECT_FALSE(decoder.has_room(2, 1, nobody));  // There is no such slot.
  test::expect_error(decoder.begin(1, all.first(65), kGreedy, {}), ErrorCode::kOutOfMemory,
                     "1 of 64 tokens are left");
  must(decoder.begin(1, all.first(64), kGreedy, {}));
  must(decoder.step());
  for (std::int32_t n = 0; n < 132; ++n) {  // Positions 60 to 191.
    must(decoder.set_next(0, n % 61, kGreedy, {}));
    must(decoder.step());
  }
  EXPECT_EQ(decoder.cache().length(0), 192);
  test::expect_error(decoder.set_next(0, 1, kGreedy, {}), ErrorCode::kOutOfMemory, "for slot 0");
  must(decoder.begin(0, all.first(10), kGreedy, {}, 192));
  must(decoder.step());
  must(decoder.set_idle(0));  // What it did not use is free.
  EXPECT_TRUE(decoder.has_room(1, 192, nobody));
}

TEST(Decoder, AStepAllocatesNothing) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    const Transformer model = test::lively_model(config, test::device(2));
    Decoder decoder = must(Decoder::create(model, {.slots = 3}));
    const SamplingRow sampling = {0.8f, 40.0f, 0.9f, 0.01f, 1.1f};
    std::array<std::int32_t, 3> token = {1, 2, 3};
    const auto step = [&](std::int64_t n) {
      bool ok = true;
      for (std::int64_t slot = 0; slot < 3; ++slot) {
        ok = ok &&
             decoder.set_next(slot, token.at(static_cast<std::size_t>(slot)), sampling, {slot, n});
      }
      ok = ok && decoder.step();
      for (std::int64_t slot = 0; slot < 3; ++slot) {
        const auto drawn = decoder.drawn(slot);
        ok = ok && drawn;
        if (ok) token.at(static_cast<std::size_t>(slot)) = drawn->token;
      }
      return ok;
    };
    // A GPU records the plan in its second run.
    ASSERT_TRUE(step(0) && step(1));
    test::AllocationCounter counter;
    bool ok = true;
    for (std::int64_t n = 2; n < 20; ++n) ok = step(n) && ok;
    const std::int64_t allocations = counter.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocations, 0);
  }
}

// SmolLM 3 may have no layer that rotates. Then there is no table, whatever the scaling.
TEST(Decoder, RunsAModelWithoutRotations) {
  TransformerConfig config = test::llama_config();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    config.unrotated_layers.push_back(layer);
  }
  for (const RopeKind kind : {RopeKind::kDefault, RopeKind::kDynamic}) {
    config.rope_scaling = {.kind = kind, .factor = 2.0, .original = 8};
    if (kind == RopeKind::kDefault) config.rope_scaling = {};
    const Transformer model = test::lively_model(config, test::device(2));
    Decoder decoder = must(Decoder::create(model, {}));
    Decoder fresh = must(Decoder::create(model, {}));
    auto ids = test::some_ids(12, 61);
    DrawnToken next = must(decoder.prefill(0, ids, kGreedy, {}));
    for (int i = 0; i < 6; ++i) {
      must(decoder.set_next(0, next.token, kGreedy, {}));
      must(decoder.step());
      ids.push_back(next.token);
      next = must(decoder.drawn(0));
      const DrawnToken wanted = must(fresh.prefill(0, ids, kGreedy, {}));
      EXPECT_EQ(next.token, wanted.token);
      EXPECT_EQ(next.logprob, wanted.logprob);
    }
  }
}

// On a device that works by itself, in memory that the host cannot touch: the same tokens. A step
// copies one block to the device and one back, whatever the number of slots, and allocates nothing
// there.
TEST(Decoder, WorksOnAnAsynchronousDevice) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    const auto async = std::make_shared<test::AsyncDevice>(test::cpu(1));
    const DecoderOptions options{.slots = 3, .top = 2};
    Decoder there = must(Decoder::create(test::lively_model(config, async), options));
    Decoder here = must(Decoder::create(test::lively_model(config, test::cpu(1)), options));
    auto ids = test::some_ids(70, 61);
    std::array<std::int32_t, 2> token{};
    for (const std::int64_t slot : {0, 2}) {
      const SamplingRow sampling = {0.8f, 40.0f, 0.9f, 0.01f, 1.1f};
      must(here.set_counts(slot, ids));
      must(there.set_counts(slot, ids));
      const DrawnToken wanted = must(here.prefill(slot, ids, sampling, {1, slot}));
      const DrawnToken drawn = must(there.prefill(slot, ids, sampling, {1, slot}));
      EXPECT_EQ(drawn.token, wanted.token);
      EXPECT_EQ(drawn.logprob, wanted.logprob);
      EXPECT_EQ(drawn.top, wanted.top);
      token.at(static_cast<std::size_t>(slot / 2)) = drawn.token;
      ids.resize(33);
    }
    auto& memory = async->async_memory();
    std::int64_t to = 0, from = 0, waits = 0, allocations = 0;
    for (int n = 0; n < 6; ++n) {
      to = memory.copies_from_host;
      from = memory.copies_to_host;
      waits = async->queue().waits;
      allocations = memory.allocations;
      for (const std::int64_t slot : {0, 2}) {
        const std::int32_t next = token.at(static_cast<std::size_t>(slot / 2));
        must(here.set_next(slot, next, kGreedy, {}));
        must(there.set_next(slot, next, kGreedy, {}));
      }
      must(here.step());
      must(there.step());
      for (const std::int64_t slot : {0, 2}) {
        const DrawnToken wanted = must(here.drawn(slot)), drawn = must(there.drawn(slot));
        EXPECT_EQ(drawn.token, wanted.token);
        EXPECT_EQ(drawn.logprob, wanted.logprob);
        EXPECT_EQ(drawn.top, wanted.top);
        token.at(static_cast<std::size_t>(slot / 2)) = drawn.token;
      }
      if (n == 0) continue;  // The first one loads the plan.
      EXPECT_EQ(memory.copies_from_host, to + 1);
      EXPECT_EQ(memory.copies_to_host, from + 1);
      EXPECT_EQ(async->queue().waits, waits + 1);
      EXPECT_EQ(memory.allocations, allocations);
    }
    EXPECT_GT(async->overtakes(), 0);
  }
}

// A failure that shows only when the results are fetched leaves the decoder as good as before.
TEST(Decoder, SurvivesLateFailures) {
  TransformerConfig config = test::llama_config();
  config.layers = 1;
  const auto faulty = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto async = std::make_shared<test::AsyncDevice>(faulty);
  Decoder decoder = must(Decoder::create(test::lively_model(config, async), {}));
  const auto ids = test::some_ids(80, 61);
  const DrawnToken first = must(decoder.prefill(0, ids, kGreedy, {}));
  must(decoder.set_next(0, first.token, kGreedy, {}));
  must(decoder.step());
  const DrawnToken second = must(decoder.drawn(0));
  const auto steps = static_cast<std::int64_t>(faulty->runs());
  const auto longer = test::some_ids(300, 61);
  for (const std::int64_t nth : {std::int64_t{3}, steps / 2 - 1, steps / 2 + 4}) {
    faulty->run_fuse.arm(nth);  // In the first piece, and in the second: what ran before stays.
    test::expect_error(decoder.prefill(0, longer, kGreedy, {}), ErrorCode::kDevice, "injected");
    EXPECT_EQ(decoder.cache().length(0), nth < steps / 2 ? 0 : 256);
    EXPECT_EQ(decoder.waiting(0), 0);
  }
  EXPECT_EQ(must(decoder.prefill(0, ids, kGreedy, {})).token, first.token);
  must(decoder.set_next(0, first.token, kGreedy, {}));
  faulty->run_fuse.arm(7);
  test::expect_error(decoder.step(), ErrorCode::kDevice, "injected");
  EXPECT_EQ(decoder.cache().length(0), 80);
  must(decoder.step());  // The same token once more.
  EXPECT_EQ(must(decoder.drawn(0)).token, second.token);
}

// Any allocation, copy or kernel may fail: an error comes back, and the decoder is good as ever.
TEST(Decoder, SurvivesEveryFault) {
  TransformerConfig config = test::llama_config();
  config.layers = 1;
  const auto ids = test::some_ids(17, 61);
  const auto use = [&](Decoder& decoder) -> Result<std::int32_t> {
    VOLTA_TRY(decoder.set_idle(0));
    VOLTA_TRY(decoder.set_counts(0, ids));
    VOLTA_TRY(const DrawnToken first, decoder.prefill(0, ids, kGreedy, {}));
    VOLTA_TRY(decoder.set_next(0, first.token, kGreedy, {}));
    VOLTA_TRY(decoder.step());
    VOLTA_TRY(const DrawnToken second, decoder.drawn(0));
    return first.token * 1000 + second.token;
  };
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  const Transformer model = test::lively_model(config, device);
  Decoder reference = must(Decoder::create(model, {}));
  const std::int32_t wanted = must(use(reference));
  {
    Decoder host = must(Decoder::create(test::lively_model(config, test::cpu(1)), {}));
    EXPECT_EQ(must(use(host)), wanted);
  }
  auto& memory = device->faulty_memory();
  const std::int64_t live = memory.live_bytes();
  for (test::Fuse* fuse : {&memory.allocation_fuse, &memory.copy_fuse, &device->run_fuse}) {
    std::int64_t faults = 0;
    for (bool done = false; !done; ++faults) {
      fuse->arm(faults + 1);
      auto decoder = Decoder::create(model, {});
      if (!decoder) continue;
      const auto result = use(*decoder);
      fuse->arm(0);
      done = result.has_value();
      const auto again = use(*decoder);
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(*again, wanted);
    }
    EXPECT_GT(faults, 7);
    EXPECT_EQ(memory.live_bytes(), live);
  }
}

}  // namespace
}  // namespace volta
