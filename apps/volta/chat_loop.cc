#include "chat_loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/environment.h"
#include "base/file.h"
#include "base/text.h"
#include "chat_input.h"
#include "generate_output.h"
#include "help_format.h"
#include "terminal_input.h"
#include "text/chat_prompt.h"

namespace volta::cli {
namespace {

constexpr std::size_t kMaxLine = 1 << 20;
constexpr std::string_view kMessageHelp = "A line is a message.";
constexpr std::string_view kEditingHelp =
    " A backslash at its end, or Alt-Enter, goes on in a new line. Up and Down show earlier "
    "messages.";
constexpr std::string_view kCommandHelp =
    "\n"
    "  /reset        forgets the conversation, as does /clear\n"
    "  /undo         takes back the last message and its answer\n"
    "  /retry        answers the last message again, with the next seed\n"
    "  /system TEXT  sets the system message; without TEXT, removes it\n"
    "  /save FILE    writes the conversation as JSON, for /load and --messages\n"
    "  /load FILE    goes on from such a file\n"
    "  /exit         ends, as do /quit, /bye and Ctrl-D\n"
    "  /help         shows this\n"
    "Ctrl-C stops an answer; at the prompt, or a second time, it ends.\n";

std::atomic<bool> g_answering = false;
std::atomic<bool> g_stop = false;
// Both are set before the first answer.
bool g_terminal = false;       // Standard input is a terminal.
void (*g_end)(int) = nullptr;  // The handler of all commands, which makes interrupted() true.

// At the prompt, a signal ends the process. During an answer, the first Ctrl-C of a terminal stops
// the answer, and a second one ends the process. Any other signal stops the answer and then ends
// the program: without a terminal nobody is there to end it at the prompt.
void on_chat_signal(int signal) {
  if (g_answering.load(std::memory_order_relaxed)) {
    if (!g_terminal || signal != SIGINT) return g_end(signal);
    if (!g_stop.exchange(true)) return;
  }
  restore_terminal();
  constexpr std::string_view kLineEnd = "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLineEnd.data(), kLineEnd.size());
  std::_Exit(exit_code(ErrorCode::kInterrupted));
}

constexpr auto kExits = std::to_array<std::string_view>({"/exit", "/quit", "/bye"});

std::string_view first_word(std::string_view line) { return line.substr(0, line.find(' ')); }

bool is_exit(std::string_view line) {
  const std::string_view word = first_word(line);
  return std::ranges::find(kExits, word) != kExits.end() &&
         line.find_first_not_of(' ', word.size()) == line.npos;
}

// Reads a line without its end.
Result<LineEnd> read_line(std::string& line) {
  if (g_terminal) note_raw("> ");
  std::streambuf& input = *std::cin.rdbuf();
  bool any = false, too_long = false;
  using Traits = std::char_traits<char>;
  for (auto c = input.sbumpc(); c != Traits::eof(); c = input.sbumpc()) {
    any = true;
    if (c == '\n') break;
    too_long = too_long || line.size() == kMaxLine;
    if (!too_long) line += Traits::to_char_type(c);
  }
  if (line.ends_with('\r')) line.pop_back();
  if (too_long) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a line has more than {} bytes", kMaxLine));
  }
  if (!any && g_terminal) note_raw("\n");
  return any ? LineEnd::kMessage : LineEnd::kEndOfInput;
}

// The last message of the user; the end if there is none.
JsonValue::Array::iterator last_question(JsonValue::Array& messages) {
  const auto is_user = [](const JsonValue& message) { return message_role(message) == "user"; };
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
  return last == messages.rend() ? messages.end() : std::prev(last.base());
}

// The path behind a command, with "~/" at its beginning read as a shell would.
Result<std::string> path_of(std::string_view command, const std::string& text) {
  if (text.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: name a file", command));
  }
  constexpr std::string_view kHome = "~/";
  if (!text.starts_with(kHome)) return text;
  const std::string_view home = environment("HOME");
  if (!home.empty()) return join_path(home, text.substr(kHome.size()));
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: HOME is not set, so ~/ is no folder; write the path without it, "
                          "or ./~/ for a folder of this name",
                          command, text));
}

std::string to_json(const Conversation::Answer& answer) {
  JsonWriter json;
  json.begin_object().field("role", "assistant").field("content", answer.text);
  json.field("tokens", answer.tokens).field("prompt_tokens", answer.prompt_tokens);
  json.field("reused_tokens", answer.reused_tokens);
  json.field("dropped_turns", answer.dropped_turns);
  json.field("stop_reason", reason_name(answer.reason)).end_object();
  return std::move(json).take() + "\n";
}

}  // namespace

