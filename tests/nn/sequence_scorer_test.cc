#include "nn/sequence_scorer.h"

#include <cmath>

#include "nn/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::must;

// Everything compute_logits hands out, in one piece.
std::vector<float> all_logits(const Transformer& model, const std::vector<std::int32_t>& ids,
                              std::int64_t batch, DType dtype = DType::kF32) {
  std::vector<float> out;
  const auto time = static_cast<std::int64_t>(ids.size()) / batch;
  must(compute_logits(model, ids, batch, time, dtype, [&](std::span<const float> rows) -> Status {
    out.insert(out.end(), rows.begin(), rows.end());
    return {};
  }));
  return out;
}

TEST(SequenceScorer, GivesTheBitsOfTheWholeGraph) {
  for (const auto& config : {test::gpt2_config(), test::llama_config()}) {
    const Transformer model = test::lively_model(config, test::device(2));
    const auto ids = test::some_ids(3 * 90, config.vocab_size);
    auto targets = test::some_ids(ids.size(), config.vocab_size, 4);
    for (std::size_t i = 0; i < targets.size(); i += 7) targets[i] = -1;
    const test::Evaluation whole = test::evaluate(model, ids, 3, targets);
    EXPECT_EQ(all_logits(model, ids, 3), whole.logits);

    auto scorer =
        must(SequenceScorer::create(model, {.score = Score::kLoss, .batch = 3, .time = 90}));
    EXPECT_GT(scorer.activation_bytes(), 3 * 90 * config.dim);
    std::vector<float> losses(ids.size(), 5.0f);
    must(scorer.losses(ids, targets, losses));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_EQ(losses[i], targets[i] < 0 ? 0.0f : whole.loss[i]) << i;
    }
    std::fill(targets.begin(), targets.end(), -1);  // Nothing is asked, nothing projected.
    must(scorer.losses(ids, targets, losses));
    EXPECT_EQ(losses, std::vector<float>(ids.size(), 0.0f));
  }
}

// A vocabulary so large that the rows of one sequence need several runs of the projection.
TEST(SequenceScorer, PiecesOfALargeVocabularyJoinWithoutASeam) {
  TransformerConfig config = test::gpt2_config();
  config.vocab_size = 150'000;
  config.dim = 4;
  config.heads = config.kv_heads = 1;
  config.head_dim = 4;
  const Transformer model = test::lively_model(config, test::device(2));
  const auto ids = test::some_ids(150, config.vocab_size);
  const auto targets = test::some_ids(150, config.vocab_size, 4);
  const test::Evaluation whole = test::evaluate(model, ids, 1, targets);

  std::size_t calls = 0;
  std::size_t place = 0;
  must(compute_logits(model, ids, 1, 150, DType::kF32, [&](std::span<const float> rows) -> Status {
    ++calls;
    EXPECT_LE(rows.size() * sizeof(float), std::size_t{64} << 20);
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(),
                           whole.logits.begin() + static_cast<std::ptrdiff_t>(place)));
    place += rows.size();
    return {};
  }));
  EXPECT_EQ(calls, 3u);
  EXPECT_EQ(place, whole.logits.size());

  auto scorer =
      must(SequenceScorer::create(model, {.score = Score::kLoss, .batch = 1, .time = 150}));
  EXPECT_LT(scorer.activation_bytes(), 3 * 64 * config.vocab_size * 4);
  std::vector<float> losses(ids.size());
  must(scorer.losses(ids, targets, losses));
  EXPECT_EQ(losses, whole.loss);
}

TEST(SequenceScorer, ManySequencesRunInGroups) {
  const auto config = test::llama_config();
  const Transformer model = test::lively_model(config, test::device(2));
  const std::int64_t batch = 17;  // Groups of 6, and a rest.
  const auto ids = test::some_ids(17 * 300, config.vocab_size);
  const auto together = all_logits(model, ids, batch);
  const auto row = static_cast<std::size_t>(300 * config.vocab_size);
  ASSERT_EQ(together.size(), row * 17);
  for (const std::size_t i : {0u, 5u, 6u, 16u}) {
    const std::vector<std::int32_t> one(ids.begin() + static_cast<std::ptrdiff_t>(i * 300),
                                        ids.begin() + static_cast<std::ptrdiff_t>(i * 300 + 300));
    const auto alone = all_logits(model, one, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(i * row)))
        << i;
  }
}

