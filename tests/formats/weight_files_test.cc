// WeightFiles: shards and their index, and weights on their way into a model without a second copy.
#include "formats/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "base/file.h"
#include "base/memory.h"
#include "device/cpu_device.h"
#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "formats/model_folder.h"
#include "nn/generator.h"
#include "support/fault_device.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;

TransformerConfig small(bool rotary) {
  TransformerConfig c{.vocab_size = 37,
                      .context = 24,
                      .layers = 2,
                      .dim = 16,
                      .heads = 4,
                      .kv_heads = rotary ? 2 : 4,
                      .head_dim = 4,
                      .ffn = 27};  // Odd: a pair of steps is left over.
  if (!rotary) return c;
  c.naming = WeightNaming::kLlama;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  c.activation = Activation::kSilu;
  return c;
}

/// A folder whose model lies in two shards.
class Shards : public testing::Test {
 protected:
  void SetUp() override {
    const auto model = Transformer::random(config_, 3, test::cpu(1));
    ASSERT_TRUE(model);
    ASSERT_TRUE(save_model(dir_.path(), *model, nullptr));
    tensors_ = *SafetensorsFile::open(dir_.file("model.safetensors"))->load_all();
    std::filesystem::remove(dir_.file("model.safetensors"));
    std::size_t i = 0;
    for (const auto& [name, tensor] : tensors_) {
      (i++ % 3 == 0 ? first_ : second_).emplace(name, tensor);
    }
    ASSERT_TRUE(write_safetensors(dir_.file(kFirst), first_));
    ASSERT_TRUE(write_safetensors(dir_.file(kSecond), second_));
    for (const auto& [name, tensor] : first_) map_[name] = kFirst;
    for (const auto& [name, tensor] : second_) map_[name] = kSecond;
  }
  Result<Transformer> load(const WeightOptions& options = {}) {
    std::string text;
    for (const auto& [name, file] : map_) {
      text += (text.empty() ? "" : ",") + ("\"" + name + "\": \"" + file + "\"");
    }
    return load_index("{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + text + "}}",
                      options);
  }
  Result<Transformer> load_index(const std::string& text, const WeightOptions& options = {}) {
    std::ofstream(dir_.file("model.safetensors.index.json")) << text;
    return test::load_model(dir_.path(), test::cpu(2), options);
  }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
  TransformerConfig config_ = small(true);
  test::TempDir dir_;
  std::map<std::string, Tensor> tensors_, first_, second_;
  std::map<std::string, std::string> map_;
};

TEST_F(Shards, AreOneModel) {
  const auto model = load();
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->weights().size(), tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    EXPECT_EQ(test::values(*model->weight(name)), test::values(tensor)) << name;
  }
}

TEST_F(Shards, TheIndexMustAgreeWithTheFiles) {
  const auto good = map_;
  map_["model.norm.weight"] = map_["model.norm.weight"] == kFirst ? kSecond : kFirst;
  expect_error(load(), ErrorCode::kInvalidFile, "'model.norm.weight' is not in model-0000");
  map_ = good;
  map_.erase("model.norm.weight");
  expect_error(load(), ErrorCode::kInvalidFile, "does not list tensor 'model.norm.weight'");
  map_ = good;
  map_["model.more"] = kFirst;
  expect_error(load(), ErrorCode::kInvalidFile, "'model.more' is not in");
  map_["model.more"] = "model-00003-of-00002.safetensors";
  expect_error(load(), ErrorCode::kNotFound, "model-00003");
  expect_error(load(), ErrorCode::kNotFound, "the folder is incomplete: download it again");
}

TEST_F(Shards, NamesOutsideTheFolderAreRefused) {
  for (const char* name : {"../model.safetensors", "/etc/passwd", "", ".", "..", "a/b.safetensors",
                           "a\\\\b.safetensors", "weights.bin", "nul\\u0000.safetensors"}) {
    map_["model.norm.weight"] = name;
    expect_error(load(), ErrorCode::kInvalidFile, "a shard is a .safetensors file");
  }
}

