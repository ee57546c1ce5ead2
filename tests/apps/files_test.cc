// Files as the command line meets them: links and names in strangers' folders, files that other
// programs cut, what a killed process leaves, and the places of results.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/volta_fixture.h"
#include "base/file.h"
#include "base/temporary.h"
#include "formats/safetensors.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

namespace fs = std::filesystem;
using test::Command;
using test::CommandResult;
using test::run_shell;
using test::run_volta;
using test::wait_until;
using ::testing::HasSubstr;
using ::testing::Not;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy dog.\n";
    write("text.txt", text);
  }
  std::string path(const std::string& name) const { return dir_.file(name); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void write_ids() const {
    const std::vector<std::int64_t> ids = {1, 2, 3};
    ASSERT_TRUE(
        write_safetensors(path("ids.safetensors"),
                          {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(1, 3), ids)}}));
  }
  std::string get(const std::string& name) const {
    return read_text_file(path(name)).value_or("<none>");
  }
  CommandResult volta(const std::vector<std::string>& arguments) const {
    return run_volta(arguments, dir_.path());
  }
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train",     "--data",       "text.txt", "--out",     "run", "--layers",
        "1",         "--heads",      "2",        "--dim",     "32",  "--activation",
        "gelu_tanh", "--context",    "16",       "--batch",   "2",   "--steps",
        "4",         "--eval-every", "0",        "--threads", "1",   "--save-every",
        "2",         "--tokenizer",  "byte"};
    // Files of --data add up, so another one takes the place of this one.
    const auto data = std::find(arguments.begin(), arguments.end(), "--data");
    if (data != arguments.end() && std::find(more.begin(), more.end(), "--data") != more.end()) {
      arguments.erase(data, data + 2);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void expect_error(const std::vector<std::string>& arguments, int exit_code,
                    const std::string& words) const {
    const CommandResult result = volta(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
  // Temporaries below the test's folder.
  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path())) {
      const std::string name = entry.path().filename().string();
      if (is_temporary_name(name)) found.push_back(name);
    }
    return found;
  }

  test::TempDir dir_;
};

TEST_F(Files, ALockOrMetricsThatLeadElsewhereAreLeftAlone) {
  write("bashrc", "alias ll='ls -l'\n");
  fs::create_directories(path("r"));
  fs::create_symlink("../bashrc", path("r/.lock"));
  expect_error(train({"--out", "r"}), 3, "r/.lock': it is a symbolic link");
  EXPECT_EQ(get("bashrc"), "alias ll='ls -l'\n");
  fs::remove(path("r/.lock"));
  write("r/.lock", "my notes");
  expect_error(train({"--out", "r"}), 3, "is not a lock of Volta's");
  EXPECT_EQ(get("r/.lock"), "my notes");
  fs::remove(path("r/.lock"));
  fs::create_directories(path("r/.lock"));
  expect_error(train({"--out", "r"}), 3, "r/.lock': it is not a regular file");

  ASSERT_EQ(volta(train({"--steps", "2"})).exit_code, 0);
  write("thesis.tex", "years of work");
  fs::remove(path("run/metrics.jsonl"));
  fs::create_symlink("../thesis.tex", path("run/metrics.jsonl"));
  expect_error({"train", "--out", "run", "--resume"}, 3, "metrics.jsonl': it is a symbolic link");
  EXPECT_EQ(get("thesis.tex"), "years of work");
}

TEST_F(Files, WhatIsNamedLikeATemporaryStays) {
  write("run/backup.tmp-2024-11/thesis.txt", "years of work");
  write("run/notes.tmp-1-2", "mine");
  write("run/.tmp-step-9/mine", "mine");
  ASSERT_EQ(volta(train()).exit_code, 0);
  ASSERT_EQ(volta(train({"--resume"})).exit_code, 0);
  EXPECT_EQ(get("run/.tmp-step-9/mine"), "mine");
  EXPECT_EQ(get("run/backup.tmp-2024-11/thesis.txt"), "years of work");
  EXPECT_EQ(get("run/notes.tmp-1-2"), "mine");
}

