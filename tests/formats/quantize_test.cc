// quantize_model: what the new folder holds, that it runs like weights rounded while loading, and
// what it refuses.
#include "formats/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"
#include "base/memory.h"
#include "device/cpu_device.h"
#include "device/helpers.h"
#include "formats/model_check.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "nn/generator.h"
#include "support/file_faults.h"
#include "support/model.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::expect_error;

Result<std::vector<QuantizedTensor>> quantize_folder(const std::string& from, const std::string& to,
                                                     const WeightFormat& format, Device& device,
                                                     const QuantizeCallback& on_tensor = {},
                                                     bool replace = false) {
  VOLTA_TRY(const ModelSource source, ModelSource::open(from));
  return quantize_model(source, to, format, device, on_tensor, replace);
}

TransformerConfig small(bool rotary) {
  TransformerConfig c{.vocab_size = 70,
                      .context = 24,
                      .layers = 2,
                      .dim = 64,
                      .heads = 4,
                      .kv_heads = 4,
                      .head_dim = 16,
                      .ffn = 100};
  c.tied_output = !rotary;
  if (!rotary) return c;
  c.naming = WeightNaming::kLlama;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  c.activation = Activation::kSilu;
  return c;
}

GenerationResult run(const Transformer& model) {
  const GenerationRequest request{{3, 1, 4, 1, 5, 9, 2, 6}, 6, {.temperature = 0}, {}};
  auto generator = Generator::create(model, {});
  EXPECT_TRUE(generator) << generator.error().message();
  return (*generator->generate(std::span(&request, 1)))[0];
}

class QuantizeModel : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(from_);
    const auto model = Transformer::random(small(GetParam()), 3, device_);
    ASSERT_TRUE(save_model(from_, *model, make_byte_tokenizer().get()));
  }
  test::TempDir dir_;
  std::string from_ = dir_.file("from"), to_ = dir_.file("to");
  std::shared_ptr<CpuDevice> device_ = test::cpu(2);
};
INSTANTIATE_TEST_SUITE_P(Families, QuantizeModel, testing::Bool());

TEST_P(QuantizeModel, AFileThatIsCutOrReplacedMeanwhileMakesNoModel) {
  install_mapping_guard();
  const std::string weights = from_ + "/model.safetensors";
  std::filesystem::copy_file(weights, dir_.file("copy"));
  std::int64_t calls = 0;
  const auto quantize = [&](auto change) {
    calls = 0;
    return quantize_folder(from_, to_, {.quant = Quant::kInt8}, *device_,
                           [&](const QuantizedTensor&, std::int64_t) {
                             if (++calls == 2) change();
                             return true;
                           });
  };
  expect_error(quantize([&] { std::filesystem::resize_file(weights, 4096); }),
               ErrorCode::kInvalidFile, "was cut");
  EXPECT_FALSE(path_exists(to_));
  EXPECT_EQ(calls, 2);  // The next tensor is not read to its end without a word.
  std::filesystem::remove(weights);
  std::filesystem::copy_file(dir_.file("copy"), weights);
  expect_error(quantize([&] { std::filesystem::rename(dir_.file("copy"), weights); }),
               ErrorCode::kInvalidFile, "was changed");
  EXPECT_FALSE(path_exists(to_));
  EXPECT_TRUE(quantize([] {}));
}

TEST_P(QuantizeModel, RunsAsWeightsRoundedWhileLoading) {
  for (const WeightFormat format :
       {WeightFormat{.quant = Quant::kInt8}, {.quant = Quant::kInt4}, {.dtype = DType::kBF16}}) {
    std::filesystem::remove_all(to_);
    std::int64_t calls = 0;
    const auto report = quantize_folder(
        from_, to_, format, *device_,
        [&](const QuantizedTensor&, std::int64_t tensors) { return ++calls <= tensors; });
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(calls, std::ssize(*report));
    std::int64_t narrowed = 0;
    for (const QuantizedTensor& tensor : *report) {
      if (tensor.before == tensor.after) continue;
      ++narrowed;
      EXPECT_LT(tensor.after.bytes(), tensor.before.bytes());
      EXPECT_GT(tensor.error, 0.0);
      EXPECT_LT(tensor.error, format.quant == Quant::kInt4 ? 0.12 : 0.01) << tensor.name;
    }
    EXPECT_GE(narrowed, 8);
    EXPECT_TRUE(path_exists(join_path(to_, "tokenizer.json")));
    const auto stored = test::load_model(to_, device_, {.packed = true});
    ASSERT_TRUE(stored) << stored.error().message();
    const auto rounded = test::load_model(from_, device_, {.packed = true, .format = format});
    EXPECT_EQ(run(*stored).logprobs, run(*rounded).logprobs);
    EXPECT_EQ(stored->weight_bytes(), rounded->weight_bytes());
    // As f32 they are what the integers say, and can be trained on.
    const auto wide = test::load_model(to_, device_);
    ASSERT_TRUE(wide) << wide.error().message();
    for (const auto& [name, weight] : wide->weights()) {
      EXPECT_EQ(weight.spec(), (TensorSpec{DType::kF32, weight.shape()})) << name;
    }
  }
}

