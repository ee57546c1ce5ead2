// volta train: runs, their folders, resuming and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/volta_fixture.h"
#include "base/file.h"
#include "base/json.h"
#include "support/alloc_counter.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::Command;
using test::CommandResult;
using test::wait_until;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainTest : public test::VoltaTest {};

TEST_F(TrainTest, ARunIsReplacedByForceOnly) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error(train(), 2, "holds a run already");
  ASSERT_EQ(volta(train({"--force"})).exit_code, 0);
  EXPECT_TRUE(path_exists(path("run.old/step-6/model.safetensors")));
  expect_error(train({"--force", "--resume"}), 2, "leave one of them out");
  // However the folder is written.
  expect_error(train({"--out", "run/"}), 2, "renamed to run.old (--force)");
  ASSERT_EQ(volta(train({"--force", "--out", "./run/."})).exit_code, 0);
  EXPECT_TRUE(path_exists(path("run.old.2/step-6/model.safetensors")));
  expect_error(train({"--out", "run/step-6/.."}), 2, "/run.old (--force)");
  // A model would win over the run beside it.
  expect_error({"train", "--data", "text.txt", "--init", "run/step-6", "--out", "run/step-6"}, 2,
               "holds what the run reads");
  std::filesystem::copy(path("run/step-6"), path("model"));
  expect_error({"train", "--data", "text.txt", "--out", "model"}, 2, "holds a model");
  std::filesystem::copy(path("run/step-3"), path("model/step-3"));
  expect_error({"generate", "model"}, 2, "holds a model of its own and the checkpoints of a run");
  const CommandResult verified = volta({"verify", "model"});
  EXPECT_EQ(verified.exit_code, 6) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("'model' holds a model of its own and the checkpoints of"));
  EXPECT_THAT(verified.out, HasSubstr("model: 1 finding: 16 tensors"));
  EXPECT_THAT(verified.out, HasSubstr("model/step-3: good"));
}

TEST_F(TrainTest, ARunSaysHowToGoOnWithIt) {
  std::filesystem::create_directory(path("my runs"));
  Command command(train({"--steps", "1000000", "--out", "my runs/a"}), dir_.path());
  ASSERT_TRUE(wait_until([&] { return path_exists(path("my runs/a/step-3")); }));
  command.kill(SIGINT);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130);
  EXPECT_THAT(stopped.err, HasSubstr(": volta train --out 'my runs/a' --resume\n"));
  expect_error({"train", "--out", "my runs/a/step-3", "--resume"}, 2,
               "`volta train --out '" + path("my runs/a") + "' --resume`");
}

// --init on --resume cannot change what the run began with, or what its run.json says of it.
TEST_F(TrainTest, ARunGoesOnFromWhatItBeganWith) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::filesystem::copy(path("run/step-6"), path("model"));
  std::filesystem::copy(path("run/step-6"), path("other"));
  const std::string json = *read_text_file(path("run/run.json"));
  expect_error({"train", "--out", "run", "--resume", "--init", "model"}, 6,
               "began with fresh weights");
  EXPECT_EQ(*read_text_file(path("run/run.json")), json);
  const std::vector<std::string> tuned = {"train", "--data",  "text.txt", "--init",    "model",
                                          "--out", "tuned",   "--steps",  "2",         "--warmup",
                                          "0",     "--batch", "1",        "--context", "8"};
  const CommandResult begun = volta(tuned);
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  const std::vector<std::string> resumed = {"train", "--out", "tuned", "--resume", "--init"};
  const auto with = [&](const std::string& init) {
    std::vector<std::string> arguments = resumed;
    arguments.push_back(init);
    return arguments;
  };
  EXPECT_EQ(volta(with("model")).exit_code, 0);
  expect_error(with("other"), 6, "began with " + path("model"));
  std::filesystem::rename(path("model"), path("moved"));
  expect_error(with("nowhere"), 3, "no model folder at");
  EXPECT_EQ(volta(with("moved")).exit_code, 0);
  // run.json names the checkpoint that the folder of a run stood for.
  std::vector<std::string> from_run = tuned;
  from_run[4] = "run";
  from_run[6] = "again";
  ASSERT_EQ(volta(from_run).exit_code, 0);
  from_run.push_back("--resume");
  EXPECT_EQ(volta(from_run).exit_code, 0);
  EXPECT_THAT(*read_text_file(path("again/run.json")), HasSubstr("run/step-6"));
}

