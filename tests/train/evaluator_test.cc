#include "train/evaluator.h"

#include <cmath>

#include "graph/passes.h"
#include "nn/transformer_graph.h"
#include "support/fault_device.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

Transformer small_model(const std::shared_ptr<Device>& device) {
  return *Transformer::random(test::small_config(), 1, device);
}

TEST(Evaluator, MeansOverAllWindowsDoNotDependOnTheBatch) {
  const auto model = small_model(test::device(2));
  const auto tokens = test::small_tokens(8 * 7 + 1 + 5);  // Seven windows and a rest.
  std::vector<double> losses;
  for (const std::int64_t batch : {1, 3, 7, 20}) {
    auto evaluator = Evaluator::create(model, batch, 8);
    ASSERT_TRUE(evaluator) << evaluator.error().message();
    EXPECT_GT(evaluator->activation_bytes(), 0);
    const auto loss = evaluator->mean_loss(*tokens);
    ASSERT_TRUE(loss);
    losses.push_back(*loss);
  }
  // Rows are the same bits in any batch, and are added in the same order.
  for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
  EXPECT_NEAR(losses[0], std::log(13.0), 0.1);
}

TEST(Evaluator, LeavesTheRestOut) {
  auto evaluator = Evaluator::create(small_model(test::device(1)), 2, 8);
  ASSERT_TRUE(evaluator);
  const auto tokens = test::small_tokens(30);
  const std::span<const std::int32_t> all(*tokens);
  EXPECT_EQ(*evaluator->mean_loss(all), *evaluator->mean_loss(all.first(25)));
  EXPECT_NE(*evaluator->mean_loss(all), *evaluator->mean_loss(all.first(24)));
  expect_error(evaluator->mean_loss(all.first(8)), ErrorCode::kInvalidArgument,
               "8 tokens; a context of 8 needs at least 9");
  expect_error(evaluator->mean_loss(all.first(0)), ErrorCode::kInvalidArgument, "0 tokens");
}

// Each token alone, from exactly the inputs that its window has.
TEST(Evaluator, EveryTokenIsScoredOnceFromItsWindow) {
  const auto model = small_model(test::device(1));
  const auto all = test::small_tokens(29);
  const std::span<const std::int32_t> tokens(*all);
  const auto loss_of = [&](std::size_t begin, std::size_t target) {
    auto scorer = SequenceScorer::create(
        model, {.score = Score::kLoss, .time = static_cast<std::int64_t>(target - begin)});
    std::vector<std::int32_t> targets(target - begin, -1);
    targets.back() = tokens[target];
    std::vector<float> losses(targets.size());
    EXPECT_TRUE(scorer->losses(tokens.subspan(begin, target - begin), targets, losses));
    return static_cast<double>(losses.back());
  };
  auto evaluator = Evaluator::create(model, 3, 8);
  ASSERT_TRUE(evaluator);
  for (const std::size_t length : {2u, 8u, 9u, 10u, 24u, 25u, 29u}) {
    for (const std::size_t stride : {1u, 3u, 8u}) {
      double nats = 0.0;
      std::size_t windows = 0;
      for (std::size_t begin = 0, next = 1; next < length; begin += stride, ++windows) {
        for (; next <= begin + 8 && next < length; ++next) nats += loss_of(begin, next);
      }
      const auto score = evaluator->score(tokens.first(length), static_cast<std::int64_t>(stride));
      ASSERT_TRUE(score) << score.error().message();
      EXPECT_NEAR(score->nats, nats, 1e-9) << length << " " << stride;
      EXPECT_EQ(score->tokens, static_cast<std::int64_t>(length - 1));
      EXPECT_EQ(score->windows, static_cast<std::int64_t>(windows));
    }
  }
  expect_error(evaluator->score(tokens.first(1), 8), ErrorCode::kInvalidArgument, "1 tokens");
  expect_error(evaluator->score(tokens, 0), ErrorCode::kInvalidArgument,
               "from 1 to the window's 8");
  expect_error(evaluator->score(tokens, 9), ErrorCode::kInvalidArgument, "in steps of 9");
  const std::vector<std::int32_t> foreign = {1, 13, 2};
  expect_error(evaluator->score(foreign, 8), ErrorCode::kInvalidArgument,
               "token 1 is 13; the model's vocabulary has ids 0 to 12");
}

TEST(Evaluator, TellsHowFarItIs) {
  auto evaluator = Evaluator::create(small_model(test::device(1)), 2, 8);
  ASSERT_TRUE(evaluator);
  std::vector<std::int64_t> done;
  const auto score = evaluator->score(*test::small_tokens(8 * 5 + 1), 8,
                                      [&](const TextScore& so_far, std::int64_t n) {
                                        EXPECT_EQ(n, 5);
                                        EXPECT_EQ(so_far.tokens, 8 * so_far.windows);
                                        done.push_back(so_far.windows);
                                        return true;
                                      });
  ASSERT_TRUE(score);
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 2, 4}));
}

TEST(Evaluator, EstimatesOverRandomWindows) {
  auto evaluator = Evaluator::create(small_model(test::device(1)), 2, 8);
  ASSERT_TRUE(evaluator);
  const auto source = RandomWindows::create(test::small_tokens(200), 8, 1, kEvaluationStream);
  const auto first = evaluator->mean_loss(*source, 3, 4);
  ASSERT_TRUE(first);
  EXPECT_EQ(*evaluator->mean_loss(*source, 3, 4), *first);
  EXPECT_NE(*evaluator->mean_loss(*source, 4, 4), *first);
  expect_error(evaluator->mean_loss(*source, 3, 0), ErrorCode::kInvalidArgument, "0 batches");
}

