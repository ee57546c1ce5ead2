// volta chat: a conversation with a model, line by line. It also shows the prompts that the chat
// template makes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "chat_input.h"
#include "command.h"
#include "formats/conversation.h"
#include "formats/generation_config.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "generate_output.h"
#include "line_editor.h"
#include "nn/generator.h"
#include "sampling_options.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

constexpr std::size_t kMaxLine = 1 << 20;
// A model's own context may be 128 K tokens, whose cache takes more memory than its weights.
constexpr std::int64_t kDefaultContext = 8192;
constexpr std::int64_t kUntilFull = -1;  // -n: no limit but the context.
constexpr std::string_view kHelp =
    "A line is a message. A backslash at its end, or Alt-Enter, goes on in a new\n"
    "line. Up and Down show earlier messages.\n"
    "  /reset        forgets the conversation\n"
    "  /undo         takes back the last message and its answer\n"
    "  /system TEXT  sets the system message; without TEXT, removes it\n"
    "  /save FILE    writes the conversation as JSON, for /load and --messages\n"
    "  /load FILE    goes on from such a file\n"
    "  /exit         ends, as does Ctrl-D\n"
    "  /help         shows this\n"
    "Ctrl-C stops an answer; at the prompt, or a second time, it ends.\n";

struct Options {
  std::string model;
  AdapterOptions adapter;
  ChatInput input;
  bool render = false;
  bool allow_special = false;
  std::optional<std::int64_t> tokens;   // Default: from generation_config.json.
  std::optional<std::int64_t> context;  // Prompt and answer; default kDefaultContext.
  SamplingOptions sampling;
  std::string kv_cache_dtype{};
  bool verbose = false;
};

// -n: 1 or more, or -1.
std::string count_or_until_full(const std::string& text) {
  const auto number = parse_int<std::int64_t>(text, "-n", kUntilFull, std::int64_t{1} << 31);
  if (!number) return std::string(number.error().message());
  return *number == 0 ? "-n: 0 tokens are no answer; give 1 or more, or -1 for no limit" : "";
}

// --- Signals -------------------------------------------------------------------------------------

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

void install_chat_signals() {
  g_terminal = ::isatty(STDIN_FILENO) == 1;
  g_end = std::signal(SIGINT, on_chat_signal);
  std::signal(SIGTERM, on_chat_signal);
  // Under nohup, SIGHUP stays ignored.
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, on_chat_signal);
}

// Whether to stop the running computation: the user stops the answer, or the whole program.
bool stopped() { return g_stop.load(std::memory_order_relaxed) || interrupted(); }

// --- The model ----------------------------------------------------------------------------------

// The model to take the template from. To show prompts, a folder with a template needs no model.
Result<ModelSource> open_for_template(const Options& options) {
  VOLTA_TRY(std::string place, find_model_path(options.model));
  const bool own = path_exists(join_path(place, "tokenizer_config.json")) ||
                   path_exists(join_path(place, "chat_template.jinja"));
  if (own) return ModelSource::open(place);
  return open_model(place, stopped);
}

Result<ChatTemplate> open_template(const Options& options, const ModelSource& source) {
  if (!options.input.template_file.empty()) {
    return source.chat_template_from(options.input.template_file);
  }
  auto loaded = source.chat_template();
  if (loaded || loaded.error().code() != ErrorCode::kNotFound) return loaded;
  return fail(ErrorCode::kNotFound,
              loaded.error().message() +
                  "; give one with --template FILE, or continue text with volta generate");
}

// --- Rendering -----------------------------------------------------------------------------------