TEST_F(Shards, HostileIndexesAreRefused) {
  const auto invalid = ErrorCode::kInvalidFile;
  expect_error(load_index(""), invalid, "index.json");
  expect_error(load_index("[]"), invalid, "expected an object");
  expect_error(load_index("{}"), invalid, "weight_map");
  expect_error(load_index(R"({"weight_map": []})"), invalid, "must be an object");
  expect_error(load_index(R"({"weight_map": {}})"), invalid, "0 shards");
  expect_error(load_index(R"({"weight_map": {"a": 3}})"), invalid, "expected a string");
  expect_error(load_index(R"({"weight_map": {"a": "b", "a": "b"}})"), invalid, "");
  std::string many = R"({"weight_map": {)";
  for (int i = 0; i < 5000; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::to_string(i) +
            ".safetensors\"";
  }
  expect_error(load_index(many + "}}"), invalid, "5000 shards");
}

TEST_F(Shards, TheSameTensorInTwoFilesIsRefused) {
  second_.insert(first_.begin(), first_.end());
  ASSERT_TRUE(write_safetensors(dir_.file(kSecond), second_));
  expect_error(load(), ErrorCode::kInvalidFile, "the index does not list tensor");
}

TEST_F(Shards, AWholeFileGoesFirst) {
  ASSERT_TRUE(write_safetensors(dir_.file("model.safetensors"), tensors_));
  EXPECT_TRUE(load_index("not read"));
}

/// Greedy ids, and the log-probabilities they had.
GenerationResult run(const Transformer& model) {
  std::vector<std::int32_t> prompt(17);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i * 2);
  const GenerationRequest request{prompt, 6, {.temperature = 0}, {}};
  auto generator = Generator::create(model, {});
  EXPECT_TRUE(generator) << generator.error().message();
  return (*generator->generate(std::span(&request, 1)))[0];
}

// Weights of 16 bits stay so in a model that only runs, and give the bits that their exact f32
// values give.
TEST(WeightFiles, HalvesStayHalves) {
  for (const bool rotary : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + (rotary ? " rotary" : "") +
                     (tied ? " tied" : ""));
        TransformerConfig config = small(rotary);
        config.tied_output = tied;
        const test::TempDir dir;
        const auto fresh = Transformer::random(config, 3, test::cpu(1));
        ASSERT_TRUE(save_model(dir.path(), *fresh, nullptr));
        std::map<std::string, Tensor> tensors;
        for (const auto& [name, tensor] : fresh->weights()) {
          tensors[name] = *tensor_ops::cast(*fresh->device(), tensor, dtype);
        }
        ASSERT_TRUE(write_safetensors(dir.file("model.safetensors"), tensors));
        const auto plain = test::load_model(dir.path(), test::cpu(1));
        const auto packed = test::load_model(dir.path(), test::cpu(2), {.packed = true});
        ASSERT_TRUE(plain && packed);
        for (const ParameterInfo& info : parameters(config)) {
          EXPECT_EQ(plain->weight(info.name)->spec(), (TensorSpec{DType::kF32, info.shape}));
          EXPECT_EQ(packed->weight(info.name)->dtype(),
                    info.shape.rank() == 1 ? DType::kF32 : dtype);
        }
        const GenerationResult a = run(*plain), b = run(*packed);
        EXPECT_EQ(a.tokens, b.tokens);
        EXPECT_EQ(a.logprobs, b.logprobs);
      }
    }
  }
}

TEST(WeightFiles, WiderOnesAreRoundedWhereThatIsWanted) {
  const test::TempDir dir;
  ASSERT_TRUE(save_model(dir.path(), *Transformer::random(small(true), 3, test::cpu(1)), nullptr));
  const WeightOptions options{.packed = true, .format = {.dtype = DType::kBF16}};
  const auto packed = test::load_model(dir.path(), test::cpu(1), options);
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->weight("model.layers.1.mlp.up_proj.weight")->dtype(), DType::kBF16);
  auto again = test::load_model(dir.path(), test::cpu(1));
  ASSERT_TRUE(again->prepack({.dtype = DType::kBF16}));
  EXPECT_EQ(run(*packed).logprobs, run(*again).logprobs);
}

