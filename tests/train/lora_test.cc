// Adapters against peft and PyTorch (goldens of make_lora_golden.py), and runs that train them.
#include "nn/lora.h"

#include <cmath>

#include "formats/adapter.h"
#include "graph/passes.h"
#include "nn/training_graph.h"
#include "nn/transformer_graph.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"
#include "train/adapter_base.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/run_fixture.h"
#include "train/run_folder.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

class LoraGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder =
        test::source_path(std::string("tests/train/data/lora_") + GetParam());
    VOLTA_ASSERT_OK(model_, test::load_model(folder, test::device(2)));
    VOLTA_ASSERT_OK(adapter_, load_adapter(folder, model_->config()));
    VOLTA_ASSERT_OK(const SafetensorsFile file,
                    SafetensorsFile::open(folder + "/golden.safetensors"));
    VOLTA_ASSERT_OK(golden_, file.load_all());
    for (const std::int64_t id : test::values<std::int64_t>(golden_.at("input_ids"))) {
      rows_.push_back(static_cast<std::int32_t>(id));
    }
    batch_ = golden_.at("input_ids").shape()[0];
    time_ = golden_.at("input_ids").shape()[1] - 1;
  }

  // Runs a graph of the model, its inputs filled with the first batch.
  Result<Executable> run(const Graph& graph, const Transformer& model) const {
    Device& device = *model.device();
    VOLTA_TRY(const Graph optimized, optimize(graph, device));
    VOLTA_TRY(Plan plan, make_plan(optimized, device));
    const auto lookup = [&](const PlanBinding& binding) -> Result<Tensor> {
      if (binding.kind == ValueKind::kParameter) return model.bind(binding);
      return Tensor::zeros(binding.spec, device.memory());
    };
    VOLTA_TRY(Executable bound, device.load(std::make_shared<const Plan>(std::move(plan)), lookup));
    VOLTA_TRY(const ExampleRows source, ExampleRows::create(rows_, batch_, time_, 1));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(batch_ * time_)), targets(ids.size());
    VOLTA_TRY(source.fill(0, 0, ids, targets));
    std::vector<std::int32_t> positions;
    for (std::int32_t i = 0; i < time_; ++i) positions.push_back(i);
    for (const auto& [name, values] :
         {std::pair{"ids", &ids}, {"targets", &targets}, {"positions", &positions}}) {
      VOLTA_TRY(Tensor input, bound.binding(name));
      VOLTA_TRY(input.write(std::span<const std::int32_t>(*values)));
    }
    VOLTA_TRY(bound.run());
    return bound;
  }

  static double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      sum += std::pow(static_cast<double>(a.at(i)) - static_cast<double>(b[i]), 2);
      norm += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(sum / norm);
  }

  std::optional<Transformer> model_;
  Adapter adapter_;
  std::map<std::string, Tensor> golden_;
  std::vector<std::int32_t> rows_;
  std::int64_t batch_ = 0;
  std::int64_t time_ = 0;
};

TEST_P(LoraGolden, LogitsBesideAndMerged) {
  const auto wanted = test::values(golden_.at("logits"));
  Transformer merged = *model_;
  VOLTA_ASSERT_STATUS(apply_adapter(merged, adapter_));
  Transformer beside = *model_;
  VOLTA_ASSERT_STATUS(beside.attach(adapter_));
  for (const Transformer* model : {&merged, &beside}) {
    VOLTA_ASSERT_OK(const Graph graph,
                    build_evaluation_graph(model->config(), batch_, time_, true, model->lora()));
    VOLTA_ASSERT_OK(const Executable plan, run(graph, *model));
    EXPECT_LT(difference(test::values(plan.output("logits")), wanted), 2e-6);
  }
}

