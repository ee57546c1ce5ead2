// Completion scripts and manual pages, which are made from the same definitions as --help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/command.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_shell;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ShellTest : public ::testing::Test {
 protected:
  std::string output(const std::vector<std::string>& words) const {
    const CommandResult done = run_volta(words, dir_.path());
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.out;
  }
  // What bash offers for the words of a command line, of which the last one is being typed.
  std::set<std::string> completions(const std::string& words) const {
    std::ofstream(dir_.file("try.sh"))
        << "eval \"$(\"$VOLTA\" completion bash)\"\ncompopt() { :; }\nCOMP_WORDS=(" << words
        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_volta\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const CommandResult done = run_shell("bash try.sh", dir_.path());
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.err, "");
    std::istringstream lines(done.out);
    std::set<std::string> found;
    for (std::string line; std::getline(lines, line);) found.insert(line);
    return found;
  }

  test::TempDir dir_;
};

// The long options of a help page.
std::set<std::string> options_in(const std::string& help) {
  std::set<std::string> options;
  const std::regex form("\n  [^ \n]*");
  for (auto it = std::sregex_iterator(help.begin(), help.end(), form); it != std::sregex_iterator();
       ++it) {
    const std::string names = it->str();
    const std::regex name("--[a-z][a-z0-9-]*");
    for (auto n = std::sregex_iterator(names.begin(), names.end(), name);
         n != std::sregex_iterator(); ++n) {
      options.insert(n->str());
    }
  }
  return options;
}

TEST_F(ShellTest, BashCompletesCommandsOptionsAndWords) {
  EXPECT_THAT(completions("volta ''"), testing::IsSupersetOf({"train", "chat", "bench", "man"}));
  EXPECT_EQ(completions("volta tra"), (std::set<std::string>{"train"}));
  EXPECT_THAT(completions("volta bench ''"), testing::IsSupersetOf({"model", "infer"}));
  EXPECT_EQ(completions("volta bench mo"), (std::set<std::string>{"model"}));
  EXPECT_EQ(completions("volta train --schedule ''"),
            (std::set<std::string>{"constant", "cosine", "linear"}));
  EXPECT_EQ(completions("volta --dtype b"), (std::set<std::string>{"bf16"}));
  // Files, also as values of options.
  std::ofstream(dir_.file("text.txt")) << "a";
  EXPECT_EQ(completions("volta train --data te"), (std::set<std::string>{"text.txt"}));
  EXPECT_EQ(completions("volta inspect te"), (std::set<std::string>{"text.txt"}));
}

TEST_F(ShellTest, EveryOptionIsCompletedInEveryShell) {
  const std::string zsh = output({"completion", "zsh"});
  const std::string fish = output({"completion", "fish"});
  EXPECT_THAT(zsh, StartsWith("#compdef volta\n"));
  for (const std::string command : {"train", "chat", "bench model"}) {
    std::vector<std::string> words = {"help"};
    std::istringstream parts(command);
    for (std::string part; parts >> part;) words.push_back(part);
    const auto options = options_in(output(words));
    ASSERT_GE(options.size(), 5u) << command;
    const auto offered = completions("volta " + command + " --");
    for (const std::string& option : options) {
      if (option == "--help" || option.starts_with("--no-")) continue;  // Of a switch.
      EXPECT_TRUE(offered.contains(option)) << command << " " << option;
      EXPECT_TRUE(fish.contains(" -l " + option.substr(2) + " ")) << option;
      EXPECT_TRUE(zsh.contains("'*" + option)) << option;
    }
    EXPECT_TRUE(offered.contains("--threads")) << "global options";
  }
  EXPECT_EQ(run_shell("\"$VOLTA\" completion bash | bash -n", dir_.path()).err, "");
  EXPECT_EQ(run_volta({"completion", "csh"}, dir_.path()).exit_code, 2);
  EXPECT_EQ(run_volta({"completion"}, dir_.path()).exit_code, 2);
}

