#include "train/run_options.h"

#include <cmath>

#include "base/file.h"
#include "support/temp_dir.h"
#include "train/helpers.h"
#include "train/presets.h"

namespace volta {
namespace {

using test::expect_error;

RunOptions good() {
  RunOptions o = test::small_run();
  o.data = {"text.txt"};
  o.out = "run";
  return o;
}

TEST(RunOptions, SizesAreFilledIn) {
  TransformerConfig model{.dim = 96, .heads = 6, .kv_heads = 0, .head_dim = 0, .ffn = 0};
  VOLTA_ASSERT_OK(model, complete_sizes(model));
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.ffn, 384);
  VOLTA_ASSERT_OK(const TransformerConfig same, complete_sizes(model));
  EXPECT_EQ(same, model);
  expect_error(complete_sizes({.dim = 100, .heads = 3, .head_dim = 0}), ErrorCode::kInvalidArgument,
               "3 heads do not divide the width of 100");
  expect_error(complete_sizes({.heads = 0, .head_dim = 0}), ErrorCode::kInvalidArgument,
               "heads is 0");
  expect_error(complete_sizes({.dim = -4, .head_dim = 0}), ErrorCode::kInvalidArgument,
               "dim is -4");
}

TEST(RunOptions, RefuseWhatCannotWork) {
  VOLTA_ASSERT_STATUS(validate(good()));
  const auto expect_refused = [](auto change, const std::string& text) {
    RunOptions options = good();
    change(options);
    expect_error(validate(options), ErrorCode::kInvalidArgument, text);
  };
  expect_refused([](auto& o) { o.data.clear(); }, "no data");
  expect_refused([](auto& o) { o.out = ""; }, "no output folder");
  expect_refused([](auto& o) { o.tokenizer = "word"; }, "unknown tokenizer 'word'");
  expect_refused([](auto& o) { o.seed = ~std::uint64_t{0}; }, "seed is 18446744073709551615");
  expect_refused([](auto& o) { o.val_fraction = 1.0; }, "val_fraction is 1");
  expect_refused([](auto& o) { o.val_fraction = NAN; }, "val_fraction is nan");
  expect_refused([](auto& o) { o.eval_every = -1; }, "eval_every is -1");
  expect_refused([](auto& o) { o.eval_batches = 0; }, "eval_batches is 0");
  expect_refused([](auto& o) { o.patience = -1; }, "patience is -1");
  expect_refused([](auto& o) { o.save_every = -1; }, "save_every is -1");
  expect_refused([](auto& o) { o.keep = -1; }, "keep is -1");
  expect_refused(
      [](auto& o) {
        o.patience = 2;
        o.val_fraction = 0.0;
      },
      "--patience needs evaluations: give --eval-every a number of steps above 0");
  expect_refused([](auto& o) { o.model.heads = 3, o.model.head_dim = 0; }, "do not divide");
  expect_refused([](auto& o) { o.model.layers = std::int64_t{1} << 40; }, "layers is");
  expect_refused([](auto& o) { o.trainer.time = 9; }, "longer than the model's context of 8");
  expect_refused([](auto& o) { o.trainer.batch = 0; }, "batch is 0");
  expect_refused([](auto& o) { o.trainer.schedule.steps = 0; }, "steps is 0");
}

TEST(RunOptions, WithAModelFolderTheArchitectureIsNotLookedAt) {
  RunOptions o = good();
  o.init = "somewhere";
  o.model.layers = 0;
  VOLTA_ASSERT_STATUS(validate(o));
}

TEST(RunOptions, AreReadBackFromJson) {
  for (const PresetInfo& info : presets()) {
    VOLTA_ASSERT_OK(RunOptions o, preset(info.name));
    o.data = {"a \"quoted\" name"};
    o.init = "folder";
    o.seed = 77;
    o.trainer.optimizer.kind = OptimizerConfig::Kind::kSgd;
    o.trainer.schedule.kind = ScheduleKind::kLinear;
    o.trainer.compute_dtype = DType::kBF16;
    const std::string json = to_json(o);
    VOLTA_ASSERT_OK(const RunOptions back, parse_run_options(json, "run.json"));
    EXPECT_EQ(to_json(back), json);
    EXPECT_EQ(back.model, o.model);
    EXPECT_EQ(back.data, o.data);
    EXPECT_EQ(back.trainer.compute_dtype, DType::kBF16);
    EXPECT_EQ(back.trainer.optimizer.kind, OptimizerConfig::Kind::kSgd);
  }
}

TEST(RunOptions, DamagedJsonIsRefused) {
  const std::string json = to_json(good());
  const auto expect_refused = [&](const std::string& from, const std::string& to,
                                  const std::string& text) {
    std::string bad = json;
    const auto at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    expect_error(parse_run_options(bad, "run.json"), ErrorCode::kInvalidFile, text);
  };
  expect_refused("\"data\"", "\"date\"", "data");
  expect_refused("\"adamw\"", "\"adam\"", "optimizer is 'adam'");
  expect_refused("\"cosine\"", "\"cosinus\"", "schedule is 'cosinus'; it must be cosine");
  expect_refused("\"f32\"", "\"f64\"", "compute_dtype is 'f64'");
  expect_refused("\"batch\": 4", "\"batch\": 0", "batch");
  expect_refused("\"seed\": 1", "\"seed\": -1", "seed");
  expect_refused("\"keep\": 3", "\"keep\": 3.5", "keep");
  expect_refused("\"eps\"", "\"epsilon\"", "eps");
  expect_refused("{", "", "");
}

TEST(RunOptions, ARunsFolderTellsThem) {
  const test::TempDir dir;
  expect_error(load_run_options(dir.path()), ErrorCode::kNotFound, "run.json");
  ASSERT_TRUE(write_file_atomic(dir.file("run.json"), to_json(good())));
  VOLTA_ASSERT_OK(const RunOptions back, load_run_options(dir.path()));
  EXPECT_EQ(back.out, dir.path());
  EXPECT_EQ(back.data, std::vector<std::string>{"text.txt"});
  // A value that the command line would refuse must come from the file, so the file is named.
  RunOptions wrong = good();
  wrong.trainer.optimizer.beta1 = -1.9f;
  ASSERT_TRUE(write_file_atomic(dir.file("run.json"), to_json(wrong)));
  expect_error(
      load_run_options(dir.path()), ErrorCode::kInvalidFile,
      dir.file("run.json") +
          ": training: beta1 is -1.9; it must be at least 0 and below 1 (0.9999999 at most)");
}

}  // namespace
}  // namespace volta