Status render(const Options& options, Output output) {
  VOLTA_TRY(const ModelSource source, open_for_template(options));
  VOLTA_TRY(const ChatTemplate chat_template, open_template(options, source));
  VOLTA_TRY(const auto tools, read_tools(options.input));
  VOLTA_TRY(const ChatOptions chat,
            chat_options(options.input, tools ? &*tools : nullptr, stopped));
  VOLTA_TRY(JsonValue::Array messages, first_messages(options.input));
  if (messages.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--render takes --messages FILE, --prompt TEXT or --file FILE");
  }
  VOLTA_TRY(const QuotedText prompt, make_chat_prompt(chat_template, std::move(messages), chat));
  if (output == Output::kText) return print(prompt.text);
  JsonWriter json;
  json.begin_object().field("text", prompt.text);
  const auto tokenizer = source.tokenizer(interrupted);
  if (!tokenizer && tokenizer.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(tokenizer.error());
  }
  if (tokenizer) {
    VOLTA_TRY(const auto ids, options.allow_special ? (*tokenizer)->encode(prompt.text)
                                                    : (*tokenizer)->encode_quoted(prompt));
    json.key("ids").begin_array();
    for (const std::int32_t id : ids) json.value(id);
    json.end_array();
  }
  json.end_object();
  return print(std::move(json).take() + "\n");
}

// --- Talking -------------------------------------------------------------------------------------

class Chat {
 public:
  Chat(Conversation conversation, Output output, std::int64_t context, bool verbose)
      : conversation_(std::move(conversation)),
        output_(output),
        context_(context),
        verbose_(verbose),
        edits_(can_edit_lines()),
        history_(edits_ ? history_path() : "") {}

  Conversation& conversation() { return conversation_; }

  /// Runs one turn: the answer goes to standard output.
  Status answer(JsonValue message) {
    g_stop.store(false, std::memory_order_relaxed);
    g_answering.store(true, std::memory_order_relaxed);
    Status written;
    auto answer = conversation_.ask(std::move(message), [&](std::string_view piece) {
      if (output_ == Output::kText && !piece.empty()) written = print(piece);
      return written && !stopped();
    });
    g_answering.store(false, std::memory_order_relaxed);
    if (!answer) return std::unexpected(std::move(answer).error());
    if (written) written = print(output_ == Output::kText ? "\n" : to_json(*answer));
    output_failed_ = !written;
    VOLTA_TRY(std::move(written));
    report(*answer);
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    return {};
  }

  /// Answers the lines of standard input until it ends. On a terminal, a bad line is reported and
  /// skipped; elsewhere it ends the conversation. It is no error to stop an answer before its first
  /// token, while its prompt is made.
  Status run() {
    const bool terminal = g_terminal;
    if (terminal) note("/help shows the commands.\n");
    for (std::int64_t number = 1;; ++number) {
      if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
      std::string line;
      const Result<LineEnd> end = edits_ ? edit_line(line) : read_line(line);
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
      if (!terminal) {
        return std::unexpected(std::move(error).with_context(fmt::format("line {}", number)));
      }
      note(fmt::format("volta: {}\n", one_line(error.message())));
    }
  }

 private:
  static bool is_exit(std::string_view line) {
    constexpr std::string_view kExit = "/exit";
    return line.starts_with(kExit) && line.find_first_not_of(' ', kExit.size()) == line.npos;
  }

  // Reads a message with the line editor, and stores it in the history.
  Result<LineEnd> edit_line(std::string& line) {
    VOLTA_TRY(const LineEnd end, read_message("> ", history_, line));
    if (end != LineEnd::kMessage) return end;
    const Status kept = history_.add(line);
    if (!kept) {
      note(fmt::format("volta: the history is not stored: {}\n", one_line(kept.error().message())));
    }
    return end;
  }