// With `replace` as well: what is read, through whatever link, and what is no model.
TEST_P(QuantizeModel, ReplacesNeitherWhatItReadsNorWhatIsNoModel) {
  const std::string weights = *read_text_file(join_path(from_, "model.safetensors"));
  const std::string variant = dir_.file("variant");
  std::filesystem::create_directory(variant);
  std::filesystem::copy(join_path(from_, "config.json"), variant);
  std::filesystem::create_symlink("../from/model.safetensors", variant + "/model.safetensors");
  std::filesystem::create_directory_symlink("from", dir_.file("link"));
  std::filesystem::create_directory(dir_.file("notes"));
  ASSERT_TRUE(write_file_atomic(dir_.file("notes/thesis.txt"), "mine"));
  const auto replace = [&](const std::string& from, const std::string& to) {
    return quantize_folder(from, to, {.quant = Quant::kInt8}, *device_, {}, true);
  };
  for (const std::string& to : {from_, dir_.file("link"), variant + "/../from/"}) {
    expect_error(replace(from_, to), ErrorCode::kInvalidArgument, "would be lost");
    expect_error(replace(variant, to), ErrorCode::kInvalidArgument,
                 "holds 'model.safetensors', weights of the model that is read, which would be");
  }
  expect_error(replace(from_, dir_.file("notes")), ErrorCode::kInvalidArgument,
               "holds no model to replace");
  EXPECT_EQ(*read_text_file(join_path(from_, "model.safetensors")), weights);
  EXPECT_EQ(list_directory(dir_.file("notes"))->size(), 1u);
  EXPECT_TRUE(replace(from_, variant));  // Replaces the link.
  EXPECT_EQ(*read_text_file(join_path(from_, "model.safetensors")), weights);
  EXPECT_TRUE(replace(from_, to_));
  EXPECT_TRUE(replace(from_, to_));
}

TEST_P(QuantizeModel, RefusesWhatIsThereAndWhatIsNotFinite) {
  const WeightFormat format{.quant = Quant::kInt8};
  ASSERT_TRUE(quantize_folder(from_, to_, format, *device_));
  expect_error(quantize_folder(from_, to_, format, *device_), ErrorCode::kInvalidArgument,
               "is not empty");
  std::filesystem::remove_all(to_);
  expect_error(quantize_folder(from_, to_, format, *device_,
                               [](const QuantizedTensor&, std::int64_t) { return false; }),
               ErrorCode::kInterrupted, "nothing was written");
  EXPECT_FALSE(path_exists(to_));
  {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kRename, 1, ENOSPC, 100);
    const ScopedFileOps scope(faults);
    EXPECT_FALSE(quantize_folder(from_, to_, format, *device_));
  }
  EXPECT_FALSE(path_exists(to_));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
  ASSERT_TRUE(quantize_folder(from_, to_, format, *device_));
  expect_error(quantize_folder(to_, dir_.file("again"), format, *device_), ErrorCode::kUnsupported,
               "integers already");
  std::filesystem::remove_all(to_);

  const std::string path = join_path(from_, "model.safetensors");
  auto tensors = *SafetensorsFile::open(path)->load_all();
  const std::string name =
      GetParam() ? "model.layers.1.mlp.up_proj.weight" : "transformer.h.1.mlp.c_fc.weight";
  (*tensors.at(name).mutable_values<float>())[5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(write_safetensors(path, tensors));
  expect_error(quantize_folder(from_, to_, format, *device_), ErrorCode::kNonFinite, name);
  (*tensors.at(name).mutable_values<float>())[5] = 1e9f;  // Beyond the largest scale.
  ASSERT_TRUE(write_safetensors(path, tensors));
  expect_error(quantize_folder(from_, to_, format, *device_), ErrorCode::kNonFinite, name);
}