TEST_F(Files, OutputsAreNotWrittenThroughLinks) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  write("mine", "mine");
  for (const char* name : {"link", "link.safetensors", "link.gguf"}) {
    fs::create_symlink("mine", path(name));
  }
  write_ids();
  expect_error({"eval", "run", "--data", "text.txt", "--profile", "link"}, 1, "a symbolic link");
  expect_error({"logits", "run", "--ids", "ids.safetensors", "--out", "link.safetensors"}, 1,
               "a symbolic link");
  expect_error({"convert", "run", "link.gguf", "--force"}, 1, "a symbolic link");
  expect_error({"quantize", "run", "--weights", "q8", "--out", "link"}, 1, "no folder");
  fs::create_directories(path("tokenizer"));
  fs::create_symlink("../mine", path("tokenizer/tokenizer.json"));
  expect_error({"tokenizer", "train", "--data", "text.txt", "--vocab", "300", "--out", "tokenizer"},
               1, "a symbolic link");
  EXPECT_EQ(get("mine"), "mine");
  EXPECT_TRUE(temporaries().empty());
}

// Even with --force. The files that a command reads may have several names, and some are named by
// no option.
TEST_F(Files, NoResultReplacesWhatTheCommandReads) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  fs::create_hard_link(path("text.txt"), path("same.txt"));
  fs::create_symlink(path("run"), path("linked"));
  fs::copy(path("run/step-4"), path("model"));
  fs::rename(path("model/model.safetensors"), path("weights.bin"));
  fs::create_symlink("../weights.bin", path("model/model.safetensors"));
  fs::create_hard_link(path("run/step-4/trainer.safetensors"), path("trainer.bin"));
  write("messages.json", R"([{"role": "user", "content": "a"}])");
  write("template.jinja", "{{ messages[0].content }}");
  const auto expect_kept = [&](std::vector<std::string> arguments, const std::string& file,
                               const std::string& words, const std::string& option = "--profile") {
    const std::string before = get(file);
    ASSERT_NE(before, "<none>");
    arguments.insert(arguments.end(), {option, file, "--force"});
    expect_error(arguments, 2, words);
    EXPECT_EQ(get(file), before) << file;
  };
  const std::vector<std::string> generate = {"generate", "run", "-n", "1"};
  const auto with = [&](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_kept(with(generate, {"-f", "text.txt"}), "text.txt", "this is the file of --file");
  expect_kept(with(generate, {"--file=same.txt"}), "text.txt", "this is the file of --file");
  expect_kept(with(generate, {"--prompts-file", "text.txt"}), "same.txt", "of --prompts-file");
  expect_kept({"generate", "model", "-p", "a"}, "weights.bin", "this is a file of 'model'");
  expect_kept({"generate", "linked", "-p", "a"}, "trainer.bin", "this is a file of 'linked'");
  expect_kept({"eval", "run", "--data", "text.txt"}, "same.txt", "this is the file of --data");
  expect_kept(train({"--out", "new"}), "text.txt", "this is the file of --data");
  expect_kept({"chat", "run", "--messages", "messages.json", "--template", "template.jinja"},
              "messages.json", "this is the file of --messages");
  expect_kept({"chat", "run", "--messages", "messages.json", "--template", "template.jinja"},
              "template.jinja", "this is the file of --template");
  // A model that is replaced as a whole.
  fs::copy(path("run/step-4"), path("old"));
  fs::remove(path("old/manifest.json"));
  fs::remove(path("old/trainer.safetensors"));
  fs::create_hard_link(path("old/config.json"), path("config.txt"));
  expect_error(
      {"quantize", "run", "--weights", "q8", "--data", "config.txt", "--out", "old", "--force"}, 2,
      "'old' holds the file of --data");
  // The data of a run that is resumed is named in its folder.
  const std::string before = get("text.txt");
  const auto resumed =
      run_shell("\"$VOLTA\" --profile text.txt --force train --out run --resume", dir_.path());
  EXPECT_EQ(resumed.exit_code, 2) << resumed.err;
  EXPECT_EQ(get("text.txt"), before);
  // The table of `volta tune` is read by every command.
  const auto tuning =
      run_volta({"tune", "show"}, dir_.path(), {{"VOLTA_CACHE_DIR", path("cache")}});
  ASSERT_EQ(tuning.exit_code, 0) << tuning.err;
  const std::size_t name = tuning.out.find("cache/");
  ASSERT_NE(name, std::string::npos) << tuning.out;
  const std::string table = tuning.out.substr(name, tuning.out.find(".json", name) + 5 - name);
  write(table, "{}");
  const auto profiled =
      run_volta({"generate", "run", "-p", "a", "-n", "1", "--profile", table, "--force"},
                dir_.path(), {{"VOLTA_CACHE_DIR", path("cache")}});
  EXPECT_EQ(profiled.exit_code, 2) << profiled.err;
  EXPECT_THAT(profiled.err, HasSubstr("the table of `volta tune`"));
  EXPECT_EQ(get(table), "{}");
}

