// What peft writes is read in tests/train/lora_test.cc; here is what may be wrong with it.
#include "formats/adapter.h"

#include <gmock/gmock.h>

#include <fstream>
#include <functional>

#include "device/cpu_device.h"
#include "device/helpers.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

constexpr auto kInvalid = ErrorCode::kInvalidFile;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

TransformerConfig small_llama() {
  return {.vocab_size = 11,
          .context = 8,
          .layers = 1,
          .dim = 8,
          .heads = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .ffn = 12,
          .naming = WeightNaming::kLlama,
          .position = PositionKind::kRotary,
          .norm = NormKind::kRms,
          .ffn_kind = FfnKind::kGated,
          .activation = Activation::kSilu};
}

// The keys that peft writes, `more` among them.
std::string config_text(const std::string& more = "",
                        const std::string& targets = R"(["q_proj", "v_proj"])") {
  return R"({"alpha_pattern": {}, "auto_mapping": null, "base_model_name_or_path": "x",
    "bias": "none", "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
    "lora_alpha": 8, "lora_dropout": 0.25, "megatron_core": "megatron.core", "peft_type": "LORA",
    "qalora_group_size": 16, "r": 2, "task_type": "CAUSAL_LM", "use_dora": false, )" +
         more + R"("target_modules": )" + targets + "}";
}

TEST(AdapterConfig, ReadsWhatPeftWrites) {
  const auto lora =
      parse_adapter_config(config_text(R"("use_rslora": true, "loftq_config": {}, )"), "c");
  ASSERT_TRUE(lora) << lora.error().message();
  EXPECT_EQ(*lora, (LoraConfig{.rank = 2,
                               .alpha = 8.0,
                               .dropout = 0.25f,
                               .rank_stabilized = true,
                               .targets = {"q_proj", "v_proj"}}));
  const auto all = parse_adapter_config(config_text("", R"("all-linear")"), "c");
  ASSERT_TRUE(all);
  EXPECT_THAT(all->targets, testing::ElementsAre("all-linear"));
  // Least of all.
  EXPECT_TRUE(parse_adapter_config(
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": 0.5, "target_modules": ["a"]})", "c"));
}

