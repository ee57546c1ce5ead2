// volta verify and volta inspect: what they say of good models and of damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"
#include "support/damaged_state.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::Not;

// Two checkpoints of a model of 256 byte tokens.
class VerifyTest : public ::testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  CommandResult verify(const std::string& model) const { return volta({"verify", model}); }
  void SetUp() override {
    std::ofstream(dir_.file("text.txt")) << std::string(500, 'a') + std::string(500, 'b');
    const CommandResult trained = volta(
        {"train", "--data",  "text.txt", "--out",        "run", "--tokenizer", "byte", "--layers",
         "1",     "--heads", "2",        "--dim",        "16",  "--context",   "16",   "--batch",
         "2",     "--steps", "4",        "--save-every", "2",   "--threads",   "1"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  void change_byte(const std::string& name, std::int64_t from_end) const {
    std::fstream file(dir_.file(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-from_end, std::ios::end);
    file.put(byte);
  }

  test::TempDir dir_;
};

TEST_F(VerifyTest, AGoodRunIsGood) {
  const CommandResult run = verify("run");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("run/step-4: good: "));
  EXPECT_THAT(run.out, HasSubstr("\nrun/step-2: good: "));
  EXPECT_THAT(run.out, HasSubstr("1 file, a tokenizer"));
  // Checkpoints in GPT-2's form have biases of zeros, which the model does without.
  EXPECT_THAT(run.out,
              HasSubstr("run/step-4: good: 16 tensors (7 of them for other programs only)"));
  EXPECT_EQ(run.err, "");
  const CommandResult json = volta({"verify", "run/step-2", "--output", "json"});
  EXPECT_EQ(json.exit_code, 0);
  const auto parsed = parse_json(json.out, "verify");
  ASSERT_TRUE(parsed) << json.out;
  EXPECT_TRUE(*JsonRef(*parsed, "verify").get_bool("ok"));
  EXPECT_THAT(json.out, HasSubstr("\"findings\":[]"));
}

// What the commands that take a run would refuse, although every checkpoint is good.
TEST_F(VerifyTest, TheFolderOfARunIsCheckedItself) {
  std::filesystem::copy(dir_.file("run/step-4/config.json"), dir_.file("run/config.json"));
  std::filesystem::copy(dir_.file("run/step-4/model.safetensors"),
                        dir_.file("run/model.safetensors"));
  const CommandResult both = verify("run");
  EXPECT_EQ(both.exit_code, 6) << both.out;
  EXPECT_THAT(both.out, HasSubstr("holds a model of its own and the checkpoints of a run"));
  EXPECT_EQ(volta({"generate", "run", "-n", "1"}).exit_code, 2);
  std::filesystem::remove(dir_.file("run/config.json"));
  std::filesystem::remove(dir_.file("run/model.safetensors"));

  std::ofstream(dir_.file("run/run.json")) << "{";
  const CommandResult broken = verify("run");
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_THAT(broken.out, HasSubstr("run/run.json: not valid JSON"));
  EXPECT_THAT(broken.out, HasSubstr("run: 1 finding: 0 tensors"));
  EXPECT_THAT(broken.out, HasSubstr("run/step-2: good: "));
  EXPECT_EQ(volta({"train", "--out", "run", "--resume"}).exit_code, 3);

  std::filesystem::rename(dir_.file("run/step-2"), dir_.file("2"));
  std::filesystem::rename(dir_.file("run/step-4"), dir_.file("4"));
  const CommandResult empty = verify("run");
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_THAT(empty.out, HasSubstr("'run' is the folder of a run without a checkpoint"));
  EXPECT_THAT(empty.out, Not(HasSubstr("model.safetensors")));
}

TEST_F(VerifyTest, ABitThatTurnedOverContradictsTheManifest) {
  change_byte("run/step-4/model.safetensors", 4);
  change_byte("run/step-4/trainer.safetensors", 4);
  const CommandResult result = verify("run");
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_THAT(result.out, HasSubstr("run/step-4/model.safetensors is damaged: its checksum is"));
  EXPECT_THAT(result.out, HasSubstr("run/step-4/trainer.safetensors is damaged"));
  EXPECT_THAT(result.out, HasSubstr("run/step-4: 2 findings"));
  EXPECT_THAT(result.out, HasSubstr("run/step-2: good"));
  EXPECT_EQ(result.err, "volta: run: 2 findings\n");
}

// The checksums are right, so only the content tells. A resumed run says the same and goes on.
TEST_F(VerifyTest, ATrainerStateThatNoTrainerWritesIsFound) {
  test::change_state(dir_.file("run/step-4"), [](auto& state) { state.metadata["step"] = "x"; });
  const CommandResult result = verify("run");
  EXPECT_EQ(result.exit_code, 3) << result.out;
  const std::string finding =
      "run/step-4/trainer.safetensors: the step in its metadata is 'x', which is no number of "
      "updates: the checkpoint is damaged, and a run cannot go on from it";
  EXPECT_THAT(result.out, HasSubstr(finding + "\nrun/step-4: 1 finding: "));
  EXPECT_THAT(result.out, HasSubstr("run/step-2: good"));
  EXPECT_THAT(volta({"verify", "run/step-4", "--output", "json"}).out,
              HasSubstr(R"({"kind":"invalid","file":"trainer.safetensors",)"));
  const CommandResult resumed = volta({"train", "--out", "run", "--resume", "--threads", "1"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("skipping checkpoint run/step-4: " + finding));
  EXPECT_THAT(resumed.err, HasSubstr("run/step-4 is kept as run/step-4.invalid"));
  EXPECT_EQ(verify("run").exit_code, 0);
}

TEST_F(VerifyTest, MomentsThatNoTrainingGivesAreFound) {
  test::change_state(dir_.file("run/step-4"), [](auto& state) {
    for (auto& [name, tensor] : state.tensors) {
      if (!name.starts_with("adam.v.")) continue;
      const auto elements = static_cast<std::size_t>(tensor.spec().shape.elements());
      ASSERT_TRUE(tensor.template write<float>(std::vector<float>(elements, -1.0f)));
    }
  });
  const CommandResult result = verify("run");
  EXPECT_EQ(result.exit_code, 3) << result.out;
  EXPECT_THAT(result.out, HasSubstr("run/step-4/trainer.safetensors: optimiser tensor 'adam.v."));
  EXPECT_THAT(result.out, HasSubstr("is -1 at element 0, where no training gives"));
  const CommandResult resumed = volta({"train", "--out", "run", "--resume", "--threads", "1"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("run/step-4 is kept as run/step-4.invalid"));
}

TEST_F(VerifyTest, WhatIsInvalidWeighsMore) {
  const std::string weights = dir_.file("run/step-4/model.safetensors");
  auto tensors = *SafetensorsFile::open(weights)->load_all();
  ASSERT_TRUE(
      tensors.at("transformer.ln_f.weight").write<float>(std::vector<float>(16, std::nanf(""))));
  tensors.erase("transformer.wpe.weight");
  ASSERT_TRUE(write_safetensors(weights, tensors));
  const CommandResult result = volta({"verify", "run/step-4", "--output", "json"});
  EXPECT_EQ(result.exit_code, 3);
  const auto parsed = parse_json(result.out, "verify");
  ASSERT_TRUE(parsed) << result.out;
  EXPECT_FALSE(*JsonRef(*parsed, "verify").get_bool("ok"));
  EXPECT_THAT(result.out, HasSubstr("tensor 'transformer.wpe.weight' [16, 16] is missing"));
  EXPECT_THAT(result.out, HasSubstr("has 16 NaN and 0 infinite values"));
  EXPECT_THAT(result.out, HasSubstr("{\"kind\":\"contradiction\",\"file\":\"manifest.json\""));
  EXPECT_THAT(result.err, HasSubstr("3 findings"));
}

TEST_F(VerifyTest, IntegersHaveScalesThatMayBeNoNumbers) {
  ASSERT_EQ(volta({"quantize", "run", "--weights", "q8", "--out", "q8"}).exit_code, 0);
  EXPECT_EQ(volta({"verify", "q8"}).exit_code, 0);
  const std::string weights = dir_.file("q8/model.safetensors");
  const std::string text = *read_text_file(weights);
  std::size_t at = 0;
  {
    const auto file = SafetensorsFile::open(weights);
    ASSERT_TRUE(file);
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto encoding = stored_encoding(*file, entry.name);
      if (!encoding || !encoding->quantized()) continue;
      const auto bytes = file->bytes(entry);
      const std::string part(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      at = text.find(part) + static_cast<std::size_t>(encoding->block_bytes());
      break;
    }
  }
  ASSERT_GT(at, 0u);
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write("\x01\x7c", 2);
  file.close();
  const CommandResult result = volta({"verify", "q8"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("has 1 NaN and 0 infinite scales, the first at block 1"));
}

// Integers said to lie otherwise than they do, in as many bytes: what generate refuses, verify
// refuses before.
TEST_F(VerifyTest, IntegersMustLieAsTheModelReadsThem) {
  ASSERT_EQ(volta({"quantize", "run", "--weights", "q8", "--out", "q8"}).exit_code, 0);
  const std::string weights = dir_.file("q8/model.safetensors");
  const auto tensors = *SafetensorsFile::open(weights)->load_all();
  const auto metadata = SafetensorsFile::open(weights)->metadata();
  const std::string key = quant_key("transformer.h.0.attn.c_proj.weight");
  ASSERT_EQ(metadata.at(key), "int8 by 32");
  for (const std::string text : {"int8 by 32, transposed", "int4 by 64", "int5 by 32"}) {
    auto changed = metadata;
    changed.at(key) = text;
    ASSERT_TRUE(write_safetensors(weights, tensors, changed));
    const CommandResult verified = verify("q8");
    EXPECT_EQ(verified.exit_code, 3) << text << verified.out;
    EXPECT_THAT(verified.out, HasSubstr("c_proj.weight' is stored as"));
    const CommandResult generated = volta({"generate", "q8", "-p", "a", "-n", "1"});
    EXPECT_EQ(generated.exit_code, 3) << text;
    EXPECT_THAT(generated.err, HasSubstr("c_proj.weight' is stored as"));
  }
}

TEST_F(VerifyTest, TakesGgufFiles) {
  const std::string model = test::source_path("tests/formats/data/gguf_llama.gguf");
  const CommandResult good = verify(model);
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("gguf_llama.gguf: good: 12 tensors, "));
  EXPECT_THAT(good.out, HasSubstr("in 1 file, a tokenizer"));
  const auto bytes = read_text_file(model);
  std::ofstream(dir_.file("cut.gguf"), std::ios::binary) << bytes->substr(0, bytes->size() / 2);
  const CommandResult cut = verify("cut.gguf");
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_THAT(cut.out, ::testing::StartsWith("cut.gguf: "));
  EXPECT_THAT(cut.out, HasSubstr("\ncut.gguf: 1 finding: 0 tensors"));
}

// A file of 100 GiB that takes no place on the disk; its size.
std::uint64_t write_sparse(const std::string& path) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[26214400,1024],"data_offsets":[0,107374182400]}})";
  const std::uint64_t length = header.size();
  std::ofstream(path, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << header;
  std::filesystem::resize_file(path, 8 + header.size() + 107374182400u);
  return 8 + header.size() + 107374182400u;
}

// Minutes of reading, were it not for the signal.
TEST_F(VerifyTest, EndsSoonWhenInterrupted) {
  std::filesystem::create_directory(dir_.file("sparse"));
  write_sparse(dir_.file("sparse/model.safetensors"));
  test::Command command({"verify", "sparse"}, dir_.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto begun = std::chrono::steady_clock::now();
  command.kill(SIGINT);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted after "));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));  // Busy machines.
}

// A command that takes the folder of a run reads the whole checkpoint first, for its checksums.
TEST_F(VerifyTest, ChecksumsEndSoonWhenInterrupted) {
  const std::string folder = dir_.file("run/step-4");
  const std::uint64_t size = write_sparse(folder + "/model.safetensors");
  std::string manifest = *read_text_file(folder + "/manifest.json");
  const std::size_t name = manifest.find("\"model.safetensors\"");
  const std::size_t bytes = manifest.find("\"bytes\": ", name) + 9;
  manifest.replace(bytes, manifest.find_first_not_of("0123456789", bytes) - bytes,
                   std::to_string(size));
  std::ofstream(folder + "/manifest.json", std::ios::binary) << manifest;
  test::Command command({"generate", "run", "-p", "a"}, dir_.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto begun = std::chrono::steady_clock::now();
  command.kill(SIGINT);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted reading run/step-4/model.safetensors"));
  EXPECT_THAT(result.err, Not(HasSubstr("skipping")));  // It is no damaged checkpoint.
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));  // Busy machines.
}

// What a file names its tensors cannot look like a line of the report.
TEST_F(VerifyTest, NamesWithLineBreaksMakeNoLines) {
  const std::string weights = dir_.file("run/step-4/model.safetensors");
  std::filesystem::remove(dir_.file("run/step-4/manifest.json"));
  auto tensors = *SafetensorsFile::open(weights)->load_all();
  tensors["x\nrun/step-4: good: 1 tensors\tin 1 file\u2028\x1b[2J"] =
      *Tensor::zeros({DType::kF32, Shape(2)});
  ASSERT_TRUE(write_safetensors(weights, tensors));
  const std::string escaped =
      R"('x\nrun/step-4: good: 1 tensors\tin 1 file\u2028\u001b[2J' f32[2] belongs to no)";
  const CommandResult verified = verify("run/step-4");
  EXPECT_EQ(verified.exit_code, 3);
  EXPECT_THAT(verified.out, HasSubstr(escaped));
  EXPECT_EQ(std::ranges::count(verified.out, '\n'), 2) << verified.out;  // A finding, the verdict.
  const CommandResult run = volta({"generate", "run/step-4", "--ids", "1"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr(escaped));
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
}

// What verify calls good, the commands that copy the folder's files take, too.
TEST_F(VerifyTest, LinksThatAreNotCopiedAreFindings) {
  namespace fs = std::filesystem;
  fs::create_directory(dir_.file("home"));
  std::ofstream(dir_.file("home/id_rsa")) << "PRIVATE KEY";
  fs::copy(dir_.file("run/step-4"), dir_.file("model"));
  fs::remove(dir_.file("model/manifest.json"));
  ASSERT_EQ(verify("model").exit_code, 0);
  const auto expect_refused = [&](const std::string& target, const std::string& name,
                                  const std::string& words) {
    const std::string link = dir_.file("model/" + name);
    const bool there = fs::exists(link);
    if (there) fs::rename(link, dir_.file("kept"));
    fs::create_symlink(target, link);
    const CommandResult verified = verify("model");
    EXPECT_EQ(verified.exit_code, 3) << name;
    EXPECT_THAT(verified.out, HasSubstr("'model/" + name + "' is a symbolic link " + words));
    EXPECT_THAT(verified.out, HasSubstr("quantize, merge and train --init refuse to copy it"));
    EXPECT_THAT(verified.out, HasSubstr("model: 1 finding:"));
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"quantize", "model", "--weights", "q8", "--out", "out"},
          std::vector<std::string>{"train", "--init", "model", "--data", "text.txt", "--steps", "1",
                                   "--out", "out", "--batch", "1"}}) {
      EXPECT_EQ(volta(command).exit_code, 3) << name << ' ' << command.front();
    }
    fs::remove(link);
    if (there) fs::rename(dir_.file("kept"), link);
  };
  expect_refused("../home/id_rsa", "vocab.txt", "to '");
  expect_refused("nowhere", "vocab.txt", "that leads nowhere");
  expect_refused("nowhere", "tokenizer.json", "that leads nowhere");
  EXPECT_EQ(verify("model").exit_code, 0);
}

