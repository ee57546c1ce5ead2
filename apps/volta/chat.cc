// volta chat: a conversation with a model, line by line. It also shows the prompts that the chat
// template makes.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "chat_input.h"
#include "chat_loop.h"
#include "command.h"
#include "formats/conversation.h"
#include "formats/generation_config.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "generate_output.h"
#include "nn/generator.h"
#include "nn/kv_cache.h"
#include "nn/transformer.h"
#include "sampling_options.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

// A model's own context may be 128 K tokens, whose cache takes more memory than its weights.
constexpr std::int64_t kChatContext = 8192;

struct ChatCommandOptions {
  std::string model;
  AdapterOptions adapter;
  ChatInput input;
  bool render = false;
  bool allow_special = false;
  std::optional<std::int64_t> tokens;   // Default: from generation_config.json.
  std::optional<std::int64_t> context;  // Prompt and answer; default kChatContext.
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

// --- The model ----------------------------------------------------------------------------------

// The model to take the template from. To show prompts, a folder with a template needs no model.
Result<ModelSource> open_for_template(const ChatCommandOptions& options) {
  VOLTA_TRY(std::string place, find_model_path(options.model));
  const bool own = path_exists(join_path(place, "tokenizer_config.json")) ||
                   path_exists(join_path(place, "chat_template.jinja"));
  if (own) return ModelSource::open(place);
  return open_model(place, chat_stopped);
}

Result<ChatTemplate> open_template(const ChatCommandOptions& options, const ModelSource& source) {
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

Status render(const ChatCommandOptions& options, Output output) {
  VOLTA_TRY(const ModelSource source, open_for_template(options));
  VOLTA_TRY(const ChatTemplate chat_template, open_template(options, source));
  VOLTA_TRY(const auto tools, read_tools(options.input));
  VOLTA_TRY(const ChatOptions chat,
            chat_options(options.input, tools ? &*tools : nullptr, chat_stopped));
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

// Settings from the flags, else from the model's generation_config.json, else the defaults.
Result<Conversation::Settings> make_settings(const ChatCommandOptions& options,
                                             const Globals& globals, const ModelSource& source,
                                             const Tokenizer& tokenizer) {
  VOLTA_TRY(const TransformerConfig model, source.config());
  Conversation::Settings settings;
  VOLTA_TRY(settings.context, context_length(options.context, model, kChatContext));
  VOLTA_TRY(settings.limits, source.generation_config(model.vocab_size));
  VOLTA_TRY(settings.sampling, sampling_params(options.sampling, settings.limits, globals.seed));
  VOLTA_TRY(Stops stops, find_stops(options.sampling, settings.limits, &tokenizer));
  settings.stop_strings = std::move(stops.strings);
  settings.stop_tokens = std::move(stops.tokens);
  settings.allow_special = options.allow_special;
  settings.check_ids = [source, vocab = model.vocab_size](std::span<const std::int32_t> ids) {
    return source.check_own_ids(ids, vocab);
  };
  if (options.tokens) settings.limits.max_new_tokens = options.tokens;
  if (options.tokens == kUntilFull) settings.limits.max_new_tokens = settings.context + 1;
  return settings;
}

// The memory of the weights and the cache, before they are allocated.
Result<GeneratorMemory> expected_memory(const ModelSource& source, const AdapterOptions& adapter,
                                        const WeightOptions& wanted,
                                        const GeneratorOptions& options, Device& device) {
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(const auto weights, source.weights(config));
  // An adapter is added to plain f32 weights, which are packed then.
  const bool adapted = !adapter.folder.empty();
  VOLTA_TRY(auto specs, loaded_specs(config, *weights, device, adapted ? WeightOptions{} : wanted));
  if (adapted && wanted.packed) {
    VOLTA_TRY(specs, packed_specs(config, device, wanted.format, specs));
  }
  const InferenceChoices choices = device.inference_choices(options.compute_dtype);
  GeneratorMemory memory;
  for (const auto& [name, spec] : specs) memory.weight_bytes += spec.bytes();
  VOLTA_TRY(memory.cache_bytes, TransformerKvCache::bytes_for(
                                    config, {.slots = options.slots,
                                             .capacity = options.capacity,
                                             .dtype = options.cache_dtype.value_or(choices.cache),
                                             .step_rows = choices.step_rows}));
  return memory;
}

std::string memory_line(const GeneratorMemory& memory, std::int64_t context, std::int64_t most) {
  return fmt::format("memory: weights {}, cache {} for a context of {}{}\n",
                     format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes),
                     counted(context, "token"),
                     context < most ? fmt::format(" (--context: up to {})", most) : "");
}

Status talk(const Globals& globals, const ChatCommandOptions& options, Output output) {
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const ModelSource source, open_model(options.model, chat_stopped));
  VOLTA_TRY(ChatTemplate chat_template, open_template(options, source));
  VOLTA_TRY(auto tokenizer, source.tokenizer(chat_stopped));
  VOLTA_TRY(auto settings, make_settings(options, globals, source, *tokenizer));
  VOLTA_TRY(const auto tools, read_tools(options.input));
  VOLTA_TRY(settings.chat, chat_options(options.input, tools ? &*tools : nullptr, chat_stopped));
  VOLTA_TRY(JsonValue::Array messages, first_messages(options.input));
  VOLTA_TRY(const Session session, Session::create(globals, chat_stopped));
  VOLTA_TRY(const DType cache_dtype, kv_cache_dtype(options.kv_cache_dtype, session, dtype));
  note_slow_products(session, dtype);
  VOLTA_TRY(const TransformerConfig config, source.config());
  const std::int64_t context = settings.context;
  const GeneratorOptions choices{.capacity = capacity_for(config, context),
                                 .cache_dtype = cache_dtype,
                                 .compute_dtype = dtype,
                                 .reuse_prefix = true};
  if (options.verbose || ::isatty(STDERR_FILENO) == 1) {
    VOLTA_TRY(const GeneratorMemory memory,
              expected_memory(source, options.adapter, wanted, choices, *session.device()));
    note(memory_line(memory, context, config.context));
  }
  VOLTA_TRY(const Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  VOLTA_TRY(Generator generator, Generator::create(model, choices));
  std::optional<JsonValue> question;
  if (options.input.has_question()) {
    question = std::move(messages.back());
    messages.pop_back();
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

Status chat(const Globals& globals, const ChatCommandOptions& options) {
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
  auto options = std::make_shared<ChatCommandOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
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
                     fmt::format("the model's, {} at most", kChatContext))
      ->excludes(render);
  add_sampling_options(*command, options->sampling);
  add_kv_cache_dtype(*command, options->kv_cache_dtype)->excludes(render);
  command->add_flag("-v,--verbose", options->verbose, "report tokens on stderr");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return chat(globals, *options); };
  });
}

}  // namespace volta::cli
