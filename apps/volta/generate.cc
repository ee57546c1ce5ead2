// volta generate: text from a model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/file.h"
#include "base/text.h"
#include "command.h"
#include "formats/generation_config.h"
#include "formats/model_source.h"
#include "generate_output.h"
#include "nn/generator.h"
#include "progress.h"
#include "sampling_options.h"
#include "text/prompt_file.h"
#include "text/tokenizer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kDefaultTokens = 256;
// New tokens that `-n -1` has room for without --context. The cache of a model's whole context,
// which may be 131,072 tokens, would take several GiB.
constexpr std::int64_t kDefaultRoom = 8192;
// More slots than this gain little, because the cost of a step then grows with its rows.
constexpr std::int64_t kDefaultSlots = 16;
constexpr std::int64_t kMaxPromptBytes = 64 << 20;
constexpr std::int64_t kMaxPromptsBytes = std::int64_t{1} << 30;

struct GenerateOptions {
  std::string model;
  AdapterOptions adapter;
  std::vector<std::string> prompts;  // "-": standard input.
  std::vector<std::string> files;    // One prompt per file; "-": standard input.
  std::vector<std::string> ids;      // Comma-separated lists.
  std::string prompts_file;
  std::optional<std::int64_t> tokens;   // Default: from generation_config.json.
  std::optional<std::int64_t> context;  // Prompt and new tokens; default: see request_context().
  SamplingOptions sampling;
  bool ignore_eos = false;
  std::int32_t logprobs = 0;
  std::int64_t slots = 0;
  bool no_kv_cache = false;
  std::string kv_cache_dtype{};
  bool verbose = false;
};

// A prompt, and its name in messages.
struct Prompt {
  std::vector<std::int32_t> ids{};
  std::string place;
  bool from_file = false;
  bool encoded = false;  // The ids come from the model's tokenizer, not from the user.
};

// Reports an error in a prompt: a usage error for the command line, an invalid file otherwise.
std::unexpected<Error> at_place(const Prompt& prompt, Error error) {
  if (prompt.from_file && error.code() != ErrorCode::kInterrupted) {
    error = Error(ErrorCode::kInvalidFile, std::string(error.message()));
  }
  return std::unexpected(std::move(error).with_context(prompt.place));
}

// The tokenizer for the prompts that are texts, or why there is none.
using LoadedTokenizer = Result<std::shared_ptr<const Tokenizer>>;

Result<Prompt> encode(const LoadedTokenizer& tokenizer, std::string_view text, Prompt prompt) {
  if (!tokenizer) {
    return at_place(prompt, Error(tokenizer.error().code(),
                                  fmt::format("{}; a prompt of --ids needs no tokenizer",
                                              tokenizer.error().message())));
  }
  if (const auto invalid = find_invalid_utf8(text)) {
    return at_place(
        prompt, Error(ErrorCode::kInvalidArgument, fmt::format("byte {} is not UTF-8", *invalid)));
  }
  auto ids = (*tokenizer)->encode_prompt(text);
  if (!ids) return at_place(prompt, std::move(ids).error());
  prompt.ids = *std::move(ids);
  prompt.encoded = true;
  return prompt;
}

// The text of a file, or of standard input for "-", as one prompt.
Result<Prompt> encode_file(const LoadedTokenizer& tokenizer, const std::string& path) {
  Prompt prompt{.place = input_name(path), .from_file = true};
  VOLTA_TRY(const std::string text, read_prompt(path, kMaxPromptBytes));
  if (const auto mistake = utf8_mistake(text)) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", prompt.place, *mistake));
  }
  return encode(tokenizer, text, std::move(prompt));
}

// Whether a pipe or a file is standard input and has something to read.
bool input_is_waiting() {
  struct stat info = {};
  if (::fstat(STDIN_FILENO, &info) != 0) return false;
  if (S_ISREG(info.st_mode)) return info.st_size > 0;
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return S_ISFIFO(info.st_mode) && ::poll(&input, 1, 0) == 1 && (input.revents & POLLIN) != 0;
}

