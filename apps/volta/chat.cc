// volta chat: a conversation with a model, line by line. It also shows the prompts that the chat
// template makes.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "conversation.h"
#include "formats/generation_config.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "generate_output.h"
#include "nn/generator.h"
#include "sampling_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

constexpr std::size_t kMaxLine = 1 << 20;
// A model's own context may be 128 K tokens, whose cache takes more memory than its weights.
constexpr std::int64_t kDefaultContext = 8192;
constexpr std::int64_t kUntilFull = -1;  // -n: no limit but the context.
constexpr std::int64_t kMaxMessageBytes = 64 << 20;
constexpr std::string_view kHelp =
    "A line is a message. /reset forgets the conversation, /exit (or Ctrl-D) ends, /help shows "
    "this.\nCtrl-C stops an answer; at the prompt, or a second time, it ends.\n";

struct Options {
  std::string model;
  AdapterOptions adapter;
  std::optional<std::string> system, prompt;
  std::string messages_file, tools_file, template_file;
  std::vector<std::string> variables;  // NAME=JSON
  std::string date;                    // YYYY-MM-DD; empty: today.
  bool render = false;
  bool allow_special = false;
  std::optional<std::int64_t> tokens;   // Default: from generation_config.json.
  std::optional<std::int64_t> context;  // Prompt and answer; default kDefaultContext.
  SamplingOptions sampling;
  std::string kv_cache_dtype = "f32";
  bool verbose = false;
};

// -n: 1 or more, or -1.
std::string count_or_until_full(const std::string& text) {
  const auto number = parse_int<std::int64_t>(text, "-n", kUntilFull, std::int64_t{1} << 31);
  if (!number) return std::string(number.error().message());
  return *number == 0 ? "-n: 0 tokens are no answer; give 1 or more, or -1 for no limit" : "";
}

// --- Ctrl-C --------------------------------------------------------------------------------------

std::atomic<bool> g_answering = false;
std::atomic<bool> g_stop = false;

// The first Ctrl-C during an answer stops the answer; any other one ends the process.
void on_interrupt(int) {
  if (g_answering.load(std::memory_order_relaxed) && !g_stop.exchange(true)) return;
  constexpr std::string_view kLineEnd = "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLineEnd.data(), kLineEnd.size());
  std::_Exit(exit_code(ErrorCode::kInterrupted));
}

// Whether to stop the running computation: the user stops the answer, or the whole program.
bool stopped() { return g_stop.load(std::memory_order_relaxed) || interrupted(); }

// --- Input from the command line -----------------------------------------------------------------

// Reads a JSON file that the command line names.
Result<JsonValue> read_json(const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxMessageBytes));
  return parse_json(text, path);
}

Result<JsonValue::Array> read_messages(const std::string& path) {
  VOLTA_TRY(const JsonValue json, read_json(path));
  const JsonValue::Array* array = json.if_array();
  if (array != nullptr && !array->empty()) return *array;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an array of messages: "
                                                   R"([{{"role": "user", "content": "Hi"}}])",
                                                   path));
}

// The model to take the template from. To show prompts, a folder with a template needs no model.
Result<ModelSource> open_for_template(const Options& options) {
  VOLTA_TRY(std::string place, find_model_path(options.model));
  const bool own = path_exists(join_path(place, "tokenizer_config.json")) ||
                   path_exists(join_path(place, "chat_template.jinja"));
  if (own) return ModelSource::open(place);
  return open_model(place, stopped);
}

Result<ChatTemplate> open_template(const Options& options, const ModelSource& source) {
  if (!options.template_file.empty()) {
    return source.chat_template_from(options.template_file);
  }
  auto loaded = source.chat_template();
  if (loaded || loaded.error().code() != ErrorCode::kNotFound) return loaded;
  return fail(ErrorCode::kNotFound,
              loaded.error().message() +
                  "; give one with --template FILE, or continue text with volta generate");
}

// Parses NAME=JSON; a value that is not JSON is taken as text.
Result<std::pair<std::string, JsonValue>> parse_variable(const std::string& text) {
  const std::size_t end = text.find('=');
  if (end == std::string::npos || end == 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--var {}: expected NAME=VALUE", text));
  }
  const std::string value = text.substr(end + 1);
  auto json = parse_json(value, "--var");
  if (json) return std::pair(text.substr(0, end), *std::move(json));
  if (find_invalid_utf8(text)) {
    return fail(ErrorCode::kInvalidArgument, "--var: the value is not UTF-8");
  }
  return std::pair(text.substr(0, end), JsonValue(value));
}

