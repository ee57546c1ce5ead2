#include "nn/lora.h"

#include <cmath>

#include "device/tensor_ops.h"
#include "nn/generator.h"
#include "nn/helpers.h"

namespace volta {
namespace {

using test::expect_error;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

LoraConfig all_linear(std::int64_t rank = 3) {
  return {.rank = rank, .targets = {std::string(kAllLinear)}};
}

// An adapter whose B is not zero.
Adapter lively_adapter(const TransformerConfig& config, const LoraConfig& lora, Device& device) {
  Adapter adapter = must(Adapter::random(config, lora, 4, device));
  RandomSequence random(RandomKey{.seed = 6});
  for (auto& [name, tensor] : adapter.weights) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (float& value : values) value = static_cast<float>(0.3 * test::next_normal(random));
    must(tensor.write(std::span<const float>(values)));
  }
  return adapter;
}

TEST(Lora, ScaleIsAlphaOverRankOrItsRoot) {
  EXPECT_EQ((LoraConfig{.rank = 16, .alpha = 8.0}.scale()), 0.5f);
  EXPECT_EQ((LoraConfig{.rank = 16, .alpha = 8.0, .rank_stabilized = true}.scale()), 2.0f);
}

TEST(Lora, CompletesWhatIsLeftOut) {
  const LoraConfig llama = must(complete_lora({.rank = 5}, test::llama_config()));
  EXPECT_EQ(llama.alpha, 10.0);
  EXPECT_THAT(llama.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(must(complete_lora({.rank = 5}, test::gpt2_config())).targets, ElementsAre("c_attn"));
  EXPECT_THAT(must(complete_lora(all_linear(), test::gpt2_config())).targets,
              ElementsAre("c_attn", "c_fc", "c_proj"));
  EXPECT_THAT(
      must(complete_lora(all_linear(), test::llama_config())).targets,
      ElementsAre("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"));
  // Completed once, it stays as it is.
  EXPECT_EQ(must(complete_lora(llama, test::llama_config())), llama);
}

TEST(Lora, RefusesWhatCannotBe) {
  const TransformerConfig config = test::llama_config();
  expect_error(complete_lora({.rank = 0}, config), kInvalid, "the rank is 0");
  expect_error(complete_lora({.rank = 65537}, config), kInvalid, "between 1 and 65536");
  expect_error(complete_lora({.rank = 1, .alpha = -1.0}, config), kInvalid, "alpha is -1");
  expect_error(complete_lora({.rank = 1, .alpha = NAN}, config), kInvalid, "alpha is nan");
  expect_error(complete_lora({.rank = 1, .dropout = 1.0f}, config), kInvalid, "dropout is 1");
  expect_error(complete_lora({.rank = 1, .targets = {"q_proj", "c_attn"}}, config), kInvalid,
               "'c_attn' names no projection of this model; it has down_proj, gate_proj");
  expect_error(complete_lora({.rank = 1, .targets = {"lm_head"}}, config), kInvalid, "lm_head");
  expect_error(complete_lora({.rank = 1, .targets = {""}}, config), kInvalid, "target ''");
  EXPECT_FALSE(Adapter::random(config, {.rank = 1, .targets = {"x"}}, 1, *test::device(1)));
}

TEST(Lora, TargetsAreDottedEndsOfPaths) {
  const LoraConfig lora{.rank = 1, .targets = {"attn.c_proj", "transformer.h.1.mlp.c_fc"}};
  EXPECT_TRUE(is_target(lora, "transformer.h.0.attn.c_proj"));
  EXPECT_FALSE(is_target(lora, "transformer.h.0.mlp.c_proj"));
  EXPECT_FALSE(is_target(lora, "transformer.h.0.mlp.c_fc"));
  EXPECT_TRUE(is_target(lora, "transformer.h.1.mlp.c_fc"));
  EXPECT_FALSE(is_target({.rank = 1, .targets = {"proj"}}, "model.layers.0.self_attn.q_proj"));
  // Several may name the same one.
  EXPECT_TRUE(
      complete_lora({.rank = 1, .targets = {"q_proj", "self_attn.q_proj"}}, test::llama_config()));
  EXPECT_FALSE(is_target({.rank = 0, .targets = {"q_proj"}}, "model.layers.0.self_attn.q_proj"));
}

TEST(Lora, ListsItsParameters) {
  const TransformerConfig config = test::llama_config();
  const LoraConfig lora = must(complete_lora({.rank = 3, .targets = {"k_proj"}}, config));
  const auto infos = lora_parameters(config, lora);
  ASSERT_EQ(infos.size(), 4u);
  EXPECT_EQ(infos[0].name, "model.layers.0.self_attn.k_proj.lora_A.weight");
  EXPECT_EQ(infos[0].shape, Shape(3, 32));
  EXPECT_EQ(infos[3].name, "model.layers.1.self_attn.k_proj.lora_B.weight");
  EXPECT_EQ(infos[3].shape, Shape(16, 3));
  EXPECT_EQ(trained_parameters(config, lora).size(), 4u);
  EXPECT_EQ(trained_parameters(config, {}).size(), parameters(config).size());
}

TEST(Lora, AFreshAdapterIsUniformAndChangesNothing) {
  const auto device = test::device(1);
  const TransformerConfig config = test::gpt2_config();
  Transformer model = test::lively_model(config, device);
  const auto ids = test::some_ids(12, config.vocab_size);
  const auto before = test::evaluate(model, ids, 2, ids);
  const Adapter adapter = must(Adapter::random(config, all_linear(8), 7, *device));
  double largest = 0.0;
  double sum = 0.0;
  std::size_t count = 0;
  for (const LoraLayer& layer : lora_layers(config, adapter.config)) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(layer.inputs));
    for (const float x : test::values(adapter.weights.at(layer.a()))) {
      largest = std::max(largest, std::abs(static_cast<double>(x)) / bound);
      sum += static_cast<double>(x * x) / (bound * bound);
      ++count;
    }
    for (const float x : test::values(adapter.weights.at(layer.b()))) EXPECT_EQ(x, 0.0f);
  }
  EXPECT_LE(largest, 1.0);
  EXPECT_GT(largest, 0.99);
  EXPECT_NEAR(sum / static_cast<double>(count), 1.0 / 3.0, 0.02);  // A uniform's variance.
  const Adapter again = must(Adapter::random(config, all_linear(8), 7, *device));
  const Adapter other = must(Adapter::random(config, all_linear(8), 8, *device));
  const std::string first = lora_layers(config, adapter.config).front().a();
  EXPECT_EQ(test::values(adapter.weights.at(first)), test::values(again.weights.at(first)));
  EXPECT_NE(test::values(adapter.weights.at(first)), test::values(other.weights.at(first)));
  must(model.attach(adapter));
  EXPECT_EQ(test::evaluate(model, ids, 2, ids).logits, before.logits);
  EXPECT_EQ(model.trained_weights().size(), adapter.weights.size());
}