// The prompts of --prompts-file. Standard input and pipes have no name that ends in .jsonl, so
// their lines are read as JSON if the first of them begins with '{'.
Result<std::vector<FilePrompt>> read_prompts_file(const std::string& path) {
  if (!is_stream(path)) return load_prompts(path);
  VOLTA_TRY(const std::string text, read_input(path, kMaxPromptsBytes));
  return skip_byte_order_mark(text).starts_with('{')
             ? parse_prompt_json_lines(text, input_name(path))
             : parse_prompt_lines(text, input_name(path));
}

// All prompts, in this order: --ids, --prompt, --file, --prompts-file.
Result<std::vector<Prompt>> read_prompts(const GenerateOptions& options,
                                         const LoadedTokenizer& tokenizer) {
  std::vector<Prompt> prompts;
  for (const std::string& list : options.ids) {
    VOLTA_TRY(auto ids, parse_ids(list, "--ids"));
    prompts.push_back({.ids = std::move(ids), .place = "--ids"});
  }
  for (const std::string& text : options.prompts) {
    VOLTA_TRY(prompts.emplace_back(), text == "-" ? encode_file(tokenizer, text)
                                                  : encode(tokenizer, text, {.place = "--prompt"}));
  }
  for (const std::string& path : options.files) {
    VOLTA_TRY(prompts.emplace_back(), encode_file(tokenizer, path));
  }
  if (options.prompts_file.empty()) return prompts;
  VOLTA_TRY(auto lines, read_prompts_file(options.prompts_file));
  for (FilePrompt& line : lines) {
    Prompt prompt{.place = fmt::format("{}: line {}", input_name(options.prompts_file), line.line),
                  .from_file = true};
    if (const auto* text = std::get_if<std::string>(&line.prompt)) {
      VOLTA_TRY(prompts.emplace_back(), encode(tokenizer, *text, std::move(prompt)));
    } else {
      prompt.ids = std::get<std::vector<std::int32_t>>(std::move(line.prompt));
      prompts.push_back(std::move(prompt));
    }
  }
  return prompts;
}

// An id of the model's own tokenizer that is outside the model's vocabulary is an error in the
// model's files, not in the prompt.
Status check_encoded(const std::vector<Prompt>& prompts, const ModelSource& source,
                     std::int64_t vocab_size) {
  for (const Prompt& prompt : prompts) {
    if (prompt.encoded) VOLTA_TRY(source.check_own_ids(prompt.ids, vocab_size));
  }
  return {};
}

// Prints each setting and where it comes from.
void report_settings(const GenerateOptions& options, const GenerationConfig& config,
                     const GenerationRequest& first) {
  const auto source = [](bool flag, bool file) {
    return flag ? "command line" : file ? "generation_config.json" : "default";
  };
  const SamplingOptions& flags = options.sampling;
  const SamplingParams& p = first.sampling;
  std::string text;
  const auto add = [&](std::string_view name, const auto& value, bool flag, bool file) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", name, value, source(flag, file));
  };
  add("temperature", p.temperature, flags.temperature.has_value(),
      config.temperature.has_value() || config.do_sample.has_value());
  add("top-k", p.top_k, flags.top_k.has_value(), config.top_k.has_value());
  add("top-p", p.top_p, flags.top_p.has_value(), config.top_p.has_value());
  add("min-p", p.min_p, flags.min_p.has_value(), config.min_p.has_value());
  add("repetition penalty", p.repetition_penalty, flags.repetition_penalty.has_value(),
      config.repetition_penalty.has_value());
  add("tokens", first.max_new_tokens, options.tokens.has_value(),
      config.max_new_tokens.has_value() || config.max_length.has_value());
  note(fmt::format(
      "settings: {}\nend tokens: {}\n", text,
      first.stop_tokens.empty() ? "none" : fmt::format("{}", fmt::join(first.stop_tokens, ", "))));
}