TEST(AdapterConfig, RefusesByNameWhatIsMoreThanLora) {
  const std::map<std::string, std::string> wanted = {
      {R"("use_dora_v2": true, )", "c: use_dora_v2 is true"},
      {R"("rank_pattern": {"q_proj": 4}, )", "rank_pattern is an object"},
      {R"("modules_to_save": ["lm_head"], )", "modules_to_save is an array"},
      {R"("layers_to_transform": 1, )", "layers_to_transform is 1"},
      {R"("exclude_modules": "k_proj", )", "exclude_modules is k_proj"},
      {R"("lora_magnitude": 0.5, )", "lora_magnitude is 0.5"},
  };
  for (const auto& [more, message] : wanted) {
    expect_error(parse_adapter_config(config_text(more), "c"), kUnsupported, message);
  }
  const auto replaced = [](const std::string& from, const std::string& to) {
    std::string text = config_text();
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  expect_error(parse_adapter_config(replaced(R"("use_dora": false)", R"("use_dora": true)"), "c"),
               kUnsupported, "use_dora is true");
  expect_error(parse_adapter_config(replaced("\"LORA\"", "\"IA3\""), "c"), kUnsupported,
               "peft_type is 'IA3'");
  expect_error(parse_adapter_config(replaced("\"none\"", "\"all\""), "c"), kUnsupported,
               "bias is all");
  expect_error(parse_adapter_config(replaced("CAUSAL_LM", "SEQ_CLS"), "c"), kUnsupported,
               "task_type is SEQ_CLS");
  const std::string init = R"("init_lora_weights": true)";
  expect_error(parse_adapter_config(replaced(init, R"("init_lora_weights": "pissa")"), "c"),
               kUnsupported, "init_lora_weights is pissa");
  EXPECT_TRUE(parse_adapter_config(replaced(init, R"("init_lora_weights": "gaussian")"), "c"));
  EXPECT_TRUE(parse_adapter_config(replaced(init, R"("init_lora_weights": null)"), "c"));
  expect_error(parse_adapter_config(config_text("", R"(".*_proj")"), "c"), kUnsupported,
               "'.*_proj' is a regular expression");
}

TEST(AdapterConfig, RefusesWrongValues) {
  const auto broken = [](const std::string& from, const std::string& to) {
    std::string text = config_text();
    text.replace(text.find(from), from.size(), to);
    return parse_adapter_config(text, "c");
  };
  expect_error(parse_adapter_config("{", "c"), kInvalid, "c");
  expect_error(parse_adapter_config("[]", "c"), kInvalid, "c");
  expect_error(broken(R"("r": 2)", R"("r": 0)"), kInvalid, "r");
  expect_error(broken(R"("r": 2)", R"("r": 1.5)"), kInvalid, "r");
  expect_error(broken(R"("r": 2, )", ""), kInvalid, "r");
  expect_error(broken(R"("lora_alpha": 8)", R"("lora_alpha": 0)"), kInvalid, "lora_alpha");
  expect_error(broken(R"("lora_alpha": 8)", R"("lora_alpha": "8")"), kInvalid, "lora_alpha");
  expect_error(broken("0.25", "-1"), kInvalid, "lora_dropout");
  expect_error(broken("\"none\"", "1"), kInvalid, "bias");
  expect_error(parse_adapter_config(config_text(R"("use_rslora": 1, )"), "c"), kInvalid,
               "use_rslora");
  expect_error(parse_adapter_config(config_text("", "[]"), "c"), kInvalid, "there are no targets");
  expect_error(parse_adapter_config(config_text("", "[1]"), "c"), kInvalid, "target_modules[0]");
  expect_error(parse_adapter_config(config_text("", "{}"), "c"), kInvalid, "target_modules");
}

class AdapterFolder : public testing::Test {
 protected:
  AdapterFolder() {
    auto made = Adapter::random(config_, {.rank = 2}, 1, *device_);
    adapter_ = *std::move(made);
  }
  std::map<std::string, Tensor> tensors() const {
    std::map<std::string, Tensor> out;
    for (const auto& [name, tensor] : adapter_.weights) {
      out.emplace("base_model.model." + name, tensor);
    }
    return out;
  }
  // Writes a folder with changed tensors and loads it.
  Result<Adapter> load(const std::function<void(std::map<std::string, Tensor>&)>& change,
                       const std::string& config = config_text()) {
    auto all = tensors();
    change(all);
    EXPECT_TRUE(write_safetensors(dir_.file("adapter_model.safetensors"), all));
    std::ofstream(dir_.file("adapter_config.json")) << config;
    return load_adapter(dir_.path(), config_);
  }
  static Tensor zeros(DType dtype, const Shape& shape) { return *Tensor::zeros({dtype, shape}); }

  test::TempDir dir_;
  std::shared_ptr<Device> device_ = test::cpu(1);
  TransformerConfig config_ = small_llama();
  Adapter adapter_;
  const std::string q_ = "base_model.model.model.layers.0.self_attn.q_proj.";
};

TEST_F(AdapterFolder, ComesBackAsItWas) {
  ASSERT_TRUE(save_adapter(dir_.path(), config_, adapter_, "/models/base"));
  const auto again = load_adapter(dir_.path(), config_);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->config, adapter_.config);
  ASSERT_EQ(again->weights.size(), 4u);
  for (const auto& [name, tensor] : again->weights) {
    EXPECT_EQ(test::values(tensor), test::values(adapter_.weights.at(name))) << name;
  }
  const std::string text = adapter_config_json(config_, adapter_.config, "/models/base");
  EXPECT_THAT(text, HasSubstr(R"("base_model_name_or_path": "/models/base")"));
  EXPECT_THAT(text, HasSubstr(R"("fan_in_fan_out": false)"));
  TransformerConfig gpt2 = config_;
  gpt2.naming = WeightNaming::kGpt2;
  gpt2.position = PositionKind::kLearned;
  EXPECT_THAT(adapter_config_json(gpt2, adapter_.config, ""),
              HasSubstr(R"("fan_in_fan_out": true)"));
}

