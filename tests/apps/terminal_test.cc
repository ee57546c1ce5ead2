// What a terminal is given: nothing of a file, a model or the user steers it. And how commands end
// whose output nobody reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using test::CommandResult;
using test::run_on_terminal;
using test::run_shell;
using test::run_volta;
using ::testing::HasSubstr;
using ::testing::Not;

// Escape sequences, a C1 control, a direction override, a delete: all that is not to come through.
constexpr std::string_view kHostile =
    "a\x1b]52;c;eA==\x07\xc2\x9b"
    "31m\xe2\x80\xae\x7f.";
constexpr std::string_view kEscaped = R"(a\u001b]52;c;eA==\u0007\u009b31m\u202e\u007f.)";

class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_.file("model"));
    write("model/chat_template.jinja", "{{ messages[0].content }}");
  }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  std::vector<std::string> show(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"chat", "model", "--render", "-p", std::string(kHostile)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  test::TempDir dir_;
};

TEST_F(TerminalTest, TextIsEscapedOnATerminal) {
  const CommandResult shown = run_on_terminal(show(), dir_.path());
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_EQ(shown.out, kEscaped);
  EXPECT_EQ(run_on_terminal(show({"--raw"}), dir_.path()).out, kHostile);
  EXPECT_EQ(run_volta(show(), dir_.path()).out, kHostile);  // A file gets every byte.
}

TEST_F(TerminalTest, JsonStaysTheSameOnATerminal) {
  const CommandResult shown = run_on_terminal(show({"--output", "json"}), dir_.path());
  EXPECT_THAT(shown.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown.out, Not(HasSubstr("\x7f")));
  EXPECT_THAT(shown.out, Not(HasSubstr("\xc2\x9b")));
  EXPECT_EQ(nlohmann::json::parse(shown.out)["text"], std::string(kHostile));
}

// Long work has one display: a line that is drawn over on a terminal, and gone at the end.
// Elsewhere it is a line every ten seconds, so of short work nothing, but for the steps of
// training.
TEST_F(TerminalTest, ProgressIsALineThatIsDrawnOver) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "All work and no play makes a dull text. ";
  write("text.txt", text);
  const auto train = [](const std::string& out) {
    return std::vector<std::string>{
        "train", "--data",    "text.txt", "--out",        "run-" + out, "--tokenizer",
        "byte",  "--layers",  "1",        "--heads",      "2",          "--dim",
        "16",    "--context", "16",       "--batch",      "4",          "--steps",
        "3",     "--threads", "1",        "--activation", "gelu_tanh"};
  };
  const CommandResult shown = run_on_terminal(train("shown"), dir_.path());
  ASSERT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr("\r\033[Kstep 1/3 runs"));
  EXPECT_THAT(shown.out, HasSubstr("████████████████████████"));
  EXPECT_THAT(shown.out, HasSubstr("3/3  loss "));
  const CommandResult piped = run_volta(train("piped"), dir_.path());
  EXPECT_THAT(piped.err, HasSubstr("step 1/3  loss "));
  EXPECT_THAT(piped.err, HasSubstr("step 3/3  loss "));
  EXPECT_THAT(piped.err, Not(HasSubstr("\033")));
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"quantize", "run-shown", "--weights", "q8", "--out", "narrow"}, "\r\033[K1/"},
      {{"eval", "run-shown", "--data", "text.txt"}, "\r\033[Ktext.txt: window 0/"},
      {{"convert", "run-shown", "model.gguf"}, "\r\033[Ktensor 1 of "},
      {{"convert", "model.gguf", "back"}, "\r\033[Ktensor 1 of "},
  };
  for (const auto& [words, first] : commands) {
    const CommandResult drawn = run_on_terminal(words, dir_.path());
    EXPECT_EQ(drawn.exit_code, 0) << drawn.out;
    const std::size_t at = drawn.out.find(first);
    ASSERT_NE(at, std::string::npos) << words.front() << ": " << drawn.out;
    // What is drawn is taken away before the command ends.
    EXPECT_NE(drawn.out.find("\r\033[K", at + 1), std::string::npos) << words.front();
    std::vector<std::string> again = words;
    again.emplace_back("--force");
    if (words.front() == "eval") again.pop_back();
    EXPECT_EQ(run_volta(again, dir_.path()).err.find("\033"), std::string::npos) << words.front();
  }
}

