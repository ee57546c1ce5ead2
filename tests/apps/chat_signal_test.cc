// volta chat and signals: during an answer, at the prompt, while a template runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "apps/chat_fixture.h"
#include "apps/command.h"
#include "support/shared_data.h"

namespace volta {
namespace {

using test::ChatTest;
using test::Command;
using test::CommandResult;
using test::Json;
using ::testing::HasSubstr;

// A terminal for standard input: the name of a file for a Command, and what is typed there.
class Keyboard {
 public:
  explicit Keyboard(const std::string& path) {
    termios raw{};
    ::cfmakeraw(&raw);
    EXPECT_EQ(::openpty(&keys_, &terminal_, nullptr, &raw, nullptr), 0);
    std::filesystem::create_symlink(::ttyname(terminal_), path);
  }
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;
  ~Keyboard() {
    ::close(keys_);
    ::close(terminal_);
  }
  void type(std::string_view text) const {
    EXPECT_EQ(::write(keys_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  bool all_read() const {
    int unread = 1;
    return ::ioctl(terminal_, FIONREAD, &unread) != 0 || unread == 0;
  }

 private:
  int keys_ = -1;
  int terminal_ = -1;
};

// Signals during an answer and at the prompt.
class ChatSignalTest : public ChatTest {
 protected:
  // A long context, and nothing that would end an answer before it is full.
  void make_long_answers() const {
    std::ifstream config(dir_.file("model/config.json"));
    Json changed = Json::parse(config);
    changed["max_position_embeddings"] = 8192;
    changed["eos_token_id"] = nullptr;
    write("model/config.json", changed.dump());
    write("model/tokenizer_config.json",
          Json{{"chat_template", "{{ messages[-1].content }}"}}.dump());
  }
  Command start(const std::string& input, const std::string& tokens,
                const std::string& output = "text") const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().extension() == ".out") std::filesystem::remove(entry.path());
    }
    return Command({"chat", "model", "--temperature", "0", "-n", tokens, "--threads", "1", "-v",
                    "--output", output},
                   dir_.path(), {}, input);
  }
  // What the command has written so far.
  std::string written() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().extension() != ".out") continue;
      std::ifstream file(entry.path());
      return {std::istreambuf_iterator<char>(file), {}};
    }
    return "";
  }
  static void wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 30000; ++i) {
      if (condition()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "what was waited for did not happen within a minute";
  }
};

TEST_F(ChatSignalTest, CtrlCStopsAnAnswer) {
  make_long_answers();
  const Keyboard keyboard(dir_.file("keyboard"));
  Command running = start("keyboard", "8000");
  keyboard.type("Hello\n");
  wait_for([&] { return !written().empty(); });
  running.kill(SIGINT);
  keyboard.type("/exit\n");
  const CommandResult done = running.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("; of the prompt's"));
  EXPECT_THAT(done.err, ::testing::Not(HasSubstr("(8000 tokens")));
}

// Without a terminal, nobody could end the program at the prompt: `yes | volta chat MODEL`.
TEST_F(ChatSignalTest, SignalsEndAPipedConversation) {
  make_long_answers();
  write("lines", "Hello\nHello again\n");
  for (const int signal : {SIGINT, SIGTERM}) {
    Command running = start("lines", "8000");
    wait_for([&] { return !written().empty(); });
    running.kill(signal);
    const CommandResult done = running.wait();
    EXPECT_EQ(done.exit_code, 130) << done.err;
    EXPECT_TRUE(done.out.ends_with('\n'));  // The answer has stopped, with all that goes with it.
    EXPECT_THAT(done.err, HasSubstr("; of the prompt's"));
    EXPECT_THAT(done.err, ::testing::Not(HasSubstr("(8000 tokens")));
  }
}

TEST_F(ChatSignalTest, SignalsAtThePromptEnd) {
  ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    Command waiting = start("pipe", "4");
    std::ofstream keeps_it_open(dir_.file("pipe"));
    keeps_it_open << "Hello\n" << std::flush;
    // The answer's line end: from here on it waits for the next line.
    wait_for([&] { return written().ends_with('\n'); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    waiting.kill(signal);
    EXPECT_EQ(waiting.wait().exit_code, 130);
  }
}

// A template that would run until its budget is used up, were it not stopped.
TEST_F(ChatSignalTest, CtrlCStopsATemplateAndTheConversationGoesOn) {
  write("model/tokenizer_config.json",
        Json{{"chat_template",
              "{% if messages[-1].content == 'slow' %}{% for i in range(1000) %}"
              "{% for j in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}"
              "{% endfor %}{% endif %}{{ messages[-1].content }}"}}
            .dump());
  const Keyboard keyboard(dir_.file("keyboard"));
  Command running = start("keyboard", "4", "json");
  keyboard.type("Hello\n");
  wait_for([&] { return written().ends_with('\n'); });
  keyboard.type("slow\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  wait_for([&] { return keyboard.all_read(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  running.kill(SIGINT);
  keyboard.type("Hello again\n/exit\n");
  const CommandResult done = running.wait();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 2) << done.out;
  EXPECT_THAT(done.err, ::testing::Not(HasSubstr("volta: ")));  // Not ended by its budget.
}

}  // namespace
}  // namespace volta