class LoraModels : public testing::TestWithParam<TransformerConfig> {};

// One adapter three ways: beside the weights, merged into them, and while generating.
TEST_P(LoraModels, MergedIsAttachedIsGenerated) {
  const TransformerConfig& config = GetParam();
  const auto device = test::device(2);
  const Transformer base = test::lively_model(config, device);
  const LoraConfig lora{
      .rank = 3, .dropout = 0.5f, .rank_stabilized = true, .targets = {std::string(kAllLinear)}};
  const Adapter adapter = lively_adapter(config, lora, *device);
  Transformer attached = base;
  must(attached.attach(adapter));
  EXPECT_GT(attached.weight_bytes(), base.weight_bytes());
  Transformer merged = base;
  must(apply_adapter(merged, adapter));
  const auto ids = test::some_ids(20, config.vocab_size);
  const auto plain = test::evaluate(base, ids, 2, ids).logits;
  const auto beside = test::evaluate(attached, ids, 2, ids).logits;
  const auto inside = test::evaluate(merged, ids, 2, ids).logits;
  double change = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    change = std::max(change, static_cast<double>(std::abs(plain[i] - beside[i])));
    largest = std::max(largest, static_cast<double>(std::abs(inside[i])));
  }
  EXPECT_GT(change, 0.1);
  // The same sums in another order. They differ by up to 1.4e-5 of the largest logit on a GPU.
  const double bound = (test::on_gpu() ? 2e-5 : 1e-5) * largest;
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(beside[i], inside[i], bound);
  const auto generate = [&](const Transformer& model) {
    Generator generator = must(Generator::create(model, {}));
    const std::vector<GenerationRequest> requests = {{.prompt = {3, 1, 4},
                                                      .max_new_tokens = 12,
                                                      .sampling = {.temperature = 0.0f},
                                                      .stop_tokens = {}}};
    return must(generator.generate(requests)).front().tokens;
  };
  EXPECT_EQ(generate(attached), generate(merged));
  EXPECT_NE(generate(attached), generate(base));
}
INSTANTIATE_TEST_SUITE_P(Families, LoraModels,
                         testing::Values(test::gpt2_config(), test::llama_config()));