// Even with --force, and under whatever names the run has given its files over time.
TEST_F(Files, NoResultReplacesAFileOfARun) {
  ASSERT_EQ(volta(train({"--tensorboard"})).exit_code, 0);
  fs::copy(path("run/step-4"), path("model"));
  fs::remove(path("model/manifest.json"));
  write_ids();
  std::string events;
  for (const auto& entry : fs::directory_iterator(path("run/tensorboard"))) {
    events = "run/tensorboard/" + entry.path().filename().string();
  }
  ASSERT_NE(events, "");
  write("run/metrics.jsonl.cut", "lines");
  write("run/metrics.jsonl.old.2", "lines");
  write("run/step-2.invalid/notes", "notes");
  write("run/step-2/notes", "notes");
  write("begun/.lock", "");
  fs::create_directory_symlink("run", path("linked"));
  const std::vector<std::string> kept = {
      "run/metrics.jsonl", "run/metrics.jsonl.cut",    "run/metrics.jsonl.old.2",
      "run/loss.svg",      "linked/loss.svg",          "run/.lock",
      "run/run.json",      "run/step-2/notes",         "run/step-2.invalid/notes",
      "begun/.lock",       "run/step-2/manifest.json", events};
  const std::vector<std::string> logits = {"logits",          "model",   "--ids",
                                           "ids.safetensors", "--force", "--out"};
  for (const std::string& file : kept) {
    const std::string before = get(file);
    ASSERT_NE(before, "<none>") << file;
    std::vector<std::string> command = logits;
    command.push_back(file);
    expect_error(command, 2, "a file of a model or a run");
    command.back() = "out.safetensors";
    command.insert(command.end(), {"--profile", file});
    expect_error(command, 2, "a file of a model or a run");
    EXPECT_EQ(get(file), before) << file;
  }
  // The user's own files are replaced, in the folder of a run and elsewhere.
  for (const std::string file : {"run/logits.safetensors", "loss.svg"}) {
    write(file, "mine");
    std::vector<std::string> command = logits;
    command.push_back(file);
    EXPECT_EQ(volta(command).exit_code, 0) << file;
    EXPECT_NE(get(file), "mine") << file;
  }
}

TEST_F(Files, TwoResultsOfACommandHaveTwoPlaces) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  write_ids();
  expect_error({"logits", "run", "--ids", "ids.safetensors", "--out", "both.safetensors",
                "--profile", "both.safetensors", "--force"},
               2, "this is the file of --out");
  EXPECT_TRUE(SafetensorsFile::open(path("both.safetensors")));
}

// The work stops while its temporary is there, so that the file appears after every check.
TEST_F(Files, AFileThatAppearsDuringTheWorkStays) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::vector<std::int64_t> ids(16 * 2048, 1);
  ASSERT_TRUE(
      write_safetensors(path("ids.safetensors"),
                        {{"input_ids", *Tensor::from_values<std::int64_t>(Shape(2048, 16), ids)}}));
  Command command({"logits", "run", "--ids", "ids.safetensors", "--out", "out.safetensors"},
                  dir_.path());
  ASSERT_TRUE(wait_until([&] { return !temporaries().empty() || command.ended(); }));
  command.kill(SIGSTOP);
  ASSERT_FALSE(fs::exists(path("out.safetensors")));
  write("out.safetensors", "mine");
  command.kill(SIGCONT);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("was made by another program meanwhile"));
  EXPECT_EQ(get("out.safetensors"), "mine");
  EXPECT_TRUE(temporaries().empty());
}

