#include "formats/gguf/gguf_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/memory.h"
#include "base/temporary.h"
#include "device/helpers.h"
#include "formats/gguf/convert_paths.h"
#include "formats/gguf/gguf_bytes.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_tokenizer.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "support/file_faults.h"
#include "support/model.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::HasSubstr;

bool go_on(std::size_t, std::size_t) { return true; }
const auto kGoOn = [](std::size_t done, std::size_t all) { return go_on(done, all); };

std::map<std::string, Tensor> weights_of(const std::string& directory) {
  return *SafetensorsFile::open(directory + "/model.safetensors")->load_all();
}

void expect_same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_EQ(test::values(tensor), test::values(b.at(name))) << name;
  }
}

class Convert : public ::testing::TestWithParam<std::string> {
 protected:
  std::string gguf() const { return test::gguf_data(GetParam() + ".gguf"); }
  test::TempDir dir_;
};

TEST_P(Convert, ThereAndBackIsTheSameModel) {
  const std::string first = dir_.file("first"), second = dir_.file("second/");
  Status done = test::gguf_to_folder(gguf(), first, DType::kF32, false, kGoOn);
  ASSERT_TRUE(done) << done.error().message();
  const auto made =
      test::folder_to_gguf(first, dir_.file("made.gguf"), GgmlType::kF32, false, kGoOn);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_TRUE(*made);
  done = test::gguf_to_folder(dir_.file("made.gguf"), second, DType::kF32, false, kGoOn);
  ASSERT_TRUE(done) << done.error().message();
  expect_same(weights_of(first), weights_of(second));
  EXPECT_EQ(*read_text_file(first + "/config.json"), *read_text_file(second + "config.json"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_EQ(read_text_file(join_path(first, name)).value_or("none"),
              read_text_file(join_path(second, name)).value_or("none"))
        << name;
  }
  EXPECT_EQ(*test::load_config(gguf()), *test::load_config(dir_.file("made.gguf")));
  // Nothing else is left.
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_.path())) ++entries;
  EXPECT_EQ(entries, 3u);
}

TEST_P(Convert, AFileThatAppearsMeanwhileStays) {
  const std::string folder = dir_.file("folder"), made = dir_.file("made.gguf");
  ASSERT_TRUE(test::gguf_to_folder(gguf(), folder, DType::kF32, false, kGoOn));
  const auto write_it = [&](std::size_t, std::size_t) {
    return write_file_atomic(made, "somebody's").has_value();
  };
  const auto refused = test::folder_to_gguf(folder, made, GgmlType::kF32, false, write_it);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*read_text_file(made), "somebody's");
  EXPECT_EQ(list_directory(dir_.path())->size(), 2u);
  ASSERT_TRUE(test::folder_to_gguf(folder, made, GgmlType::kF32, true, write_it));
  EXPECT_TRUE(GgufFile::open(made));
}

