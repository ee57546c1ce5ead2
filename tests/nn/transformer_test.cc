// Transformer: fresh weights, weights from elsewhere, and what plans bind.
#include "nn/transformer.h"

#include <cmath>

#include "device/tensor_ops.h"
#include "nn/generator.h"
#include "nn/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::must;

std::map<std::string, Tensor> copy_of(const Transformer& model) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, weight] : model.weights()) out.emplace(name, must(weight.clone_to()));
  return out;
}

double deviation(const Tensor& tensor) {
  double sum = 0.0;
  for (const float x : test::values(tensor)) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum / static_cast<double>(tensor.elements()));
}

TEST(Transformer, RandomIsAFunctionOfTheSeed) {
  const auto device = test::device(1);
  const auto config = test::gpt2_config();
  const Transformer a = must(Transformer::random(config, 5, device));
  const Transformer b = must(Transformer::random(config, 5, test::device(3)));
  const Transformer c = must(Transformer::random(config, 6, device));
  for (const ParameterInfo& info : parameters(config)) {
    const auto values = test::values(a.weight(info.name));
    EXPECT_EQ(values, test::values(b.weight(info.name))) << info.name;
    EXPECT_EQ(values == test::values(c.weight(info.name)), !info.decay()) << info.name;
  }
  EXPECT_NE(test::values(a.weight("transformer.h.0.mlp.c_fc.weight")),
            test::values(a.weight("transformer.h.1.mlp.c_fc.weight")));
  EXPECT_EQ(a.config(), config);
  EXPECT_EQ(a.device(), device);
  EXPECT_EQ(a.parameter_count(), parameter_count(config));
  EXPECT_EQ(a.weight_bytes(), 4 * parameter_count(config));
}

TEST(Transformer, RandomScales) {
  TransformerConfig config = tiny_lm_config();
  config.norm_bias = true;
  const Transformer model = must(Transformer::random(config, 1, test::device(1)));
  // The sample deviation of n normal values is off by sigma / sqrt(2 n): 5 of those at n = 16384.
  const double slack = 5.0 / std::sqrt(2.0 * 128.0 * 128.0);
  for (const ParameterInfo& info : parameters(config)) {
    const Tensor weight = must(model.weight(info.name));
    if (info.init == InitKind::kNormal) {
      EXPECT_NEAR(deviation(weight) / 0.02, 1.0, slack) << info.name;
    } else if (info.init == InitKind::kNormalResidual) {  // sqrt(2 layers) = sqrt(8)
      EXPECT_NEAR(deviation(weight) * std::sqrt(8.0) / 0.02, 1.0, slack) << info.name;
    } else {
      const float wanted = info.init == InitKind::kOnes ? 1.0f : 0.0f;
      EXPECT_THAT(test::values(weight), testing::Each(wanted)) << info.name;
    }
  }
}

TEST(Transformer, RejectsABadConfig) {
  TransformerConfig config;
  config.kv_heads = 3;
  const auto device = test::device(1);
  test::expect_error(Transformer::random(config, 1, device), ErrorCode::kInvalidArgument,
                     "kv_heads must divide heads");
  test::expect_error(Transformer::from_weights(config, {}, device), ErrorCode::kInvalidArgument,
                     "kv_heads must divide heads");
}

TEST(Transformer, FromWeightsChecksEveryTensor) {
  const auto device = test::device(1);
  const auto config = test::gpt2_config();
  const Transformer model = must(Transformer::random(config, 1, device));
  const std::string name = "transformer.h.1.attn.c_attn.weight";
  const auto try_with = [&](const auto& change) {
    auto weights = copy_of(model);
    change(weights);
    return Transformer::from_weights(config, std::move(weights), device);
  };
  EXPECT_TRUE(try_with([](auto&) {}));
  test::expect_error(try_with([&](auto& w) { w.erase(name); }), ErrorCode::kInvalidFile,
                     "no tensor '" + name + "' [32, 96]");
  test::expect_error(try_with([&](auto& w) { w[name] = must(w[name].reshape(Shape(96, 32))); }),
                     ErrorCode::kInvalidFile, "'" + name + "' is f32[96, 32]");
  test::expect_error(
      try_with([&](auto& w) { w[name] = must(Tensor::zeros({DType::kI32, Shape(32, 96)})); }),
      ErrorCode::kInvalidFile, "asks for a float tensor [32, 96]");
  test::expect_error(try_with([&](auto& w) { w["stray"] = test::floats(Shape(2), {1, 2}); }),
                     ErrorCode::kInvalidFile, "tensor 'stray' f32[2] belongs to no parameter");
}

TEST(Transformer, HalfPrecisionWeightsAreConverted) {
  const auto device = test::device(1);
  const auto config = test::llama_config();
  const Transformer model = must(Transformer::random(config, 1, device));
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::map<std::string, Tensor> weights;
    for (const auto& [name, weight] : model.weights()) {
      weights.emplace(name, must(tensor_ops::cast(*device, weight, dtype)));
    }
    const auto halves = weights;
    const Transformer loaded = must(Transformer::from_weights(config, std::move(weights), device));
    for (const auto& [name, half] : halves) {
      const Tensor weight = must(loaded.weight(name));
      EXPECT_EQ(weight.dtype(), DType::kF32);
      EXPECT_EQ(test::values(weight), test::values(tensor_ops::cast(*device, half, DType::kF32)));
      EXPECT_TRUE(dtype == DType::kF16 || name.find("norm") != std::string::npos ||
                  test::values(weight) != test::values(model.weight(name)));
    }
  }
}