// The time for a template: the beginning of the given day in local time.
Result<std::tm> parse_date(const std::string& text) {
  const auto number = [&](std::size_t begin, std::size_t digits) {
    int value = 0;
    for (const char c : std::string_view(text).substr(begin, digits)) {
      if (c < '0' || c > '9') return -1;
      value = 10 * value + (c - '0');
    }
    return value;
  };
  const bool has_form = text.size() == 10 && text[4] == '-' && text[7] == '-';
  const int year = has_form ? number(0, 4) : -1;
  const int month = has_form ? number(5, 2) : -1;
  const int day = has_form ? number(8, 2) : -1;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (year < 1 || month < 1 || day < 1 || !date.ok()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--date {}: expected a day as YYYY-MM-DD, e.g. 2025-01-31", text));
  }
  const std::chrono::sys_days days = date;
  const std::chrono::sys_days new_year = date.year() / std::chrono::January / 1;
  std::tm time{};
  time.tm_year = year - 1900;
  time.tm_mon = month - 1;
  time.tm_mday = day;
  time.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  time.tm_yday = static_cast<int>((days - new_year).count());
  time.tm_isdst = -1;
  return time;
}

// The given day, or the time at which the conversation begins. All prompts of a conversation have
// the same time, so that a prompt differs from the last one only in its new messages.
Result<std::tm> time_of_templates(const Options& options) {
  if (!options.date.empty()) return parse_date(options.date);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

Result<ChatOptions> chat_options(const Options& options, const JsonValue& tools) {
  ChatOptions chat;
  VOLTA_TRY(chat.now, time_of_templates(options));
  chat.interrupted = stopped;
  if (!options.tools_file.empty()) chat.tools = &tools;
  for (const std::string& text : options.variables) {
    VOLTA_TRY(auto variable, parse_variable(text));
    chat.variables.insert_or_assign(std::move(variable.first), std::move(variable.second));
  }
  return chat;
}

bool is_empty(const JsonValue* member) {
  if (member == nullptr || member->is_null()) return true;
  const std::string* text = member->if_string();
  const JsonValue::Array* list = member->if_array();
  return (text != nullptr && text->empty()) || (list != nullptr && list->empty());
}

// Refuses an assistant's message with neither text nor tool calls. It is a gap in a file, which
// models would take as an example.
Status check_answers(const JsonValue::Array& messages, const std::string& path) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const JsonValue& message = messages[i];
    if (role_of(message) != "assistant") continue;
    bool says_something = false;
    for (const std::string_view key :
         {"content", "tool_calls", "reasoning_content", "reasoning", "thinking"}) {
      says_something = says_something || !is_empty(message.find(key));
    }
    if (says_something) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: message {} is an assistant's without text and tool calls; give it "
                            "\"content\" or \"tool_calls\", or leave it out",
                            path, i + 1));
  }
  return {};
}

// The system message, then the messages of --messages and --prompt.
Result<JsonValue::Array> first_messages(const Options& options) {
  JsonValue::Array messages;
  if (options.system) messages.push_back(make_message("system", *options.system));
  if (!options.messages_file.empty()) {
    VOLTA_TRY(auto more, read_messages(options.messages_file));
    VOLTA_TRY(check_answers(more, options.messages_file));
    for (JsonValue& message : more) messages.push_back(std::move(message));
  }
  if (options.prompt) messages.push_back(make_message("user", *options.prompt));
  for (const auto& [flag, text] :
       {std::pair("--system", &options.system), std::pair("--prompt", &options.prompt)}) {
    const auto invalid = *text ? find_invalid_utf8(**text) : std::nullopt;
    if (!invalid) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: byte {} is not UTF-8", flag, *invalid));
  }
  return messages;
}

// --- Rendering -----------------------------------------------------------------------------------