TEST(SequenceScorer, PackedWeightsAndAnotherMemoryGiveTheSameBits) {
  const auto config = test::gpt2_config();
  const auto ids = test::some_ids(40, config.vocab_size);
  const auto plain = all_logits(test::lively_model(config, test::device(2)), ids, 2);
  Transformer packed = test::lively_model(config, test::device(1));
  must(packed.prepack());
  EXPECT_EQ(all_logits(packed, ids, 2), plain);
  const auto remote = std::make_shared<test::FaultyDevice>(test::cpu(2), false);
  EXPECT_EQ(all_logits(test::lively_model(config, remote), ids, 2),
            all_logits(test::lively_model(config, test::cpu(2)), ids, 2));
  // Rounding to bf16 changes them, but not much.
  const auto rounded = all_logits(packed, ids, 2, DType::kBF16);
  EXPECT_NE(rounded, plain);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(rounded[i], plain[i], 0.3f);
}

TEST(SequenceScorer, RefusesWhatCannotWork) {
  const auto config = test::gpt2_config();
  const Transformer model = test::lively_model(config, test::device(1));
  const LogitsSink ignore = [](std::span<const float>) { return Status(); };
  const auto compute = [&](std::vector<std::int32_t> ids, std::int64_t batch, std::int64_t time) {
    return compute_logits(model, ids, batch, time, DType::kF32, ignore);
  };
  expect_error(compute({1, 2, 3}, 2, 2), ErrorCode::kInvalidArgument,
               "3 ids are not 2 sequences of 2");
  expect_error(compute({}, 0, 1), ErrorCode::kInvalidArgument, "0 sequences");
  expect_error(compute({}, 1, 0), ErrorCode::kInvalidArgument, "0 ids");
  expect_error(compute({1, 2, 3, 61}, 2, 2), ErrorCode::kInvalidArgument,
               "id [1, 1] is 61; the vocabulary has ids 0 to 60");
  expect_error(compute({-1}, 1, 1), ErrorCode::kInvalidArgument, "id [0, 0] is -1");
  expect_error(compute(std::vector<std::int32_t>(321), 1, 321), ErrorCode::kInvalidArgument,
               "at most the context of 320");
  for (const auto& [batch, time] :
       {std::pair{std::int64_t{0}, std::int64_t{8}}, {1, 0}, {std::int64_t{1} << 60, 8}}) {
    expect_error(SequenceScorer::create(model, {.batch = batch, .time = time}),
                 ErrorCode::kInvalidArgument, "sequences of");
  }
}

TEST(SequenceScorer, FailuresComeThrough) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  const auto config = test::gpt2_config();
  const Transformer model = test::lively_model(config, device);
  const auto ids = test::some_ids(12, config.vocab_size);
  const auto run = [&] {
    return compute_logits(model, ids, 2, 6, DType::kF32,
                          [](std::span<const float>) { return Status(); });
  };
  // The inputs of both plans are cleared, each plan's inputs are copied, and the logits come back.
  for (std::int64_t nth = 1; nth <= 5; ++nth) {
    device->faulty_memory().copy_fuse.arm(nth);
    expect_error(run(), ErrorCode::kDevice, "injected");
  }
  device->faulty_memory().copy_fuse.arm(0);
  EXPECT_TRUE(run());
  expect_error(compute_logits(model, ids, 2, 6, DType::kF32,
                              [](std::span<const float>) -> Status {
                                return fail(ErrorCode::kIo, "the sink is full");
                              }),
               ErrorCode::kIo, "the sink is full");
}

TEST(SequenceScorer, ALogitThatIsNotANumberIsAnErrorWithItsPlace) {
  const auto config = test::gpt2_config();
  const Transformer model = test::lively_model(config, test::device(1));
  // The place of the third token: nothing before it is touched.
  Tensor places = must(model.weight("transformer.wpe.weight"));
  Tensor third = must(places.slice(2, 3));
  must(third.write<float>(std::vector<float>(32, std::nanf(""))));
  const auto ids = test::some_ids(8, config.vocab_size);
  std::size_t handed = 0;
  expect_error(compute_logits(model, ids, 2, 4, DType::kF32,
                              [&](std::span<const float> rows) -> Status {
                                handed += rows.size();
                                return {};
                              }),
               ErrorCode::kNonFinite,
               // On a GPU a NaN reaches all rows of its tile, though their weight for it is 0.
               test::on_gpu() ? "the logits of [0, 0] are not finite"
                              : "the logits of [0, 2] are not finite");
  EXPECT_EQ(handed, 0u);
}

}  // namespace
}  // namespace volta