TEST(Transformer, WeightsMoveToTheDevicesMemory) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  const auto config = test::llama_config();
  const Transformer host = must(Transformer::random(config, 4, test::cpu(1)));
  const Transformer moved = must(Transformer::from_weights(config, copy_of(host), device));
  for (const auto& [name, weight] : moved.weights()) {
    EXPECT_EQ(weight.buffer()->owner(), device->memory());
    EXPECT_EQ(test::values(weight), test::values(host.weight(name)));
  }
}

TEST(Transformer, RunsOutOfMemoryWithAnError) {
  const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto config = test::llama_config();
  std::int64_t nth = 0;
  for (bool done = false; !done; device->faulty_memory().allocation_fuse.arm(0)) {
    device->faulty_memory().allocation_fuse.arm(++nth);
    const auto model = Transformer::random(config, 1, device);
    done = model.has_value();
    if (!done) {
      EXPECT_EQ(model.error().code(), ErrorCode::kOutOfMemory);
    }
  }
  EXPECT_GT(nth, static_cast<std::int64_t>(parameters(config).size()));
  EXPECT_EQ(device->faulty_memory().live_bytes(), 0);
}

TEST(Transformer, BindsWeightsAndTheRotationTable) {
  TransformerConfig config = test::llama_config();
  config.rotary_dim = 4;
  const Transformer model = must(Transformer::random(config, 1, test::device(1)));
  const auto bind = [](const Transformer& m, const std::string& name, const Shape& shape = {}) {
    return m.bind({.name = name,
                   .kind = ValueKind::kParameter,
                   .spec = {DType::kF32, shape},
                   .constant = {}});
  };
  EXPECT_EQ(must(bind(model, "model.norm.weight")).buffer(),
            must(model.weight("model.norm.weight")).buffer());
  test::expect_error(bind(model, "nothing"), ErrorCode::kNotFound, "no parameter 'nothing'");
  test::expect_error(model.weight("nothing"), ErrorCode::kNotFound, "no parameter 'nothing'");

  // As many rows as the plan asks for.
  const Tensor table = must(bind(model, "rope.table", Shape(100, 4)));
  ASSERT_EQ(table.shape(), Shape(100, 4));
  test::expect_error(bind(model, "rope.table"), ErrorCode::kInvalidArgument, "0 rows");
  const auto values = test::values(table);
  for (std::int64_t t = 0; t < 100; ++t) {
    for (std::int64_t i = 0; i < 2; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 4.0);
      const auto at = static_cast<std::size_t>(t * 4 + i);
      // The angle is rounded to f32 twice: up to 100 * 2^-23.
      EXPECT_NEAR(static_cast<double>(values[at]), std::cos(angle), 4e-5);
      EXPECT_NEAR(static_cast<double>(values[at + 2]), std::sin(angle), 4e-5);
    }
  }
  const Transformer learned = must(Transformer::random(test::gpt2_config(), 1, test::device(1)));
  test::expect_error(bind(learned, "rope.table"), ErrorCode::kNotFound, "rope.table");
}

// The same tokens, with the same probabilities, from packed weights as from plain ones.
TEST(Transformer, PackedWeightsGiveTheSameBits) {
  for (const TransformerConfig& config : {test::gpt2_config(), test::llama_config()}) {
    for (const bool tied : {false, true}) {
      TransformerConfig wanted = config;
      wanted.tied_output = tied;
      const Transformer plain = must(Transformer::random(wanted, 3, test::device(2)));
      Transformer packed = plain;
      must(packed.prepack());
      EXPECT_GE(packed.weight_bytes(), plain.weight_bytes());
      std::vector<std::int32_t> prompt(70);
      std::iota(prompt.begin(), prompt.end(), 0);
      for (std::int32_t& token : prompt) token %= 61;
      const GenerationRequest request{prompt, 5, {}, {}};
      Generator a = must(Generator::create(plain, {})), b = must(Generator::create(packed, {}));
      const auto from_a = must(a.generate(std::span(&request, 1)));
      const auto from_b = must(b.generate(std::span(&request, 1)));
      EXPECT_EQ(from_a[0].tokens, from_b[0].tokens);
      EXPECT_EQ(from_a[0].logprobs, from_b[0].logprobs);
      must(packed.prepack());  // Nothing left to do.
      // They go from one model to another as they are.
      const Transformer again =
          must(Transformer::from_weights(wanted, packed.weights(), packed.device()));
      EXPECT_EQ(again.weight_bytes(), packed.weight_bytes());
    }
  }
}

TEST(Transformer, PacksInHalfTheBytes) {
  const Transformer plain = must(Transformer::random(test::llama_config(), 3, test::device(2)));
  Transformer packed = plain;
  must(packed.prepack({.dtype = DType::kBF16}));
  const Tensor weight = must(packed.weight("model.layers.0.mlp.up_proj.weight"));
  EXPECT_EQ(weight.dtype(), DType::kBF16);
  EXPECT_EQ(weight.spec().encoding.packing,
            test::on_gpu() ? Packing::kRows : Packing::kPanels);  // A GPU reads plain rows.
  EXPECT_EQ(must(packed.weight("model.norm.weight")).dtype(), DType::kF32);
  const GenerationRequest request{{1, 2, 3}, 5, {}, {}};
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Generator generator = must(Generator::create(packed, {.compute_dtype = compute}));
    EXPECT_EQ(must(generator.generate(std::span(&request, 1)))[0].tokens.size(), 5u);
  }
}

}  // namespace
}  // namespace volta
