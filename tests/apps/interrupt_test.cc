// Commands that are interrupted: each ends soon and leaves nothing half done, and a second signal
// ends a run at once without harm to its checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/volta_fixture.h"
#include "base/file.h"
#include "device/helpers.h"
#include "formats/adapter.h"
#include "formats/model_config.h"
#include "formats/model_folder.h"
#include "formats/safetensors.h"
#include "nn/lora.h"
#include "text/tokenizer.h"

namespace volta {
namespace {

using test::Command;
using test::CommandResult;
using ::testing::HasSubstr;

constexpr const char* kHeard = "volta: ending; once more ends at once";

// A Llama of 154 million parameters, all zero, in a file that takes no place on the disk.
TransformerConfig large_config() {
  TransformerConfig config = tiny_lm_config();
  config.naming = WeightNaming::kLlama;
  config.position = PositionKind::kRotary;
  config.norm = NormKind::kRms;
  config.ffn_kind = FfnKind::kGated;
  config.activation = Activation::kSilu;
  config.context = 256;
  config.layers = 12;
  config.dim = 1024;
  config.heads = config.kv_heads = 8;
  config.head_dim = 128;
  config.ffn = 2816;
  return config;
}

class InterruptTest : public test::VoltaTest {
 protected:
  void SetUp() override {
    VoltaTest::SetUp();
    // The tokenizer of a small model with the same vocabulary.
    TransformerConfig small = large_config();
    small.layers = 1;
    small.dim = small.ffn = 8;
    small.heads = small.kv_heads = 1;
    small.head_dim = 8;
    const auto model = Transformer::random(small, 1, test::cpu(1));
    ASSERT_TRUE(model);
    std::filesystem::create_directory(path("large"));
    ASSERT_TRUE(save_model(path("large"), *model, make_byte_tokenizer().get()));
    const TransformerConfig config = large_config();
    write("large/config.json", model_config_json(config));
    write_sparse(parameters(config), "large/model.safetensors");

    const LoraConfig lora{.rank = 2, .alpha = 4.0, .targets = {"q_proj", "v_proj"}};
    std::filesystem::create_directory(path("adapter"));
    write("adapter/adapter_config.json", adapter_config_json(config, lora, "large"));
    std::vector<ParameterInfo> tensors = lora_parameters(config, lora);
    for (ParameterInfo& tensor : tensors) tensor.name = "base_model.model." + tensor.name;
    write_sparse(tensors, "adapter/adapter_model.safetensors");

    const std::vector<std::int64_t> ids(16 * 128, 65);
    ASSERT_TRUE(write_safetensors(
        path("ids.safetensors"),
        {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(16, 128), ids)}}));
  }
  // The files of what commands have written to standard error; whether one was told of a signal.
  std::vector<std::string> messages() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().extension() == ".err") files.push_back(entry.path().string());
    }
    return files;
  }
  bool was_heard() const {
    for (const std::string& file : messages()) {
      const auto text = read_text_file(file);
      if (text && text->contains(kHeard)) return true;
    }
    return false;
  }
  // A file of f32 zeros.
  void write_sparse(const std::vector<ParameterInfo>& tensors, const std::string& name) const {
    std::string header;
    std::uint64_t bytes = 0;
    for (const ParameterInfo& tensor : tensors) {
      std::string shape;
      for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
        shape += (axis > 0 ? "," : "") + std::to_string(tensor.shape[axis]);
      }
      const std::uint64_t end = bytes + 4 * static_cast<std::uint64_t>(tensor.shape.elements());
      header += (header.empty() ? "{\"" : ",\"") + tensor.name + R"(":{"dtype":"F32","shape":[)" +
                shape + R"(],"data_offsets":[)" + std::to_string(bytes) + "," +
                std::to_string(end) + "]}";
      bytes = end;
    }
    header += "}";
    while (header.size() % 8 != 0) header += " ";
    const std::uint64_t length = header.size();
    write(name, std::string(reinterpret_cast<const char*>(&length), 8) + header);
    std::filesystem::resize_file(path(name), 8 + length + bytes);
  }
};

TEST_F(InterruptTest, EveryLongCommandEndsSoonAndLeavesNoResult) {
  struct Case {
    std::vector<std::string> words;
    std::string result;  // What it writes; empty for a command that only prints.
  };
  const std::vector<Case> cases = {
      {{"quantize", "large", "--weights", "q8", "--out", "narrow"}, "narrow"},
      {{"convert", "large", "large.gguf"}, "large.gguf"},
      {{"merge", "large", "--adapter", "adapter", "--out", "merged"}, "merged"},
      {{"logits", "large", "--ids", "ids.safetensors", "--out", "logits.safetensors"},
       "logits.safetensors"},
      {{"bench", "gaps", "large", "--requests", "2", "--prompt", "128", "--runs", "1000"}, ""},
      {{"demo", "--text", "text.txt", "--out", "demo"}, ""},
  };
  for (const auto& [words, result] : cases) {
    SCOPED_TRACE(words.front());
    CommandResult stopped;
    double seconds = 0.0;
    // A busy machine needs longer to begin, and a fast one is done sooner.
    for (const int wait_ms : {300, 100, 50, 1000, 3000}) {
      if (!result.empty()) std::filesystem::remove_all(path(result));
      std::filesystem::remove_all(path("demo"));
      Command command(words, dir_.path());
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      const auto begun = std::chrono::steady_clock::now();
      command.kill(SIGINT);
      stopped = command.wait();
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      if (stopped.exit_code == 130 && stopped.err.contains(kHeard)) break;
    }
    EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr(kHeard));
    EXPECT_THAT(stopped.err, HasSubstr("interrupted"));
    EXPECT_LT(seconds, 5.0);  // On a busy machine; one second is what is promised.
    if (words.front() != "demo") {
      EXPECT_EQ(stopped.out, "");
    }
    EXPECT_FALSE(!result.empty() && std::filesystem::exists(path(result)));
    // Nor a temporary file.
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      EXPECT_FALSE(entry.path().filename().string().contains("tmp-volta")) << entry.path();
    }
  }
}

TEST_F(InterruptTest, AQuietCommandEndsWithoutAWord) {
  Command command(train({"--steps", "1000000", "--quiet"}), dir_.path());
  ASSERT_TRUE(test::wait_until([&] { return path_exists(path("run/step-6")); }));
  command.kill(SIGINT);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_EQ(stopped.err, "");
  EXPECT_EQ(stopped.out, "");
}

// The process is held still between the two signals, so that it cannot end by itself.
TEST_F(InterruptTest, ASecondSignalLaterEndsAtOnceAndTheLastCheckpointOpens) {
  CommandResult ended;
  for (int attempt = 0; attempt < 5 && ended.exit_code != 128 + SIGTERM; ++attempt) {
    std::filesystem::remove_all(path("run"));
    for (const std::string& file : messages()) std::filesystem::remove(file);
    Command command(train({"--steps", "1000000", "--dim", "512", "--layers", "4"}), dir_.path());
    ASSERT_TRUE(test::wait_until([&] { return path_exists(path("run/step-6")); }));
    command.kill(SIGINT);
    // Its handler has run, and a checkpoint is being written.
    ASSERT_TRUE(test::wait_until([&] { return was_heard() || command.ended(); }));
    command.kill(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    command.kill(SIGTERM);
    command.kill(SIGCONT);
    ended = command.wait();
  }
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.err;
  EXPECT_EQ(volta({"generate", "run", "-p", "the", "-n", "2"}).exit_code, 0);
  const CommandResult verified = volta({"verify", "run"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
}

}  // namespace
}  // namespace volta