TEST_P(LoraGolden, Gradients) {
  VOLTA_ASSERT_STATUS(model_->attach(adapter_));
  VOLTA_ASSERT_OK(const Graph graph,
                  build_accumulate_graph(model_->config(),
                                         {.batch = batch_, .time = time_, .lora = model_->lora()}));
  VOLTA_ASSERT_OK(const Executable plan, run(graph, *model_));
  for (const auto& [name, tensor] : adapter_.weights) {
    VOLTA_ASSERT_OK(const Tensor gradient, plan.binding("grad." + name));
    EXPECT_LT(difference(test::values(gradient), test::values(golden_.at("grad." + name))), 2e-5)
        << name;
  }
  EXPECT_FALSE(plan.binding("grad." + parameters(model_->config()).front().name));
}

TEST_P(LoraGolden, TwentyUpdates) {
  const auto base = test::bits_of(model_->weights());
  for (const std::int64_t accumulate : {1, 2}) {
    VOLTA_ASSERT_OK(
        Adapter fresh,
        load_adapter(test::source_path(std::string("tests/train/data/lora_") + GetParam()),
                     model_->config()));
    VOLTA_ASSERT_STATUS(model_->attach(std::move(fresh)));
    TrainerOptions o;
    o.batch = batch_ / accumulate;
    o.time = time_;
    o.accumulate = accumulate;
    o.optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .clip = 1.0f};
    o.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e-2, .steps = 20};
    VOLTA_ASSERT_OK(const ExampleRows source,
                    ExampleRows::create(rows_, batch_, time_, accumulate));
    VOLTA_ASSERT_OK(Trainer trainer, Trainer::create(*model_, o));
    for (const float wanted : test::values(golden_.at("losses"))) {
      VOLTA_ASSERT_OK(const StepReport report, trainer.step(source));
      EXPECT_NEAR(report.loss, static_cast<double>(wanted), 1e-5 * static_cast<double>(wanted))
          << "step " << report.step;
    }
    for (const auto& [name, tensor] : trainer.model().adapter().weights) {
      EXPECT_LT(difference(test::values(tensor), test::values(golden_.at("after." + name))), 1e-4)
          << name;
    }
    for (const auto& [name, tensor] : trainer.optimizer_state()) {
      EXPECT_THAT(name, HasSubstr(".lora_"));
    }
  }
  EXPECT_EQ(test::bits_of(model_->weights()), base);  // Frozen, to the last bit.
}

INSTANTIATE_TEST_SUITE_P(Families, LoraGolden, testing::Values("llama", "gpt2"));

class LoraRun : public test::RunFixture {
 protected:
  void SetUp() override {
    RunOptions base = options("base");
    base.trainer.schedule.steps = 3;
    const auto trained = train(base);
    ASSERT_TRUE(trained) << trained.error().message();
  }
  RunOptions lora_options(const std::string& name) const {
    RunOptions o = options(name);
    o.init = dir_.file("base/step-3");
    o.trainer.batch = 2;
    o.trainer.accumulate = 2;
    o.lora = {.rank = 2, .dropout = 0.1f, .targets = {"all-linear"}};
    o.save_every = 3;
    return o;
  }
};

TEST_F(LoraRun, CheckpointsHoldTheAdapterAndItsBase) {
  const RunOptions o = lora_options("run");
  const auto result = train(o);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_THAT(messages_, HasSubstr("LoRA: rank 2, alpha 4, dropout 0.1, on c_attn, c_fc, c_proj"));
  VOLTA_ASSERT_OK(const auto names, list_directory(result->checkpoint));
  EXPECT_THAT(names, testing::ElementsAre("adapter_config.json", "adapter_model.safetensors",
                                          "manifest.json", "trainer.safetensors"));
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(result->checkpoint));
  VOLTA_ASSERT_OK(Transformer model, test::load_model(o.init, device_));
  VOLTA_ASSERT_OK(const std::string hash, weights_hash(model));
  EXPECT_EQ(checkpoint.manifest.base, (BaseModel{.path = o.init, .xxh3 = hash}));
  // It learnt, and what is saved is what learnt: the merged model has the loss that the run told.
  VOLTA_ASSERT_OK(const std::string folder, find_adapter_folder(o.out));
  EXPECT_EQ(folder, result->checkpoint);
  VOLTA_ASSERT_OK(const Adapter adapter, load_adapter(folder, model.config()));
  const auto loss_of = [&]() -> Result<double> {
    VOLTA_TRY(const auto tokenizer, load_tokenizer(o.init));
    VOLTA_TRY(const Dataset data, load_text(o.data.front(), "", tokenizer, o.val_fraction));
    VOLTA_TRY(Evaluator evaluator, Evaluator::create(model, 2, 8, DType::kF32));
    return evaluator.mean_loss(*data.validation);
  };
  VOLTA_ASSERT_OK(const double before, loss_of());
  VOLTA_ASSERT_STATUS(apply_adapter(model, adapter));
  VOLTA_ASSERT_OK(const double after, loss_of());
  EXPECT_LT(after, before);
  EXPECT_NEAR(after, *result->val_loss, 1e-5);
}