TEST_P(Convert, QuantisedFilesAreReadAsWritten) {
  const std::string folder = dir_.file("folder");
  ASSERT_TRUE(test::gguf_to_folder(gguf(), folder, DType::kF32, false, kGoOn));
  for (const GgmlType type :
       {GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1}) {
    const std::string made = dir_.file("made.gguf");
    const auto done = test::folder_to_gguf(folder, made, type, true, kGoOn);
    ASSERT_TRUE(done) << done.error().message();
    const GgufFile file = test::open_gguf(made);
    EXPECT_EQ(file.find_tensor("blk.0.ffn_up.weight")->type, type);
    EXPECT_EQ(file.find_tensor("output_norm.weight")->type, GgmlType::kF32);
    // The quantised values themselves survive the way into a folder and back.
    const std::string again = dir_.file("again"), remade = dir_.file("remade.gguf");
    ASSERT_TRUE(test::gguf_to_folder(made, again, DType::kF32, true, kGoOn));
    ASSERT_TRUE(test::folder_to_gguf(again, remade, GgmlType::kF32, true, kGoOn));
    const GgufFile back = test::open_gguf(remade);
    for (const GgufTensor& tensor : file.tensors()) {
      std::vector<float> a(static_cast<std::size_t>(tensor.shape.elements())), b(a.size());
      file.read_values(tensor, 0, a);
      back.read_values(*back.find_tensor(tensor.name), 0, b);
      EXPECT_EQ(a, b) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Convert, ::testing::Values("llama", "qwen2", "qwen3", "gpt2"),
                         [](const auto& test) { return test.param; });

class ConvertCase : public ::testing::Test {
 protected:
  // Whether something is left that was to be renamed.
  bool any_temporary() const {
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      if (is_temporary_name(entry.path().filename().string())) return true;
    }
    return false;
  }
  Status to_folder(bool replace = false) const {
    return test::gguf_to_folder(test::gguf_data("llama.gguf"), dir_.file("out"), DType::kBF16,
                                replace, kGoOn);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(dir_.file(name)).parent_path());
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  test::TempDir dir_;
};

TEST_F(ConvertCase, WritesSixteenBits) {
  Status done = to_folder();
  ASSERT_TRUE(done) << done.error().message();
  const auto file = SafetensorsFile::open(dir_.file("out/model.safetensors"));
  for (const SafetensorsEntry& entry : file->entries()) {
    EXPECT_EQ(entry.spec.dtype, DType::kBF16) << entry.name;
  }
  EXPECT_THAT(*read_text_file(dir_.file("out/config.json")), HasSubstr("\"dtype\": \"bfloat16\""));
  EXPECT_THAT(*read_text_file(dir_.file("out/generation_config.json")),
              HasSubstr("\"eos_token_id\": 2"));
  // 16-bit folders are a source, too.
  const auto made =
      test::folder_to_gguf(dir_.file("out"), dir_.file("b.gguf"), GgmlType::kBF16, false, kGoOn);
  ASSERT_TRUE(made) << made.error().message();
  ASSERT_TRUE(
      test::gguf_to_folder(dir_.file("b.gguf"), dir_.file("f16"), DType::kF16, false, kGoOn));
  EXPECT_TRUE(
      test::folder_to_gguf(dir_.file("f16"), dir_.file("h.gguf"), GgmlType::kF16, false, kGoOn));
}

TEST_F(ConvertCase, MatricesMayKeepTheirTypes) {
  for (const auto& [dtype, type] :
       {std::pair(DType::kF32, GgmlType::kF32), std::pair(DType::kBF16, GgmlType::kBF16),
        std::pair(DType::kF16, GgmlType::kF16)}) {
    const std::string folder = dir_.file("stored"), made = dir_.file("stored.gguf");
    ASSERT_TRUE(test::gguf_to_folder(test::gguf_data("llama.gguf"), folder, dtype, true, kGoOn));
    const auto done = test::folder_to_gguf(folder, made, std::nullopt, true, kGoOn);
    ASSERT_TRUE(done) << done.error().message();
    const GgufFile file = test::open_gguf(made);
    EXPECT_EQ(file.find_tensor("blk.0.ffn_up.weight")->type, type);
    EXPECT_EQ(file.find_tensor("output_norm.weight")->type, GgmlType::kF32);
    // Nothing is rounded: the file is the one that names this type.
    ASSERT_TRUE(test::folder_to_gguf(folder, dir_.file("named.gguf"), type, true, kGoOn));
    EXPECT_EQ(*read_text_file(made), *read_text_file(dir_.file("named.gguf")));
  }
}

TEST_F(ConvertCase, NothingIsReplacedUnasked) {
  const auto refused = ErrorCode::kInvalidArgument;
  write("out/notes.txt", "mine");
  expect_error(to_folder(), refused, "is not empty; name another folder, or use --force");
  ASSERT_TRUE(to_folder(true));
  ASSERT_TRUE(to_folder(true));
  EXPECT_EQ(*read_text_file(dir_.file("out/notes.txt")), "mine");
  EXPECT_FALSE(any_temporary());
  write("out/model.safetensors.index.json", "{}");
  expect_error(to_folder(true), refused, "holds a model in several files");
  fs::remove_all(dir_.file("out"));
  write("out", "a file");
  expect_error(to_folder(true), ErrorCode::kIo, "what is there is no folder");
  fs::remove(dir_.file("out"));
  ASSERT_TRUE(to_folder());
  write("there.gguf", "x");
  expect_error(
      test::folder_to_gguf(dir_.file("out"), dir_.file("there.gguf"), GgmlType::kF32, false, kGoOn),
      refused, "there.gguf' is there; name another file, or use --force");
}

// --force replaces a model and keeps everything else that the folder holds.
TEST_F(ConvertCase, FilesOfOthersStay) {
  for (const std::string name :
       {"tokenizer.model", "merges.txt", "vocab.json", "added_tokens.json", "README.md",
        "onnx/model.onnx", "onnx/deep/er.txt", ".gitattributes"}) {
    write("out/" + name, name);
  }
  fs::create_symlink("README.md", dir_.file("out/link"));
  write("out/config.json", "old");
  write("out/model.safetensors", "old");
  // Settings of the old model that would be the new one's are set aside.
  write("out/chat_template.jinja", "of the model that was there");
  write("out/special_tokens_map.json", "{}");
  write("out/special_tokens_map.json.old", "older");
  fs::permissions(dir_.file("out"), fs::perms::owner_all);
  ASSERT_TRUE(to_folder(true));
  for (const std::string name :
       {"tokenizer.model", "merges.txt", "vocab.json", "added_tokens.json", "README.md",
        "onnx/model.onnx", "onnx/deep/er.txt", ".gitattributes"}) {
    EXPECT_EQ(read_text_file(dir_.file("out/" + name)).value_or("lost"), name);
  }
  EXPECT_EQ(fs::read_symlink(dir_.file("out/link")), "README.md");
  EXPECT_EQ(fs::status(dir_.file("out")).permissions(), fs::perms::owner_all);
  EXPECT_FALSE(path_exists(dir_.file("out/chat_template.jinja")));
  EXPECT_EQ(*read_text_file(dir_.file("out/chat_template.jinja.old")),
            "of the model that was there");
  EXPECT_EQ(*read_text_file(dir_.file("out/special_tokens_map.json.old")), "older");
  EXPECT_EQ(*read_text_file(dir_.file("out/special_tokens_map.json.old.2")), "{}");
  EXPECT_TRUE(test::load_model(dir_.file("out"), test::cpu(1)));
  EXPECT_FALSE(path_exists(dir_.file("out/.volta-replaced")));
  EXPECT_EQ(list_directory(dir_.path())->size(), 1u);
}

// A model is never half of the old and half of the new one, whichever call fails.
TEST_F(ConvertCase, ReplacesWhollyOrNotAtAll) {
  ASSERT_TRUE(to_folder());
  const std::string good = *read_text_file(dir_.file("out/config.json"));
  const std::string weights = *read_text_file(dir_.file("out/model.safetensors"));
  for (const auto& [call, number] :
       {std::pair{test::FileCall::kExchange, EIO}, std::pair{test::FileCall::kRename, EIO},
        std::pair{test::FileCall::kLink, EPERM}, std::pair{test::FileCall::kMkdir, EACCES},
        std::pair{test::FileCall::kFsync, EIO}, std::pair{test::FileCall::kWrite, ENOSPC}}) {
    for (int first = 1; first <= 12; ++first) {
      fs::remove_all(dir_.file("out"));
      for (const auto& each : fs::directory_iterator(dir_.path())) fs::remove_all(each.path());
      write("out/config.json", "old");
      write("out/model.safetensors", "old weights");
      write("out/mine/notes.txt", "mine");
      Status done;
      {
        test::FaultyFileOps faults;
        faults.fail(call, first, number, 1);
        const ScopedFileOps scope(faults);
        done = to_folder(true);
      }
      const std::string config = *read_text_file(dir_.file("out/config.json"));
      EXPECT_EQ(*read_text_file(dir_.file("out/model.safetensors")),
                config == "old" ? "old weights" : weights);
      EXPECT_EQ(config, done ? good : "old") << first;
      EXPECT_EQ(*read_text_file(dir_.file("out/mine/notes.txt")), "mine");
      EXPECT_TRUE(done || !any_temporary()) << static_cast<int>(call) << " " << first;
    }
  }
}

TEST_F(ConvertCase, AFailureLeavesNothingBehind) {
  for (const auto& [call, number] :
       {std::pair{test::FileCall::kWrite, ENOSPC}, std::pair{test::FileCall::kFsync, EIO},
        std::pair{test::FileCall::kMkdir, EACCES}, std::pair{test::FileCall::kRename, EIO}}) {
    for (int first = 1; first <= 8; ++first) {
      test::FaultyFileOps faults;
      faults.fail(call, first, number, 1);
      const ScopedFileOps scope(faults);
      if (to_folder()) {
        fs::remove_all(dir_.file("out"));
        break;
      }
      // The last rename of a folder may have taken place before its fsync failed.
      EXPECT_FALSE(any_temporary()) << first;
      fs::remove_all(dir_.file("out"));
    }
  }
  ASSERT_TRUE(to_folder());
  write("keep.gguf", "old");
  for (int first = 1; first <= 3; ++first) {
    test::FaultyFileOps faults;
    faults.fail(test::FileCall::kWrite, first, ENOSPC, 1);
    const ScopedFileOps scope(faults);
    if (test::folder_to_gguf(dir_.file("out"), dir_.file("keep.gguf"), GgmlType::kF32, true,
                             kGoOn)) {
      break;
    }
    EXPECT_EQ(*read_text_file(dir_.file("keep.gguf")), "old");
    EXPECT_FALSE(any_temporary());
  }
}

TEST_F(ConvertCase, ReplacesFilesOnlyAndSaysSoAtOnce) {
  ASSERT_TRUE(to_folder());
  fs::create_directory(dir_.file("d.gguf"));
  fs::create_symlink("elsewhere", dir_.file("link.gguf"));
  const auto never = [](std::size_t, std::size_t) {
    ADD_FAILURE() << "something was computed";
    return false;
  };
  for (const auto& [name, what] :
       {std::pair{"d.gguf", "is a folder"}, {"link.gguf", "is a symbolic link"}}) {
    expect_error(
        test::folder_to_gguf(dir_.file("out"), dir_.file(name), GgmlType::kF32, true, never),
        ErrorCode::kIo, what);
  }
  EXPECT_TRUE(fs::is_symlink(dir_.file("link.gguf")));
}

TEST_F(ConvertCase, WhatIsNamedLikeATemporaryStays) {
  write("new.gguf.tmp", "mine");
  ASSERT_TRUE(to_folder());
  ASSERT_TRUE(
      test::folder_to_gguf(dir_.file("out"), dir_.file("new.gguf"), GgmlType::kF32, false, kGoOn));
  EXPECT_EQ(*read_text_file(dir_.file("new.gguf.tmp")), "mine");
}

TEST_F(ConvertCase, AFileThatIsCutMeanwhileMakesNoResult) {
  install_mapping_guard();
  fs::copy_file(test::gguf_data("llama.gguf"), dir_.file("in.gguf"));
  ASSERT_TRUE(to_folder());
  const auto cutting = [](const std::string& path) {
    return [path](std::size_t done, std::size_t) {
      if (done == 2) fs::resize_file(path, 4096);
      return true;
    };
  };
  expect_error(test::gguf_to_folder(dir_.file("in.gguf"), dir_.file("made"), DType::kF32, false,
                                    cutting(dir_.file("in.gguf"))),
               ErrorCode::kInvalidFile, "was cut");
  EXPECT_FALSE(path_exists(dir_.file("made")));
  expect_error(test::folder_to_gguf(dir_.file("out"), dir_.file("made.gguf"), GgmlType::kF32, false,
                                    cutting(dir_.file("out/model.safetensors"))),
               ErrorCode::kInvalidFile, "was cut");
  EXPECT_FALSE(path_exists(dir_.file("made.gguf")));
  EXPECT_FALSE(any_temporary());
}

TEST_F(ConvertCase, NanIsNotWritten) {
  ASSERT_TRUE(to_folder());
  const std::string weights = dir_.file("out/model.safetensors");
  auto tensors = *SafetensorsFile::open(weights)->load_all();
  Tensor& norm = tensors.at("model.norm.weight");
  norm = *Tensor::zeros({DType::kF32, norm.shape()});
  (*norm.mutable_values<float>())[1] = NAN;
  ASSERT_TRUE(write_safetensors(weights, tensors));
  expect_error(
      test::folder_to_gguf(dir_.file("out"), dir_.file("nan.gguf"), GgmlType::kF32, false, kGoOn),
      ErrorCode::kNonFinite, "tensor 'model.norm.weight' holds NaN");
  EXPECT_FALSE(path_exists(dir_.file("nan.gguf")));
}

TEST_F(ConvertCase, NanIsNotRead) {
  const std::string source = test::gguf_data("llama.gguf");
  const GgufFile file = test::open_gguf(source);
  const std::int64_t offset = file.find_tensor("output_norm.weight")->offset;
  fs::copy_file(source, dir_.file("nan.gguf"));
  std::fstream changed(dir_.file("nan.gguf"), std::ios::in | std::ios::out | std::ios::binary);
  changed.seekp(offset + 4);
  changed.write("\0\0\x80\xff", 4);  // Minus infinity.
  changed.close();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    expect_error(test::gguf_to_folder(dir_.file("nan.gguf"), dir_.file("out"), dtype, false, kGoOn),
                 ErrorCode::kNonFinite, "tensor 'model.norm.weight' holds NaN or infinity");
    EXPECT_FALSE(path_exists(dir_.file("out")));
    EXPECT_FALSE(any_temporary());
  }
}

