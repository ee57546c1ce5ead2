// The graphs of a transformer: every combination of a config runs and gives the same logits with
// and without a cache; training graphs; errors of building.
#include "nn/transformer_graph.h"

#include <algorithm>
#include <cmath>

#include "nn/helpers.h"
#include "support/alloc_counter.h"

namespace volta {
namespace {

using test::must;
using Ints = std::vector<std::int32_t>;
using Layers = std::vector<std::int64_t>;

// What came with Phi-3, OLMo 2, SmolLM 3, Gemma and Granite, each in every second combination or
// so.
void add_later_parts(TransformerConfig& c, std::uint32_t index) {
  RandomSequence random(RandomKey{.seed = index, .stream = 5});
  const auto often = [&] { return random.next_below(2) == 1; };
  c.naming = static_cast<WeightNaming>(random.next_below(4));
  const bool rotary = c.position == PositionKind::kRotary;
  if (!rotary) c.naming = WeightNaming::kGpt2;
  if (c.naming == WeightNaming::kPhi3) c.ffn_kind = FfnKind::kGated;
  if (c.naming == WeightNaming::kGemma) c.norm_place = static_cast<NormPlace>(random.next_below(3));
  c.norm_plus_one = c.norm == NormKind::kRms && often();
  c.qk_norm_whole = c.qk_norm && often();
  c.attention_softcap = often() ? 2.0f : 0.0f;
  c.logit_softcap = often() ? 3.0f : 0.0f;
  c.embedding_scaled = often();
  c.query_scalar = c.attention_scaled && often() ? 5.0f : 0.0f;
  c.embedding_scale = often() ? 3.0f : 1.0f;
  c.attention_scale = c.attention_scaled && c.query_scalar == 0.0f && often() ? 0.3f : 0.0f;
  c.residual_scale = often() ? 0.6f : 1.0f;
  c.logit_divisor = often() ? 1.7f : 1.0f;
  if (rotary && often()) c.unrotated_layers = often() ? Layers{1} : Layers{0, 1};
  if (rotary && c.window > 0 && often()) c.rope_local_theta = 100.0f;
}

// One of all combinations, by its digits in mixed base.
TransformerConfig combination(std::uint32_t index) {
  const auto digit = [&](std::uint32_t base) {
    const std::uint32_t d = index % base;
    index /= base;
    return d;
  };
  TransformerConfig c{.vocab_size = 23,
                      .context = 24,
                      .layers = 2,
                      .dim = 16,
                      .heads = 4,
                      .kv_heads = 4,
                      .head_dim = 6,
                      .ffn = 20};
  c.position = digit(2) == 0 ? PositionKind::kLearned : PositionKind::kRotary;
  c.norm = digit(2) == 0 ? NormKind::kLayer : NormKind::kRms;
  c.ffn_kind = digit(2) == 0 ? FfnKind::kMlp : FfnKind::kGated;
  c.activation = std::array{Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                            Activation::kSilu}[digit(4)];
  c.attention_bias = c.ffn_bias = digit(2) == 1;
  c.attention_out_bias = digit(2) == 1;
  c.norm_bias = c.norm == NormKind::kLayer && digit(2) == 1;
  c.tied_output = digit(2) == 1;
  c.kv_heads = std::array{1, 2, 4}[digit(3)];
  c.qk_norm = digit(2) == 1;
  c.window = digit(2) == 1 ? 5 : 0;
  c.rotary_dim = c.position == PositionKind::kRotary && digit(2) == 1 ? 4 : 0;
  if (digit(2) == 1 && c.window > 0) c.full_layers = {0};
  c.attention_scaled = digit(2) == 0;
  c.attention_scaled_by_layer = digit(2) == 1;
  c.activation_scale = digit(2) == 1 ? 1.702f : 1.0f;
  add_later_parts(c, index);
  return c;
}
// The upper digits choose the later parts.
constexpr std::uint32_t kCombinations = 2 * 2 * 2 * 4 * 2 * 2 * 2 * 2 * 3 * 2 * 2 * 2 * 2048;

constexpr std::int64_t kTime = 20;

// Logits [2, kTime, V] of two sequences by a step of 13 and 9 tokens, one of 2 more of the second,
// and then single tokens of both; NaN where no step made any.
std::vector<float> cached_logits(const Transformer& model, const Ints& ids) {
  const TransformerConfig& config = model.config();
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  test::States states;
  const auto plan_of = [&](std::int64_t rows) {
    return test::bind_graph(
        must(build_cached_graph(
            config, {.rows = rows, .logit_rows = 2, .cache = {.slots = 2}, .sampling = false})),
        model, states);
  };
  Executable prefill = plan_of(24), decode = plan_of(2);
  std::vector<float> out(2 * kTime * vocab, std::nanf(""));
  std::array<std::int32_t, 2> length = {0, 0};
  const auto run = [&](Executable& plan, std::size_t rows, std::array<std::int32_t, 2> count) {
    Ints tokens, positions, sequences, last;
    for (std::int32_t s = 0; s < 2; ++s) {
      std::int32_t& at = length.at(static_cast<std::size_t>(s));
      for (std::int32_t t = 0; t < count.at(static_cast<std::size_t>(s)); ++t, ++at) {
        tokens.push_back(ids[static_cast<std::size_t>(s * kTime + at)]);
        positions.push_back(at);
        sequences.push_back(s);
      }
      last.push_back(std::max(static_cast<std::int32_t>(tokens.size()) - 1, 0));
    }
    test::put(plan, "rows", Ints{static_cast<std::int32_t>(tokens.size())});
    for (Ints* each : {&tokens, &positions, &sequences}) each->resize(rows);
    test::put(plan, "ids", tokens);
    test::put(plan, "positions", positions);
    test::put(plan, "sequences", sequences);
    test::put(plan, "logit_rows", last);
    for (const CacheGroup& group : cache_groups(config)) {
      test::put(plan, std::string(group.table), Ints{1, 0});  // The context is one block.
    }
    must(plan.run());
    const auto logits = test::values(plan.output("logits"));
    for (std::size_t s = 0; s < 2; ++s) {
      if (count.at(s) == 0) continue;
      const std::size_t row = s * kTime + static_cast<std::size_t>(length.at(s)) - 1;
      std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>(s * vocab), vocab,
                  out.begin() + static_cast<std::ptrdiff_t>(row * vocab));
    }
  };
  run(prefill, 24, {13, 9});
  run(prefill, 24, {0, 2});
  while (length[0] < kTime || length[1] < kTime) {
    run(decode, 2, {length[0] < kTime ? 1 : 0, length[1] < kTime ? 1 : 0});
  }
  return out;
}

void expect_same_logits(const std::vector<float>& cached, const std::vector<float>& whole) {
  ASSERT_EQ(cached.size(), whole.size());
  double largest = 0.0, worst = 0.0;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (std::isnan(cached[i])) continue;
    ++compared;
    largest = std::max(largest, std::abs(static_cast<double>(whole[i])));
    worst =
        std::max(worst, std::abs(static_cast<double>(whole[i]) - static_cast<double>(cached[i])));
  }
  EXPECT_EQ(compared, (8u + 11u) * 23u);
  // The two paths differ in the order of attention's sums and in which sums a fusion merges: some
  // 20 roundings of 2^-24 a layer, which norms may amplify by a few times.
  EXPECT_LT(worst, 64 * 0x1p-24 * std::max(largest, 1.0));
}