TEST_F(VerifyTest, SaysWhatIsMissing) {
  std::filesystem::remove(dir_.file("run/step-4/tokenizer.json"));
  EXPECT_EQ(verify("run/step-4").exit_code, 3);  // The manifest has it.
  std::ofstream(dir_.file("run/step-2/generation_config.json")) << "{\"eos_token_id\": 256}";
  EXPECT_EQ(verify("run/step-2").exit_code, 6);
  EXPECT_THAT(verify("run/step-2").out,
              HasSubstr("run/step-2/generation_config.json: eos_token_id is 256"));
  std::ofstream(dir_.file("run/step-4/manifest.json")) << "{\"volta\": 1}";
  EXPECT_THAT(verify("run/step-4").out, HasSubstr("format"));
  std::filesystem::create_directory(dir_.file("empty"));
  const CommandResult empty = verify("empty");
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_THAT(empty.out, HasSubstr("config.json"));
  EXPECT_EQ(verify("none").exit_code, 3);
  EXPECT_EQ(verify("text.txt").exit_code, 3);
  EXPECT_EQ(volta({"verify", "run", "--output", "csv"}).exit_code, 2);
}

TEST_F(VerifyTest, InspectTellsTheMemory) {
  const CommandResult text = volta({"inspect", "run", "--batch", "3", "--context", "8"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(" tensors of f32\n"));
  EXPECT_THAT(text.out, HasSubstr("(GELU)"));
  EXPECT_THAT(text.out, HasSubstr("to generate at context 8, batch 3, computing in f32: "));
  const CommandResult json = volta({"inspect", "run", "--batch", "3", "--output", "json"});
  const auto parsed = parse_json(json.out, "inspect");
  ASSERT_TRUE(parsed) << json.out;
  const JsonRef ref(*parsed, "inspect");
  const auto memory = ref.member("memory");
  ASSERT_TRUE(memory);
  EXPECT_EQ(*ref.get_string("family"), "gpt2");
  EXPECT_EQ(*ref.member("config")->get_int("vocab_size"), 256);
  EXPECT_EQ(*memory->get_int("cache"), 2 * 4 * 3 * 64 * 16);  // Of 64 positions: a whole block.
  EXPECT_EQ(*memory->get_int("total"), *memory->get_int("weights") + *memory->get_int("cache") +
                                           *memory->get_int("activations") +
                                           *memory->get_int("tables"));
  EXPECT_EQ(*memory->get_int("step_tokens"), 64);  // 3 prompts of 16 tokens.
  EXPECT_EQ(*ref.member("types")->elements()->front().get_int("bytes"),
            *ref.get_int("weight_bytes"));
  EXPECT_EQ(volta({"inspect", "run", "--context", "17"}).exit_code, 2);
}

TEST(InspectOthers, CountsTheBytesOfEveryType) {
  VOLTA_NEEDS_SHARED("models/mistral-tiny-sliding");
  const test::TempDir dir;
  const CommandResult result = run_volta(
      {"inspect", test::shared_path("models/mistral-tiny-sliding"), "--tensors"}, dir.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("weights 593.2 KiB, 593.2 KiB in 21 tensors of f32\n"));
  EXPECT_THAT(result.out, HasSubstr("lm_head.weight"));
  EXPECT_THAT(result.out, HasSubstr("context 128, window 8, vocabulary 512"));
}

TEST(InspectOthers, TellsTheFormOfGelu) {
  VOLTA_NEEDS_SHARED("models/gpt2-tiny");
  const test::TempDir dir;
  const CommandResult result =
      run_volta({"inspect", test::shared_path("models/gpt2-tiny")}, dir.path());
  EXPECT_THAT(result.out, HasSubstr("(GELU (tanh))"));
  EXPECT_THAT(result.out, Not(HasSubstr("window")));
}

}  // namespace
}  // namespace volta
