#include "line_editor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr std::size_t kMostEntries = 1000;
constexpr std::int64_t kMostHistoryBytes = std::int64_t{4} << 20;
constexpr std::size_t kMostMessageBytes = std::size_t{1} << 20;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string escape_entry(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return out;
}

std::string unescape_entry(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    out += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

// --- The terminal
// ---------------------------------------------------------------------------------

termios g_saved{};
std::atomic<bool> g_is_raw = false;

// Pasted text comes between two marks while this is on.
constexpr std::string_view kMarkPastes = "\033[?2004h";
constexpr std::string_view kNoMarks = "\033[?2004l";

// The terminal sends every key as it is pressed, for as long as this object lives.
class RawMode {
 public:
  RawMode() { enter(); }
  ~RawMode() { restore_terminal(); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  bool is_on() const { return g_is_raw.load(); }
  void enter() const {
    if (::tcgetattr(STDIN_FILENO, &g_saved) != 0) return;
    termios raw = g_saved;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0) return;
    g_is_raw.store(true);
    note_raw(kMarkPastes);
  }
};

// One byte from the terminal; nothing at its end.
std::optional<char> read_byte() {
  char byte = 0;
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 1) return byte;
    if (got < 0 && errno == EINTR) continue;  // A resized window, or a process that was stopped.
    return std::nullopt;
  }
}

// --- Characters
// -----------------------------------------------------------------------------------

// The columns of a character on a terminal: 2 for East Asian ones and pictures, 0 for marks that
// are drawn over the character before them.
int columns_of(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr auto kNone = std::to_array<Range>(
      {{0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}});
  constexpr auto kTwo = std::to_array<Range>({{0x1100, 0x115F},
                                              {0x2E80, 0x303E},
                                              {0x3041, 0xA4CF},
                                              {0xAC00, 0xD7A3},
                                              {0xF900, 0xFAFF},
                                              {0xFE30, 0xFE6F},
                                              {0xFF00, 0xFF60},
                                              {0xFFE0, 0xFFE6},
                                              {0x1F300, 0x1FAFF},
                                              {0x20000, 0x3FFFD}});
  const auto holds = [c](const Range& range) { return c >= range.first && c <= range.last; };
  return std::ranges::any_of(kNone, holds) ? 0 : std::ranges::any_of(kTwo, holds) ? 2 : 1;
}

// A character of the message as it is shown.
struct Shown {
  std::string text;
  int columns = 1;
};
Shown shown_as(std::string_view character) {
  if (character == "\n") return {.text = "↵"};
  if (character == "\t") return {.text = " "};
  const auto code = decode_utf8(character);
  if (!code) return {.text = "?"};
  const std::string escaped = escape_controls(character);
  if (escaped != character) return {.text = "?"};
  return {.text = escaped, .columns = columns_of(code->value)};
}

// --- Editing
// --------------------------------------------------------------------------------------

// A message and the place in it. Positions are bytes and always between characters.
class Editor {
 public:
  const std::string& text() const { return text_; }
  std::string take() { return std::exchange(text_, std::string()); }
  bool empty() const { return text_.empty(); }

  void set(std::string text) {
    text_ = std::move(text);
    at_ = text_.size();
  }
  void insert(std::string_view piece) {
    if (text_.size() + piece.size() > kMostMessageBytes) return;
    text_.insert(at_, piece);
    at_ += piece.size();
  }
  void left() { at_ = before(at_); }
  void right() { at_ = after(at_); }
  void home() { at_ = 0; }
  void end() { at_ = text_.size(); }
  void word_left() { at_ = word_begin(); }
  void word_right() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    while (at_ < text_.size() && !is_space(text_[at_])) ++at_;
  }
  void erase_left() { erase(before(at_), at_); }
  void erase_right() { erase(at_, after(at_)); }
  void erase_word() { erase(word_begin(), at_); }
  void erase_to_end() { erase(at_, text_.size()); }
  void erase_to_home() { erase(0, at_); }
  // Whether a backslash stands before the end, which it takes away.
  bool take_backslash() {
    if (!text_.ends_with('\\') || at_ != text_.size()) return false;
    text_.pop_back();
    at_ = text_.size();
    return true;
  }

  // Draws the part around the cursor that fits into the terminal behind the prompt.
  void draw(std::string_view prompt, int columns) const {
    const int room = std::max(1, columns - static_cast<int>(prompt.size()) - 1);
    std::size_t first = at_;
    int used = 0;
    while (first > 0) {  // The text before the cursor, as much as fits.
      const std::size_t previous = before(first);
      const int width =
          shown_as(std::string_view(text_).substr(previous, first - previous)).columns;
      if (used + width > room - 1) break;
      used += width;
      first = previous;
    }
    std::string visible;
    int shown = 0;
    for (std::size_t i = first; i < text_.size();) {
      const std::size_t next = after(i);
      const Shown character = shown_as(std::string_view(text_).substr(i, next - i));
      if (shown + character.columns > room) break;
      shown += character.columns;
      visible += character.text;
      i = next;
    }
    const int cursor = static_cast<int>(prompt.size()) + used;
    note_raw(fmt::format("\r{}{}\033[K\r{}", prompt, visible,
                         cursor > 0 ? fmt::format("\033[{}C", cursor) : ""));
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }
  static bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
  std::size_t before(std::size_t at) const {
    if (at == 0) return 0;
    --at;
    while (at > 0 && continues(text_[at])) --at;
    return at;
  }
  std::size_t after(std::size_t at) const {
    if (at >= text_.size()) return text_.size();
    ++at;
    while (at < text_.size() && continues(text_[at])) ++at;
    return at;
  }
  std::size_t word_begin() const {
    std::size_t begin = at_;
    while (begin > 0 && is_space(text_[begin - 1])) --begin;
    while (begin > 0 && !is_space(text_[begin - 1])) --begin;
    return begin;
  }
  void erase(std::size_t begin, std::size_t end) {
    text_.erase(begin, end - begin);
    at_ = begin;
  }

  std::string text_;
  std::size_t at_ = 0;
};

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }
constexpr char kEscape = '\033';
constexpr char kDelete = '\x7f';