TEST_F(TrainTest, AnEarlyStopReturnsToTheBestCheckpoint) {
  const CommandResult result =
      volta(train({"--steps", "500", "--lr", "0.5", "--schedule", "constant", "--warmup", "0",
                   "--patience", "3", "--eval-every", "2", "--save-every", "1", "--keep", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("(stopped early)\nbest: val_loss "));
  const std::size_t place = result.out.find("model: run/step-");
  ASSERT_NE(place, std::string::npos) << result.out;
  const std::string best = result.out.substr(place + 7, result.out.find('\n', place) - place - 7);
  EXPECT_THAT(result.out, HasSubstr(" after step " + best.substr(9) + "\n"));
  EXPECT_TRUE(path_exists(path(best + "/model.safetensors")));
  // The run's folder is that model.
  const std::vector<std::string> rest = {"-p", "the", "-n", "8", "--temperature", "0"};
  const auto generate = [&](const std::string& model) {
    std::vector<std::string> arguments = {"generate", model};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return volta(arguments).out;
  };
  EXPECT_EQ(generate("run"), generate(best));
}

// The steps of this part, and the best one where it is another than the last.
TEST_F(TrainTest, AResultCountsItsOwnSteps) {
  ASSERT_EQ(volta(train({"--schedule", "constant"})).exit_code, 0);
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": true"));
  const CommandResult more =
      volta({"train", "--out", "run", "--resume", "--steps", "9", "--no-keep-best"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, testing::StartsWith("3 steps in "));
  EXPECT_THAT(more.out, HasSubstr("(9 in all)"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": false"));
  const CommandResult none = volta(
      {"train", "--out", "run", "--resume", "--no-keep-best", "--keep-best", "--output", "json"});
  EXPECT_THAT(none.out, HasSubstr("\"steps\":9,\"new_steps\":0,"));
  EXPECT_THAT(none.out, HasSubstr("\"best\":{\"step\":"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"keep_best\": true"));
  EXPECT_THAT(*read_text_file(path("run/run.json")), HasSubstr("\"best\": {"));
}

TEST_F(TrainTest, LimitsNameTheirOption) {
  expect_error(
      train({"--batch", "1000000000"}), 2,
      "a batch of 1000000000 with sequences of 16 tokens is too large, because it may have "
      "2147483648 tokens at most; use a smaller --batch");
  expect_error({"train", "--out", "new"}, 2, "a .safetensors or .bin file of token ids");
  ASSERT_EQ(volta(train()).exit_code, 0);
  expect_error({"train", "--out", "run", "--resume", "--steps", "3"}, 6,
               "--steps is 3, the checkpoint has 6. A resumed run may only have more of them");
}

TEST_F(TrainTest, InitSaysWhatTheModelIs) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::vector<std::string> fine = {"train", "--data",   "text.txt", "--init", "run/step-6",
                                         "--out", "fine",     "--steps",  "2",      "--context",
                                         "8",     "--warmup", "1"};
  const CommandResult tuned = volta(fine);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  std::vector<std::string> deeper = fine;
  deeper.insert(deeper.end(), {"--layers", "7"});
  expect_error(deeper, 2, "--layers does not go with --init");
}

TEST_F(TrainTest, BadDataIsNamed) {
  expect_error(train({"--data", "nothing.txt"}), 3, "nothing.txt");
  write("empty.txt", "");
  expect_error(train({"--data", "empty.txt"}), 3, "empty");
  write("short.txt", "too short");
  expect_error(train({"--data", "short.txt"}), 2, "context");
  write("latin1.txt", std::string(1000, 'x') + "\xE9" + std::string(1000, 'y'));
  expect_error(train({"--data", "latin1.txt"}), 3, "UTF-8");
  expect_error(train({"--data", "."}), 3, "folder");
  expect_error(train({"--data", "/dev/null"}), 3, "device");
  EXPECT_FALSE(path_exists(path("run")));
  ASSERT_EQ(volta(train()).exit_code, 0);
  for (const std::string data : {"nothing.txt", "empty.txt", "latin1.txt", ".", "/dev/null"}) {
    expect_error({"eval", "run", "--data", data}, 3, data == "." ? "folder" : data);
  }
}