TEST_F(LoraRun, GoesOnBitForBit) {
  ASSERT_TRUE(train(lora_options("unbroken")));
  RunOptions o = lora_options("stopped");
  for (const std::int64_t stop : {4, 1, 6}) {
    stop_after_ = stop;
    expect_error(train(o), ErrorCode::kInterrupted, "go on from");
    VOLTA_ASSERT_OK(o, load_run_options(o.out));
    o.resume = true;
  }
  stop_after_ = 0;
  const auto result = train(o);
  ASSERT_TRUE(result) << result.error().message();
  expect_same_runs(dir_.file("unbroken"), o.out);
}

TEST_F(LoraRun, AnotherBaseOrAnotherKindIsRefused) {
  RunOptions other = options("other");
  other.seed = 2;
  other.trainer.schedule.steps = 1;
  ASSERT_TRUE(train(other));
  RunOptions o = lora_options("run");
  stop_after_ = 2;
  EXPECT_FALSE(train(o));
  stop_after_ = 0;
  o.resume = true;
  const auto mismatch = ErrorCode::kMismatch;
  RunOptions moved = o;
  moved.init = other.out;
  expect_error(train(moved), mismatch, "are not those that the adapter was begun on (" + o.init);
  RunOptions rank = o;
  rank.lora.rank = 3;
  expect_error(train(rank), mismatch, "--lora-rank is 3, the checkpoint has 2");
  expect_error(train(rank), mismatch,
               "start a new run from its merged model: `volta merge BASE --adapter ");
  RunOptions targets = o;
  targets.lora.targets = {"c_fc"};
  expect_error(train(targets), mismatch,
               "--lora-targets is c_fc, the checkpoint has c_attn,c_fc,c_proj");
  RunOptions full = o;
  full.lora = {};
  expect_error(train(full), mismatch,
               "holds a LoRA adapter, but the run is to train a whole model");
  RunOptions adapted = lora_options("base");
  adapted.resume = true;
  expect_error(train(adapted), mismatch, "holds a whole model, but the run is to train a LoRA");
  // The same weights elsewhere are the same base.
  std::filesystem::rename(dir_.file("base"), dir_.file("elsewhere"));
  expect_error(train(o), ErrorCode::kNotFound, "no model folder");
  VOLTA_ASSERT_OK(RunOptions again, load_run_options(o.out));
  again.resume = true;
  expect_error(train(again), ErrorCode::kNotFound, "is not there; say where it is now: --init");
  o.init = dir_.file("elsewhere/step-3");
  EXPECT_TRUE(train(o));
}

TEST_F(LoraRun, RefusesWhatCannotBe) {
  RunOptions o = lora_options("run");
  o.init.clear();
  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(train(o), invalid, "name its folder with --init");
  o = lora_options("run");
  o.lora.rank = -1;
  expect_error(train(o), invalid, "the rank of LoRA is -1");
  o.lora = {.rank = 1, .targets = {"q_proj"}};
  expect_error(train(o), invalid, "'q_proj' names no projection");
  EXPECT_FALSE(path_exists(o.out));  // A start that fails leaves nothing behind.
}