// What prompt and new tokens may take together. `context` is --context, or the model's.
std::int64_t request_context(const GenerateOptions& options, std::int64_t context,
                             const GenerationRequest& request) {
  if (options.context || request.max_new_tokens != kUntilFull) return context;
  return std::min(context, std::ssize(request.prompt) + kDefaultRoom);
}

// Makes one request per prompt; request i draws with seed + i. All requests are validated here,
// before anything runs.
Result<std::vector<GenerationRequest>> make_requests(
    const GenerateOptions& options, const Globals& globals, const GenerationConfig& config,
    std::vector<std::int32_t> stop_tokens, const TransformerConfig& model, std::int64_t context,
    std::vector<Prompt> prompts) {
  VOLTA_TRY(const SamplingParams params, sampling_params(options.sampling, config, globals.seed));
  std::vector<GenerationRequest> requests;
  requests.reserve(prompts.size());
  for (Prompt& prompt : prompts) {
    GenerationRequest request{.prompt = std::move(prompt.ids),
                              .max_new_tokens = 0,
                              .sampling = params,
                              .stop_tokens = stop_tokens};
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    request.max_new_tokens =
        options.tokens ? *options.tokens : config.new_tokens(length, kDefaultTokens);
    request.sampling.seed += requests.size();
    request.context = request_context(options, context, request);
    if (request.max_new_tokens == kUntilFull) request.max_new_tokens = request.context + 1;
    if (auto valid = validate(request, model.vocab_size, context); !valid) {
      return at_place(prompt, std::move(valid).error());
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Sizes the KV cache for the longest request, with as many slots as are useful and fit into a
// quarter of the memory.
Result<GeneratorOptions> size_generator(const GenerateOptions& options, DType dtype,
                                        DType cache_dtype, const TransformerConfig& model,
                                        const std::vector<GenerationRequest>& requests) {
  std::int64_t longest = 1;
  for (const GenerationRequest& request : requests) {
    const std::int64_t wanted = static_cast<std::int64_t>(request.prompt.size()) +
                                std::min(request.max_new_tokens, request.context);
    longest = std::max(longest, std::min(wanted, request.context));
  }
  GeneratorOptions sized{.slots = std::max<std::int64_t>(1, std::ssize(requests)),
                         .capacity = capacity_for(model, longest),
                         .cache_dtype = cache_dtype,
                         .compute_dtype = dtype,
                         .use_cache = !options.no_kv_cache,
                         .top_logprobs = options.logprobs,
                         .prompts_first = true};  // Several results are shown when complete.
  if (options.slots > 0) {
    sized.slots = std::min(sized.slots, options.slots);
    return sized;
  }
  VOLTA_TRY(const std::int64_t slot_bytes,
            TransformerKvCache::bytes_for(
                model, {.slots = 1, .capacity = sized.capacity, .dtype = cache_dtype}));
  const std::int64_t fitting = usable_memory_bytes() / 4 / std::max<std::int64_t>(1, slot_bytes);
  sized.slots = std::min({sized.slots, kDefaultSlots, std::max<std::int64_t>(1, fitting)});
  return sized;
}

// Prints the memory that generation needs, before it starts.
Status report_memory(Generator& generator, const GeneratorOptions& sized,
                     const std::vector<GenerationRequest>& requests) {
  std::size_t longest = 0;
  for (const GenerationRequest& request : requests) {
    longest = std::max(longest, request.prompt.size());
  }
  VOLTA_TRY(generator.prepare(static_cast<std::int64_t>(longest)));
  const GeneratorMemory memory = generator.memory();
  note(fmt::format("memory: weights {}, cache {} ({} of {}), activations {} in {}\n",
                   format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes),
                   counted(sized.slots, "slot"), counted(sized.capacity, "token"),
                   format_bytes(memory.activation_bytes), counted(memory.plans, "plan")));
  return {};
}

void report_speed(const Generator& generator, const std::vector<GenerationResult>& results) {
  const GenerationTiming& timing = generator.timing();
  std::size_t tokens = 0;
  for (const GenerationResult& result : results) tokens += result.tokens.size();
  double seconds = timing.first_token_seconds;
  for (const double step : timing.token_seconds) seconds += step;
  if (tokens == 0) return;
  note(fmt::format("{} in {} ({:.1f} tokens/s), first token after {}\n",
                   counted(static_cast<std::int64_t>(tokens), "token"), format_duration(seconds),
                   static_cast<double>(tokens) / seconds,
                   format_duration(timing.first_token_seconds)));
}

// "prompt 2: ", or nothing when there is one prompt.
std::string number_of(std::size_t prompt, std::size_t prompts) {
  return prompts > 1 ? fmt::format("prompt {}: ", prompt + 1) : std::string();
}

// Says before the work that a text will be shorter than what was asked for.
void announce_short_texts(const std::vector<GenerationRequest>& requests, std::int64_t context) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t room = context - std::ssize(requests[i].prompt) + 1;
    if (requests[i].max_new_tokens <= room) continue;
    note(fmt::format("{}the context of {} tokens has room for {} of the {} new tokens\n",
                     number_of(i, requests.size()), context, room, requests[i].max_new_tokens));
  }
}

