#include "train/presets.h"

#include "formats/gguf/gguf_layout.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

TEST(Presets, AreValidAndKnownByName) {
  ASSERT_GE(presets().size(), 4u);
  for (const PresetInfo& info : presets()) {
    VOLTA_ASSERT_OK(RunOptions options, preset(info.name));
    EXPECT_FALSE(info.summary.empty());
    EXPECT_TRUE(options.data.empty());
    EXPECT_TRUE(options.out.empty());
    options.data = {"data"};
    options.out = "out";
    VOLTA_ASSERT_STATUS(validate(options));
  }
  expect_error(preset("shakespear"), ErrorCode::kInvalidArgument,
               "unknown preset 'shakespear'; there are demo, tiny, shakespeare-char-cpu, "
               "shakespeare-char-gpu, shakespeare-llama-cpu");
}

TEST(Presets, LeaveARunWhatTheyDoNotSay) {
  RunOptions run = test::small_run();
  run.data = {"text.txt"};
  run.init = "model";
  run.seed = 7;
  run.trainer.compute_dtype = DType::kBF16;
  VOLTA_ASSERT_OK(const RunOptions o, preset("tiny", run));
  EXPECT_EQ(o.data, std::vector<std::string>{"text.txt"});
  EXPECT_EQ(o.init, "model");
  EXPECT_EQ(o.seed, 7u);
  EXPECT_EQ(o.trainer.compute_dtype, DType::kBF16);
  EXPECT_EQ(o.tokenizer, "byte");
  EXPECT_EQ(o.model.dim, 128);
  EXPECT_FALSE(preset("nobody", run));
}

// nanoGPT's published configurations, number by number.
TEST(Presets, AreTheNanoGptRecipes) {
  struct Wanted {
    const char* name;
    std::int64_t layers, heads, dim, context, batch, steps;
    float dropout;
  };
  for (const Wanted& w : {Wanted{"shakespeare-char-cpu", 4, 4, 128, 64, 12, 2000, 0.0f},
                          Wanted{"shakespeare-char-gpu", 6, 6, 384, 256, 64, 5000, 0.2f}}) {
    VOLTA_ASSERT_OK(const RunOptions o, preset(w.name));
    const TransformerConfig& m = o.model;
    EXPECT_EQ(m.layers, w.layers);
    EXPECT_EQ(m.heads, w.heads);
    EXPECT_EQ(m.kv_heads, w.heads);
    EXPECT_EQ(m.dim, w.dim);
    EXPECT_EQ(m.head_dim, w.dim / w.heads);
    EXPECT_EQ(m.ffn, 4 * w.dim);
    EXPECT_EQ(m.context, w.context);
    EXPECT_FALSE(m.norm_bias || m.attention_bias || m.attention_out_bias || m.ffn_bias);
    EXPECT_EQ(m.activation, Activation::kGelu);
    EXPECT_EQ(m.position, PositionKind::kLearned);
    EXPECT_TRUE(m.tied_output);
    EXPECT_FLOAT_EQ(m.init_std, 0.02f);
    const TrainerOptions& t = o.trainer;
    EXPECT_EQ(t.batch, w.batch);
    EXPECT_EQ(t.accumulate, 1);
    EXPECT_EQ(t.dropout, w.dropout);
    EXPECT_EQ(t.schedule.steps, w.steps);
    EXPECT_EQ(t.schedule.kind, ScheduleKind::kCosine);
    EXPECT_DOUBLE_EQ(t.schedule.lr, 1e-3);
    EXPECT_DOUBLE_EQ(t.schedule.min_lr, 1e-4);
    EXPECT_EQ(t.schedule.warmup, 100);
    EXPECT_TRUE(o.shorten_warmup);
    EXPECT_EQ(t.optimizer.kind, OptimizerConfig::Kind::kAdamW);
    EXPECT_EQ(t.optimizer.beta1, 0.9f);
    EXPECT_EQ(t.optimizer.beta2, 0.99f);
    EXPECT_EQ(t.optimizer.weight_decay, 0.1f);
    EXPECT_EQ(t.optimizer.clip, 1.0f);
    EXPECT_EQ(o.tokenizer, "char");
    EXPECT_EQ(o.val_fraction, 0.1);
    EXPECT_EQ(o.eval_batches, 20);
  }
}

// Everything but the parts of the model is as in shakespeare-char-cpu.
TEST(Presets, TheLlamaHasItsPartsAndTheSizeOfTheOther) {
  VOLTA_ASSERT_OK(const RunOptions other, preset("shakespeare-char-cpu"));
  VOLTA_ASSERT_OK(RunOptions o, preset("shakespeare-llama-cpu"));
  EXPECT_EQ(o.model.position, PositionKind::kRotary);
  EXPECT_EQ(o.model.norm, NormKind::kRms);
  EXPECT_EQ(o.model.ffn_kind, FfnKind::kGated);
  EXPECT_EQ(o.model.activation, Activation::kSilu);
  EXPECT_EQ(o.model.ffn % 32, 0);  // Whole blocks of GGUF.
  const auto size = static_cast<double>(parameter_count(o.model));
  EXPECT_NEAR(size / static_cast<double>(parameter_count(other.model)), 1.0, 0.05);
  VOLTA_ASSERT_OK(const GgufArchitecture* const architecture, gguf_architecture(o.model));
  EXPECT_EQ(architecture->name, "llama");
  o.model = other.model;
  EXPECT_EQ(to_json(o), to_json(other));
}

TEST(Presets, TinyIsTheDefaultTinyLm) {
  VOLTA_ASSERT_OK(const RunOptions o, preset("tiny"));
  EXPECT_EQ(o.model, tiny_lm_config());
  EXPECT_EQ(o.tokenizer, "byte");
}

}  // namespace
}  // namespace volta