// What is typed before Tab, and what its last word becomes.
struct Completion {
  std::string typed;
  std::string completed;
};
const std::vector<Completion>& unique_completions() {
  static const std::vector<Completion> kAll = {
      {"volta tra", "train"},
      {"volta bench mo", "model"},
      {"volta train --sched", "--schedule"},
      {"volta train --schedule cos", "cosine"},
      {"volta --dtype b", "bf16"},
      {"volta train --data te", "text.txt"},
      {"volta inspect te", "text.txt"},
  };
  return kAll;
}

bool is_installed(const std::string& shell) {
  return run_shell("command -v " + shell, "/").exit_code == 0;
}

TEST_F(ShellTest, FishCompletesCommandsOptionsAndWords) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  std::ofstream(dir_.file("text.txt")) << "a";
  std::ofstream script(dir_.file("try.fish"));
  script << "$VOLTA completion fish | source\n";
  for (const Completion& one : unique_completions()) {
    script << "complete -C '" << one.typed << "' | string split -f 1 \\t\n";
  }
  script << "echo commands:\ncomplete -C 'volta ' | string split -f 1 \\t\n";
  script.close();
  const CommandResult done = run_shell("HOME=$PWD fish --no-config try.fish", dir_.path());
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
  std::string wanted;
  for (const Completion& one : unique_completions()) wanted += one.completed + "\n";
  EXPECT_THAT(done.out, StartsWith(wanted + "commands:\n"));
  EXPECT_THAT(done.out, HasSubstr("\nquantize\n"));
}

// An interactive zsh on a terminal of its own: Tab completes the line, and what it then runs is a
// function that prints its arguments.
TEST_F(ShellTest, ZshCompletesCommandsOptionsAndWords) {
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  std::ofstream(dir_.file("text.txt")) << "a";
  std::ofstream(dir_.file("_volta")) << output({"completion", "zsh"});
  std::ofstream(dir_.file("volta.zsh")) << "autoload -Uz compinit\ncompinit -u -D\n"
                                           "source ./_volta\n"
                                           "volta() { print -r -- \"ran:$*:\" }\n"
                                           "print ready\n";
  std::ofstream script(dir_.file("try.zsh"));
  script << "zmodload zsh/zpty\n"
            "zpty z 'TERM=dumb zsh -f -i'\n"
            "zpty -w z 'PS1=; source ./volta.zsh'\n"
            "zpty -r -m z out '*ready*' || exit 1\n";
  for (const Completion& one : unique_completions()) {
    script << "zpty -w -n z '" << one.typed << "'$'\\t\\n'\n"
           << "zpty -r -m z out '*ran:*:*' || exit 1\n"
           << "print -r -- \"volta ${${out##*ran:}%%:*}\"\n";
  }
  script << "zpty -d z\n";
  script.close();
  const CommandResult done = run_shell("HOME=$PWD timeout 60 zsh -f try.zsh", dir_.path());
  EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
  std::string wanted;
  for (const Completion& one : unique_completions()) {
    wanted += one.typed.substr(0, one.typed.rfind(' ') + 1) + one.completed + "\n";
  }
  EXPECT_EQ(done.out, wanted);
}

TEST_F(ShellTest, HelpPagesFitEightyColumns) {
  std::vector<std::string> waiting = {""};
  int pages = 0;
  while (!waiting.empty()) {
    const std::string command = waiting.back();
    waiting.pop_back();
    const CommandResult page = run_shell("\"$VOLTA\" " + command + " --help", dir_.path());
    ASSERT_EQ(page.exit_code, 0) << command;
    ++pages;
    std::istringstream lines(page.out);
    bool commands = false;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << command << ": " << line;
      if (commands && line.starts_with("  ") && line[2] != ' ') {
        waiting.push_back(command + " " + line.substr(2, line.find(' ', 2) - 2));
      }
      commands = commands || line == "Subcommands:";
    }
  }
  EXPECT_GT(pages, 25);
}