void install_chat_signals() {
  g_terminal = ::isatty(STDIN_FILENO) == 1;
  g_end = std::signal(SIGINT, on_chat_signal);
  std::signal(SIGTERM, on_chat_signal);
  // Under nohup, SIGHUP stays ignored.
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, on_chat_signal);
}

bool chat_stopped() { return g_stop.load(std::memory_order_relaxed) || interrupted(); }

Chat::Chat(Conversation conversation, Output output, std::int64_t context, bool verbose)
    : conversation_(std::move(conversation)),
      output_(output),
      context_(context),
      verbose_(verbose),
      history_(can_edit_lines() ? history_path() : "") {
  if (can_edit_lines()) editor_.emplace();
}

Status Chat::answer(JsonValue message) {
  answered_ = false;
  g_stop.store(false, std::memory_order_relaxed);
  g_answering.store(true, std::memory_order_relaxed);
  Status written;
  auto answer = conversation_.ask(std::move(message), [&](std::string_view piece) {
    if (output_ == Output::kText && !piece.empty()) written = print(piece);
    return written && !chat_stopped();
  });
  g_answering.store(false, std::memory_order_relaxed);
  if (!answer) return std::unexpected(std::move(answer).error());
  answered_ = !answer->text.empty();
  if (written) written = print(output_ == Output::kText ? "\n" : to_json(*answer));
  output_failed_ = !written;
  VOLTA_TRY(std::move(written));
  report(*answer);
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

Status Chat::run() {
  if (g_terminal) note("/help shows the commands.\n");
  for (std::int64_t number = 1;; ++number) {
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    std::string line;
    const Result<LineEnd> end = editor_ ? next_line(line) : read_line(line);
    if (!end && end.error().code() == ErrorCode::kIo) return std::unexpected(end.error());
    Status done;
    if (!end) {
      done = std::unexpected(end.error());
    } else if (*end == LineEnd::kInterrupted) {
      return fail(ErrorCode::kInterrupted, "interrupted");
    } else if (*end == LineEnd::kEndOfInput || is_exit(line)) {
      return {};
    } else {
      done = obey(line);
    }
    if (done) continue;
    Error error = std::move(done).error();
    if (error.code() == ErrorCode::kInterrupted && !interrupted()) {
      note_raw("\n");
      note("(stopped before the answer: the message is not part of the conversation)\n");
      continue;
    }
    const bool is_final = error.code() == ErrorCode::kInterrupted || output_failed_;
    if (is_final) return std::unexpected(std::move(error));
    if (!g_terminal) {
      return std::unexpected(std::move(error).with_context(fmt::format("line {}", number)));
    }
    note(fmt::format("volta: {}\n", one_line(error.message())));
  }
}

// Reads a message with the line editor, and stores it in the history.
Result<LineEnd> Chat::next_line(std::string& line) {
  VOLTA_TRY(const LineEnd end, editor_->read("> ", history_, line));
  if (end != LineEnd::kMessage) return end;
  const Status stored = history_.add(line);
  if (!stored) note(fmt::format("volta: {}\n", one_line(stored.error().message())));
  return end;
}

Status Chat::obey(const std::string& line) {
  if (line.empty()) return {};
  const std::string word(first_word(line));
  const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
  struct ChatCommand {
    std::string_view name;
    bool takes_text;
    Status (Chat::*run)(const std::string& text);
  };
  constexpr auto kCommands = std::to_array<ChatCommand>({{"/help", false, &Chat::help},
                                                         {"/reset", false, &Chat::reset},
                                                         {"/clear", false, &Chat::reset},
                                                         {"/undo", false, &Chat::undo},
                                                         {"/retry", false, &Chat::retry},
                                                         {"/system", true, &Chat::set_system},
                                                         {"/save", true, &Chat::save},
                                                         {"/load", true, &Chat::load}});
  const auto found = std::ranges::find(kCommands, word, &ChatCommand::name);
  if (found != kCommands.end() && (found->takes_text || rest.empty())) {
    return (this->*found->run)(rest);
  }
  const bool is_command =
      found != kCommands.end() || std::ranges::find(kExits, word) != kExits.end();
  if (g_terminal && is_command) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} takes no text", word));
  }
  // Elsewhere than on a terminal every other line is a message.
  if (g_terminal && line.starts_with('/') && word.find('/', 1) == std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no command; /help shows them. A message that begins with a "
                            "slash can have a space before it",
                            word));
  }
  if (const auto invalid = find_invalid_utf8(line)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("byte {} of the message is not UTF-8", *invalid));
  }
  VOLTA_TRY(answer(make_message("user", line)));
  if (!answered_)
    note("(the answer has no text: the message is not part of the conversation; write it again)\n");
  return {};
}