TEST_F(TrainTest, AResumeTakesWhatIsNotGivenFromItsRun) {
  const std::vector<std::string> tiny = {"--preset", "tiny", "--layers",  "1", "--dim",        "16",
                                         "--heads",  "2",    "--context", "8", "--batch",      "2",
                                         "--steps",  "3",    "--seed",    "9", "--eval-every", "0"};
  std::vector<std::string> first = {"train", "--data", "text.txt", "--out", "fin"};
  first.insert(first.end(), tiny.begin(), tiny.end());
  ASSERT_EQ(volta(first).exit_code, 0);
  std::vector<std::string> again = {"train", "--out", "fin", "--resume", "--output", "json"};
  again.insert(again.end(), tiny.begin(), tiny.end() - 4);
  const CommandResult resumed = volta(again);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("\"loss\":"));
  EXPECT_THAT(resumed.out, Not(HasSubstr("\"loss\":0")));
  expect_error({"train", "--out", "fin", "--resume", "--tokenizer", "char"}, 6,
               "--tokenizer is char, the checkpoint has byte");
  expect_error({"train", "--out", "fin", "--resume", "--steps", "2"}, 6,
               "--steps is 2, the checkpoint has 3. A resumed run may only have more of them");
  expect_error({"train", "--out", "fin", "--resume", "--steps", "2"}, 6,
               "`volta train --init fin/step-3 --data FILE --out NEW`");
  EXPECT_EQ(volta({"train", "--data", "text.txt", "--init", "fin", "--out", "more", "--steps", "2",
                   "--warmup", "0", "--eval-every", "0"})
                .exit_code,
            0);
}

// run.json is UTF-8; a name that is not has to be given again.
TEST_F(TrainTest, ANameThatRunJsonCannotKeepIsToldBefore) {
  std::filesystem::copy_file(path("text.txt"), path("t\xff.txt"));
  const CommandResult begun = volta(train({"--data", "t\xff.txt"}));
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("is not UTF-8, so run.json cannot keep it; give --data again"));
  expect_error({"train", "--out", "run", "--resume"}, 3, "which is not there");
  const CommandResult resumed =
      volta({"train", "--out", "run", "--resume", "--data", "t\xff.txt", "--steps", "7"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

TEST_F(TrainTest, AnEvaluationCanBeInterrupted) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "the quick brown fox jumps over the lazy dog.\n";
  write("long.txt", text);
  CommandResult stopped;
  // On a slow machine the text may still be on its way into tokens at first.
  for (const int wait_ms : {1500, 6000, 20'000}) {
    Command command({"eval", "run", "--data", "long.txt", "--threads", "1"}, dir_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    command.kill(SIGINT);
    stopped = command.wait();
    EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
    if (stopped.err.find("interrupted after") != std::string::npos) break;
  }
  EXPECT_THAT(stopped.err, HasSubstr("interrupted after"));
}

TEST_F(TrainTest, ARunFolderBelongsToOneRun) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  EXPECT_NE(volta(train()).exit_code, 0);  // Holds a run, and --resume is missing.
  Command first(train({"--steps", "1000000", "--out", "busy"}), dir_.path());
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(path("busy/step-3")); }));
  const CommandResult second = volta(train({"--steps", "1000000", "--out", "busy", "--resume"}));
  EXPECT_EQ(second.exit_code, 1) << second.err;
  EXPECT_THAT(second.err, HasSubstr("busy"));
  first.kill(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 130);
}

// A line of 10 GB is refused when its first 64 MiB have been read.
TEST_F(TrainTest, AnEndlessLineOfConversationsIsRefusedSoon) {
  write("endless.jsonl", R"({"prompt": ")");
  std::filesystem::resize_file(path("endless.jsonl"), 10'000'000'000);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"train", "--init", test::source_path("tests/train/data/chat_llama"), "--data",
            "endless.jsonl", "--out", "run"},
           {"generate", test::source_path("tests/train/data/chat_llama"), "--prompts-file",
            "endless.jsonl"}}) {
    const auto begun = std::chrono::steady_clock::now();
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("endless.jsonl"));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    if (test::can_count_allocations()) {  // The sanitizers keep books of memory.
      EXPECT_LT(result.peak_bytes, std::int64_t{400} << 20);
    }
  }
  EXPECT_FALSE(path_exists(path("run")));
}