TEST_F(Files, AKeyBehindALinkIsNotCarriedAlong) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  write("home/id_rsa", "PRIVATE KEY");
  fs::copy(path("run/step-4"), path("hostile"));
  fs::remove(path("hostile/manifest.json"));
  fs::create_symlink("../home/id_rsa", path("hostile/vocab.txt"));
  fs::create_symlink("../home/id_rsa", path("hostile/chat_template.jinja"));
  expect_error({"quantize", "hostile", "--weights", "q8", "--out", "out"}, 3,
               "outside the model folder");
  expect_error({"convert", "hostile", "out.gguf"}, 3, "outside the model folder");
  expect_error({"train", "--init", "hostile", "--data", "text.txt", "--steps", "1", "--out",
                "tuned", "--context", "16", "--batch", "1"},
               3, "outside the model folder");
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_FALSE(fs::exists(path("out.gguf")));
  EXPECT_FALSE(fs::exists(path("tuned")));
}

TEST_F(Files, AStrangersRunDoesNotChooseWhatIsRead) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  write("diary.txt", get("text.txt") + "dear diary");
  std::string options = get("run/run.json");
  const auto at = options.find("/text.txt");
  ASSERT_NE(at, std::string::npos);
  options.replace(at, 9, "/diary.txt");
  write("run/run.json", options);
  // The checkpoint says that it was another text.
  expect_error({"train", "--out", "run", "--resume"}, 6, "data");
  fs::remove_all(path("run/step-2"));
  fs::remove_all(path("run/step-4"));
  const CommandResult refused = volta({"train", "--out", "run", "--resume"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("diary.txt', and run holds no valid checkpoint"));
  EXPECT_THAT(refused.err, HasSubstr("give it again: --data "));
  EXPECT_EQ(volta({"train", "--out", "run", "--resume", "--data", "text.txt"}).exit_code, 0);
}

