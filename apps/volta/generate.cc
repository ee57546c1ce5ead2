// volta generate: text from a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "io/model_folder.h"
#include "io/tokenizer.h"
#include "nn/generator.h"

namespace volta::cli {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> ids;  // Comma-separated lists.
  std::int64_t tokens = 256;
  SamplingParams sampling{.temperature = 0.8f};
  std::vector<std::string> stop;
  std::int64_t slots = 0;
  bool no_kv_cache = false;
  bool verbose = false;
};

// The prompts as token ids, one request each; request i draws with seed + i.
Result<std::vector<GenerationRequest>> make_requests(const Options& options, const Globals& globals,
                                                     const Tokenizer* tokenizer) {
  std::vector<GenerationRequest> requests;
  const auto add = [&](std::vector<std::int32_t> prompt) {
    GenerationRequest request{.prompt = std::move(prompt),
                              .max_new_tokens = options.tokens,
                              .sampling = options.sampling,
                              .stop_tokens = {}};
    request.sampling.seed = globals.seed + requests.size();
    requests.push_back(std::move(request));
  };
  for (const std::string& list : options.ids) {
    VOLTA_TRY(auto ids, parse_ids(list, "--ids"));
    add(std::move(ids));
  }
  for (const std::string& text : options.prompts) {
    if (tokenizer == nullptr) {
      return fail(ErrorCode::kInvalidArgument,
                  "this model folder has no tokenizer.json; give the prompt as --ids");
    }
    auto ids = tokenizer->encode_prompt(text);
    if (!ids) return std::unexpected(std::move(ids).error().with_context("--prompt"));
    add(*std::move(ids));
  }
  const auto end_token = tokenizer == nullptr ? std::nullopt : tokenizer->end_token();
  for (GenerationRequest& request : requests) {
    if (end_token) request.stop_tokens.push_back(*end_token);
    for (const std::string& stop : options.stop) {
      if (tokenizer == nullptr) {
        VOLTA_TRY(const auto id, parse_int<std::int32_t>(stop, "--stop", 0));
        request.stop_tokens.push_back(id);
        continue;
      }
      const auto ids = tokenizer->encode(stop);
      if (!ids) return std::unexpected(Error(ids.error()).with_context("--stop"));
      if (ids->size() != 1) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("--stop '{}' is {} tokens; it must be one", stop, ids->size()));
      }
      request.stop_tokens.push_back(ids->front());
    }
  }
  return requests;
}

std::string_view reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kStopToken:
      return "stop_token";
    case StopReason::kStopCondition:
      return "stop_string";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

// The text that the tokens add to that of the prompt.
std::string new_text(const GenerationRequest& request, const GenerationResult& result,
                     const Tokenizer& tokenizer) {
  const std::unique_ptr<TextStream> stream = tokenizer.stream();
  for (const std::int32_t id : request.prompt) stream->push(id);
  std::string text;
  for (const std::int32_t id : result.tokens) text += stream->push(id);
  return text + stream->finish();
}

void write_result(JsonWriter& json, const GenerationRequest& request,
                  const GenerationResult& result, const Tokenizer* tokenizer) {
  json.begin_object().key("ids").begin_array();
  for (const std::int32_t id : request.prompt) json.value(id);
  for (const std::int32_t id : result.tokens) json.value(id);
  json.end_array();
  if (tokenizer != nullptr) json.field("text", new_text(request, result, *tokenizer));
  json.key("logprobs").begin_array();
  for (const float logprob : result.logprobs) json.value(logprob);
  json.end_array().field("stop_reason", reason_name(result.reason)).end_object();
}

// One object for one prompt, an array for several.
std::string to_json(const std::vector<GenerationRequest>& requests,
                    const std::vector<GenerationResult>& results, const Tokenizer* tokenizer) {
  JsonWriter json;
  if (requests.size() != 1) json.begin_array();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    write_result(json, requests[i], results[i], tokenizer);
  }
  if (requests.size() != 1) json.end_array();
  return std::move(json).take() + "\n";
}

std::string to_text(const std::vector<GenerationRequest>& requests,
                    const std::vector<GenerationResult>& results, const Tokenizer* tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t> ids = requests[i].prompt;
    ids.insert(ids.end(), results[i].tokens.begin(), results[i].tokens.end());
    if (requests.size() > 1)
      text += fmt::format("--- {} (seed {})\n", i, requests[i].sampling.seed);
    text += tokenizer == nullptr ? fmt::format("{}", fmt::join(ids, ",")) : tokenizer->decode(ids);
    text += "\n";
  }
  return text;
}