TEST_F(ShellTest, EveryCommandHasAManualPage) {
  output({"man", "--out", "pages"});
  for (const std::string name : {"volta", "volta-train", "volta-bench-model", "volta-completion"}) {
    EXPECT_TRUE(std::filesystem::exists(dir_.file("pages/" + name + ".1"))) << name;
  }
  const std::string page = output({"man", "train"});
  EXPECT_THAT(page, StartsWith(".TH \"VOLTA-TRAIN\" 1 "));
  for (const std::string& option : options_in(output({"train", "--help"}))) {
    if (option == "--help" || option.starts_with("--no-")) continue;
    const std::string escaped = std::regex_replace(option, std::regex("-"), "\\-");
    EXPECT_TRUE(page.contains("\\fB" + escaped + "\\fR")) << option;
  }
  EXPECT_THAT(output({"man"}), HasSubstr("\\fBvolta\\-train\\fR(1)"));
  EXPECT_THAT(output({"man", "bench", "model"}), HasSubstr("VOLTA-BENCH-MODEL"));
  const CommandResult unknown = run_volta({"man", "trian"}, dir_.path());
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no command 'volta trian'"));
  // groff, where it is installed, finds nothing to warn of.
  const CommandResult typeset = run_shell(
      "command -v groff >/dev/null || exit 0; for f in pages/*; do groff -man -Tutf8 -ww -z $f; "
      "done",
      dir_.path());
  EXPECT_EQ(typeset.exit_code, 0);
  EXPECT_EQ(typeset.err, "");
}

TEST_F(ShellTest, TablesFitEightyColumns) {
  const std::string model = "model";  // A short name: reports repeat it.
  std::filesystem::create_directory(dir_.file(model));
  for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::copy_file(test::tiny_llama_path() + "/" + name, dir_.file(model + "/" + name));
  }
  const std::vector<std::vector<std::string>> commands = {
      {"quantize", model, "--weights", "q8", "--out", "narrow"},
      {"bench", "model", model, "--prompt", "16", "--tokens", "4", "--runs", "1"},
      {"bench", "infer", "--runs", "1"},
      {"bench", "gaps", model, "--requests", "2", "--prompt", "64", "--runs", "1"},
      {"bench", "history", "history.jsonl"},
      {"tune", "matmul", "--m", "8", "--n", "64", "--k", "64"},
      {"tune", "show"},
      {"inspect", model, "--tensors"},
      {"verify", model}};
  // A machine and a figure with names as long as the real ones.
  std::ofstream(dir_.file("history.jsonl"))
      << R"({"commit":"e9d0cddea46f","date":"2026-11-28T19:08:07Z","figures":{)"
      << R"("generate 8 tokens, instructions":16540497},"isa":"avx512-novnni",)"
      << R"("machine":"genuineintel-6-167-1-192-cores"})" << '\n'
      << R"({"commit":"e9d0cddea470","date":"2026-11-29T19:08:07Z","figures":{)"
      << R"("generate 8 tokens, instructions":26540497},"isa":"avx512-novnni",)"
      << R"("machine":"genuineintel-6-167-1-192-cores"})" << '\n';
  for (const auto& words : commands) {
    const CommandResult done = run_volta(words, dir_.path(), {{"VOLTA_CACHE_DIR", dir_.path()}});
    ASSERT_EQ(done.exit_code, 0) << words.front() << done.err;
    std::istringstream lines(done.out);
    for (std::string line; std::getline(lines, line);) {
      // Names of files and of CPUs may be of any length.
      const bool free = line.contains(" on ") || line.contains("kept in") || line.starts_with('/');
      EXPECT_TRUE(free || line.size() <= 80) << line;
    }
  }
}

}  // namespace
}  // namespace volta