Status Chat::help(const std::string&) {
  const std::string text =
      fmt::format("{}{}{}", kMessageHelp, editor_ ? kEditingHelp : "", kCommandHelp);
  note_raw(wrap_help(text, static_cast<std::size_t>(std::min(terminal_columns(), 80))));
  return {};
}

Status Chat::reset(const std::string&) {
  conversation_.reset();
  note("The conversation starts again.\n");
  return {};
}

Status Chat::undo(const std::string&) {
  JsonValue::Array messages = conversation_.messages();
  const auto last = last_question(messages);
  if (last == messages.end()) {
    return fail(ErrorCode::kInvalidArgument, "/undo: there is no message to take back");
  }
  messages.erase(last, messages.end());
  conversation_.go_on_from(std::move(messages));
  note("The last message and its answer are taken back.\n");
  return {};
}

// The new answer differs, because each answer of a conversation draws with the next seed.
Status Chat::retry(const std::string&) {
  const JsonValue::Array before = conversation_.messages();
  JsonValue::Array messages = before;
  const auto last = last_question(messages);
  if (last == messages.end()) {
    return fail(ErrorCode::kInvalidArgument, "/retry: there is no message to answer again");
  }
  JsonValue question = std::move(*last);
  messages.erase(last, messages.end());
  conversation_.go_on_from(std::move(messages));
  Status done = answer(std::move(question));
  if (answered_) return done;
  conversation_.go_on_from(before);
  const bool stopped = done || done.error().code() == ErrorCode::kInterrupted;
  if (!stopped || interrupted()) return done;
  if (!done) note_raw("\n");
  note(fmt::format("({}: the conversation is as it was)\n",
                   done ? "the answer has no text" : "stopped before the answer"));
  return {};
}

Status Chat::set_system(const std::string& text) {
  JsonValue::Array messages = conversation_.messages();
  const bool has_one = !messages.empty() && message_role(messages.front()) == "system";
  if (has_one) messages.erase(messages.begin());
  if (!text.empty()) messages.insert(messages.begin(), make_message("system", text));
  conversation_.go_on_from(std::move(messages));
  note(text.empty() ? "There is no system message now.\n" : "The system message is set.\n");
  return {};
}

Status Chat::save(const std::string& text) {
  VOLTA_TRY(const std::string path, path_of("/save", text));
  const JsonValue::Array& messages = conversation_.messages();
  if (messages.empty()) {
    return fail(ErrorCode::kInvalidArgument, "/save: there is no message yet");
  }
  if (path_exists(path)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("/save: '{}' is there already; choose another name", path));
  }
  VOLTA_TRY(make_folder_of(path, "/save"));
  VOLTA_TRY(write_file_atomic(path, messages_json(messages), Existing::kKeep));
  note(fmt::format("{} {} in {}\n", counted(std::ssize(messages), "message"),
                   messages.size() == 1 ? "is" : "are", path));
  return {};
}

Status Chat::load(const std::string& text) {
  VOLTA_TRY(const std::string path, path_of("/load", text));
  VOLTA_TRY(JsonValue::Array messages, read_messages(path));
  note(fmt::format("The conversation goes on from the {} in {}\n",
                   counted(std::ssize(messages), "message"), path));
  conversation_.go_on_from(std::move(messages));
  return {};
}

void Chat::report(const Conversation::Answer& answer) const {
  if (answer.dropped_turns > 0) {
    note(fmt::format(
        "(the context of {} is full: the oldest {} left out)\n", counted(context_, "token"),
        answer.dropped_turns == 1 ? "turn was"
                                  : fmt::format("{} turns were", answer.dropped_turns)));
  }
  if (answer.reason == StopReason::kContextFull) {
    note(fmt::format("(the answer ends here: the context of {} is full)\n",
                     counted(context_, "token")));
  }
  if (verbose_) {
    note(fmt::format("({}; of the prompt's {}, {} were there already)\n",
                     counted(answer.tokens, "token"), answer.prompt_tokens, answer.reused_tokens));
  }
}

}  // namespace volta::cli