// Reads keys until a message is complete.
class MessageReader {
 public:
  MessageReader(std::string_view prompt, const History& history)
      : prompt_(prompt), entries_(history.entries()), place_(entries_.size()) {}

  Result<LineEnd> run(std::string& message) {
    const RawMode raw;
    if (!raw.is_on()) return fail(ErrorCode::kIo, "the terminal cannot be set up for editing");
    std::optional<LineEnd> ended;
    while (!ended) {
      draw();
      const auto byte = read_byte();
      ended = byte ? key(*byte, raw) : LineEnd::kEndOfInput;
    }
    editor_.end();
    draw();
    note_raw("\r\n");
    message = editor_.take();
    return *ended;
  }

 private:
  void draw() const {
    winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    editor_.draw(prompt_, known ? size.ws_col : 80);
  }

  // Does what a key says; how the message ends, if it does.
  std::optional<LineEnd> key(char byte, const RawMode& raw) {
    switch (byte) {
      case '\r':
      case '\n':  // Enter, typed ahead while an answer was written.
        if (!editor_.take_backslash()) return LineEnd::kMessage;
        editor_.insert("\n");
        return std::nullopt;
      case control('C'):
        if (editor_.empty()) return LineEnd::kInterrupted;
        editor_.set("");
        return std::nullopt;
      case control('D'):
        if (editor_.empty()) return LineEnd::kEndOfInput;
        editor_.erase_right();
        return std::nullopt;
      case control('Z'):
        restore_terminal();
        std::raise(SIGTSTP);
        raw.enter();
        return std::nullopt;
      case kEscape:
        escape();
        return std::nullopt;
      default:
        edit(byte);
        return std::nullopt;
    }
  }

  void edit(char byte) {
    struct Command {
      char key;
      void (Editor::*run)();
    };
    constexpr auto kCommands = std::to_array<Command>({{control('A'), &Editor::home},
                                                       {control('E'), &Editor::end},
                                                       {control('B'), &Editor::left},
                                                       {control('F'), &Editor::right},
                                                       {control('H'), &Editor::erase_left},
                                                       {kDelete, &Editor::erase_left},
                                                       {control('K'), &Editor::erase_to_end},
                                                       {control('U'), &Editor::erase_to_home},
                                                       {control('W'), &Editor::erase_word}});
    const auto found = std::ranges::find(kCommands, byte, &Command::key);
    if (found != kCommands.end()) return (editor_.*found->run)();
    if (byte == control('P')) return go(-1);
    if (byte == control('N')) return go(1);
    if (byte == control('L')) return note_raw("\033[H\033[2J");
    if (byte == '\t') return editor_.insert(std::string_view(&byte, 1));
    if (static_cast<unsigned char>(byte) >= ' ') insert_character(byte);
  }

  // Read the remaining bytes of a UTF-8 character after its first byte.
  void insert_character(char first) {
    std::string character(1, first);
    const auto lead = static_cast<unsigned char>(first);
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    for (int i = 0; i < more; ++i) {
      const auto byte = read_byte();
      if (byte) character += *byte;
    }
    if (decode_utf8(character)) editor_.insert(character);
  }