TEST_F(Files, PathsMeanWhatTheyMeanToTheShell) {
  write("there/deep/x", "");
  fs::rename(path("text.txt"), path("there/t.txt"));
  fs::create_directory_symlink("there/deep", path("link"));
  const CommandResult trained = volta(train({"--data", "link/../t.txt"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(get("run/run.json"), HasSubstr("there/t.txt\""));
  // A relative path and a link as the name itself.
  fs::create_symlink("there/t.txt", path("latest.txt"));
  EXPECT_EQ(volta(train({"--data", "./latest.txt", "--out", "other"})).exit_code, 0);
  EXPECT_THAT(get("other/run.json"), HasSubstr("/latest.txt\""));
}

// A closed terminal is no reason to lose the steps since the last checkpoint.
TEST_F(Files, AHangUpEndsARunWithItsCheckpoint) {
  Command command(train({"--steps", "1000000", "--save-every", "1000000"}), dir_.path());
  ASSERT_TRUE(
      wait_until([&] { return get("run/metrics.jsonl").find("\"step\":3") != std::string::npos; }));
  command.kill(SIGHUP);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("go on from run/step-"));
  EXPECT_EQ(volta({"verify", "run"}).exit_code, 0);
}

TEST_F(Files, UnderNohupAHangUpIsNothing) {
  signal(SIGHUP, SIG_IGN);  // Inherited by the command.
  Command command(train({"--steps", "1000000", "--save-every", "1000000"}), dir_.path());
  signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(
      wait_until([&] { return get("run/metrics.jsonl").find("\"step\":3") != std::string::npos; }));
  command.kill(SIGHUP);
  const auto lines = [&] {
    const std::string text = get("run/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = lines();
  EXPECT_TRUE(wait_until([&] { return lines() > before + 5; }));
  command.kill(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 130);
}

TEST_F(Files, AnEmptyFolderOrALinkToOneIsAPlaceForAModel) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  ASSERT_EQ(volta({"convert", "run", "model.gguf"}).exit_code, 0);
  fs::create_directories(path("real/a"));
  fs::create_directories(path("real/b"));
  fs::create_directory_symlink("real/a", path("link"));
  fs::create_directory_symlink("real/b", path("link-b"));
  fs::create_directory_symlink("nowhere", path("dangling"));
  const CommandResult quantized = volta({"quantize", "run", "--weights", "q8", "--out", "link"});
  EXPECT_EQ(quantized.exit_code, 0) << quantized.err;
  EXPECT_TRUE(fs::exists(path("real/a/model.safetensors")));
  const CommandResult converted = volta({"convert", "model.gguf", "link-b"});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_TRUE(fs::exists(path("real/b/model.safetensors")));
  EXPECT_EQ(volta({"verify", "link"}).exit_code, 0);
  expect_error({"quantize", "run", "--weights", "q8", "--out", "dangling"}, 1, "leads nowhere");
  expect_error({"convert", "model.gguf", "dangling"}, 1, "leads nowhere");
  expect_error({"quantize", "run", "--weights", "q8", "--out", "link"}, 2, "is not empty");
  EXPECT_TRUE(temporaries().empty());
}

TEST_F(Files, WhatAKilledCommandLeftGoesWithTheNext) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  ASSERT_EQ(volta({"convert", "run", "model.gguf"}).exit_code, 0);
  const auto leave = [&](const std::string& target) {
    const std::string left = TemporaryFolder::create(path(target))->path();
    fs::create_directories(left);  // As a kill would leave it: nobody holds it.
    std::ofstream(left + "/model.safetensors") << "half";
    return left;
  };
  leave("q8");
  leave("folder");
  const std::string file = leave("made.gguf");
  fs::remove_all(file);
  std::ofstream(file) << "half";
  EXPECT_EQ(temporaries().size(), 3u);
  EXPECT_EQ(volta({"quantize", "run", "--weights", "q8", "--out", "q8"}).exit_code, 0);
  EXPECT_EQ(temporaries().size(), 2u);
  EXPECT_EQ(volta({"convert", "model.gguf", "folder"}).exit_code, 0);
  EXPECT_EQ(volta({"convert", "run", "made.gguf"}).exit_code, 0);
  EXPECT_TRUE(temporaries().empty());
}

// The file is cut while verify reads it: stopped as soon as the mapping is there, which a machine
// that is busy may miss, so that several attempts are made. What is behind the cut is then a hole,
// which no page cache holds, so that reading takes its time.
TEST_F(Files, AFileThatIsCutWhileItIsVerifiedIsAnErrorAndNoSignal) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  fs::copy(path("run/step-4"), path("model"));
  fs::remove(path("model/manifest.json"));
  auto tensors = *SafetensorsFile::open(path("model/model.safetensors"))->load_all();
  tensors["large"] = *Tensor::zeros({DType::kF32, Shape(64 << 20)});
  const std::string file = path("model/model.safetensors");
  ASSERT_TRUE(write_safetensors(file, tensors));
  const std::uintmax_t whole = fs::file_size(file);
  bool cut_in_time = false;
  for (int attempt = 0; attempt < 100 && !cut_in_time; ++attempt) {
    fs::resize_file(file, 1 << 16);
    fs::resize_file(file, whole);
    Command command({"verify", "model", "--threads", "1"}, dir_.path());
    ASSERT_TRUE(wait_until([&] { return command.maps("model.safetensors") || command.ended(); }));
    command.kill(SIGSTOP);
    fs::resize_file(file, 1 << 16);
    command.kill(SIGCONT);
    const CommandResult result = command.wait();
    ASSERT_LT(result.exit_code, 128) << result.err;
    cut_in_time = result.out.find("was cut from") != std::string::npos;
    EXPECT_TRUE(!cut_in_time || result.exit_code == 3) << result.out << result.err;
  }
  EXPECT_TRUE(cut_in_time);
}

}  // namespace
}  // namespace volta