TEST_F(LoraRun, FoldersOfTheOtherKindAreRefusedByName) {
  const RunOptions o = lora_options("run");
  ASSERT_TRUE(train(o));
  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(find_model_folder(o.out), invalid, "holds an adapter, no model");
  expect_error(find_model_folder(o.out + "/step-20"), invalid, "--adapter");
  expect_error(find_adapter_folder(o.init), invalid, "holds a model, no adapter");
  expect_error(find_adapter_folder(dir_.file("none")), ErrorCode::kNotFound, "none");
  test::put_file(o.out + "/step-20/adapter_model.safetensors", "damaged");
  expect_error(find_adapter_folder(o.out + "/step-20"), ErrorCode::kInvalidFile, "adapter_model");
}

TEST_F(LoraRun, AManifestsBaseIsChecked) {
  RunOptions o = lora_options("run");
  o.trainer.schedule.steps = 1;
  ASSERT_TRUE(train(o));
  VOLTA_ASSERT_OK(const Checkpoint checkpoint, open_checkpoint(o.out + "/step-1"));
  const auto parse = [](const CheckpointManifest& manifest) {
    return parse_manifest(to_json(manifest), "m");
  };
  VOLTA_ASSERT_OK(const CheckpointManifest same, parse(checkpoint.manifest));
  EXPECT_EQ(same.base, checkpoint.manifest.base);
  CheckpointManifest bad = checkpoint.manifest;
  bad.base->xxh3 = "12";
  expect_error(parse(bad), ErrorCode::kInvalidFile, "'12' is no checksum of a model");
  bad = checkpoint.manifest;
  bad.base.reset();
  expect_error(parse(bad), ErrorCode::kInvalidFile, "no 'config.json' listed");
}

TEST_F(LoraRun, OptionsSurviveTheirFile) {
  RunOptions o = lora_options("run");
  o.lora = {.rank = 7,
            .alpha = 3.5,
            .dropout = 0.25f,
            .rank_stabilized = true,
            .targets = {"c_attn", "mlp.c_proj"}};
  VOLTA_ASSERT_OK(const RunOptions again, parse_run_options(to_json(o), "run.json"));
  EXPECT_EQ(again.lora, o.lora);
  EXPECT_THAT(to_json(options("plain")), testing::Not(HasSubstr("lora")));
  std::string text = to_json(o);
  text.replace(text.find("\"rank\": 7"), 9, "\"rank\": 0");
  expect_error(parse_run_options(text, "run.json"), ErrorCode::kInvalidFile,
               "lora: rank is 0; it must be at least 1");
}

// What a fine-tuned folder takes along from the one that it began with.
TEST_F(LoraRun, AFineTunedFolderKeepsItsSourcesFiles) {
  const std::string source = dir_.file("base/step-3");
  std::filesystem::copy(source, dir_.file("source"));
  std::filesystem::remove(dir_.file("source/manifest.json"));
  test::put_file(dir_.file("source/tokenizer_config.json"), "{\"chat_template\": \"x\"}");
  std::string config = test::get_file(dir_.file("source/config.json"));
  config.replace(config.find("\"eos_token_id\": null"), 20,
                 "\"eos_token_id\": 12, \"mine\": [1.0]");
  test::put_file(dir_.file("source/config.json"), config);
  RunOptions o = options("tuned");
  o.init = dir_.file("source");
  stop_after_ = 4;
  EXPECT_FALSE(train(o));
  o.resume = true;
  stop_after_ = 0;
  std::filesystem::remove_all(dir_.file("source"));  // The checkpoint has it all.
  const auto result = train(o);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(test::get_file(result->checkpoint + "/tokenizer_config.json"),
            "{\"chat_template\": \"x\"}");
  const std::string kept = test::get_file(result->checkpoint + "/config.json");
  EXPECT_THAT(kept, HasSubstr("\"eos_token_id\": 12"));
  EXPECT_THAT(kept, HasSubstr("\"mine\": [\n    1.0\n  ]"));
  EXPECT_EQ(test::get_file(result->checkpoint + "/tokenizer.json"),
            test::get_file(source + "/tokenizer.json"));
}

}  // namespace
}  // namespace volta