  // A key that sends several bytes: Alt and a letter, or "ESC [ numbers letter".
  void escape() {
    const auto kind = read_byte();
    if (!kind) return;
    if (*kind == '\r' || *kind == '\n') return editor_.insert("\n");
    if (*kind == 'b') return editor_.word_left();
    if (*kind == 'f') return editor_.word_right();
    if (*kind == kDelete) return editor_.erase_word();
    if (*kind != '[' && *kind != 'O') return;
    std::string sequence;
    for (auto byte = read_byte(); byte; byte = read_byte()) {
      sequence += *byte;
      if (*byte >= '@' && *byte <= '~') break;
      if (sequence.size() > 16) return;
    }
    if (sequence == "200~") return paste();
    if (sequence == "A") return go(-1);
    if (sequence == "B") return go(1);
    struct Named {
      std::string_view sequence;
      void (Editor::*run)();
    };
    constexpr auto kNamed = std::to_array<Named>({{"C", &Editor::right},
                                                  {"D", &Editor::left},
                                                  {"H", &Editor::home},
                                                  {"F", &Editor::end},
                                                  {"1~", &Editor::home},
                                                  {"7~", &Editor::home},
                                                  {"4~", &Editor::end},
                                                  {"8~", &Editor::end},
                                                  {"3~", &Editor::erase_right},
                                                  {"1;5C", &Editor::word_right},
                                                  {"1;5D", &Editor::word_left}});
    const auto found = std::ranges::find(kNamed, sequence, &Named::sequence);
    if (found != kNamed.end()) (editor_.*found->run)();
  }

  // Pasted text, in which no key means anything.
  void paste() {
    constexpr std::string_view kEnd = "\033[201~";
    std::string text;
    for (auto byte = read_byte(); byte && text.size() <= kMostMessageBytes; byte = read_byte()) {
      text += *byte;
      if (text.ends_with(kEnd)) break;
    }
    if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
    std::string clean;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
      const bool kept = static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t';
      if (c == '\r') clean += '\n';
      if (kept && c != kDelete) clean += c;
    }
    if (!find_invalid_utf8(clean)) editor_.insert(clean);
  }

  // Shows an older or newer entry of the history; behind the newest one is the message itself.
  void go(int direction) {
    const bool at_end = direction < 0 ? place_ == 0 : place_ == entries_.size();
    if (at_end) return;
    if (place_ == entries_.size()) unsent_ = editor_.text();
    place_ = direction < 0 ? place_ - 1 : place_ + 1;
    editor_.set(place_ == entries_.size() ? unsent_ : entries_[place_]);
  }

  std::string prompt_;
  const std::vector<std::string>& entries_;
  std::size_t place_;
  std::string unsent_;
  Editor editor_;
};

}  // namespace

History::History(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const auto text = read_text_file(path_, kMostHistoryBytes);
  if (!text) return;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (!line.empty() && !find_invalid_utf8(line)) entries_.push_back(unescape_entry(line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (entries_.size() > kMostEntries) {
    entries_.erase(entries_.begin(), entries_.end() - std::ptrdiff_t{kMostEntries});
  }
}

Status History::add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return {};
  entries_.push_back(entry);
  if (path_.empty()) return {};
  const auto append = [&]() -> Status {
    VOLTA_TRY(create_directories(parent_path(path_)));
    VOLTA_TRY(Descriptor file, open_to_change(path_, O_WRONLY | O_APPEND | O_CREAT, "open"));
    if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) {
      return fail(ErrorCode::kIo, fmt::format("cannot protect '{}': {}", path_,
                                              std::generic_category().message(errno)));
    }
    VOLTA_TRY(write_all(file.get(), as_bytes(escape_entry(entry) + "\n"), path_));
    return file.close(path_);
  };
  Status appended = append();
  if (!appended) path_.clear();
  return appended;
}

std::string history_path() {
  if (const auto own = environment("VOLTA_HISTORY")) return *own;
  if (const auto cache = environment("VOLTA_CACHE_DIR"); cache && !cache->empty()) {
    return join_path(*cache, "chat_history");
  }
  const auto home = environment("HOME");
  return home && !home->empty() ? join_path(join_path(*home, ".volta"), "chat_history") : "";
}

bool can_edit_lines() {
  const std::string terminal = environment("TERM").value_or("");
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 && !terminal.empty() &&
         terminal != "dumb";
}

Result<LineEnd> read_message(std::string_view prompt, const History& history,
                             std::string& message) {
  return MessageReader(prompt, history).run(message);
}

void restore_terminal() {
  if (!g_is_raw.exchange(false)) return;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_saved);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kNoMarks.data(), kNoMarks.size());
}

}  // namespace volta::cli