// The pieces of `text` that are drawn over each other, without colours.
std::vector<std::string> drawn_lines(const std::string& text) {
  const std::string plain = std::regex_replace(text, std::regex("\033\\[[0-9]*m"), "");
  std::vector<std::string> lines;
  const std::string begin = "\r\033[K";
  for (std::size_t at = plain.find(begin); at != std::string::npos;) {
    const std::size_t next = plain.find(begin, at + 1);
    const std::string piece = plain.substr(at + begin.size(), next - at - begin.size());
    if (!piece.contains('\n')) lines.push_back(piece);  // Others are lines that stay.
    at = next;
  }
  return lines;
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

class TrainingTerminalTest : public TerminalTest {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "All work and no play makes a dull text. ";
    write("text.txt", text);
  }
  static std::vector<std::string> train(const std::string& out,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        "train",   "--data",  "text.txt", "--out",    out,         "--layers",  "1",
        "--heads", "2",       "--dim",    "16",       "--context", "16",        "--batch",
        "4",       "--steps", "3",        "--warmup", "1",         "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(TrainingTerminalTest, ProgressFitsAnyWidth) {
  for (const int columns : {1, 2, 30, 40, 80, 200}) {
    const std::string name = "run-" + std::to_string(columns);
    const CommandResult shown = run_on_terminal(train(name), dir_.path(), columns);
    ASSERT_EQ(shown.exit_code, 0) << shown.out;
    const auto lines = drawn_lines(shown.out);
    ASSERT_FALSE(lines.empty());
    for (const std::string& line : lines) {
      EXPECT_LT(characters(line), static_cast<std::size_t>(std::max(columns, 2))) << line;
    }
    EXPECT_EQ(shown.out.contains("░"), columns >= 40) << columns;
    EXPECT_THAT(shown.out, Not(HasSubstr("ns left")));
    if (columns < 30) continue;
    // Whole parts, and no time left while there is nothing to estimate it from.
    const std::regex parts(
        "([█░]+ )?([0-9]/3  loss [0-9.]+(  [^ ].* left)?(  [^ ]+ tokens/s)?|step 1/3 runs)\n*");
    for (const std::string& line : lines) {
      EXPECT_TRUE(line.empty() || std::regex_match(line, parts)) << '\'' << line << '\'';
      EXPECT_FALSE(line.contains("1/3") && line.contains("left")) << line;
    }
  }
}

TEST_F(TrainingTerminalTest, ADumbTerminalGetsLines) {
  const CommandResult dumb = run_on_terminal(train("run"), dir_.path(), 80, {{"TERM", "dumb"}});
  EXPECT_EQ(dumb.exit_code, 0);
  EXPECT_THAT(dumb.out, Not(HasSubstr("\033")));
  EXPECT_THAT(dumb.out, HasSubstr("step 3/3  loss "));
  const CommandResult ascii = run_on_terminal(train("run-c"), dir_.path(), 200, {{"LC_ALL", "C"}});
  EXPECT_THAT(ascii.out, HasSubstr("####"));
  EXPECT_THAT(ascii.out, Not(HasSubstr("░")));
}

// One number is the loss of a step, wherever it is shown.
TEST_F(TrainingTerminalTest, TheLossOfTheLastStepIsTheSameEverywhere) {
  const CommandResult done = run_volta(train("run", {"--lr", "0.1"}), dir_.path());
  ASSERT_EQ(done.exit_code, 0) << done.err;
  std::smatch loss;
  ASSERT_TRUE(std::regex_search(done.out, loss, std::regex("loss (\\S+) \\(last step\\)")));
  EXPECT_THAT(done.err, HasSubstr("step 3/3  loss " + loss[1].str() + "  "));
  std::ifstream plot(dir_.file("run/loss.svg"));
  const std::string svg(std::istreambuf_iterator<char>(plot), {});
  std::smatch legend;
  ASSERT_TRUE(std::regex_search(svg, legend, std::regex("training (\\S+) \\(last step\\)")));
  EXPECT_NEAR(std::stod(legend[1].str()), std::stod(loss[1].str()), 1e-3);
}

// Also with a validation loss and a large number of steps.
TEST_F(TrainingTerminalTest, LinesOfStepsFitEightyColumns) {
  const CommandResult done =
      run_volta(train("run", {"--steps", "10000000", "--eval-every", "1", "--eval-batches", "1",
                              "--patience", "1", "--lr", "1e-9", "--no-keep-best"}),
                dir_.path());
  ASSERT_EQ(done.exit_code, 0) << done.err;
  std::istringstream lines(done.err);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("step ")) continue;
    ++count;
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_THAT(line, HasSubstr("/10000000  loss "));
    EXPECT_THAT(line, HasSubstr("  val_loss "));
    EXPECT_THAT(line, testing::EndsWith(" tokens/s"));
  }
  EXPECT_GE(count, 1);
}