// The loss of a training graph with lr 0 is the mean token loss of the evaluation graph.
void expect_same_loss(const Transformer& model, const Ints& ids, const Ints& targets,
                      const std::vector<float>& token_loss) {
  test::States states;
  Executable plan = test::bind_graph(
      must(build_training_graph(model.config(),
                                {.batch = 2, .time = kTime, .dropout = {}, .optimizer = {}})),
      model, states);
  test::put(plan, "ids", ids);
  test::put(plan, "targets", targets);
  test::put(plan, "positions", test::count_up(kTime));
  test::put(plan, "schedule", std::vector<float>{0.0f, 0.1f, 0.001f});
  must(plan.run());
  const auto loss = static_cast<double>(test::values(plan.output("loss")).at(0));
  double mean = 0.0;
  for (const float x : token_loss) mean += static_cast<double>(x) / (2.0 * kTime);
  EXPECT_NEAR(loss, mean, 16 * 0x1p-24 * mean);
  const auto stats = test::values(plan.output("stats"));
  EXPECT_GT(stats.at(0), 0.0f);
  EXPECT_EQ(stats.at(2), 1.0f);
}

TEST(TransformerGraph, EveryCombinationRunsAlikeWithAndWithoutCache) {
  const auto device = test::device(2);
  const Ints ids = test::some_ids(2 * kTime, 23);
  const Ints targets = test::some_ids(2 * kTime, 23, 4);
  RandomSequence random(RandomKey{.seed = 1});
  const int runs = test::can_count_allocations() ? 160 : 24;  // Fewer under a sanitizer.
  for (int i = 0; i < runs; ++i) {
    const std::uint32_t index = random.next_below(kCombinations);
    SCOPED_TRACE("combination " + std::to_string(index));
    const TransformerConfig config = combination(index);
    must(validate(config));
    const Transformer model = test::lively_model(config, device, index);
    const test::Evaluation whole = test::evaluate(model, ids, 2, targets);
    expect_same_logits(cached_logits(model, ids), whole.logits);
    expect_same_loss(model, ids, targets, whole.loss);
  }
}

