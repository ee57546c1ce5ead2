// The gradient of a whole model against finite differences of its own loss, parameter by parameter.
#include <cmath>

#include "nn/helpers.h"

namespace volta {
namespace {

using test::must;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kTime = 6;
constexpr double kStep = 0.02;  // Longest move in parameter space.

class Loss {
 public:
  explicit Loss(const Transformer& model)
      : model_(model),
        plan_(test::bind_graph(must(build_evaluation_graph(model.config(), kBatch, kTime, false)),
                               model, states_)) {
    fill(plan_);
  }

  // Mean token loss, summed in f64.
  double operator()() {
    must(plan_.run());
    double sum = 0.0;
    for (const float x : test::values(plan_.output("token_loss"))) sum += static_cast<double>(x);
    return sum / static_cast<double>(kBatch * kTime);
  }

  std::map<std::string, Tensor> gradients() {
    test::States states;
    Executable plan = test::bind_graph(
        must(build_accumulate_graph(
            model_.config(), {.batch = kBatch, .time = kTime, .dropout = {}, .optimizer = {}})),
        model_, states);
    fill(plan);
    must(plan.run());
    return states;
  }

 private:
  void fill(const Executable& plan) {
    test::put(plan, "ids", test::some_ids(kBatch * kTime, model_.config().vocab_size));
    test::put(plan, "targets", test::some_ids(kBatch * kTime, model_.config().vocab_size, 9));
    test::put(plan, "positions", test::count_up(kTime));
  }

  const Transformer& model_;
  test::States states_;
  Executable plan_;
};

using Vector = std::vector<double>;

double dot(const Vector& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

Vector unit(Vector v) {
  double square = 0.0;
  for (const double x : v) square += x * x;
  for (double& x : v) x /= std::sqrt(square);
  return v;
}

// d(loss)/d(direction) by central differences at h and 2h, extrapolated (Richardson), and how far
// it can be off: the loss is computed in f32, some 32 roundings deep, and the remainder is below a
// tenth of the correction that the extrapolation made. Where the loss bends sharply (a tied
// embedding moves both ends of the model), h is halved until rounding is the larger part.
struct Slope {
  double value = 0.0;
  double error = 0.0;
};
Slope slope(Loss& loss, Tensor weight, const Vector& direction) {
  const auto original = test::values(weight);
  const auto at = [&](double step) {
    auto moved = original;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      moved[i] = static_cast<float>(static_cast<double>(moved[i]) + step * direction[i]);
    }
    must(weight.write(std::span<const float>(moved)));
    return loss();
  };
  const double noise = 1.5 * 32 * 0x1p-24 * loss();
  double step = kStep;
  double far = (at(2 * step) - at(-2 * step)) / (4 * step);
  double near = (at(step) - at(-step)) / (2 * step);
  while (0.1 * std::abs(near - far) > noise / step) {
    step /= 2;
    far = near;
    near = (at(step) - at(-step)) / (2 * step);
  }
  must(weight.write(std::span<const float>(original)));
  return {(4 * near - far) / 3, noise / step + 0.1 * std::abs(near - far)};
}

void check_model(const TransformerConfig& config) {
  const Transformer model = test::lively_model(config, test::device(2));
  Loss loss(model);
  const auto gradients = loss.gradients();
  RandomSequence random(RandomKey{.seed = 8});
  int sharp = 0;
  for (const ParameterInfo& info : parameters(config)) {
    SCOPED_TRACE(info.name);
    const auto gradient = test::values(gradients.at("grad." + info.name));
    const Tensor weight = must(model.weight(info.name));
    // Along the gradient itself, along a random direction, and along three elements.
    std::vector<Vector> directions;
    const Vector along(gradient.begin(), gradient.end());
    const double norm = std::sqrt(dot(along, gradient));
    if (norm > 1e-5) directions.push_back(unit(along));
    Vector any(gradient.size());
    for (double& x : any) x = test::next_normal(random);
    directions.push_back(unit(any));
    for (int i = 0; i < 3; ++i) {
      Vector one(gradient.size(), 0.0);
      one[random.next_below(static_cast<std::uint32_t>(one.size()))] = 1.0;
      directions.push_back(one);
    }
    for (const Vector& direction : directions) {
      const Slope wanted = slope(loss, weight, direction);
      EXPECT_NEAR(dot(direction, gradient), wanted.value, wanted.error);
      EXPECT_LT(wanted.error, 0.01);
      if (wanted.error < 0.01 * std::abs(wanted.value)) ++sharp;
    }
  }
  // Most checks are sharp: a gradient that is off by a hundredth fails them.
  EXPECT_GT(sharp, 2 * static_cast<int>(parameters(config).size()));
}

TransformerConfig small(TransformerConfig config) {
  config.vocab_size = 11;
  config.context = 8;
  config.dim = 12;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 6;
  config.ffn = 14;
  config.window = 0;
  return config;
}

TEST(ModelGradient, Gpt2) {
  TransformerConfig config = small(test::gpt2_config());
  config.kv_heads = 2;
  check_model(config);
}
TEST(ModelGradient, Llama) { check_model(small(test::llama_config())); }
// Head norms, a window, tied output and biases on top.
TEST(ModelGradient, QwenWithWindow) {
  TransformerConfig config = small(test::llama_config());
  config.qk_norm = config.attention_bias = config.tied_output = true;
  config.window = 3;
  check_model(config);
}
// One matrix for q, k and v and one for gate and up, a part of each head rotated.
TEST(ModelGradient, Phi3) {
  TransformerConfig config = small(test::llama_config());
  config.naming = WeightNaming::kPhi3;
  config.rotary_dim = 4;
  check_model(config);
}
// Norms after each half, and of whole rows of queries and keys.
TEST(ModelGradient, Olmo2) {
  TransformerConfig config = small(test::llama_config());
  config.naming = WeightNaming::kGemma;
  config.norm_place = NormPlace::kAfter;
  config.qk_norm = config.qk_norm_whole = true;
  check_model(config);
}
TEST(ModelGradient, SmolLm3) {
  TransformerConfig config = small(test::llama_config());
  config.unrotated_layers = {1};
  config.tied_output = true;
  check_model(config);
}
TEST(ModelGradient, Granite) {
  TransformerConfig config = small(test::llama_config());
  config.embedding_scale = 0.7f;
  config.attention_scale = 0.8f;
  config.residual_scale = 1.4f;
  config.logit_divisor = 0.5f;
  config.tied_output = true;
  check_model(config);
}
TransformerConfig small_gemma() {
  TransformerConfig config = small(test::llama_config());
  config.naming = WeightNaming::kGemma;
  config.norm_place = NormPlace::kAround;
  config.activation = Activation::kGeluTanh;
  config.norm_plus_one = config.tied_output = config.embedding_scaled = true;
  config.query_scalar = 9.0f;
  config.window = 3;
  config.full_layers = {1};
  return config;
}
TEST(ModelGradient, Gemma2) {
  TransformerConfig config = small_gemma();
  config.attention_softcap = 2.0f;
  config.logit_softcap = 3.0f;
  check_model(config);
}
TEST(ModelGradient, Gemma3) {
  TransformerConfig config = small_gemma();
  config.qk_norm = true;
  config.rope_local_theta = 100.0f;
  check_model(config);
}

}  // namespace
}  // namespace volta
