// The families of the hub, one tiny model each: what transformers computes with it, the program
// computes, too, and what the program writes of it means the same model. The models are made by
// data/make_family_goldens.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_volta;

constexpr std::size_t kVocab = 97;

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  // Fails the test unless the command succeeds; its standard output.
  std::string run(const std::vector<std::string>& arguments) const {
    const CommandResult result = run_volta(arguments, dir_.path());
    EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(arguments) << "\n" << result.err;
    return result.out;
  }
  // The logits of the golden ids by a model.
  std::vector<float> logits(const std::string& model, std::vector<std::string> options = {}) const {
    std::vector<std::string> arguments = {"logits", model,    "--ids",  golden(),
                                          "--out",  "out.st", "--force"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    run(arguments);
    return floats_of(dir_.file("out.st"));
  }
  static std::vector<float> floats_of(const std::string& path) {
    const auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(file) << path;
    const auto tensor = file->load("logits");
    EXPECT_TRUE(tensor) << tensor.error().message();
    std::vector<float> out(static_cast<std::size_t>(tensor->elements()));
    EXPECT_TRUE(tensor->read<float>(out));
    return out;
  }
  // The mean loss of the golden ids, each token given those before it.
  double loss(const std::string& model) const {
    const std::vector<float> rows = logits(model);
    const auto file = SafetensorsFile::open(golden());
    const auto tensor = file->load("input_ids");
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tensor->elements()));
    EXPECT_TRUE(tensor->read<std::int64_t>(ids));
    const auto time = static_cast<std::size_t>(tensor->shape()[1]);
    double sum = 0.0;
    std::size_t count = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      if ((i + 1) % time == 0) continue;
      const auto row = std::span(rows).subspan(i * kVocab, kVocab);
      double exponentials = 0.0;
      for (const float logit : row) exponentials += std::exp(static_cast<double>(logit));
      sum +=
          std::log(exponentials) - static_cast<double>(row[static_cast<std::size_t>(ids[i + 1])]);
      ++count;
    }
    return sum / static_cast<double>(count);
  }
  json cases() const {
    return json::parse(*read_text_file(join_path(model_, "golden_tokens.json")));
  }
  std::string golden() const { return join_path(model_, "golden.safetensors"); }

  std::string model_ = test::source_path("tests/apps/data/families/" + GetParam());
  test::TempDir dir_;
};

// The largest difference of a row, relative to its largest logit; over all rows.
double worst_row(const std::vector<float>& got, const std::vector<float>& wanted) {
  double worst = got.size() == wanted.size() ? 0.0 : INFINITY;
  for (std::size_t row = 0; row + kVocab <= std::min(got.size(), wanted.size()); row += kVocab) {
    double difference = 0.0, largest = 0.0;
    for (std::size_t i = row; i < row + kVocab; ++i) {
      difference = std::max(
          difference, std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
      largest = std::max(largest, std::fabs(static_cast<double>(wanted[i])));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

std::string comma_list(const json& ids) {
  std::string text;
  for (const json& id : ids) text += (text.empty() ? "" : ",") + std::to_string(id.get<int>());
  return text;
}

TEST_P(Families, LogitsAreThoseOfTransformers) {
  const std::vector<float> wanted = floats_of(golden());
  EXPECT_LT(worst_row(logits(model_, {"--dtype", "f32"}), wanted), 1e-4);
  EXPECT_LT(worst_row(logits(model_, {"--dtype", "bf16"}), wanted), 0.07);
}

// A folder of 8 bits computes what weights do that are rounded while they are loaded.
TEST_P(Families, EightBitsAreTheSameFromAFolder) {
  run({"quantize", model_, "--out", "q8", "--weights", "q8"});
  const std::vector<float> rounded = logits("q8");
  EXPECT_EQ(rounded, logits(model_, {"--weights", "q8"}));
  const double error = worst_row(rounded, floats_of(golden()));
  EXPECT_LT(error, 0.25);  // These models are 24 wide: few products even out what is rounded.
  EXPECT_GT(error, 1e-5);  // It did round.
}

// Alone, and all prompts in one batch beside another one.
TEST_P(Families, GreedyTokensAreThoseOfTransformers) {
  for (const json& item : cases()) {
    const std::string count = std::to_string(item["tokens"].size());
    const std::vector<std::string> common = {"generate",      model_, "-n",      count,
                                             "--temperature", "0",    "--dtype", "f32",
                                             "--output",      "json"};
    std::vector<std::string> alone = common;
    alone.insert(alone.end(), {"--ids", comma_list(item["prompt"])});
    json wanted = item["prompt"];
    for (const json& token : item["tokens"]) wanted.push_back(token);
    EXPECT_EQ(json::parse(run(alone))["ids"], wanted);

    std::vector<std::string> batch = alone;
    batch.insert(batch.end(), {"--ids", "5,3", "--slots", "2"});
    EXPECT_EQ(json::parse(run(batch))[0]["ids"], wanted);
  }
}

// Converts a model to GGUF and back. All three give the same logits, bit for bit. The last folder
// also gives them without the keys under "volta", because the keys of its family are complete.
TEST_P(Families, GgufIsTheSameModel) {
  const std::vector<float> wanted = logits(model_);
  run({"convert", model_, "model.gguf", "--type", "f32"});
  EXPECT_EQ(logits("model.gguf"), wanted);
  run({"convert", "model.gguf", "again"});
  EXPECT_EQ(logits("again"), wanted);
  const std::string path = dir_.file("again/config.json");
  json config = json::parse(*read_text_file(path));
  EXPECT_EQ(config["model_type"], GetParam());
  EXPECT_EQ(config.erase("volta"), 1u);
  ASSERT_TRUE(write_file_atomic(path, config.dump()));
  EXPECT_EQ(logits("again"), wanted);
}

// Updates lower the loss on two sequences that are seen again and again, and the run's folder is
// one of the family.
TEST_P(Families, IsTrainedAsItsFamily) {
  const json done =
      json::parse(run({"train", "--init", model_, "--data", golden(), "--batch", "2", "--steps",
                       "12", "--lr", "0.01", "--out", "run", "--output", "json"}));
  const std::string folder = done["checkpoint"];
  const std::string trained = folder.starts_with("/") ? folder : dir_.file(folder);
  const json config = json::parse(*read_text_file(join_path(trained, "config.json")));
  EXPECT_EQ(config["model_type"], GetParam());
  EXPECT_LT(loss(trained), 0.8 * loss(model_));
}

// Every folder of data/families: a new one needs no line here.
std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/apps/data/families"))) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST(FamilyData, IsThere) {
  EXPECT_THAT(folders(), testing::IsSupersetOf({"gemma2", "gemma3_text", "granite", "olmo2", "phi3",
                                                "smollm3", "starcoder2"}));
}

INSTANTIATE_TEST_SUITE_P(Models, Families, ::testing::ValuesIn(folders()),
                         [](const auto& test_info) { return test_info.param; });

}  // namespace
}  // namespace volta