Status render(const Options& options, Output output) {
  VOLTA_TRY(const ModelSource source, open_for_template(options));
  VOLTA_TRY(const ChatTemplate chat_template, open_template(options, source));
  JsonValue tools;
  if (!options.tools_file.empty()) {
    VOLTA_TRY(tools, read_json(options.tools_file));
  }
  VOLTA_TRY(const ChatOptions chat, chat_options(options, tools));
  VOLTA_TRY(JsonValue::Array messages, first_messages(options));
  if (messages.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--render takes --messages FILE or --prompt TEXT");
  }
  VOLTA_TRY(const QuotedText prompt, make_prompt(chat_template, std::move(messages), chat));
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
        verbose_(verbose) {}

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
    VOLTA_TRY(std::move(written));
    VOLTA_TRY(print(output_ == Output::kText ? "\n" : to_json(*answer)));
    report(*answer);
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    return {};
  }

  /// Answers the lines of standard input until it ends. On a terminal, a bad line is reported and
  /// skipped; elsewhere it ends the conversation. It is no error to stop an answer before its first
  /// token, while its prompt is made.
  Status run() {
    const bool terminal = ::isatty(STDIN_FILENO) == 1;
    if (terminal) note("/help shows the commands.\n");
    for (std::int64_t number = 1;; ++number) {
      if (terminal) note("> ");
      std::string line;
      const Result<bool> more = read_line(line);
      Status done;
      if (!more) {
        done = std::unexpected(more.error());
      } else if (!*more || line == "/exit") {
        if (terminal && !*more) note("\n");
        return {};
      } else {
        done = obey(line);
      }
      if (done) continue;
      Error error = std::move(done).error();
      if (error.code() == ErrorCode::kInterrupted && !interrupted()) {
        note("\n");
        continue;
      }
      const bool is_final =
          error.code() == ErrorCode::kInterrupted || error.code() == ErrorCode::kIo;
      if (is_final) return std::unexpected(std::move(error));
      if (!terminal) {
        return std::unexpected(std::move(error).with_context(fmt::format("line {}", number)));
      }
      note(fmt::format("volta: {}\n", one_line(error.message())));
    }
  }

 private:
  // Reads a line without its end; false at the end of the input.
  static Result<bool> read_line(std::string& line) {
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
    return any;
  }

  Status obey(const std::string& line) {
    if (line.empty()) return {};
    if (line == "/help") {
      note(kHelp);
      return {};
    }
    if (line == "/reset") {
      conversation_.reset();
      note("The conversation begins anew.\n");
      return {};
    }
    if (const auto invalid = find_invalid_utf8(line)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("byte {} of the message is not UTF-8", *invalid));
    }
    return answer(make_message("user", line));
  }

  static std::string to_json(const Answer& answer) {
    JsonWriter json;
    json.begin_object().field("role", "assistant").field("content", answer.text);
    json.field("tokens", answer.tokens).field("prompt_tokens", answer.prompt_tokens);
    json.field("reused_tokens", answer.reused_tokens);
    json.field("dropped_turns", answer.dropped_turns);
    json.field("stop_reason", reason_name(answer.reason)).end_object();
    return std::move(json).take() + "\n";
  }

  void report(const Answer& answer) const {
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
  VOLTA_TRY(const DType cache_dtype, kv_cache_dtype(options.kv_cache_dtype));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const ModelSource source, open_model(options.model, stopped));
  VOLTA_TRY(ChatTemplate chat_template, open_template(options, source));
  VOLTA_TRY(auto tokenizer, source.tokenizer(stopped));
  VOLTA_TRY(auto settings, make_settings(options, globals, source, *tokenizer));
  JsonValue tools;
  if (!options.tools_file.empty()) {
    VOLTA_TRY(tools, read_json(options.tools_file));
  }
  VOLTA_TRY(settings.chat, chat_options(options, tools));
  for (const std::int32_t id : end_of_turn(chat_template, settings.chat, *tokenizer)) {
    settings.stop_tokens.push_back(id);
  }
  VOLTA_TRY(JsonValue::Array messages, first_messages(options));
  const bool once = options.prompt || !options.messages_file.empty();
  VOLTA_TRY(const Session session, Session::create(globals, stopped));
  note_slow_products(session, dtype);
  VOLTA_TRY(const Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  VOLTA_TRY(Generator generator,
            Generator::create(model, {.capacity = capacity_for(model.config(), settings.context),
                                      .cache_dtype = cache_dtype,
                                      .compute_dtype = dtype,
                                      .reuse_prefix = true}));
  std::optional<JsonValue> question;
  if (once) {
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
  std::signal(SIGINT, on_interrupt);
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
  command->add_option("--system", options->system, "the system message")->allow_empty();
  command->add_option("-p,--prompt", options->prompt, "answer this message, then end")
      ->allow_empty();
  command->add_option("--messages", options->messages_file,
                      "answer this conversation, then end: a JSON array of messages");
  command->add_option("--tools", options->tools_file, "functions for the template: a JSON array");
  command->add_option("--template", options->template_file,
                      "a chat template instead of the model's");
  command
      ->add_option("--var", options->variables,
                   "NAME=VALUE for the template, e.g. enable_thinking=false; may be repeated")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--date", options->date,
                      "YYYY-MM-DD: the day for templates that write today's date");
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