// The names that callers rely on, kind by kind.
std::vector<std::string> names(const Graph& graph, ValueKind kind) {
  std::vector<std::string> out;
  for (const Value& value : graph.values()) {
    if (value.kind == kind) out.push_back(value.name);
  }
  return out;
}
std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> out;
  for (const GraphOutput& output : graph.outputs()) out.push_back(output.name);
  return out;
}

TEST(TransformerGraph, NamesOfInputsStatesAndOutputs) {
  using testing::ElementsAre;
  using testing::UnorderedElementsAre;
  TransformerConfig config = test::llama_config();
  config.layers = 1;
  const Graph cached =
      must(build_cached_graph(config, {.rows = 4, .logit_rows = 2, .cache = {.slots = 3}}));
  EXPECT_THAT(names(cached, ValueKind::kInput),
              UnorderedElementsAre("ids", "positions", "sequences", "rows", "window_table",
                                   "logit_rows", "sampling", "sample_rng", "sample_sequences"));
  EXPECT_THAT(names(cached, ValueKind::kState),
              UnorderedElementsAre("cache.0.k", "cache.0.v", "counts"));
  EXPECT_THAT(output_names(cached), ElementsAre("logits", "token", "logprob"));
  const std::int64_t blocks = (config.context + 63) / 64;
  EXPECT_EQ(cached.spec(*cached.find("cache.0.k")).shape, key_cache_shape(3 * blocks, 2, 8));
  EXPECT_EQ(cached.spec(*cached.find("window_table")).shape, Shape(3, blocks));
  EXPECT_EQ(cached.spec(*cached.find("counts")).shape, Shape(3, 2, config.vocab_size));

  const Graph plain =
      must(build_cached_graph(config, {.cache = {.capacity = 9}, .sampling = false}));
  EXPECT_THAT(output_names(plain), ElementsAre("logits"));
  EXPECT_EQ(plain.spec(*plain.find("cache.0.v")).shape, Shape(1, 2, 64, 8));

  EXPECT_THAT(output_names(must(build_evaluation_graph(config, 1, 4, false))),
              ElementsAre("token_loss"));
  TrainingGraphOptions options{.batch = 2, .time = 4, .dropout = {.p = 0.1f}, .optimizer = {}};
  const Graph training = must(build_training_graph(config, options));
  EXPECT_THAT(names(training, ValueKind::kInput),
              UnorderedElementsAre("ids", "targets", "positions", "rng", "schedule"));
  EXPECT_THAT(output_names(training), ElementsAre("loss", "stats"));
  const std::size_t count = parameters(config).size();
  EXPECT_EQ(names(training, ValueKind::kState).size(), 2 * count);
  options.optimizer.kind = OptimizerConfig::Kind::kSgd;
  EXPECT_TRUE(names(must(build_training_graph(config, options)), ValueKind::kState).empty());
  options.optimizer.momentum = 0.9f;
  EXPECT_EQ(names(must(build_training_graph(config, options)), ValueKind::kState).size(), count);
  EXPECT_EQ(names(must(build_accumulate_graph(config, options)), ValueKind::kState).size(),
            count + 1);
  EXPECT_THAT(names(must(build_apply_graph(config, options)), ValueKind::kInput),
              ElementsAre("schedule"));
}

