// Tokenizers and texts that would take for ever: every command that reads one ends soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::Command;
using test::CommandResult;
using test::run_volta;
using ::testing::HasSubstr;

class HostileTokenizerTest : public ::testing::Test {
 protected:
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  // A model folder of 256 tokens.
  void make_model() const {
    write("text.txt", std::string(500, 'a') + std::string(500, 'b'));
    const CommandResult trained = volta(
        {"train", "--data",  "text.txt", "--out",        "run", "--tokenizer", "byte", "--layers",
         "1",     "--heads", "2",        "--dim",        "16",  "--context",   "16",   "--batch",
         "2",     "--steps", "1",        "--save-every", "1",   "--threads",   "1"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    std::filesystem::copy(dir_.file("run/step-1"), dir_.file("model"),
                          std::filesystem::copy_options::recursive);
    std::filesystem::remove(dir_.file("model/manifest.json"));
  }
  // Starts a command, sends SIGINT while it works, and expects it to end.
  void interrupt(const std::vector<std::string>& arguments) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    Command command(arguments, dir_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    command.kill(SIGINT);
    const auto begin = std::chrono::steady_clock::now();
    const CommandResult result = command.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("interrupted"));
    // A second; but a machine may be busy.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }

  test::TempDir dir_;
};

std::string chain_of_replace(bool while_loading) {
  std::string steps;
  for (int i = 0; i < 12; ++i) {
    steps += i == 0 ? "" : ",";
    steps += R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
  }
  const std::string added = while_loading ? R"([{"id":2,"content":"xa","normalized":true}])" : "[]";
  return R"({"added_tokens":)" + added + R"(,"normalizer":{"type":"Sequence","normalizers":[)" +
         steps + R"(]},"model":{"type":"BPE","unk_token":"a","vocab":{"a":0,"b":1}}})";
}

TEST_F(HostileTokenizerTest, ExpansionsAreRefusedByEveryCommand) {
  make_model();
  for (const bool while_loading : {false, true}) {
    SCOPED_TRACE(while_loading);
    write("model/tokenizer.json", chain_of_replace(while_loading));
    const CommandResult verified = volta({"verify", "model"});
    EXPECT_EQ(verified.exit_code, 3) << verified.out;
    EXPECT_THAT(verified.out + verified.err, HasSubstr("normalizer Replace makes too much text"));
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"tokenize", "model", "a"},
          {"generate", "model", "-p", "a", "-n", "1"},
          {"eval", "model", "--data", "text.txt"},
          {"train", "--init", "model", "--data", "text.txt", "--out", "more", "--steps", "1"}}) {
      const CommandResult result = volta(arguments);
      EXPECT_EQ(result.exit_code, 3) << arguments[0] << ": " << result.err;
      EXPECT_THAT(result.err, HasSubstr("normalizer Replace makes too much text")) << arguments[0];
    }
  }
}

TEST_F(HostileTokenizerTest, StrangersFilesAreRefusedByEveryCommand) {
  VOLTA_NEEDS_SHARED("hostile");
  make_model();
  const std::string text(30, 'a');
  for (const std::string name : {"post", "norm", "normload", "oob", "k1", "re"}) {
    SCOPED_TRACE(name);
    std::filesystem::copy_file(test::shared_path("hostile/" + name + ".json"),
                               dir_.file("model/tokenizer.json"),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(volta({"verify", "model"}).exit_code, 3);
    EXPECT_EQ(volta({"tokenize", "model", text}).exit_code, 3);
    EXPECT_EQ(volta({"generate", "model", "-p", text, "-n", "1"}).exit_code, 3);
  }
}

TEST_F(HostileTokenizerTest, SignalsEndWorkOnLongTexts) {
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < (std::size_t{32} << 20)) {
    state = state * 1664525 + 1013904223;
    text += static_cast<char>('a' + (state >> 24) % 26);
    if ((state >> 16) % 7 == 0) text += ' ';
  }
  write("long.txt", text);
  write("short.txt", text.substr(0, 100'000));
  ASSERT_EQ(volta({"tokenizer", "train", "--data", "short.txt", "--vocab", "2000", "--out", "bpe"})
                .exit_code,
            0);
  interrupt({"tokenizer", "train", "--data", "long.txt", "--vocab", "60000", "--out", "a/more"});
  EXPECT_FALSE(path_exists(dir_.file("a")));  // Not even an empty folder is left.
  interrupt({"tokenize", "bpe", "--file", "long.txt", "--output", "json"});
  interrupt({"train", "--data", "long.txt", "--tokenizer", "bpe/tokenizer.json", "--out", "run",
             "--layers", "1", "--heads", "2", "--dim", "16", "--steps", "1000000"});
}

}  // namespace
}  // namespace volta
