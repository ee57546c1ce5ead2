#include "terminal_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>

#include "base/environment.h"
#include "command.h"

namespace volta::cli {
namespace {

termios g_saved{};
std::atomic<bool> g_is_raw = false;
std::atomic<int> g_resizes = -1;  // Where the handler of SIGWINCH writes; -1: nowhere.
struct sigaction g_saved_action{};

// Pasted text comes between two marks while this is on.
constexpr std::string_view kMarkPastes = "\033[?2004h";
constexpr std::string_view kNoMarks = "\033[?2004l";

// A signal alone would not do: it can come between two system calls, or to another thread.
void on_resize_signal(int) {
  const int error = errno;
  const int pipe = g_resizes.load();
  [[maybe_unused]] const auto written = pipe < 0 ? 0 : ::write(pipe, "", 1);
  errno = error;
}

}  // namespace

bool can_edit_lines() {
  const std::string_view name = environment("TERM");
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 && !name.empty() &&
         name != "dumb";
}

int terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void restore_terminal() {
  if (!g_is_raw.load()) return;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_saved);
  g_is_raw.store(false);  // Not earlier: a signal in between restores it, too.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kNoMarks.data(), kNoMarks.size());
}

bool RawMode::is_on() const { return g_is_raw.load(); }

void RawMode::enter() const {
  if (::tcgetattr(STDIN_FILENO, &g_saved) != 0) return;
  termios raw = g_saved;
  raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  const std::span<cc_t> characters = raw.c_cc;
  characters[VMIN] = 1;
  characters[VTIME] = 0;
  g_is_raw.store(true);  // Not later: a signal in between restores the terminal.
  if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0) return g_is_raw.store(false);
  note_raw(kMarkPastes);
}

TerminalInput::TerminalInput() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;  // Lines are not redrawn then.
  resized_ = Descriptor(ends[0]);
  resizes_ = Descriptor(ends[1]);
}

TerminalInput::WatchSize::WatchSize(TerminalInput& input, std::function<void()> on_resize)
    : input_(input) {
  input_.on_resize_ = std::move(on_resize);
  g_resizes.store(input_.resizes_.get());
  struct sigaction action{};
  action.sa_handler = on_resize_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGWINCH, &action, &g_saved_action);
}

TerminalInput::WatchSize::~WatchSize() {
  ::sigaction(SIGWINCH, &g_saved_action, nullptr);
  g_resizes.store(-1);
  input_.on_resize_ = {};
}

bool TerminalInput::fill(std::size_t most, std::optional<std::chrono::milliseconds> time) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + time.value_or(std::chrono::milliseconds(0));
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    const int wait = !time ? -1 : left < 0 ? 0 : static_cast<int>(left);
    std::array<pollfd, 2> sources = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                      {.fd = resized_.get(), .events = POLLIN, .revents = 0}}};
    const int ready = ::poll(sources.data(), sources.size(), wait);
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0) return false;
    if (ready < 0) continue;
    if (sources[1].revents != 0) {
      std::array<char, 64> signals{};
      while (::read(resized_.get(), signals.data(), signals.size()) > 0) {
      }
      if (on_resize_) on_resize_();
    }
    if (sources[0].revents == 0) continue;
    buffer_.resize(most);
    const ssize_t got = ::read(STDIN_FILENO, buffer_.data(), most);
    buffer_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    taken_ = 0;
    if (got > 0) return true;
    if (got == 0 || errno != EINTR) return false;
  }
}

std::optional<char> TerminalInput::take() {
  if (taken_ == buffer_.size()) return std::nullopt;
  return buffer_[taken_++];
}

// Keys are read one by one: those behind Enter stay with the terminal, which makes Ctrl-C a signal
// while an answer is written.
std::optional<char> TerminalInput::read() {
  if (const auto byte = take()) return byte;
  return fill(1, std::nullopt) ? take() : std::nullopt;
}

std::optional<char> TerminalInput::read_within(std::chrono::milliseconds time) {
  if (const auto byte = take()) return byte;
  return fill(1, time) ? take() : std::nullopt;
}

void TerminalInput::put_back(char byte) {
  buffer_.erase(0, taken_);
  buffer_.insert(0, 1, byte);
  taken_ = 0;
}

std::optional<TerminalInput::Text> TerminalInput::read_until(std::string_view end,
                                                             std::size_t most) {
  constexpr std::size_t kPiece = std::size_t{64} << 10;
  constexpr std::chrono::seconds kSilence{5};  // The end was lost.
  Text result;
  std::string& text = result.text;
  for (;;) {
    auto byte = take();
    if (!byte && fill(kPiece, kSilence)) byte = take();
    if (!byte) break;
    text += *byte;
    if (text.ends_with(end)) break;
    if (text.size() < most + end.size()) continue;
    result.too_long = true;
    text.erase(0, text.size() - end.size() + 1);
  }
  if (result.too_long) text.clear();
  if (text.ends_with(end)) text.resize(text.size() - end.size());
  return result;
}

}  // namespace volta::cli
