// An adapter is taken on its own base model only.
#include "train/adapter_base.h"

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "io/adapter.h"
#include "io/model_folder.h"
#include "train/checkpoint.h"
#include "train/run_fixture.h"
#include "train/run_folder.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;

class AdapterBase : public test::RunFixture {
 protected:
  void SetUp() override {
    RunOptions o = options("base");
    o.trainer.schedule.steps = 2;
    ASSERT_TRUE(train(o));
    o.out = dir_.file("other");
    o.seed = 2;
    ASSERT_TRUE(train(o));
    o.seed = 1;
    o.out = dir_.file("lora");
    o.init = dir_.file("base");
    o.lora = {.rank = 2};
    ASSERT_TRUE(train(o));
  }
  Transformer model(const std::string& name) const {
    return *load_model(*find_model_folder(dir_.file(name)), device_);
  }
  std::string warning(const std::string& folder, const std::string& name) {
    std::string text;
    set_log_callback([&](LogLevel, std::string_view message) { text += message; });
    EXPECT_TRUE(check_adapter_base(folder, model(name), dir_.file(name)));
    set_log_callback({});
    return text;
  }
};

TEST_F(AdapterBase, TheWeightsDecideWhereTheyAreKnown) {
  const std::string adapter = dir_.file("lora/step-2");
  VOLTA_ASSERT_STATUS(check_adapter_base(adapter, model("base"), "anywhere"));
  const Status refused = check_adapter_base(adapter, model("other"), dir_.file("other"));
  expect_error(refused, ErrorCode::kMismatch,
               "was trained on other weights (those of " + dir_.file("base/step-2"));
  EXPECT_THAT(refused.error().message(), HasSubstr("than " + dir_.file("other") + " has"));
  EXPECT_THAT(refused.error().message(), HasSubstr("--any-base"));
}

TEST_F(AdapterBase, OtherwiseItsNameIsCompared) {
  const std::string adapter = dir_.file("peft");
  std::filesystem::create_directory(adapter);
  for (const std::string_view name : {kAdapterConfigFile, kAdapterWeightsFile}) {
    std::filesystem::copy(dir_.file("lora/step-2/" + std::string(name)), adapter);
  }
  const std::string path = adapter + "/adapter_config.json";
  const std::string config = test::get_file(path);
  const std::string base = dir_.file("base/step-2");
  EXPECT_EQ(*adapter_base_name(adapter), base);
  const auto rename_base = [&](const std::string& name) {
    std::string text = config;
    test::put_file(path, text.replace(text.find(base), base.size(), name));
  };
  rename_base("meta/base");
  EXPECT_EQ(warning(adapter, "base"), "");
  EXPECT_THAT(warning(adapter, "other"), HasSubstr("names 'meta/base' as its base model"));
  rename_base("");
  EXPECT_EQ(warning(adapter, "other"), "");
  std::filesystem::remove(path);
  expect_error(check_adapter_base(adapter, model("base"), "base"), ErrorCode::kNotFound,
               "adapter_config.json");
}

TEST(PathOfBase, KnowsFoldersTheHubsCacheAndGgufFiles) {
  EXPECT_TRUE(is_path_of_base("meta-llama/Llama-3-8B", "models/Llama-3-8B"));
  EXPECT_TRUE(is_path_of_base("Llama-3-8B", "/x/Llama-3-8B/"));
  EXPECT_FALSE(is_path_of_base("meta-llama/Llama-3-8B", "models/Llama-3-8B-Instruct"));
  EXPECT_TRUE(is_path_of_base("meta-llama/Llama-3-8B",
                              "/c/hub/models--meta-llama--Llama-3-8B/snapshots/abc"));
  EXPECT_FALSE(is_path_of_base("meta-llama/Llama-3-8B",
                               "/c/hub/models--meta-llama--Llama-3-8B-Instruct/snapshots/abc"));
  EXPECT_TRUE(is_path_of_base("meta-llama/Llama-3-8B", "Llama-3-8B.Q8_0.gguf"));
  EXPECT_FALSE(is_path_of_base("meta-llama/Llama-3-8B", "Llama-3-8B-Instruct.gguf"));
  const test::TempDir dir;
  EXPECT_TRUE(is_path_of_base(dir.path() + "/.", dir.path()));
}

}  // namespace
}  // namespace volta