TEST_P(QuantizeModel, DamagedIntegersAreRefused) {
  ASSERT_TRUE(quantize_folder(from_, to_, {.quant = Quant::kInt8}, *device_));
  const std::string path = join_path(to_, "model.safetensors");
  const auto tensors = *SafetensorsFile::open(path)->load_all();
  const auto metadata = SafetensorsFile::open(path)->metadata();
  const std::string name =
      GetParam() ? "model.layers.1.mlp.up_proj.weight" : "transformer.h.1.mlp.c_fc.weight";
  const auto load_with = [&](const std::string& text) {
    auto changed = metadata;
    changed.at(quant_key(name)) = text;
    EXPECT_TRUE(write_safetensors(path, tensors, changed));
    return test::load_model(to_, device_, {.packed = true});
  };
  const std::string good = metadata.at(quant_key(name));
  EXPECT_TRUE(load_with(good));
  expect_error(load_with("int3 by 32"), ErrorCode::kUnsupported, "'int3 by 32'");
  expect_error(
      load_with(quant_text({.transposed = !GetParam(), .quant = Quant::kInt8, .block = 64})),
      ErrorCode::kInvalidFile, name);
  expect_error(load_with("int4 by 32" + std::string(GetParam() ? ", transposed" : "")),
               ErrorCode::kInvalidFile, name);
  // Other integers that take as many bytes.
  expect_error(load_with("int4 by 128" + std::string(GetParam() ? ", transposed" : "")),
               ErrorCode::kInvalidFile, "in blocks longer than the 64 elements");
  auto without = metadata;
  without.erase(quant_key(name));
  ASSERT_TRUE(write_safetensors(path, tensors, without));
  expect_error(test::load_model(to_, device_), ErrorCode::kInvalidFile, "u8[");
}

// The blocks of a square weight may be said to go along either axis; models read one.
TEST_P(QuantizeModel, BlocksAlongTheOtherAxisAreRefused) {
  ASSERT_TRUE(quantize_folder(from_, to_, {.quant = Quant::kInt8}, *device_));
  const std::string path = join_path(to_, "model.safetensors");
  const auto tensors = *SafetensorsFile::open(path)->load_all();
  auto metadata = SafetensorsFile::open(path)->metadata();
  const std::string name =
      GetParam() ? "model.layers.1.self_attn.o_proj.weight" : "transformer.h.1.attn.c_proj.weight";
  ASSERT_EQ(metadata.at(quant_key(name)), GetParam() ? "int8 by 64, transposed" : "int8 by 64");
  metadata.at(quant_key(name)) = GetParam() ? "int8 by 64" : "int8 by 64, transposed";
  ASSERT_TRUE(write_safetensors(path, tensors, metadata));
  for (const bool packed : {true, false}) {
    expect_error(test::load_model(to_, device_, {.packed = packed}), ErrorCode::kInvalidFile,
                 "tensor '" + name + "' is stored as integers in blocks along the other axis");
  }
  auto pool = ThreadPool::create(1);
  const auto checked = check_model(to_, *pool);
  ASSERT_TRUE(checked);
  EXPECT_EQ(std::ranges::count(checked->findings, Finding::Kind::kInvalid, &Finding::kind), 1);
}

// Asked within a tensor, too, and nothing is left behind.
TEST_P(QuantizeModel, EndsSoonWhenTheDeviceIsToldToStop) {
  std::atomic<int> asked = 0;
  int allowed = 1 << 20;
  const auto device =
      *CpuDevice::create({.threads = 1, .interrupted = [&] { return ++asked > allowed; }});
  ASSERT_TRUE(quantize_folder(from_, to_, {.quant = Quant::kInt8}, *device));
  const int of_all = asked;
  std::filesystem::remove_all(to_);
  EXPECT_GT(of_all, 40);
  for (allowed = 0; allowed < of_all; allowed += 7) {
    asked = 0;
    expect_error(quantize_folder(from_, to_, {.quant = Quant::kInt8}, *device),
                 ErrorCode::kInterrupted, "interrupted; nothing was written");
    EXPECT_EQ(asked, allowed + 1);
    EXPECT_FALSE(path_exists(to_));
  }
}

}  // namespace
}  // namespace volta
