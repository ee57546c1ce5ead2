// Setting options from the values of flags.
#include "train/flag_values.h"

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

TEST(FlagValues, SetWhatFollowsFromThem) {
  RunOptions o;
  VOLTA_ASSERT_STATUS(set_flags({{"dim", 96}, {"heads", 6}, {"ffn", 200}}, o));
  EXPECT_EQ(o.model.kv_heads, 0);
  EXPECT_EQ(o.model.head_dim, 0);
  EXPECT_EQ(o.model.ffn, 200);
  VOLTA_ASSERT_STATUS(set_flags({{"position", "rotary"}, {"norm", "rms"}, {"bias", true}}, o));
  EXPECT_EQ(o.model.naming, WeightNaming::kLlama);
  EXPECT_TRUE(o.model.attention_bias);
  EXPECT_FALSE(o.model.norm_bias);
  VOLTA_ASSERT_STATUS(set_flags({{"untied", false}}, o));
  EXPECT_TRUE(o.model.tied_output);
  VOLTA_ASSERT_STATUS(set_flags({{"untied", true}}, o));
  EXPECT_FALSE(o.model.tied_output);
  o.trainer.schedule.min_lr = 1e-3;
  VOLTA_ASSERT_STATUS(set_flags({{"lr", 1e-3}}, o));
  EXPECT_EQ(o.trainer.schedule.min_lr, 1e-4);
  VOLTA_ASSERT_STATUS(set_flags({{"lr", 1e-3}, {"min-lr", 5e-4}}, o));
  EXPECT_EQ(o.trainer.schedule.min_lr, 5e-4);
  o.recorded_paths = {"data", "init", "tokenizer"};
  VOLTA_ASSERT_STATUS(
      set_flags({{"data", std::vector<std::string>{"a.txt"}}, {"tokenizer", "byte"}}, o));
  EXPECT_EQ(o.recorded_paths, (std::set<std::string, std::less<>>{"init"}));
}

TEST(FlagValues, EpochsAndStepsSayTheSameTwice) {
  RunOptions o;
  VOLTA_ASSERT_STATUS(set_flags({{"epochs", 3}}, o));
  EXPECT_EQ(o.epochs, 3);
  expect_error(set_flags({{"epochs", 3}, {"steps", 10}}, o), ErrorCode::kInvalidArgument,
               "--epochs says how many --steps there are");
  VOLTA_ASSERT_STATUS(set_flags({{"steps", 10}}, o));  // Of a run that had epochs.
  EXPECT_EQ(o.epochs, 0);
}

TEST(FlagValues, WithAModelFolderTheContextIsTheSequenceLength) {
  RunOptions o;
  VOLTA_ASSERT_STATUS(set_flags({{"context", 32}}, o));
  EXPECT_EQ(o.trainer.time, 0);
  EXPECT_EQ(o.model.context, 32);
  VOLTA_ASSERT_STATUS(set_flags({{"context", 32}, {"init", "model"}}, o));
  EXPECT_EQ(o.trainer.time, 32);
}

TEST(FlagValues, RefuseWhatTheyCannotTake) {
  const auto expect_refused = [](const FlagValues& values, const std::string& text) {
    RunOptions o;
    expect_error(set_flags(values, o), ErrorCode::kInvalidArgument, text);
  };
  expect_refused({{"warmups", 3}}, "--warmups: training has no flag of this name");
  expect_refused({{"", 3}}, "training has no flag of this name");
  expect_refused({{"lr", 3}}, "--lr 3: this flag takes another type of value");
  expect_refused({{"optimizer", "adam"}}, "--optimizer adam: use adamw or sgd");
  expect_refused({{"schedule", "square"}}, "--schedule square: use cosine, linear or constant");
  expect_refused({{"eval-batches", 0}}, "--eval-batches 0: it must be at least 1");
  expect_refused({{"val-fraction", std::nan("")}}, "it must be between 0 (no validation) and 0.9");
  expect_refused({{"lora-rank", 0}}, "--lora-rank 0: it must be at least 1");
  expect_refused({{"lora-alpha", 0.0}}, "--lora-alpha 0: it must be positive");
}

TEST(FlagValues, NeedOtherOptions) {
  const auto expect_refused = [](const FlagValues& values, const std::string& text) {
    RunOptions o;
    o.data = {"text.txt"};
    VOLTA_ASSERT_STATUS(set_flags(values, o));
    expect_error(check_needs(values, o), ErrorCode::kInvalidArgument, text);
  };
  expect_refused({{"init", "model"}, {"bias", true}}, "--bias does not go with --init");
  expect_refused({{"init", "model"}, {"tokenizer", "char"}}, "--tokenizer does not go with --init");
  expect_refused({{"vocab", 300}}, "--vocab is for ready-made token ids");
  expect_refused({{"data", std::vector<std::string>{"x.safetensors"}}, {"val-fraction", 0.5}},
                 "--val-fraction is for data other than rows");
  const auto files = [](const std::string& path) { return std::vector<std::string>{path}; };
  expect_refused({{"data", files("x.bin")}, {"epochs", 2}},
                 "--epochs is for conversations and rows");
  expect_refused({{"data", files("x.bin")}, {"shuffle", true}},
                 "--shuffle is for rows of token ids");
  expect_refused({{"packing", true}}, "--packing is for conversations");
  expect_refused({{"data", files("x.jsonl")}, {"vocab", 300}},
                 "--vocab is for ready-made token ids");
  expect_refused({{"data", files("x.jsonl")}, {"val-data", "y.jsonl"}, {"val-fraction", 0.5}},
                 "--val-fraction is for data other than rows of token ids, and without --val-data");
  expect_refused({{"beta1", 0.5}, {"optimizer", "sgd"}}, "--beta1 goes with --optimizer adamw");
  expect_refused({{"momentum", 0.5}}, "--momentum goes with --optimizer sgd");
  expect_refused({{"min-lr", 0.0}, {"schedule", "constant"}}, "--min-lr goes with --schedule");
  expect_refused({{"lora-alpha", 3.0}}, "--lora-alpha goes with --lora-rank");
  RunOptions o;
  const FlagValues fine = {{"data", std::vector<std::string>{"x.safetensors"}},
                           {"vocab", 300},
                           {"lora-rslora", false},
                           {"init", ""},
                           {"momentum", 0.5},
                           {"optimizer", "sgd"}};
  VOLTA_ASSERT_STATUS(set_flags(fine, o));
  VOLTA_ASSERT_STATUS(check_needs(fine, o));
}

}  // namespace
}  // namespace volta
