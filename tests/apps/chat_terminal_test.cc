// volta chat in a terminal: editing, history, messages of several lines, commands, interruption.
// What was sent to the model is read from the file of /save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A program in a terminal, its keyboard and its screen.
class Terminal {
 public:
  Terminal(std::vector<std::string> words, const std::string& directory,
           const std::map<std::string, std::string>& environment, int columns) {
    words.insert(words.begin(), VOLTA_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    resize_to_.ws_col = static_cast<unsigned short>(columns);
    resize_to_.ws_row = 24;
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &resize_to_);
    if (pid_ == 0) {
      ::alarm(120);
      ::setenv("TERM", "xterm", 1);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      if (::chdir(directory.c_str()) == 0) ::execv(argv.front(), argv.data());
      ::_exit(127);
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    end();
  }

  void type(std::string_view keys) {
    EXPECT_EQ(::write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void resize(int columns) {
    resize_to_.ws_col = static_cast<unsigned short>(columns);
    EXPECT_EQ(::ioctl(fd_, TIOCSWINSZ, &resize_to_), 0);
  }
  // Waits until the screen has been given `text` behind what earlier calls have found.
  bool wait_for(std::string_view text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      const std::size_t found = screen_.find(text, seen_);
      if (found != std::string::npos) {
        seen_ = found + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() > end || !read_some()) break;
    }
    ADD_FAILURE() << "no '" << text << "' behind: " << screen_.substr(seen_);
    return false;
  }
  // The prompt that waits for a message: it is drawn with the cursor behind it.
  bool wait_for_prompt() { return wait_for("\r> \033[K\r\033[2C"); }
  int end() {
    if (pid_ < 0) return code_;
    while (read_some()) {
    }
    ::close(fd_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }
  const std::string& screen() const { return screen_; }
  bool echoes() const {
    termios now{};
    return ::tcgetattr(fd_, &now) == 0 && (now.c_lflag & static_cast<tcflag_t>(ECHO)) != 0;
  }

 private:
  bool read_some() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 60000) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got <= 0) return false;
    screen_.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
  }

  int fd_ = -1;
  int pid_ = -1;
  int code_ = -1;
  winsize resize_to_{};
  std::string screen_;
  std::size_t seen_ = 0;
};

constexpr std::string_view kUp = "\033[A", kDown = "\033[B", kRight = "\033[C", kLeft = "\033[D";

class ChatTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VOLTA_NEEDS_SHARED("models/llama-tiny/model.safetensors");
    std::filesystem::copy(test::shared_path("models/llama-tiny"), dir_.file("model"));
    std::filesystem::permissions(dir_.file("model"), std::filesystem::perms::owner_all);
    std::ofstream(dir_.file("model/tokenizer_config.json"))
        << Json{{"bos_token", "<s>"},
                {"eos_token", "</s>"},
                {"chat_template",
                 "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"}}
               .dump();
  }
  Terminal start(int columns = 80, const std::string& history = "history",
                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"chat", "model", "-n", "2", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return Terminal(words, dir_.path(), {{"VOLTA_HISTORY", history}}, columns);
  }
  // Sends each line of keys as a message, saves the conversation, and returns what the user said.
  std::vector<std::string> said(Terminal& terminal, const std::vector<std::string>& lines,
                                const std::string& file) const {
    for (const std::string& keys : lines) {
      if (!terminal.wait_for_prompt()) return {};
      terminal.type(keys + "\r");
      // The end of the line: a message that is empty in between looks like the prompt.
      if (!terminal.wait_for("\r\n")) return {};
    }
    if (!terminal.wait_for_prompt()) return {};
    terminal.type("/save " + file + "\r");
    if (!terminal.wait_for("messages are in " + file)) return {};
    terminal.wait_for_prompt();
    std::vector<std::string> texts;
    for (const Json& message : load(file)) {
      if (message["role"] == "user") texts.push_back(message["content"]);
    }
    return texts;
  }
  Json load(const std::string& file) const {
    std::ifstream stream(dir_.file(file));
    return Json::parse(stream);
  }

  test::TempDir dir_;
};

TEST_F(ChatTerminalTest, KeysEditAMessage) {
  const std::string left(kLeft), right(kRight);
  {
    Terminal terminal = start();
    const auto texts = said(terminal,
                            {
                                "ac" + left + "b" + right + "d",  // abcd
                                "bc\001a\005d",                   // Ctrl-A, Ctrl-E
                                "one two three\027\027four",      // Ctrl-W twice
                                "keep this\001\013gone\025new",   // Ctrl-K, Ctrl-U
                            },
                            "a.json");
    EXPECT_THAT(texts, ElementsAre("abcd", "abcd", "one four", "new"));
  }
  Terminal terminal = start();
  const auto texts = said(terminal,
                          {
                              "x\177y" + left + "\033[3~z",                  // Backspace, Delete
                              "gr\xc3\xbc\xc3\x9f" + left + left + "\177u",  // Two bytes each
                              "a b\033bX\033fY",                             // Alt-B, Alt-F
                              "\033[1;5D\033[5~ok",                          // No effect
                          },
                          "b.json");
  EXPECT_THAT(texts, ElementsAre("z", "gu\xc3\xbc\xc3\x9f", "a XbY", "ok"));
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
}