// What generation will hold in memory, told before it starts.
Status report_memory(Generator& generator, const std::vector<GenerationRequest>& requests) {
  std::size_t longest = 0;
  for (const GenerationRequest& request : requests) {
    longest = std::max(longest, request.prompt.size());
  }
  VOLTA_TRY(generator.prepare(static_cast<std::int64_t>(longest)));
  const GeneratorMemory memory = generator.memory();
  note(fmt::format("memory: weights {}, cache {}, activations {} in {} plans\n",
                   format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes),
                   format_bytes(memory.activation_bytes), memory.plans));
  return {};
}

void report_speed(const Generator& generator, const std::vector<GenerationResult>& results) {
  const GenerationTiming& timing = generator.timing();
  std::size_t tokens = 0;
  for (const GenerationResult& result : results) tokens += result.tokens.size();
  double seconds = timing.first_token_seconds;
  for (const double step : timing.token_seconds) seconds += step;
  if (tokens == 0) return;
  note(fmt::format("{} tokens in {} ({:.1f} tokens/s), first token after {}\n", tokens,
                   format_duration(seconds), static_cast<double>(tokens) / seconds,
                   format_duration(timing.first_token_seconds)));
}

Status generate(const Globals& globals, Options& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const std::string directory, find_model(options.model));
  VOLTA_TRY(Transformer model,
            load_model(directory, session.device(), {.packed = true, .dtype = dtype}));
  auto loaded = load_tokenizer(directory);
  if (!loaded && loaded.error().code() != ErrorCode::kNotFound && options.ids.empty()) {
    return std::unexpected(std::move(loaded).error());
  }
  const std::shared_ptr<const Tokenizer> tokenizer = loaded ? *loaded : nullptr;
  if (options.prompts.empty() && options.ids.empty()) options.prompts.emplace_back("\n");
  VOLTA_TRY(const auto requests, make_requests(options, globals, tokenizer.get()));
  const auto count = static_cast<std::int64_t>(requests.size());
  VOLTA_TRY(
      Generator generator,
      Generator::create(model, {.slots = options.slots > 0 ? std::min(options.slots, count) : count,
                                .compute_dtype = dtype,
                                .use_cache = !options.no_kv_cache}));
  if (options.verbose) VOLTA_TRY(report_memory(generator, requests));
  // One prompt in text mode is printed as it grows.
  const bool stream = output == Output::kText && requests.size() == 1 && tokenizer != nullptr;
  std::optional<StreamDecoder> decoder;
  Status written;
  const auto on_token = [&](const TokenEvent& event) {
    if (stream) {
      std::string text;
      if (!decoder) {  // The first token: nothing can be wrong with the request any more.
        decoder.emplace(tokenizer);
        for (const std::int32_t id : requests.front().prompt) text += decoder->push(id);
      }
      written = print(text + decoder->push(event.token));
    }
    return written && !interrupted();
  };
  VOLTA_TRY(const auto results, generator.generate(requests, on_token));
  VOLTA_TRY(std::move(written));
  if (stream) {
    VOLTA_TRY(print((decoder ? decoder->finish() : "") + "\n"));
  } else {
    VOLTA_TRY(print(output == Output::kJson ? to_json(requests, results, tokenizer.get())
                                            : to_text(requests, results, tokenizer.get())));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].reason != StopReason::kContextFull || output != Output::kText) continue;
    note(fmt::format("prompt {}: ended after {} new tokens, the context of {} is full\n", i,
                     results[i].tokens.size(), model.config().context));
  }
  if (options.verbose) report_speed(generator, results);
  VOLTA_TRY(session.finish());
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

}  // namespace

void add_generate(CLI::App& app, Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("generate", "generate text from a model");
  auto options = std::make_shared<Options>();
  SamplingParams& sampling = options->sampling;
  command->add_option("model", options->model, "model folder, or the folder of a training run")
      ->required();
  command->add_option("-p,--prompt", options->prompts, "text to continue; repeat it for a batch")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--ids", options->ids, "a prompt as token ids, e.g. 5,6,7")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("-n,--tokens", options->tokens, "new tokens a prompt (default 256)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command->add_option("--temperature", sampling.temperature, "0 is greedy (default 0.8)");
  command->add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0: all");
  command->add_option("--top-p", sampling.top_p, "keep the likeliest tokens of this total; 1: all");
  command->add_option("--min-p", sampling.min_p, "drop tokens below this share of the likeliest");
  command->add_option("--repetition-penalty", sampling.repetition_penalty, "1: none");
  command->add_option("--stop", options->stop, "end after this token; may be repeated")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--slots", options->slots, "prompts that run at once (default: all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  command->add_flag("--no-kv-cache", options->no_kv_cache, "compute the whole prefix every token");
  command->add_flag("-v,--verbose", options->verbose, "report time and memory on stderr");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return generate(globals, *options); };
  });
}

}  // namespace volta::cli