TEST(Evaluator, SeesEveryUpdateOfTheModel) {
  const auto model = small_model(test::device(1));
  auto evaluator = Evaluator::create(model, 2, 8);
  auto trainer = Trainer::create(model, test::small_options());
  ASSERT_TRUE(evaluator && trainer);
  const auto tokens = test::small_tokens(300);
  const auto source = RandomWindows::create(tokens, 8, 1);
  const double before = *evaluator->mean_loss(*tokens);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(trainer->step(*source));
  EXPECT_LT(*evaluator->mean_loss(*tokens), before - 0.1);
}

TEST(Evaluator, ALossThatIsNotANumberIsAnError) {
  const auto model = small_model(test::device(1));
  Tensor norm = *model.weight("transformer.ln_f.weight");
  ASSERT_TRUE(norm.write<float>(std::vector<float>(16, std::nanf(""))));
  auto evaluator = Evaluator::create(model, 2, 8);
  ASSERT_TRUE(evaluator);
  const auto tokens = test::small_tokens(200);
  expect_error(evaluator->mean_loss(*tokens), ErrorCode::kNonFinite,
               "the mean loss over 192 tokens is nan");
  const auto source = RandomWindows::create(tokens, 8, 1, kEvaluationStream);
  expect_error(evaluator->mean_loss(*source, 3, 4), ErrorCode::kNonFinite, "over 64 tokens");
}

TEST(Evaluator, StopsWhenAsked) {
  auto evaluator = Evaluator::create(small_model(test::device(1)), 2, 8);
  ASSERT_TRUE(evaluator);
  const auto tokens = test::small_tokens(8 * 7 + 1);
  int asked = 0;
  expect_error(evaluator->mean_loss(*tokens, [&] { return ++asked == 3; }), ErrorCode::kInterrupted,
               "interrupted after 4 of 7 windows");
  asked = 10;
  EXPECT_EQ(*evaluator->mean_loss(*tokens, [&] { return ++asked == 3; }),
            *evaluator->mean_loss(*tokens));
  EXPECT_EQ(asked, 14);
}

TEST(Evaluator, RefusesWhatCannotWorkAndPassesFailuresOn) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  const auto model = small_model(device);
  for (const auto& [batch, time] : {std::pair{0, 8}, {1, 0}, {1, 9}}) {
    expect_error(Evaluator::create(model, batch, time), ErrorCode::kInvalidArgument,
                 "sequences of");
  }
  auto evaluator = Evaluator::create(model, 2, 8);
  ASSERT_TRUE(evaluator);
  const auto tokens = test::small_tokens(100);
  for (std::int64_t nth = 1; nth <= 4; ++nth) {  // ids, targets, rows, losses.
    device->faulty_memory().copy_fuse.arm(nth);
    EXPECT_FALSE(evaluator->mean_loss(*tokens));
  }
  device->faulty_memory().copy_fuse.arm(0);
  EXPECT_TRUE(evaluator->mean_loss(*tokens));
}

TEST(Evaluator, IsInterruptedWithinABatch) {
  bool stop = false;
  const auto device = CpuDevice::create({.threads = 1, .interrupted = [&] { return stop; }});
  ASSERT_TRUE(device);
  auto evaluator = Evaluator::create(small_model(*device), 4, 8);
  ASSERT_TRUE(evaluator);
  const auto tokens = test::small_tokens(8 * 4 + 1);
  ASSERT_TRUE(evaluator->mean_loss(*tokens));
  stop = true;
  expect_error(evaluator->mean_loss(*tokens), ErrorCode::kInterrupted,
               "interrupted after 0 of 4 windows");
}

// Rows without padding are the windows of a text; masked targets are left out of the mean.
TEST(Evaluator, RowsCountTheirTargetsOnly) {
  const auto model = small_model(test::device(1));
  const auto tokens = test::small_tokens(8 * 5 + 1);
  auto evaluator = Evaluator::create(model, 2, 8);
  ASSERT_TRUE(evaluator);
  LabelledRows rows{.ids = {tokens->begin(), tokens->end() - 1},
                    .targets = {tokens->begin() + 1, tokens->end()},
                    .count = 5,
                    .time = 8};
  const double whole = *evaluator->mean_loss(*tokens);
  EXPECT_EQ(*evaluator->mean_loss(rows, 5), whole);
  EXPECT_EQ(*evaluator->mean_loss(rows, 100), whole);
  const std::span<const std::int32_t> all(*tokens);
  EXPECT_EQ(*evaluator->mean_loss(rows, 3), *evaluator->mean_loss(all.first(25)));
  for (std::size_t i = 8; i < rows.targets.size(); ++i) rows.targets[i] = -1;
  EXPECT_EQ(*evaluator->mean_loss(rows, 5), *evaluator->mean_loss(all.first(9)));
  rows.targets.assign(rows.targets.size(), -1);
  expect_error(evaluator->mean_loss(rows, 5), ErrorCode::kInvalidArgument, "have no target");
  expect_error(evaluator->mean_loss(rows, 5, [] { return true; }), ErrorCode::kInterrupted,
               "after 0 of 3 windows");
}

}  // namespace
}  // namespace volta