TEST_F(ConvertCase, CanBeStopped) {
  const auto stop = [](std::size_t done, std::size_t) { return done < 3; };
  const auto interrupted = ErrorCode::kInterrupted;
  expect_error(test::gguf_to_folder(test::gguf_data("llama.gguf"), dir_.file("out"), DType::kF32,
                                    false, stop),
               interrupted, "nothing was written");
  EXPECT_FALSE(path_exists(dir_.file("out")));
  ASSERT_TRUE(to_folder());
  expect_error(
      test::folder_to_gguf(dir_.file("out"), dir_.file("m.gguf"), GgmlType::kF32, false, stop),
      interrupted, "nothing was written");
  EXPECT_FALSE(path_exists(dir_.file("m.gguf")));
}

TEST_F(ConvertCase, BiasesThatGpt2AlwaysHasAreZeros) {
  TransformerConfig config;
  config.vocab_size = 12;
  config.context = 8;
  config.layers = 1;
  config.dim = 16;
  config.heads = config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 24;  // No whole number of blocks.
  config.activation = Activation::kGeluTanh;
  const auto model = Transformer::random(config, 1, test::cpu(1));
  fs::create_directories(dir_.file("gpt2"));
  ASSERT_TRUE(save_model(dir_.file("gpt2"), *model, nullptr));
  const auto made =
      test::folder_to_gguf(dir_.file("gpt2"), dir_.file("m.gguf"), GgmlType::kQ8_0, false, kGoOn);
  ASSERT_TRUE(made) << made.error().message();
  const GgufFile file = test::open_gguf(dir_.file("m.gguf"));
  EXPECT_EQ(file.find_tensor("blk.0.ffn_down.weight")->type, GgmlType::kF16);
  EXPECT_EQ(file.find_tensor("position_embd.weight")->type, GgmlType::kF32);
  const GgufTensor* bias = file.find_tensor("blk.0.attn_qkv.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_TRUE(
      std::ranges::all_of(file.tensor_bytes(*bias), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(gguf_config(file)->attention_bias);
}

TEST_F(ConvertCase, ValuesThatDoNotFitAreNamed) {
  ASSERT_TRUE(to_folder());
  auto weights = weights_of(dir_.file("out"));
  weights["model.layers.0.mlp.up_proj.weight"] = test::floats(
      weights.at("model.layers.0.mlp.up_proj.weight").shape(), std::vector<float>(64 * 32, 1e6f));
  ASSERT_TRUE(write_safetensors(dir_.file("out/model.safetensors"), weights));
  expect_error(
      test::folder_to_gguf(dir_.file("out"), dir_.file("m.gguf"), GgmlType::kF16, false, kGoOn),
      ErrorCode::kNonFinite, "tensor 'blk.0.ffn_up.weight': value 1000000");
}

}  // namespace
}  // namespace volta