// Nothing of the weights is differentiated, summed or updated.
TEST(Lora, TrainsTheAdapterAlone) {
  const TransformerConfig config = test::llama_config();
  const LoraConfig lora = must(complete_lora({.rank = 2}, config));
  const Graph graph = must(build_training_graph(config, {.batch = 1, .time = 4, .lora = lora}));
  std::size_t updates = 0;
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<AdamW>(node.op)) continue;
    ++updates;
    EXPECT_THAT(graph.value(node.inputs.front()).name, HasSubstr(".lora_"));
  }
  EXPECT_EQ(updates, lora_parameters(config, lora).size());
  // Weight gradients are the products with a transposed left side: two a layer of the adapter.
  std::size_t gradients = 0;
  for (const Node& node : graph.nodes()) {
    const auto* product = std::get_if<MatMul>(&node.op);
    gradients += product != nullptr && product->transpose_a ? 1u : 0u;
    EXPECT_FALSE(std::holds_alternative<EmbeddingGrad>(node.op));
  }
  EXPECT_EQ(gradients, updates);
  for (const Value& value : graph.values()) {
    if (value.kind != ValueKind::kState) continue;
    EXPECT_THAT(value.name, HasSubstr(".lora_"));
  }
}

TEST(Lora, DropoutAsksForRandomNumbersInTrainingOnly) {
  const TransformerConfig config = test::llama_config();
  LoraConfig lora = must(complete_lora({.rank = 2, .dropout = 0.25f}, config));
  const auto has_rng = [](const Graph& graph) { return graph.find("rng").has_value(); };
  EXPECT_TRUE(has_rng(must(build_training_graph(config, {.batch = 1, .time = 4, .lora = lora}))));
  EXPECT_FALSE(has_rng(must(build_evaluation_graph(config, 1, 4, true, lora))));
  EXPECT_FALSE(has_rng(must(build_cached_graph(config, {.sampling = false, .lora = lora}))));
  lora.dropout = 0.0f;
  EXPECT_FALSE(has_rng(must(build_training_graph(config, {.batch = 1, .time = 4, .lora = lora}))));
}

TEST(Lora, ChecksEveryTensor) {
  const auto device = test::device(1);
  const TransformerConfig config = test::llama_config();
  Transformer model = test::lively_model(config, device);
  const Adapter good = lively_adapter(config, all_linear(), *device);
  const std::string a = lora_layers(config, good.config).front().a();
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    Adapter bad = good;
    bad.weights[name] = tensor;
    return bad;
  };
  Adapter missing = good;
  missing.weights.erase(a);
  const auto file = ErrorCode::kInvalidFile;
  expect_error(apply_adapter(model, missing), file, "has no tensor '" + a + "'");
  expect_error(model.attach(with(a, test::floats(Shape(2, 32), std::vector<float>(64)))), file,
               "a rank of 3 asks for a float tensor");
  expect_error(apply_adapter(model, with(a, must(Tensor::zeros({DType::kI32, Shape(3, 32)})))),
               file, a);
  expect_error(apply_adapter(model, with("lm_head.lora_A.weight", good.weights.at(a))), file,
               "'lm_head.lora_A.weight' f32[3, 32] belongs to no target");
}

TEST(Lora, SixteenBitAdaptersAreMergedInF32) {
  const auto device = test::device(1);
  const TransformerConfig config = test::gpt2_config();
  Adapter adapter = lively_adapter(config, {.rank = 2}, *device);
  Adapter narrow = adapter;
  for (auto& [name, tensor] : narrow.weights) {
    tensor = must(tensor_ops::cast(*device, tensor, DType::kBF16));
    adapter.weights[name] = must(tensor_ops::cast(*device, tensor, DType::kF32));
  }
  Transformer one = test::lively_model(config, device);
  Transformer two = one;
  Transformer three = one;
  must(apply_adapter(one, adapter));
  must(apply_adapter(two, narrow));
  must(three.attach(narrow));
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  EXPECT_EQ(test::values(must(one.weight(name))), test::values(must(two.weight(name))));
  EXPECT_EQ(three.adapter().weights.begin()->second.dtype(), DType::kF32);
}

TEST(Lora, PackedWeightsAreRefused) {
  if (test::on_gpu()) GTEST_SKIP() << "a GPU reads f32 weights in plain rows";
  const auto device = test::device(1);
  Transformer model = test::lively_model(test::llama_config(), device);
  const Adapter adapter = lively_adapter(model.config(), {.rank = 2}, *device);
  must(model.prepack());
  expect_error(apply_adapter(model, adapter), kInvalid, "is packed");
  expect_error(
      model.replace_weight("model.norm.weight", must(Tensor::zeros({DType::kF32, Shape(3)}))),
      kInvalid, "cannot take its place");
  expect_error(model.replace_weight("nothing", {}), ErrorCode::kNotFound, "nothing");
}

}  // namespace
}  // namespace volta