  // Reads a line without its end.
  static Result<LineEnd> read_line(std::string& line) {
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

  Status obey(const std::string& line) {
    if (line.empty()) return {};
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    struct Command {
      std::string_view name;
      bool takes_text;
      Status (Chat::*run)(const std::string& text);
    };
    constexpr auto kCommands = std::to_array<Command>({{"/help", false, &Chat::help},
                                                       {"/reset", false, &Chat::reset},
                                                       {"/undo", false, &Chat::undo},
                                                       {"/system", true, &Chat::set_system},
                                                       {"/save", true, &Chat::save},
                                                       {"/load", true, &Chat::load}});
    const auto found = std::ranges::find(kCommands, word, &Command::name);
    if (found != kCommands.end() && (found->takes_text || rest.empty())) {
      return (this->*found->run)(rest);
    }
    if (g_terminal && (found != kCommands.end() || word == "/exit")) {
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
    return answer(make_message("user", line));
  }

  Status help(const std::string&) {
    note_raw(kHelp);
    return {};
  }
  Status reset(const std::string&) {
    conversation_.reset();
    note("The conversation begins anew.\n");
    return {};
  }
  Status undo(const std::string&) {
    JsonValue::Array messages = conversation_.messages();
    const auto is_user = [](const JsonValue& message) { return message_role(message) == "user"; };
    const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
    if (last == messages.rend()) {
      return fail(ErrorCode::kInvalidArgument, "/undo: there is no message to take back");
    }
    messages.erase(std::prev(last.base()), messages.end());
    conversation_.go_on_from(std::move(messages));
    note("The last message and its answer are taken back.\n");
    return {};
  }
  Status set_system(const std::string& text) {
    JsonValue::Array messages = conversation_.messages();
    const bool has_one = !messages.empty() && message_role(messages.front()) == "system";
    if (has_one) messages.erase(messages.begin());
    if (!text.empty()) messages.insert(messages.begin(), make_message("system", text));
    conversation_.go_on_from(std::move(messages));
    note(text.empty() ? "There is no system message now.\n" : "The system message is set.\n");
    return {};
  }
  Status save(const std::string& path) {
    if (path.empty()) return fail(ErrorCode::kInvalidArgument, "/save: name a file");
    if (conversation_.messages().empty()) {
      return fail(ErrorCode::kInvalidArgument, "/save: there is no message yet");
    }
    if (path_exists(path)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("/save: '{}' is there already; choose another name", path));
    }
    VOLTA_TRY(write_file_atomic(path, messages_json(conversation_.messages()), Existing::kKeep));
    const std::size_t count = conversation_.messages().size();
    note(fmt::format(
        "{} in {}\n",
        count == 1 ? std::string("1 message is") : fmt::format("{} messages are", count), path));
    return {};
  }
  Status load(const std::string& path) {
    if (path.empty()) return fail(ErrorCode::kInvalidArgument, "/load: name a file");
    VOLTA_TRY(JsonValue::Array messages, read_messages(path));
    note(fmt::format("The conversation goes on from the {} messages in {}\n", messages.size(),
                     path));
    conversation_.go_on_from(std::move(messages));
    return {};
  }

  static std::string to_json(const Conversation::Answer& answer) {
    JsonWriter json;
    json.begin_object().field("role", "assistant").field("content", answer.text);
    json.field("tokens", answer.tokens).field("prompt_tokens", answer.prompt_tokens);
    json.field("reused_tokens", answer.reused_tokens);
    json.field("dropped_turns", answer.dropped_turns);
    json.field("stop_reason", reason_name(answer.reason)).end_object();
    return std::move(json).take() + "\n";
  }

  void report(const Conversation::Answer& answer) const {
    if (answer.dropped_turns > 0) {
      note(fmt::format("(the context of {} tokens is full: the oldest {} left out)\n", context_,
                       answer.dropped_turns == 1
                           ? "turn was"
                           : fmt::format("{} turns were", answer.dropped_turns)));
    }
    if (answer.reason == StopReason::kContextFull) {
      note(fmt::format("(the answer ends here: the context of {} tokens is full)\n", context_));
    }
    if (verbose_) {
      note(fmt::format("({} tokens; of the prompt's {}, {} were there already)\n", answer.tokens,
                       answer.prompt_tokens, answer.reused_tokens));
    }
  }

  Conversation conversation_;
  Output output_;
  std::int64_t context_;
  bool verbose_;
  bool edits_;
  History history_;
  bool output_failed_ = false;  // Standard output is gone, and with it the reason to go on.
};

// Settings from the flags, else from the model's generation_config.json, else the defaults.
Result<Conversation::Settings> make_settings(const Options& options, const Globals& globals,
                                             const ModelSource& source,
                                             const Tokenizer& tokenizer) {
  VOLTA_TRY(const TransformerConfig model, source.config());
  Conversation::Settings settings;
  VOLTA_TRY(settings.context, context_length(options.context, model, kDefaultContext));
  VOLTA_TRY(settings.limits, source.generation_config(model.vocab_size));
  VOLTA_TRY(settings.sampling, sampling_params(options.sampling, settings.limits, globals.seed));
  VOLTA_TRY(Stops stops, find_stops(options.sampling, settings.limits, &tokenizer));
  settings.stop_strings = std::move(stops.strings);
  settings.stop_tokens = std::move(stops.tokens);
  settings.allow_special = options.allow_special;
  if (options.tokens) settings.limits.max_new_tokens = options.tokens;
  if (options.tokens == kUntilFull) settings.limits.max_new_tokens = settings.context + 1;
  return settings;
}

// Describes the memory of the conversation before it begins.
std::string memory_line(const GeneratorMemory& memory, std::int64_t context, std::int64_t most) {
  return fmt::format("memory: weights {}, cache {} for a context of {} tokens{}\n",
                     format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes), context,
                     context < most ? fmt::format(" (--context: up to {})", most) : "");
}