TEST_F(TrainingTerminalTest, QuietLeavesWarningsAndErrors) {
  const CommandResult quiet = run_volta(train("run", {"--quiet"}), dir_.path());
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.err, "");
  EXPECT_THAT(quiet.out, HasSubstr("3 steps in "));
  const CommandResult warned =
      run_on_terminal(train("warned", {"-q", "--warmup", "9"}), dir_.path());
  EXPECT_THAT(warned.out, HasSubstr("the warm-up of 9 steps"));
  EXPECT_THAT(warned.out, Not(HasSubstr("\033[K")));
  const CommandResult failed = run_volta({"inspect", "none", "-q"}, dir_.path());
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, HasSubstr("volta: "));
}

TEST_F(TrainingTerminalTest, ALogFileHasTheMessagesWithTheTime) {
  const auto log = [&] {
    std::ifstream file(dir_.file("v.log"));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  ASSERT_EQ(run_volta(train("run", {"-q", "--log-file", "v.log"}), dir_.path()).exit_code, 0);
  std::istringstream lines(log());
  const std::regex form("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2} [^\\s].*");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(std::regex_match(line, form)) << line;
  }
  EXPECT_GE(count, 4);
  EXPECT_THAT(log(), HasSubstr("model: "));
  EXPECT_THAT(log(), HasSubstr("step 3/3  loss "));
  // The next command adds to it; other files stay as they are.
  run_volta({"inspect", "none", "--log-file", "v.log"}, dir_.path());
  EXPECT_THAT(log(), HasSubstr("step 3/3  loss "));
  EXPECT_THAT(log(), HasSubstr("volta: no model"));
  const CommandResult other = run_volta({"version", "--log-file", "text.txt"}, dir_.path());
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("is not a log of Volta"));
  EXPECT_EQ(run_volta({"version", "--log-file", "text.txt/x"}, dir_.path()).exit_code, 1);
  std::filesystem::create_directory(dir_.file("folder"));
  for (const std::string place : {"folder", "/dev/full"}) {
    const CommandResult refused = run_volta({"version", "--log-file", place}, dir_.path());
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("--log-file: '" + place + "' is a "));
  }
}

TEST_F(TrainingTerminalTest, ALogThatCannotBeWrittenGetsOneWarning) {
  // A log at the size limit of files stands for a full disk.
  std::string lines;
  while (lines.size() < (std::size_t{4} << 20)) lines += "2026-01-31T12:00:00 an earlier line\n";
  write("v.log", lines);
  std::string words;
  for (const std::string& word : train("run", {"-q", "--log-file", "v.log"})) words += " " + word;
  const CommandResult done =
      run_shell("trap '' XFSZ; ulimit -f 4096; \"$VOLTA\"" + words, dir_.path());
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const std::string warning = "volta: warning: --log-file: cannot write 'v.log': File too large";
  const auto first = done.err.find(warning);
  EXPECT_NE(first, std::string::npos) << done.err;
  EXPECT_EQ(done.err.find(warning, first + 1), std::string::npos) << done.err;
  // The exit code is that of the work.
  const CommandResult failed =
      run_shell("ulimit -f 4096; \"$VOLTA\" inspect none --log-file v.log", dir_.path());
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, HasSubstr(warning));
  EXPECT_THAT(failed.err, HasSubstr("volta: no model"));
}