// With --init, the learning rate of a fresh model is seldom what is wanted.
TEST_F(TrainTest, AModelThatIsTrainedFurtherGetsANoteOnItsLearningRate) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  const std::vector<std::string> tune = {"train", "--data",       "text.txt", "--init",
                                         "run",   "--steps",      "1",        "--batch",
                                         "1",     "--eval-every", "0"};
  const auto said = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words = tune;
    words.insert(words.end(), {"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = volta(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string note =
      "learning rate: 0.001, as for a fresh model; adapters mostly take 1e-4 to 1e-3, all weights "
      "1e-5 to 1e-4 (--lr)\n";
  EXPECT_THAT(said("a", {}), HasSubstr(note));
  EXPECT_THAT(said("b", {"--lr", "1e-4"}), Not(HasSubstr("as for a fresh model")));
  EXPECT_THAT(said("c", {"--preset", "tiny"}), Not(HasSubstr("as for a fresh model")));
}

// `timeout` signals a process and its group: that is one wish, and a checkpoint is to be written.
TEST_F(TrainTest, ASecondSignalRightAfterTheFirstLosesNothing) {
  Command command(train({"--steps", "1000000", "--save-every", "1000000", "--out", "twice"}),
                  dir_.path());
  // Before the first step has ended there is nothing to save.
  ASSERT_TRUE(wait_until([&] {
    std::error_code error;
    return std::filesystem::file_size(path("twice/metrics.jsonl"), error) > 0 && !error;
  }));
  command.kill(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  command.kill(SIGTERM);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_EQ(volta({"verify", "twice"}).exit_code, 0);
}

TEST_F(TrainTest, AnInterruptedRunSavesAndResumesToTheSameBits) {
  const std::vector<std::string> steps = {"--steps", "2000",         "--save-every",
                                          "5000",    "--eval-every", "0"};
  std::vector<std::string> whole = steps;
  whole.insert(whole.end(), {"--out", "whole"});
  ASSERT_EQ(volta(train(whole)).exit_code, 0);

  Command command(train(steps), dir_.path());
  const auto lines = [&] {
    const auto text = read_text_file(path("run/metrics.jsonl"));
    return text ? std::count(text->begin(), text->end(), '\n') : 0;
  };
  ASSERT_TRUE(wait_until([&] { return lines() >= 5; }));
  command.kill(SIGINT);
  const CommandResult stopped = command.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  const CommandResult resumed =
      volta(train({"--steps", "2000", "--save-every", "5000", "--eval-every", "0", "--resume"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto a = read_binary_file(path("whole/step-2000/model.safetensors"));
  const auto b = read_binary_file(path("run/step-2000/model.safetensors"));
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(std::ranges::equal(a->span(), b->span()));
}

// The numbers of closed streams are those of the next files that are opened.
TEST_F(TrainTest, WhatIsPrintedReachesNoFileOfARun) {
  std::string words;
  for (const std::string& word : train()) words += " " + word;
  const std::string shell = "cd '" + dir_.path() + "' && '" VOLTA_BINARY "'" + words +
                            " <&- 2>&- >'" + path("out.txt") + "'";
  ASSERT_EQ(std::system(shell.c_str()), 0);
  std::ifstream metrics(path("run/metrics.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    EXPECT_TRUE(line.starts_with('{') && line.ends_with('}')) << line;
  }
  EXPECT_GE(lines, 6);
  const std::string closed = "cd '" + dir_.path() + "' && '" VOLTA_BINARY "' version >&- 2>&-";
  EXPECT_EQ(WEXITSTATUS(std::system(closed.c_str())), 1);
}

// An id that no row of the embedding is for would end the run when it is met, days later perhaps.
TEST_F(TrainTest, ReadyMadeIdsAreCheckedBeforeTheRunBegins) {
  std::string ids;
  for (int i = 0; i < 400; ++i) ids += {static_cast<char>(i == 390 ? 77 : i % 60), '\0'};
  write("ids.bin", ids);
  expect_error({"train", "--data", "ids.bin", "--vocab", "60", "--out", "ids", "--steps", "1",
                "--layers", "1", "--dim", "16", "--heads", "2", "--context", "8"},
               3, "token 390 is 77; ids must be from 0 to 59 for this vocabulary");
  EXPECT_FALSE(path_exists(path("ids")));
}

// A wrong value in run.json is the file's, not the command line's.
TEST_F(TrainTest, AWrongValueInRunJsonNamesTheFile) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::string json = *read_text_file(path("run/run.json"));
  const auto at = json.find("\"beta1\": ");
  ASSERT_NE(at, std::string::npos);
  json.replace(at, json.find(',', at) - at, "\"beta1\": -1.9");
  write("run/run.json", json);
  const std::string message =
      "run/run.json: training: beta1 is -1.9; it must be at least 0 and below 1 (0.9999999 at "
      "most)";
  expect_error({"train", "--out", "run", "--resume"}, 3, message);
  expect_error({"graph", "run", "--phase", "train"}, 3, message);
  expect_error({"tune", "matmul", "--model", "run"}, 3, message);
}

// The checkpoint has the progress, too, so that damage to it in run.json costs nothing but a line.
TEST_F(TrainTest, DamagedProgressInRunJsonIsTold) {
  ASSERT_EQ(volta(train()).exit_code, 0);
  std::string json = *read_text_file(path("run/run.json"));
  const auto at = json.find("\"stopped_early\": false");
  ASSERT_NE(at, std::string::npos);
  json.replace(at, 22, "\"stopped_early\": 12345");
  write("run/run.json", json);
  const CommandResult resumed = volta({"train", "--out", "run", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("stopped_early"));
  EXPECT_THAT(resumed.err, HasSubstr("; the newest checkpoint's own record of it is used\n"));
  EXPECT_EQ(volta({"verify", "run"}).exit_code, 0);
}

}  // namespace
}  // namespace volta