Status talk(const Globals& globals, const Options& options, Output output) {
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const ModelSource source, open_model(options.model, stopped));
  VOLTA_TRY(ChatTemplate chat_template, open_template(options, source));
  VOLTA_TRY(auto tokenizer, source.tokenizer(stopped));
  VOLTA_TRY(auto settings, make_settings(options, globals, source, *tokenizer));
  VOLTA_TRY(const auto tools, read_tools(options.input));
  VOLTA_TRY(settings.chat, chat_options(options.input, tools ? &*tools : nullptr, stopped));
  VOLTA_TRY(JsonValue::Array messages, first_messages(options.input));
  VOLTA_TRY(const Session session, Session::create(globals, stopped));
  VOLTA_TRY(const DType cache_dtype, kv_cache_dtype(options.kv_cache_dtype, session, dtype));
  note_slow_products(session, dtype);
  VOLTA_TRY(const Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  VOLTA_TRY(Generator generator,
            Generator::create(model, {.capacity = capacity_for(model.config(), settings.context),
                                      .cache_dtype = cache_dtype,
                                      .compute_dtype = dtype,
                                      .reuse_prefix = true}));
  std::optional<JsonValue> question;
  if (options.input.has_question()) {
    question = std::move(messages.back());
    messages.pop_back();
  }
  const std::int64_t context = settings.context;
  if (options.verbose || ::isatty(STDERR_FILENO) == 1) {
    note(memory_line(generator.memory(), context, model.config().context));
  }
  Chat chat(Conversation(std::move(chat_template), std::move(tokenizer), std::move(generator),
                         std::move(settings)),
            output, context, options.verbose);
  chat.conversation().begin(std::move(messages));
  install_chat_signals();
  const Status done = question ? chat.answer(*std::move(question)) : chat.run();
  VOLTA_TRY(session.finish());
  return done;
}

Status chat(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  if (options.render) {
    VOLTA_TRY(refuse_unused(globals, kNothingRuns));
    return render(options, output);
  }
  return talk(globals, options, output);
}

}  // namespace

void add_chat(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("chat", "talk with a model that has a chat template");
  auto options = std::make_shared<Options>();
  command
      ->add_option("model", options->model,
                   "model folder, .gguf file or a name in the Hugging Face cache")
      ->required();
  add_adapter_options(*command, options->adapter);
  add_chat_input(*command, options->input);
  command->add_flag("--allow-special", options->allow_special,
                    "special tokens in messages (\"<|im_end|>\") act as such; else they are text");
  Option* render =
      command->add_flag("--render", options->render, "print the prompt and end; runs no model");
  command
      ->add_option("-n,--tokens", options->tokens,
                   "new tokens a turn (default 512); -1: until the context is full")
      ->check(count_or_until_full);
  add_context_option(*command, options->context,
                     fmt::format("the model's, {} at most", kDefaultContext))
      ->excludes(render);
  add_sampling_options(*command, options->sampling);
  add_kv_cache_dtype(*command, options->kv_cache_dtype)->excludes(render);
  command->add_flag("-v,--verbose", options->verbose, "report tokens on stderr");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return chat(globals, *options); };
  });
}

}  // namespace volta::cli