TEST_F(AdapterFolder, TakesSixteenBits) {
  const auto loaded = load([&](auto& all) {
    all[q_ + "lora_A.weight"] = zeros(DType::kBF16, Shape(2, 8));
    all[q_ + "lora_B.weight"] = zeros(DType::kF16, Shape(8, 2));
  });
  EXPECT_TRUE(loaded) << loaded.error().message();
}

TEST_F(AdapterFolder, NamesWhatDoesNotFit) {
  const auto nothing = [](auto&) {};
  expect_error(load(nothing, config_text("", R"(["q_proj", "c_attn"])")), kInvalid,
               "'c_attn' names no projection");
  expect_error(load(nothing, config_text("", R"(["q_proj"])")), kInvalid,
               "v_proj.lora_A.weight' f32[2, 8] belongs to no target");
  expect_error(load(nothing, config_text("", R"(["q_proj", "v_proj", "k_proj"])")), kInvalid,
               "no tensor 'model.layers.0.self_attn.k_proj.lora_A.weight'");
  std::string rank = config_text();
  rank.replace(rank.find(R"("r": 2)"), 6, R"("r": 3)");
  expect_error(load(nothing, rank), kInvalid, "is f32[2, 8]; in this model a rank of 3");
  rank.replace(rank.find(R"("r": 3)"), 6, R"("r": 4000000000)");
  expect_error(load(nothing, rank), kInvalid, "4000000000");
  expect_error(load([&](auto& all) { all.erase(q_ + "lora_B.weight"); }), kInvalid,
               "q_proj.lora_B");
  expect_error(
      load([&](auto& all) { all[q_ + "lora_A.weight"] = zeros(DType::kF32, Shape(8, 2)); }),
      kInvalid, "f32[8, 2]");
  expect_error(
      load([&](auto& all) { all[q_ + "lora_A.weight"] = zeros(DType::kI32, Shape(2, 8)); }),
      kInvalid, "i32[2, 8]");
  expect_error(
      load([&](auto& all) { all[q_ + "lora_magnitude_vector"] = zeros(DType::kF32, Shape(8)); }),
      kInvalid, "lora_magnitude_vector");
  expect_error(load([&](auto& all) { all["lora_A.weight"] = zeros(DType::kF32, Shape(8)); }),
               kInvalid, "their names begin with 'base_model.model.'");
}

TEST_F(AdapterFolder, NamesTheFileThatIsMissing) {
  expect_error(load_adapter(dir_.path(), config_), ErrorCode::kNotFound, "adapter_config.json");
  std::ofstream(dir_.file("adapter_config.json")) << config_text();
  expect_error(load_adapter(dir_.path(), config_), ErrorCode::kNotFound,
               "adapter_model.safetensors");
  EXPECT_FALSE(save_adapter(dir_.file("none"), config_, adapter_, ""));
}

TEST(AdapterBaseName, IsOptional) {
  const test::TempDir dir;
  const auto name_of = [&](const std::string& text) {
    std::ofstream(dir.file("adapter_config.json")) << text;
    return adapter_base_name(dir.path());
  };
  EXPECT_EQ(*name_of(config_text()), "x");
  EXPECT_EQ(*name_of("{}"), "");
  EXPECT_EQ(*name_of(R"({"base_model_name_or_path": null})"), "");
  expect_error(name_of(R"({"base_model_name_or_path": 1})"), kInvalid, "base_model_name_or_path");
  expect_error(name_of("x"), kInvalid, "adapter_config.json");
  expect_error(adapter_base_name(dir.file("none")), ErrorCode::kNotFound, "none");
}

}  // namespace
}  // namespace volta