TEST_F(TerminalTest, MessagesAreEscapedEverywhere) {
  write("esc.jinja", "{{ raise_exception('\x1b]52;c;cm0gLXJmIH4=\x07 hi') }}");
  const std::vector<std::string> words = {"chat", "model",      "--render", "-p",
                                          "x",    "--template", "esc.jinja"};
  const CommandResult file = run_volta(words, dir_.path());
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err, HasSubstr(R"(\u001b]52;c;cm0gLXJmIH4=\u0007 hi)"));
  EXPECT_THAT(file.err, Not(HasSubstr("\x1b")));
  const CommandResult terminal = run_on_terminal(words, dir_.path());
  EXPECT_THAT(terminal.out, HasSubstr(R"(\u001b]52)"));
  EXPECT_THAT(terminal.out, Not(HasSubstr("\x1b")));
  // Words of the command line, names of files.
  for (const std::string& word : {std::string(kHostile), "--" + std::string(kHostile)}) {
    const CommandResult unknown = run_volta({"inspect", word}, dir_.path());
    EXPECT_THAT(unknown.err, HasSubstr(std::string(kEscaped)));
    EXPECT_THAT(unknown.err, Not(HasSubstr("\x1b")));
  }
}

TEST_F(TerminalTest, TheSharedHostileTemplateIsEscaped) {
  VOLTA_NEEDS_SHARED("hostile/esc.jinja");
  const CommandResult done = run_volta({"chat", "model", "--render", "-p", "x", "--template",
                                        test::shared_path("hostile/esc.jinja")},
                                       dir_.path());
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr(R"(\u001b]52;c;cm0gLXJmIH4=\u0007 hi)"));
}

TEST_F(TerminalTest, AClosedPipeEndsACommandQuietly) {
  for (const std::string command : {"--help", "version", "chat model --render -p x"}) {
    const CommandResult done = run_shell(
        "{ sleep 0.3; \"$VOLTA\" " + command + "; echo code $? >&2; } | true", dir_.path());
    EXPECT_EQ(done.err, "code 141\n") << command;
  }
}

TEST_F(TerminalTest, AFullDeviceIsAnError) {
  for (const std::string command : {"--help", "version", "chat model --render -p x"}) {
    const CommandResult done = run_shell("\"$VOLTA\" " + command + " > /dev/full", dir_.path());
    EXPECT_EQ(done.exit_code, 1) << command;
    EXPECT_THAT(done.err, HasSubstr("volta: cannot write to standard output: No space left"));
  }
}

// Also where the result is a long report, and of a command that has written a folder.
TEST_F(TrainingTerminalTest, AFullDeviceIsAnErrorOfEveryCommand) {
  ASSERT_EQ(run_volta(train("run"), dir_.path()).exit_code, 0);
  const std::string cache = "VOLTA_CACHE_DIR=\"$PWD\" ";
  ASSERT_EQ(run_shell(cache + "\"$VOLTA\" tune matmul --dim 16 --budget 0.02 --runs 1", dir_.path())
                .exit_code,
            0);
  for (const std::string command :
       {"eval run --data text.txt", "inspect run --tensors", "tune show", "verify run",
        "quantize run --weights q8 --out narrow", "graph run --output json"}) {
    const CommandResult done =
        run_shell(cache + "\"$VOLTA\" " + command + " > /dev/full", dir_.path());
    EXPECT_EQ(done.exit_code, 1) << command;
    EXPECT_THAT(done.err, HasSubstr("volta: cannot write to standard output: No space left"))
        << command;
  }
  // What was written beside the report is complete.
  EXPECT_EQ(run_volta({"verify", "narrow"}, dir_.path()).exit_code, 0);
}

}  // namespace
}  // namespace volta
