#include "line_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "command.h"
#include "message_editor.h"

namespace volta::cli {
namespace {

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }
constexpr char kEscape = '\033';
constexpr char kDelete = '\x7f';
// The bytes of one key come together; Esc alone has none behind it.
constexpr std::chrono::milliseconds kKeyTime{50};
// Behind "ESC [" more is sure to come, over a slow line in pieces.
constexpr std::chrono::milliseconds kSequenceTime{150};

// Reads keys until a message is complete.
class MessageReader {
 public:
  MessageReader(TerminalInput& input, std::string_view prompt, const History& history)
      : input_(input), prompt_(prompt), entries_(history.entries()), place_(entries_.size()) {}

  Result<LineEnd> run(std::string& message) {
    const RawMode raw;
    if (!raw.is_on()) return fail(ErrorCode::kIo, "the terminal cannot be set up for editing");
    std::optional<LineEnd> ended;
    {
      const TerminalInput::WatchSize watch(input_, [this] { redraw(); });
      while (!ended) {
        draw();
        const auto byte = input_.read();
        ended = byte ? key(*byte, raw) : LineEnd::kEndOfInput;
      }
    }
    editor_.end();
    draw();
    note_raw("\r\n");
    message = editor_.take();
    return *ended;
  }

 private:
  void draw() const { note_raw(editor_.drawing(prompt_, terminal_columns())); }
  // In another width. What the old line has left behind the cursor is erased. Above it, the
  // terminal may have broken the line or not, so nothing there is touched.
  void redraw() const {
    note_raw("\r\033[J");
    draw();
  }

  // Writes a line in place of the message, which is drawn again below it.
  static void say(const std::string& text) {
    note_raw("\r\033[K");
    note(text);
  }

  void insert(std::string_view piece) {
    if (editor_.insert(piece)) return;
    say(fmt::format("volta: a message has {} at most; this is left out\n",
                    format_bytes(kMostMessageBytes)));
  }

  // Does what a key says; how the message ends, if it does.
  std::optional<LineEnd> key(char byte, const RawMode& raw) {
    switch (byte) {
      case '\r':
      case '\n':  // Enter, typed ahead while an answer was written.
        if (!editor_.take_backslash()) return LineEnd::kMessage;
        insert("\n");
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
      void (MessageEditor::*run)();
    };
    constexpr auto kCommands =
        std::to_array<Command>({{control('A'), &MessageEditor::home},
                                {control('E'), &MessageEditor::end},
                                {control('B'), &MessageEditor::left},
                                {control('F'), &MessageEditor::right},
                                {control('H'), &MessageEditor::erase_left},
                                {kDelete, &MessageEditor::erase_left},
                                {control('K'), &MessageEditor::erase_to_end},
                                {control('U'), &MessageEditor::erase_to_home},
                                {control('W'), &MessageEditor::erase_word}});
    const auto found = std::ranges::find(kCommands, byte, &Command::key);
    if (found != kCommands.end()) return (editor_.*found->run)();
    if (byte == control('P')) return go(-1);
    if (byte == control('N')) return go(1);
    if (byte == control('L')) return note_raw("\033[H\033[2J");
    if (byte == '\t') return insert(std::string_view(&byte, 1));
    if (static_cast<unsigned char>(byte) >= ' ') insert_character(byte);
  }

  // Reads the remaining bytes of a UTF-8 character after its first byte. What is not UTF-8 becomes
  // U+FFFD, and takes no other key with it.
  void insert_character(char first) {
    std::string character(1, first);
    const auto lead = static_cast<unsigned char>(first);
    const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    while (character.size() < size) {
      const auto byte = input_.read_within(kKeyTime);
      if (!byte) break;
      if ((static_cast<unsigned char>(*byte) & 0xC0) != 0x80) {
        input_.put_back(*byte);
        break;
      }
      character += *byte;
    }
    insert(clean_paste(character).text);
  }

  // A key that sends several bytes: Alt and a letter, or "ESC [ numbers letter". Esc alone does
  // nothing, and neither does a key that is not known.
  void escape() {
    auto kind = input_.read_within(kKeyTime);
    while (kind == kEscape) kind = input_.read_within(kKeyTime);
    if (!kind) return;
    if (*kind == '\r' || *kind == '\n') return insert("\n");
    if (*kind == 'b') return editor_.word_left();
    if (*kind == 'f') return editor_.word_right();
    if (*kind == kDelete) return editor_.erase_word();
    // Behind Esc, a control key or a character beyond ASCII is that key.
    if (*kind < ' ') return input_.put_back(*kind);
    if (*kind != '[' && *kind != 'O') return;
    std::string sequence;
    for (;;) {
      const auto byte = input_.read_within(kSequenceTime);
      if (!byte || sequence.size() > 16) return;
      if (*byte < ' ' || *byte > '~') return input_.put_back(*byte);  // Another key.
      sequence += *byte;
      if (*byte >= '@') break;
    }
    named_key(sequence);
  }

  void named_key(std::string_view sequence) {
    if (sequence == "200~") return paste();
    if (sequence == "A") return go(-1);
    if (sequence == "B") return go(1);
    struct KeyCommand {
      std::string_view sequence;
      void (MessageEditor::*run)();
    };
    constexpr auto kKeys = std::to_array<KeyCommand>({{"C", &MessageEditor::right},
                                                      {"D", &MessageEditor::left},
                                                      {"H", &MessageEditor::home},
                                                      {"F", &MessageEditor::end},
                                                      {"1~", &MessageEditor::home},
                                                      {"7~", &MessageEditor::home},
                                                      {"4~", &MessageEditor::end},
                                                      {"8~", &MessageEditor::end},
                                                      {"3~", &MessageEditor::erase_right},
                                                      {"1;5C", &MessageEditor::word_right},
                                                      {"1;5D", &MessageEditor::word_left}});
    const auto found = std::ranges::find(kKeys, sequence, &KeyCommand::sequence);
    if (found != kKeys.end()) (editor_.*found->run)();
  }

  // Pasted text, in which no key means anything.
  void paste() {
    const auto pasted = input_.read_until("\033[201~", kMostMessageBytes);
    if (!pasted) return;
    const CleanText clean = clean_paste(pasted->text);
    if (pasted->too_long || !editor_.insert(clean.text)) {
      say(
          fmt::format("volta: the pasted text is left out: a message has {} at most. Give a "
                      "longer one with --file\n",
                      format_bytes(kMostMessageBytes)));
    } else if (clean.replaced > 0) {
      say(fmt::format(
          "volta: the pasted text is not all UTF-8: {} replaced by U+FFFD\n",
          clean.replaced == 1 ? "1 byte is" : fmt::format("{} bytes are", clean.replaced)));
    }
  }

  // Shows an older or newer entry of the history; behind the newest one is the message itself.
  void go(int direction) {
    const bool at_end = direction < 0 ? place_ == 0 : place_ == entries_.size();
    if (at_end) return;
    if (place_ == entries_.size()) unsent_ = editor_.text();
    place_ = direction < 0 ? place_ - 1 : place_ + 1;
    editor_.set(place_ == entries_.size() ? unsent_ : entries_[place_]);
  }

  TerminalInput& input_;
  std::string prompt_;
  const std::vector<std::string>& entries_;
  std::size_t place_;
  std::string unsent_;
  MessageEditor editor_;
};

}  // namespace

Result<LineEnd> LineEditor::read(std::string_view prompt, const History& history,
                                 std::string& message) {
  return MessageReader(input_, prompt, history).run(message);
}

}  // namespace volta::cli
