// The table of training flags: what each row promises holds for every row.
#include "train/training_flags.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "train/flag_values.h"
#include "train/helpers.h"
#include "train/presets.h"
#include "train/settings.h"

namespace volta {
namespace {

using test::expect_error;

// A valid value that is not the one in `options`.
FlagValue other_value(const TrainingFlag& flag, const RunOptions& options) {
  const FlagValue now = flag.field.get(options);
  switch (flag.field.type) {
    case FlagType::kWhole:
      return std::get<std::int64_t>(now) + 1;
    case FlagType::kReal:
    case FlagType::kReal32:
      return std::get<double>(now) == 0.5 ? 0.25 : 0.5;
    case FlagType::kSwitch:
      return !std::get<bool>(now);
    case FlagType::kText:
      return std::get<std::string>(now) + "x";
    case FlagType::kPaths:
      return std::vector<std::string>{"one", "two"};
    case FlagType::kWord:
      break;
  }
  for (const std::string_view word : flag.field.words) {
    if (std::get<std::string>(now) != word) return std::string(word);
  }
  ADD_FAILURE() << flag.key << " has one word only";
  return now;
}

RunOptions lora_run() {
  RunOptions options = test::small_run();
  options.lora = {.rank = 4, .alpha = 8.0, .targets = {"c_attn"}};
  return options;
}

TEST(TrainingFlags, NamesAndKeysAreUnique) {
  std::set<std::string_view> names;
  std::set<std::string_view> keys;
  for (const TrainingFlag& flag : training_flags()) {
    EXPECT_FALSE(flag.name.empty() && flag.key.empty());
    if (!flag.name.empty()) {
      EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    }
    if (!flag.key.empty()) {
      EXPECT_TRUE(keys.insert(flag.key).second) << flag.key;
    }
    if (!flag.key.empty()) {
      EXPECT_TRUE(flag.field.get != nullptr) << flag.key;
    }
    EXPECT_EQ(flag.field.get == nullptr, flag.field.set == nullptr) << flag.name;
    EXPECT_EQ(flag.field.type == FlagType::kWord, !flag.field.words.empty()) << flag.name;
  }
  EXPECT_TRUE(names.contains("keep-best"));
  EXPECT_TRUE(keys.contains("training.lr"));
}

// Every value with a key goes into run.json and comes back.
TEST(TrainingFlags, EveryValueIsReadBackFromRunJson) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.key.empty()) continue;
    RunOptions options = lora_run();
    const FlagValue value = other_value(flag, options);
    flag.field.set(options, value);
    EXPECT_EQ(flag.field.get(options), value) << flag.key;
    VOLTA_ASSERT_OK(const RunOptions back, parse_run_options(to_json(options), "run.json"));
    EXPECT_EQ(flag.field.get(back), value) << flag.key;
  }
}

// The column `resume` decides which settings a resumed run is compared with.
TEST(TrainingFlags, AResumedRunMustAgreeWithWhatTheTableSays) {
  Dataset data;
  data.tokenizer = make_char_tokenizer("ab").value();
  data.is_text = true;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.field.get == nullptr) continue;
    RunOptions options = lora_run();
    const std::string now = settings_json(options, data);
    flag.field.set(options, other_value(flag, options));
    VOLTA_ASSERT_OK(const JsonValue saved, parse_json(settings_json(options, data), "settings"));
    VOLTA_ASSERT_OK(const auto difference, compare_settings(now, JsonRef(saved, "settings")));
    const bool free = flag.resume == OnResume::kMayChange || flag.resume == OnResume::kMayAdjust;
    EXPECT_EQ(difference.has_value(), !free) << flag.name << " " << flag.key;
    if (difference) {
      EXPECT_TRUE(difference->starts_with(flag.key)) << *difference;
    }
  }
  EXPECT_TRUE(is_absent_default("packing", "false"));
  EXPECT_FALSE(is_absent_default("packing", "true"));
  EXPECT_FALSE(is_absent_default("training.lr", "0.001"));
  EXPECT_TRUE(may_extend("training.steps"));
  EXPECT_FALSE(may_extend("training.lr"));
  EXPECT_TRUE(may_adjust("training.lr"));
  EXPECT_FALSE(may_adjust("training.steps"));
  EXPECT_EQ(option_of("training.steps"), "--steps");
  EXPECT_EQ(option_of("training.compute_dtype"), "--dtype");
  EXPECT_EQ(option_of("model.norm_bias"), "--bias");
  EXPECT_EQ(option_of("model.tied_output"), "--untied");
  EXPECT_EQ(option_of("model.norm_eps"), "model.norm_eps");  // No option sets it.
}