// Accumulating one batch in two halves and applying it is the update by the whole batch.
TEST(TransformerGraph, AccumulatedUpdateEqualsTheWholeBatch) {
  const auto device = test::device(2);
  TransformerConfig config = combination(3);
  const Ints ids = test::some_ids(2 * kTime, 23), targets = test::some_ids(2 * kTime, 23, 4);
  TrainingGraphOptions options{.batch = 2, .time = kTime, .dropout = {}, .optimizer = {}};
  options.optimizer = {.kind = OptimizerConfig::Kind::kSgd, .weight_decay = 0.1f, .clip = 0.5f};
  const std::vector<float> schedule = {0.1f, 1.0f, 1.0f};

  const Transformer whole = test::lively_model(config, device);
  test::States states;
  Executable plan = test::bind_graph(must(build_training_graph(config, options)), whole, states);
  test::put(plan, "ids", ids);
  test::put(plan, "targets", targets);
  test::put(plan, "positions", test::count_up(kTime));
  test::put(plan, "schedule", schedule);
  must(plan.run());

  const Transformer halves = test::lively_model(config, device);
  options.batch = 1;
  options.accumulate = 2;
  test::States sums;
  Executable half = test::bind_graph(must(build_accumulate_graph(config, options)), halves, sums);
  Executable apply = test::bind_graph(must(build_apply_graph(config, options)), halves, sums);
  test::put(half, "positions", test::count_up(kTime));
  for (const std::ptrdiff_t begin : {std::ptrdiff_t{0}, std::ptrdiff_t{kTime}}) {
    const std::ptrdiff_t end = begin + kTime;
    test::put(half, "ids", Ints(ids.begin() + begin, ids.begin() + end));
    test::put(half, "targets", Ints(targets.begin() + begin, targets.begin() + end));
    must(half.run());
  }
  EXPECT_NEAR(test::values(sums.at("grad.loss")).at(0), test::values(plan.output("loss")).at(0),
              1e-6);
  test::put(apply, "schedule", schedule);
  must(apply.run());
  EXPECT_NEAR(test::values(apply.output("stats")).at(0), test::values(plan.output("stats")).at(0),
              1e-5 * static_cast<double>(test::values(plan.output("stats")).at(0)));
  for (const auto& [name, sum] : sums) EXPECT_THAT(test::values(sum), testing::Each(0.0f)) << name;
  for (const auto& [name, weight] : whole.weights()) {
    const auto a = test::values(weight);
    const auto b = test::values(halves.weight(name));
    // The clipped gradient has norm 0.5 at most, so a step is 0.05: its relative error of 1e-5 is
    // far below a rounding of the weight.
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << name;
  }
}

