// The volta binary in a terminal (a pty), as a user sits before it: keys in, what the screen has
// been given out.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace volta::test {

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
  // Waits until the screen has been given so many bytes behind what earlier calls have found.
  bool wait_for_bytes(std::size_t count) {
    while (screen_.size() < seen_ + count && read_some()) {
    }
    return screen_.size() >= seen_ + count;
  }
  // The line that is drawn when the window has been resized, without control sequences.
  std::string redrawn_line() {
    if (!wait_for("\r\033[J\r")) return "";
    const std::size_t begin = seen_;
    if (!wait_for("\r")) return "";
    std::string line = screen_.substr(begin, seen_ - 1 - begin);
    constexpr std::string_view kErase = "\033[K";
    const std::size_t erase = line.find(kErase);
    if (erase != std::string::npos) line.erase(erase, kErase.size());
    return line;
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

}  // namespace volta::test
