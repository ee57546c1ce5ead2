// An adapter is taken on its own base model only.
#include "train/adapter_base.h"

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "formats/adapter.h"
#include "formats/model_config.h"
#include "formats/model_folder.h"
#include "support/model.h"
#include "train/checkpoint.h"
#include "train/run_fixture.h"
#include "train/run_folder.h"

namespace volta {
namespace {

using test::expect_error;
using testing::HasSubstr;
using testing::Not;

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
    return *test::load_model(*find_model_folder(dir_.file(name)), device_);
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
  // A model of the hub may have been downloaded anew.
  const std::string snapshots = dir_.file("models--org--name/snapshots");
  std::filesystem::create_directories(snapshots + "/older");
  std::filesystem::create_directories(snapshots + "/newer");
  expect_error(check_adapter_base(adapter, model("other"), snapshots + "/newer"),
               ErrorCode::kMismatch,
               "give it its own base model (perhaps another revision: org/name@older), or");
}

// One tensor at a time gives the same checksum as the whole model.
TEST_F(AdapterBase, TheChecksumNeedsNoLoadedModel) {
  const std::string folder = *find_model_folder(dir_.file("base"));
  const auto config = test::load_config(folder);
  ASSERT_TRUE(config);
  EXPECT_EQ(*weights_hash(*ModelSource::open(folder), *config, *device_),
            *weights_hash(model("base")));
}

TEST_F(AdapterBase, IsVerifiedWhereItIsOnThisMachine) {
  const std::string adapter = dir_.file("lora/step-2");
  const std::string base = dir_.file("base/step-2");
  const auto report = [&](const std::string& folder, const std::string& model) {
    const auto verified = verify_adapter_base(folder, model, *device_);
    EXPECT_TRUE(verified) << verified.error().message();
    return verified ? *verified : AdapterBaseReport();
  };
  const AdapterBaseReport good = report(adapter, "");
  EXPECT_EQ(good.base, base);
  EXPECT_EQ(good.unchecked, "");
  EXPECT_FALSE(good.flaw);
  const AdapterBaseReport other = report(adapter, dir_.file("other/step-2"));
  ASSERT_TRUE(other.flaw);
  EXPECT_EQ(other.flaw->code(), ErrorCode::kMismatch);
  EXPECT_THAT(other.flaw->message(), HasSubstr("was trained on other weights"));
  // Verifying has no such option.
  EXPECT_THAT(other.flaw->message(), Not(HasSubstr("--any-base")));

  // A base that cannot be read is reported, too.
  std::filesystem::resize_file(base + "/model.safetensors", 1000);
  const AdapterBaseReport damaged = report(adapter, "");
  ASSERT_TRUE(damaged.flaw);
  EXPECT_EQ(damaged.flaw->code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(damaged.flaw->message(), HasSubstr(base + "/model.safetensors"));

  std::filesystem::rename(dir_.file("base"), dir_.file("elsewhere"));
  EXPECT_THAT(report(adapter, "").unchecked, HasSubstr("is not on this machine"));
  EXPECT_FALSE(report(adapter, "").flaw);

  // Without a manifest there is only the name, and whether the tensors fit.
  const std::string foreign = dir_.file("peft");
  std::filesystem::create_directory(foreign);
  for (const std::string_view name : {kAdapterConfigFile, kAdapterWeightsFile}) {
    std::filesystem::copy(dir_.file("lora/step-2/" + std::string(name)), foreign);
  }
  EXPECT_THAT(report(foreign, dir_.file("other/step-2")).unchecked,
              HasSubstr("does not record the checksum"));
  TransformerConfig wide = *test::load_config(dir_.file("other/step-2"));
  wide.dim *= 2;
  wide.head_dim *= 2;
  std::filesystem::create_directory(dir_.file("wide"));
  ASSERT_TRUE(save_model(dir_.file("wide"), *Transformer::random(wide, 1, device_), nullptr));
  const AdapterBaseReport misfit = report(foreign, dir_.file("wide"));
  ASSERT_TRUE(misfit.flaw);
  EXPECT_EQ(misfit.flaw->code(), ErrorCode::kMismatch);
  EXPECT_THAT(misfit.flaw->message(), HasSubstr("it does not fit the model"));
  // One that cannot be read says nothing of the base.
  std::filesystem::remove(foreign + "/" + std::string(kAdapterWeightsFile));
  const AdapterBaseReport gone = report(foreign, dir_.file("other/step-2"));
  ASSERT_TRUE(gone.flaw);
  EXPECT_EQ(gone.flaw->code(), ErrorCode::kNotFound);
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