TEST(TrainingFlags, AKeyThatWasAddedLaterMayBeMissing) {
  RunOptions options = test::small_run();
  options.keep_best = false;
  std::string json = to_json(options);
  const std::string member = "\"keep_best\": false,";
  const auto place = json.find(member);
  ASSERT_NE(place, std::string::npos) << json;
  json.erase(place, member.size());
  VOLTA_ASSERT_OK(const RunOptions back, parse_run_options(json, "run.json"));
  EXPECT_TRUE(back.keep_best);
}

// run.json as version 0.1.0 wrote it before the table, with its keys in another order.
TEST(TrainingFlags, RunFilesOfOlderBuildsAreRead) {
  RunOptions options = lora_run();
  options.data = {"text.txt"};
  std::string json = to_json(options);
  const auto model = json.find("\"model\"");
  const auto end = json.find("\"training\"");
  const std::string architecture = json.substr(model, end - model);
  const std::string text =
      R"({"data": "text.txt", "init": "base", "tokenizer": "char", "seed": 3, )" + architecture +
      R"("training": {"batch": 12, "time": 0, "accumulate": 2, "dropout": 0.2,
      "optimizer": "sgd", "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1,
      "momentum": 0.5, "clip": 1, "schedule": "linear", "lr": 0.001, "min_lr": 0.0005,
      "warmup": 10, "steps": 200, "compute_dtype": "bf16"},
      "lora": {"rank": 8, "alpha": 16, "dropout": 0.25, "rank_stabilized": true,
      "targets": "q_proj,v_proj"},
      "val_fraction": 0.2, "eval_every": 50, "eval_batches": 7, "patience": 3,
      "save_every": 25, "keep": 2, "keep_best": false, "stopped_early": false})";
  VOLTA_ASSERT_OK(const RunOptions o, parse_run_options(text, "run.json"));
  EXPECT_EQ(o.model, options.model);
  EXPECT_EQ(o.seed, 3u);
  EXPECT_EQ(o.trainer.dropout, 0.2f);
  EXPECT_EQ(o.trainer.optimizer.kind, OptimizerConfig::Kind::kSgd);
  EXPECT_EQ(o.trainer.schedule.kind, ScheduleKind::kLinear);
  EXPECT_EQ(o.trainer.schedule.lr, 0.001);
  EXPECT_EQ(o.trainer.schedule.min_lr, 0.0005);
  EXPECT_EQ(o.trainer.compute_dtype, DType::kBF16);
  EXPECT_EQ(o.lora.rank, 8);
  EXPECT_EQ(o.lora.targets, (std::set<std::string, std::less<>>{"q_proj", "v_proj"}));
  EXPECT_EQ(o.val_fraction, 0.2);
  EXPECT_FALSE(o.keep_best);
}

TEST(TrainingFlags, OnlySwitchesThatAreOnByDefaultHaveANegativeForm) {
  std::set<std::string_view> negative;
  for (const TrainingFlag& flag : training_flags()) {
    if (has_negative_form(flag)) negative.insert(flag.name);
  }
  EXPECT_EQ(negative, (std::set<std::string_view>{"keep-best"}));
}

}  // namespace
}  // namespace volta