// Says before the work that `-n -1` ends before the model's context is full.
void announce_contexts(const std::vector<GenerationRequest>& requests, std::int64_t context) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].context == context) continue;
    note(
        fmt::format("{}the text ends when prompt and answer have {} tokens; --context allows up "
                    "to {}\n",
                    number_of(i, requests.size()), requests[i].context, context));
  }
}

void report_full_contexts(const std::vector<GenerationRequest>& requests,
                          const std::vector<GenerationResult>& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].reason != StopReason::kContextFull) continue;
    note(fmt::format("{}ended after {} new tokens, the context of {} is full\n",
                     number_of(i, results.size()), results[i].tokens.size(), requests[i].context));
  }
}

// Runs the requests and writes their results.
Result<std::vector<GenerationResult>> run(Generator& generator,
                                          std::vector<GenerationRequest>& requests,
                                          GenerationOutput& out) {
  Progress progress(Progress::Elsewhere::kNothing);  // Shown while a long prompt is read.
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stop_when = [&out, &progress, i](std::int32_t token) {
      progress.erase();
      return out.push(i, token);
    };
  }
  const auto go_on = [&] { return !out.failed() && !interrupted(); };
  Status written;
  const GenerationCallbacks callbacks = {
      .token = [&](const TokenEvent&) { return go_on(); },
      .prompt =
          [&](const PromptEvent& event) {
            progress.show([&] {
              return fmt::format("prompt {} of {}: {} of {} tokens", event.request + 1,
                                 requests.size(), event.done, event.total);
            });
            return go_on();
          },
      .finished =
          [&](std::size_t request, const GenerationResult& result) {
            progress.erase();
            written = out.finish(request, result);
            return written.has_value();
          }};
  progress.show_now(fmt::format("prompt 1 of {}", requests.size()));
  auto results = generator.generate(requests, callbacks);
  progress.erase();
  VOLTA_TRY(std::move(written));
  if (results) VOLTA_TRY(out.close(*results));
  return results;
}