TEST_F(ChatTerminalTest, MessagesCanHaveSeveralLines) {
  Terminal terminal = start();
  const auto texts = said(
      terminal,
      {"one\\\rtwo", "three\033\rfour", "\033[200~pasted\rlines\tand \x07\033[31mmore\033[201~!"},
      "said.json");
  EXPECT_THAT(texts, ElementsAre("one\ntwo", "three\nfour", "pasted\nlines\tand [31mmore!"));
  EXPECT_THAT(terminal.screen(), HasSubstr("one↵two"));
}

TEST_F(ChatTerminalTest, EarlierMessagesComeBack) {
  const std::string up(kUp), down(kDown);
  {
    Terminal terminal = start();
    const auto texts = said(
        terminal, {"first\\\rline", "second", up + up + "!", "draft" + up + down + "ed"}, "a.json");
    EXPECT_THAT(texts, ElementsAre("first\nline", "second", "first\nline!", "drafted"));
    terminal.type("/exit\r");
    EXPECT_EQ(terminal.end(), 0);
  }
  struct stat info{};
  ASSERT_EQ(::stat(dir_.file("history").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  // The next conversation has them, too; "/save" and "/exit" are among them.
  Terminal terminal = start();
  const auto texts = said(terminal, {up + up + up, up + up + up + up + up + up}, "b.json");
  EXPECT_THAT(texts, ElementsAre("drafted", "second"));
}

TEST_F(ChatTerminalTest, AHistoryThatCannotBeWrittenCostsNoMessage) {
  std::filesystem::create_directory(dir_.file("folder"));
  Terminal terminal = start(80, "folder");
  const std::string up(kUp);
  const auto texts = said(terminal, {"hello", up + "!"}, "said.json");
  EXPECT_THAT(texts, ElementsAre("hello", "hello!"));
  EXPECT_THAT(terminal.screen(), HasSubstr("the history is not stored"));
}

TEST_F(ChatTerminalTest, CommandsChangeTheConversation) {
  Terminal terminal = start();
  EXPECT_THAT(said(terminal, {"/system Be brief", "one", "two", "/undo", "three"}, "a.json"),
              ElementsAre("one", "three"));
  EXPECT_EQ(load("a.json")[0], (Json{{"role", "system"}, {"content", "Be brief"}}));
  EXPECT_EQ(load("a.json").size(), 5u);
  terminal.type("/reset\r");
  EXPECT_THAT(said(terminal, {"four", "/load a.json", "/system", "five"}, "b.json"),
              ElementsAre("one", "three", "five"));
  EXPECT_EQ(load("b.json")[0]["role"], "user");
  for (const auto& [command, answer] : std::map<std::string, std::string>{
           {"/save b.json", "is there already"},
           {"/save", "name a file"},
           {"/save no/where.json", "no/where.json"},
           {"/load none.json", "none.json"},
           {"/load model/tokenizer_config.json", "expected an array of messages"},
           {"/foo", "/foo is no command; /help shows them"},
           {"/exit now", "/exit takes no text"},
           {"/undo 2", "/undo takes no text"},
           {"/help", "/undo "}}) {
    terminal.type(command + "\r");
    terminal.wait_for(answer);
    terminal.wait_for_prompt();
  }
  terminal.type("\r");  // Says nothing, and gives a new prompt.
  EXPECT_THAT(said(terminal, {"/reset", "/undo", "/save none.json", " /foo"}, "c.json"),
              ElementsAre(" /foo"));
  EXPECT_THAT(terminal.screen(), HasSubstr("/save: there is no message yet"));
  EXPECT_THAT(terminal.screen(), HasSubstr("there is no message to take back"));
}

TEST_F(ChatTerminalTest, ExitMayBeFollowedBySpaces) {
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for("> "));
  terminal.type("/exit  \r");
  EXPECT_EQ(terminal.end(), 0);
}

TEST_F(ChatTerminalTest, CtrlCEmptiesAMessageAndThenEnds) {
  Terminal terminal = start();
  EXPECT_THAT(said(terminal, {"not this\003but this"}, "said.json"), ElementsAre("but this"));
  EXPECT_FALSE(terminal.echoes());
  terminal.type("\003");
  EXPECT_EQ(terminal.end(), 130);
}

TEST_F(ChatTerminalTest, TheTerminalIsGivenBack) {
  Terminal terminal = start();
  ASSERT_TRUE(terminal.wait_for_prompt());
  EXPECT_FALSE(terminal.echoes());
  terminal.type("hello\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for_prompt());
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
  EXPECT_TRUE(terminal.screen().ends_with("\033[?2004l"));
}

TEST_F(ChatTerminalTest, AnyWidthWillDo) {
  Terminal terminal = start(1);
  const std::string text = "a rather long message for such a terminal, with 日本 in it";
  ASSERT_TRUE(terminal.wait_for("> "));
  terminal.type(text + "\r");
  ASSERT_TRUE(terminal.wait_for("\033[?2004l"));
  ASSERT_TRUE(terminal.wait_for("\033[?2004h"));
  terminal.resize(30);
  terminal.type("/save said.json\r");
  ASSERT_TRUE(terminal.wait_for("messages are in"));
  EXPECT_EQ(load("said.json")[0]["content"], text);
  ASSERT_TRUE(terminal.wait_for("\033[?2004h"));
  terminal.type("\004");
  EXPECT_EQ(terminal.end(), 0);
}

}  // namespace
}  // namespace volta
