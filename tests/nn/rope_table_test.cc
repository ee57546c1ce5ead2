// RopeTable: rows are made when they are needed, and are right for the sequence they are for. What
// the frequencies of each kind of scaling are is tested against transformers in tests/io.
#include "nn/rope_table.h"

#include <cmath>

#include "nn/generator.h"
#include "nn/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::must;

TransformerConfig with_scaling(RopeKind kind) {
  TransformerConfig config = test::llama_config();
  config.rope_scaling.kind = kind;
  config.rope_scaling.factor = 4.0;
  config.rope_scaling.original = 32;
  return config;
}

// Rows [0, rows) of a table, of `rotated` values each.
std::vector<float> rows_of(const RopeTable& table, std::int64_t rows) {
  return test::values(must(table.tensor().slice(0, rows)));
}

// What a table for `length` tokens must hold in its row `t`.
std::vector<float> wanted_row(const TransformerConfig& config, std::int64_t length,
                              std::int64_t t) {
  const std::vector<float> frequencies = rope_frequencies(config, length);
  std::vector<float> cosines, sines;
  for (const float frequency : frequencies) {
    const auto angle = static_cast<double>(static_cast<float>(t) * frequency);
    const auto scale = static_cast<float>(config.rope_scaling.attention_factor);
    cosines.push_back(static_cast<float>(std::cos(angle)) * scale);
    sines.push_back(static_cast<float>(std::sin(angle)) * scale);
  }
  cosines.insert(cosines.end(), sines.begin(), sines.end());
  return cosines;
}

void expect_sequence(const TransformerConfig& config, const RopeTable& table, std::int64_t length) {
  const std::vector<float> found = rows_of(table, length);
  std::vector<float> wanted;
  for (std::int64_t t = 0; t < length; ++t) {
    const auto row = wanted_row(config, length, t);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  EXPECT_EQ(found, wanted) << length;
}

TEST(RopeTable, RowsGrowWithTheSequence) {
  for (const RopeKind kind :
       {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kLlama3, RopeKind::kYarn}) {
    TransformerConfig config = with_scaling(kind);
    config.rope_scaling.attention_factor = 1.25;
    EXPECT_FALSE(rope_depends_on_length(config));
    RopeTable table = must(RopeTable::create(config, 320, *test::device(1)));
    EXPECT_EQ(table.tensor().shape(), Shape(320, 8));
    for (const std::int64_t length : {0, 1, 7, 256, 257, 100, 320}) {
      must(table.cover(length));
      if (length > 0) expect_sequence(config, table, length);
    }
  }
}

TEST(RopeTable, DynamicRowsAreForOneLength) {
  const TransformerConfig config = with_scaling(RopeKind::kDynamic);
  EXPECT_TRUE(rope_depends_on_length(config));
  RopeTable table = must(RopeTable::create(config, 320, *test::device(1)));
  for (const std::int64_t length : {5, 32, 33, 64, 10, 320, 64}) {
    must(table.cover(length));
    expect_sequence(config, table, length);
  }
  EXPECT_EQ(rope_frequencies(config, 5), rope_frequencies(config, 32));
  EXPECT_LT(rope_frequencies(config, 64).back(), rope_frequencies(config, 33).back());
}

// Every frequency is divided by a factor of its own: out of one list up to the original length, and
// out of the other beyond it.
TEST(RopeTable, LongropeHasTwoLists) {
  TransformerConfig config = with_scaling(RopeKind::kLongrope);
  config.rope_scaling.factor = 1.0;
  config.rope_scaling.attention_factor = 1.25;
  config.rope_scaling.short_factors = {1.0f, 1.25f, 1.5f, 2.0f};
  config.rope_scaling.long_factors = {2.0f, 4.0f, 8.0f, 16.0f};
  must(validate(config));
  EXPECT_TRUE(rope_depends_on_length(config));
  TransformerConfig plain = config;
  plain.rope_scaling = {};
  const auto frequencies = rope_frequencies(plain, 1);
  for (const std::int64_t length : {1, 32, 33, 320}) {
    const auto& factors =
        length > 32 ? config.rope_scaling.long_factors : config.rope_scaling.short_factors;
    const auto found = rope_frequencies(config, length);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(found[i], frequencies[i] / factors[i], 2e-7f * frequencies[i]) << length;
    }
  }
  RopeTable table = must(RopeTable::create(config, 320, *test::device(1)));
  for (const std::int64_t length : {5, 32, 33, 10, 320}) {
    must(table.cover(length));
    expect_sequence(config, table, length);
  }
}