TEST(TransformerGraph, DropoutFollowsItsRng) {
  const auto device = test::device(2);
  for (const std::uint32_t index : {0u, 1u}) {  // Packed and separate queries, keys and values.
    const Transformer model = test::lively_model(combination(index), device);
    test::States states;
    const TrainingGraphOptions options{
        .batch = 2, .time = kTime, .dropout = {.p = 0.3f}, .optimizer = {}};
    Executable plan =
        test::bind_graph(must(build_accumulate_graph(model.config(), options)), model, states);
    test::put(plan, "ids", test::some_ids(2 * kTime, 23));
    test::put(plan, "targets", test::some_ids(2 * kTime, 23, 4));
    test::put(plan, "positions", test::count_up(kTime));
    const auto loss = [&](std::int64_t seed, std::int64_t step) {
      test::put(plan, "rng", std::vector<std::int64_t>{seed, step});
      must(plan.run());
      return test::values(plan.output("loss")).at(0);
    };
    const float first = loss(1, 1);
    EXPECT_NE(first, loss(1, 2));
    EXPECT_NE(first, loss(2, 1));
    EXPECT_EQ(first, loss(1, 1));
  }
}

TEST(TransformerGraph, BuildingRefusesWhatCannotBe) {
  const TransformerConfig config = test::gpt2_config();
  TransformerConfig bad = config;
  bad.kv_heads = 3;
  const TrainingGraphOptions options{.batch = 1, .time = 8, .dropout = {}, .optimizer = {}};
  const auto invalid = ErrorCode::kInvalidArgument;
  const std::string text = "kv_heads must divide heads";
  test::expect_error(build_evaluation_graph(bad, 1, 8, true), invalid, text);
  test::expect_error(build_cached_graph(bad, {}), invalid, text);
  test::expect_error(build_training_graph(bad, options), invalid, text);
  test::expect_error(build_accumulate_graph(bad, options), invalid, text);
  test::expect_error(build_apply_graph(bad, options), invalid, text);
  test::expect_error(build_evaluation_graph(config, 1, 321, true), invalid,
                     "sequences of 321 tokens are longer than the model's context of 320");
  EXPECT_FALSE(build_evaluation_graph(config, -1, 8, true));
  EXPECT_FALSE(build_cached_graph(config, {.cache = {.slots = -1}}));
  EXPECT_FALSE(build_cached_graph(config, {.rows = -2}));
  EXPECT_FALSE(build_cached_graph(config, {.logit_rows = -2}));
  for (const std::int64_t capacity : {-2, 321}) {
    test::expect_error(build_cached_graph(config, {.cache = {.capacity = capacity}}), invalid,
                       "it must be between 1 and the model's context of 320");
  }
  EXPECT_FALSE(build_cached_graph(config, {.cache = {.dtype = DType::kI64}}));
  TrainingGraphOptions none = options;
  none.accumulate = 0;
  test::expect_error(build_accumulate_graph(config, none), invalid, "accumulate is 0");
  TrainingGraphOptions all = options;
  all.dropout.p = 1.0f;
  EXPECT_FALSE(build_training_graph(config, all));
  all.dropout.p = -0.5f;
  EXPECT_FALSE(build_training_graph(config, all));
  bad = config;
  bad.activation = static_cast<Activation>(99);
  test::expect_error(build_cached_graph(bad, {}), ErrorCode::kInternal, "unknown activation");
}

// Layers can be built one by one, into any graph.
TEST(TransformerGraph, LayersStandAlone) {
  TransformerConfig config = test::gpt2_config();
  config.activation = Activation::kNone;  // A linear block: for a layer alone that is fine.
  Graph graph;
  const ValueId x = must(graph.input("x", {DType::kF32, Shape(2, 3, 32)}));
  const LayerContext context{.graph = graph, .config = config, .prefix = "transformer.h.0"};
  const ValueId y = must(TransformerBlock::build(context, x));
  EXPECT_EQ(graph.spec(y).shape, Shape(2, 3, 32));
  must(graph.output("y", y));
  must(verify(graph));

  config = test::llama_config();
  config.qk_norm = true;
  Graph deep;
  const ValueId six = must(deep.input("x", {DType::kF32, Shape(1, 1, 1, 2, 3, 32)}));
  const LayerContext six_axes{.graph = deep, .config = config, .prefix = "model.layers.0"};
  test::expect_error(MultiHeadSelfAttentionLayer::build(six_axes, six), ErrorCode::kInvalidArgument,
                     "lower rank");
}

}  // namespace
}  // namespace volta