Status generate(const Globals& globals, GenerateOptions& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kJsonLines}));
  if (options.logprobs > 0 && output == Output::kText) {
    return fail(ErrorCode::kInvalidArgument,
                "--logprobs: text does not show them; use --output json or jsonl");
  }
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const DType cache_dtype, kv_cache_dtype(options.kv_cache_dtype, session, dtype));
  note_slow_products(session, dtype);
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(const TransformerConfig shape, source.config());
  VOLTA_TRY(const std::int64_t context, context_length(options.context, shape, shape.context));
  VOLTA_TRY(const GenerationConfig config, source.generation_config(shape.vocab_size));
  LoadedTokenizer loaded = source.tokenizer(interrupted);
  if (!loaded && loaded.error().code() != ErrorCode::kNotFound && options.ids.empty()) {
    return std::unexpected(std::move(loaded).error());
  }
  const std::shared_ptr<const Tokenizer> tokenizer = loaded ? *loaded : nullptr;
  if (options.prompts.empty() && options.files.empty() && options.ids.empty() &&
      options.prompts_file.empty()) {
    if (input_is_waiting()) {
      note("volta: warning: standard input is not read: -p - takes the prompt from it\n");
    }
    options.prompts.emplace_back("\n");
  }
  VOLTA_TRY(auto prompts, read_prompts(options, loaded));
  VOLTA_TRY(check_encoded(prompts, source, shape.vocab_size));
  VOLTA_TRY(Stops stops,
            find_stops(options.sampling, config, tokenizer.get(), !options.ignore_eos));
  VOLTA_TRY(auto requests, make_requests(options, globals, config, std::move(stops.tokens), shape,
                                         context, std::move(prompts)));
  VOLTA_TRY(const Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  VOLTA_TRY(const GeneratorOptions sized,
            size_generator(options, dtype, cache_dtype, model.config(), requests));
  VOLTA_TRY(Generator generator, Generator::create(model, sized));
  if (options.verbose) {
    report_settings(options, config, requests.front());
    VOLTA_TRY(report_memory(generator, sized, requests));
  }
  GenerationOutput out({.output = output,
                        .tokenizer = tokenizer,
                        .stops = std::move(stops.strings),
                        .array = !options.prompts_file.empty()},
                       requests);
  announce_contexts(requests, context);
  const bool limited = options.tokens != kUntilFull;  // Otherwise the context is the limit.
  if (limited && output == Output::kText) announce_short_texts(requests, context);
  VOLTA_TRY(const auto results, run(generator, requests, out));
  if (output == Output::kText) report_full_contexts(requests, results);
  if (options.verbose) report_speed(generator, results);
  VOLTA_TRY(session.finish());
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

}  // namespace

void add_generate(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("generate", "generate text from a model");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  add_adapter_options(*command, options->adapter);
  command
      ->add_option("-p,--prompt", options->prompts,
                   "text to continue, - for standard input; repeat it for a batch")
      ->allow_extra_args(false)
      ->take_all()
      ->allow_empty();
  command
      ->add_option("-f,--file", options->files,
                   "file whose text is a prompt, - for standard input; may be repeated")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--ids", options->ids, "a prompt as token ids, e.g. 5,6,7")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--prompts-file", options->prompts_file,
                      "prompts, one per line; .jsonl: {\"prompt\": ...} or {\"ids\": [...]}; - for "
                      "standard input");
  command
      ->add_option("-n,--tokens", options->tokens,
                   "new tokens a prompt (default 256); -1: until the context is full")
      ->check(range(kUntilFull, std::int64_t{1} << 31));
  add_context_option(*command, options->context,
                     fmt::format("the model's; with -n -1 the prompt and {} more", kDefaultRoom));
  add_sampling_options(*command, options->sampling);
  command->add_flag("--ignore-eos", options->ignore_eos, "do not end at the model's end tokens");
  command
      ->add_option("--logprobs", options->logprobs,
                   "tell the K likeliest tokens at each place (json)")
      ->check(range(0, 1 << 20));
  command->add_option("--slots", options->slots, "prompts that run at once (default: up to 16)")
      ->check(range(std::int64_t{1}, std::int64_t{65536}));
  Option* no_cache = command->add_flag("--no-kv-cache", options->no_kv_cache,
                                       "compute the whole prefix every token");
  add_kv_cache_dtype(*command, options->kv_cache_dtype)->excludes(no_cache);
  command->add_flag("-v,--verbose", options->verbose, "report settings, memory and time on stderr");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return generate(globals, *options); };
  });
}

}  // namespace volta::cli