TEST(RopeTable, LayersWithAWindowMayHaveABaseOfTheirOwn) {
  TransformerConfig config = with_scaling(RopeKind::kLinear);
  config.rope_local_theta = 100.0f;
  must(validate(config));
  TransformerConfig wanted = test::llama_config();
  wanted.rope_theta = 100.0f;
  EXPECT_EQ(rope_frequencies(local_rope_config(config), 1), rope_frequencies(wanted, 1));
}

TEST(RopeTable, StepsAreEachTheLastOfTheirOwnLength) {
  const TransformerConfig config = with_scaling(RopeKind::kDynamic);
  RopeTable table = must(RopeTable::create(config, 320, *test::device(1), RopeRows::kSteps));
  must(table.cover(300));
  must(table.cover(40));
  const std::vector<float> found = rows_of(table, 300);
  for (std::int64_t t = 0; t < 300; ++t) {
    const auto row = std::span(found).subspan(static_cast<std::size_t>(8 * t), 8);
    EXPECT_EQ(std::vector(row.begin(), row.end()), wanted_row(config, t + 1, t)) << t;
  }
}

TEST(RopeTable, RefusesWhatDoesNotFit) {
  const TransformerConfig config = test::llama_config();
  const auto invalid = ErrorCode::kInvalidArgument;
  for (const std::int64_t rows : {0, -1, 321}) {
    test::expect_error(RopeTable::create(config, rows, *test::device(1)), invalid,
                       "1 and the model's context of 320");
  }
  RopeTable table = must(RopeTable::create(config, 20, *test::device(1)));
  test::expect_error(table.cover(21), invalid, "21 tokens for a rotation table of 20 rows");
  test::expect_error(table.cover(-1), invalid, "-1 tokens");
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  device->faulty_memory().allocation_fuse.arm(1);
  test::expect_error(RopeTable::create(config, 20, *device), ErrorCode::kOutOfMemory, "injected");
}

// The definition, token by token: the prompt's keys have the angles of its length, each later one
// those of the length it made; so a prompt that fits the first training is as if there was no
// scaling, until its sequence grows past that.
TEST(RopeTable, DynamicGenerationIsThatOfPlainOnesUpToTheOriginalContext) {
  const TransformerConfig config = with_scaling(RopeKind::kDynamic);
  const Transformer scaled = test::lively_model(config, test::device(2));
  const Transformer plain = test::lively_model(test::llama_config(), test::device(2));
  const auto logprobs = [](const Transformer& model, std::size_t prompt, bool cache) {
    Generator generator = must(Generator::create(model, {.use_cache = cache}));
    const GenerationRequest request{test::some_ids(prompt, 61), 20, {.temperature = 0.0f}, {}};
    return must(generator.generate(std::span(&request, 1))).front().logprobs;
  };
  const auto with = logprobs(scaled, 20, true), without = logprobs(plain, 20, true);
  // The token at place t is drawn by a sequence of t tokens, which has no more than 32.
  for (std::size_t i = 0; i < 13; ++i) EXPECT_EQ(with[i], without[i]) << i;
  EXPECT_NE(with[13], without[13]);
  // Prompts that fill other slots do not change those that run.
  Generator generator = must(Generator::create(scaled, {.slots = 2}));
  const std::vector<GenerationRequest> requests = {
      {test::some_ids(20, 61), 20, {.temperature = 0.0f}, {}},
      {test::some_ids(90, 61), 20, {.temperature = 0.0f}, {}},
      {test::some_ids(40, 61), 20, {.temperature = 0.0f}, {}}};
  const auto all = must(generator.generate(requests));
  EXPECT_EQ(all[0].logprobs, with);
  EXPECT_EQ(all[1].logprobs, logprobs(scaled, 90, true));
  EXPECT_EQ(all[2].logprobs, logprobs(scaled, 40, true));
  // Without a cache every step rotates the whole sequence anew.
  EXPECT_EQ(logprobs(scaled, 40, false)[0], all[2].logprobs[0]);
  EXPECT_NE(logprobs(scaled, 40, false)[1], all[2].logprobs[1]);
}

}  // namespace
}  // namespace volta