TEST(WeightFiles, MemoryThatRunsOutIsAnError) {
  const test::TempDir dir;
  ASSERT_TRUE(save_model(dir.path(), *Transformer::random(small(true), 3, test::cpu(1)), nullptr));
  std::int64_t nth = 0;
  for (bool done = false; !done;) {
    const auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
    device->faulty_memory().allocation_fuse.arm(++nth);
    const auto model = test::load_model(dir.path(), device, {.packed = true});
    done = model.has_value();
    if (!done) {
      EXPECT_EQ(model.error().code(), ErrorCode::kOutOfMemory);
    }
  }
  EXPECT_GT(nth, 10);
}

// The golden's own files: three shards of bf16.
TEST(WeightFiles, LoadsAShardedModelOfOthers) {
  VOLTA_NEEDS_SHARED("models/llama3-tiny-bf16-sharded");
  const auto files = open_weight_files(test::shared_path("models/llama3-tiny-bf16-sharded"));
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(files->size(), 3u);
}

TEST(WeightFilesThatChange, AreNoModel) {
  install_mapping_guard();
  const test::TempDir dir;
  const auto device = test::cpu(1);
  const auto model = Transformer::random(small(true), 3, device);
  ASSERT_TRUE(save_model(dir.path(), *model, nullptr));
  auto files = WeightFiles::open(dir.path(), small(true));
  ASSERT_TRUE(files);
  EXPECT_TRUE(files->check_unchanged());
  const std::string path = dir.file("model.safetensors");
  const auto file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, 4096);
  expect_error(Transformer::load(small(true), *files, device), ErrorCode::kInvalidFile, "was cut");
  expect_error(file->load_all(), ErrorCode::kInvalidFile, "was cut");
}

// The files of a model, which counts what is read of them.
class CountedSource final : public WeightSource {
 public:
  CountedSource(WeightFiles& files, std::function<void(int)> on_read)
      : files_(files), on_read_(std::move(on_read)) {}
  Result<TensorSpec> spec(const ParameterInfo& parameter) override {
    return files_.spec(parameter);
  }
  Result<Tensor> read(const ParameterInfo& parameter, const Interruption& interrupted) override {
    on_read_(++reads);
    return files_.read(parameter, interrupted);
  }
  void release(const ParameterInfo& parameter) override { files_.release(parameter); }
  Status check_unchanged(const ParameterInfo& parameter) const override {
    return files_.check_unchanged(parameter);
  }
  Status check_unchanged() const override { return files_.check_unchanged(); }
  int reads = 0;

 private:
  WeightFiles& files_;
  std::function<void(int)> on_read_;
};

TEST(WeightFilesThatChange, AreReportedAtTheNextTensor) {
  install_mapping_guard();
  const test::TempDir dir;
  const auto device = test::cpu(1);
  const auto model = Transformer::random(small(true), 3, device);
  ASSERT_TRUE(save_model(dir.path(), *model, nullptr));
  auto files = WeightFiles::open(dir.path(), small(true));
  ASSERT_TRUE(files);
  CountedSource source(*files, [&](int reads) {
    if (reads == 3) std::filesystem::resize_file(dir.file("model.safetensors"), 4096);
  });
  expect_error(Transformer::load(small(true), source, device), ErrorCode::kInvalidFile, "was cut");
  EXPECT_EQ(source.reads, 3);
}

TEST(Loading, EndsAtTheNextTensorWhenTheDeviceIsToldToStop) {
  const test::TempDir dir;
  std::atomic<bool> stop = false;
  const auto device =
      *CpuDevice::create({.threads = 1, .interrupted = [&] { return stop.load(); }});
  const auto model = Transformer::random(small(true), 3, device);
  ASSERT_TRUE(model);
  ASSERT_TRUE(save_model(dir.path(), *model, nullptr));
  auto files = WeightFiles::open(dir.path(), small(true));
  ASSERT_TRUE(files);
  for (const bool packed : {false, true}) {
    CountedSource source(*files, [&](int reads) { stop = reads == 3; });
    expect_error(Transformer::load(small(true), source, device, {.packed = packed}),
                 ErrorCode::kInterrupted, "interrupted");
    EXPECT_EQ(source.reads, 3);
    stop = false;
  }
  stop = true;
  expect_error(Transformer::random(small(true), 3, device), ErrorCode::kInterrupted, "interrupted");
}

}  // namespace
}  // namespace volta
