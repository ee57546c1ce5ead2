#include "apps/command.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace volta::test {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::atomic<int> g_count = 0;

}  // namespace

Command::Command(const std::vector<std::string>& arguments, const std::string& directory,
                 const std::map<std::string, std::string>& environment, const std::string& input) {
  const std::string base = directory + "/command-" + std::to_string(g_count++);
  out_path_ = base + ".out";
  err_path_ = base + ".err";
  std::vector<char*> argv;
  std::string binary = VOLTA_BINARY;
  argv.push_back(binary.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::alarm(300);  // Survives exec: a command that hangs is killed, and its test fails.
  const int out = ::open(out_path_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  const int err = ::open(err_path_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  if (!input.empty()) {
    const int in = ::open((directory + "/" + input).c_str(), O_RDONLY);
    ::dup2(in, STDIN_FILENO);
  }
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (::chdir(directory.c_str()) == 0) ::execv(binary.c_str(), argv.data());
  ::_exit(127);
}

void Command::kill(int signal) const { ::kill(pid_, signal); }

bool Command::maps(const std::string& file_name) const {
  return read_all("/proc/" + std::to_string(pid_) + "/maps").find("/" + file_name) !=
         std::string::npos;
}

bool Command::ended() const {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

CommandResult Command::wait() {
  int status = 0;
  rusage usage{};
  ::wait4(pid_, &status, 0, &usage);
  CommandResult result;
  result.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_all(out_path_);
  result.err = read_all(err_path_);
  return result;
}

CommandResult run_volta(const std::vector<std::string>& arguments, const std::string& directory,
                        const std::map<std::string, std::string>& environment) {
  return Command(arguments, directory, environment).wait();
}

CommandResult run_on_terminal(const std::vector<std::string>& arguments,
                              const std::string& directory, int columns,
                              const std::map<std::string, std::string>& environment) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), VOLTA_BINARY);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  termios raw{};
  ::cfmakeraw(&raw);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  int terminal = -1;
  const int pid = ::forkpty(&terminal, nullptr, &raw, &size);
  if (pid == 0) {
    ::alarm(300);
    ::setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (::chdir(directory.c_str()) == 0) ::execv(argv.front(), argv.data());
    ::_exit(127);
  }
  CommandResult result;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
    result.out.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

CommandResult run_shell(const std::string& script, const std::string& directory) {
  const std::string base = directory + "/shell-" + std::to_string(g_count++);
  const int pid = ::fork();
  if (pid == 0) {
    ::alarm(300);
    const int out = ::open((base + ".out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    const int err = ::open((base + ".err").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::setenv("VOLTA", VOLTA_BINARY, 1);
    if (::chdir(directory.c_str()) == 0) ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  CommandResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_all(base + ".out");
  result.err = read_all(base + ".err");
  return result;
}

}  // namespace volta::test
