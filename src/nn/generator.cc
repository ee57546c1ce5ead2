#include "nn/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace volta {
namespace {

SamplingRow sampling_row(const SamplingParams& p) {
  return {p.temperature,        static_cast<float>(p.top_k), p.top_p,           p.min_p,
          p.repetition_penalty, p.frequency_penalty,         p.presence_penalty};
}

}  // namespace

Status validate(const SamplingParams& p) {
  const auto bad = [](std::string_view name, double value, std::string_view range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sampling: {} is {}; it must be {}", name, value, range));
  };
  if (!(p.temperature >= 0.0f) || !std::isfinite(p.temperature)) {
    return bad("temperature", p.temperature, "0 (greedy) or a positive number");
  }
  if (p.top_k < 0 || p.top_k > (1 << 24)) return bad("top_k", p.top_k, "0 (off) to 16777216");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) return bad("top_p", p.top_p, "in (0, 1]; 1 is off");
  if (!(p.min_p >= 0.0f && p.min_p < 1.0f)) return bad("min_p", p.min_p, "in [0, 1); 0 is off");
  if (!(p.repetition_penalty > 0.0f) || !std::isfinite(p.repetition_penalty)) {
    return bad("repetition_penalty", p.repetition_penalty, "positive; 1 is off");
  }
  const auto in_range = [](float penalty) { return penalty >= -2.0f && penalty <= 2.0f; };
  if (!in_range(p.frequency_penalty)) {
    return bad("frequency_penalty", p.frequency_penalty, "from -2 to 2; 0 is off");
  }
  if (!in_range(p.presence_penalty)) {
    return bad("presence_penalty", p.presence_penalty, "from -2 to 2; 0 is off");
  }
  return {};
}

Status validate(const GenerationRequest& request, std::int64_t vocab, std::int64_t context) {
  if (request.prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the prompt is empty; give at least one token");
  }
  if (request.context < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("context is {}; it must not be negative", request.context));
  }
  if (request.context > 0) context = std::min(context, request.context);
  if (static_cast<std::int64_t>(request.prompt.size()) > context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has {} tokens and the context holds {}; shorten the prompt",
                            request.prompt.size(), context));
  }
  std::size_t place = 0;
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("token {} of the prompt is {}; the vocabulary has ids 0 to {}", place,
                              id, vocab - 1));
    }
    ++place;
  }
  if (request.max_new_tokens < 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("max_new_tokens is {}; it must not be negative", request.max_new_tokens));
  }
  return validate(request.sampling);
}

std::int64_t capacity_for(const TransformerConfig& config, std::int64_t tokens) {
  return std::min(whole_key_blocks(std::clamp<std::int64_t>(tokens, 1, config.context)),
                  config.context);
}

// One call of generate(). Requests wait in order, take a free slot, and leave it when they end.
struct Generator::Session {
  // A request in a slot.
  struct Running {
    std::size_t index = 0;
    std::vector<std::int32_t> sequence;  // Prompt and generated tokens.
    std::int64_t heard = 0;              // Tokens of the prompt in the last PromptEvent.
  };

  Generator& generator;
  std::span<const GenerationRequest> requests;
  const GenerationCallbacks& callbacks;
  std::vector<GenerationResult> results{};
  std::vector<std::optional<Running>> slots{};
  std::size_t next_request = 0;
  bool lacks_pages = false;  // The next request lacks pages until another one ends.
  bool cancelled = false;
  double last_time = monotonic_seconds();

  Result<std::vector<GenerationResult>> run() {
    Decoder& decoder = generator.decoder_;
    results.resize(requests.size());
    slots.resize(static_cast<std::size_t>(decoder.slots()));
    for (std::int64_t slot = 0; slot < decoder.slots(); ++slot) {
      VOLTA_TRY(decoder.set_idle(slot));
    }
    while (true) {
      VOLTA_TRY(admit());
      if (cancelled) break;
      VOLTA_TRY(const bool any, advance());
      if (cancelled || (!any && next_request >= requests.size())) break;
    }
    for (std::size_t i = next_request; cancelled && i < requests.size(); ++i) {
      results[i].reason = StopReason::kCancelled;
    }
    return std::move(results);
  }

  // Puts waiting requests into free slots, in order; the next steps read their prompts. A request
  // whose pages are not free yet keeps the requests behind it waiting. A request gets all pages
  // that it may need when it starts. So this is tested once, and again only when others have ended.
  Status admit() {
    while (next_request < requests.size() && !cancelled && !lacks_pages) {
      const std::size_t index = next_request;
      const GenerationRequest& request = requests[index];
      if (request.max_new_tokens == 0) {
        ++next_request;
        finish(index, StopReason::kLength);
        continue;
      }
      const auto place = free_slot(request.prompt);
      if (!place) return {};
      const auto is_idle = [&](std::int64_t other) {
        return !slots[static_cast<std::size_t>(other)].has_value();
      };
      // If no request runs there is room, because the prompt fits and no request needs more than
      // there is.
      lacks_pages = !generator.decoder_.has_room(*place, cached_tokens(request), is_idle);
      if (lacks_pages) return {};
      auto& slot = slots[static_cast<std::size_t>(*place)];
      slot = Running{index, request.prompt};
      VOLTA_TRY(feed_sequence(*place));
      ++next_request;
      reserve(*slot);
      note_prompt(request.prompt, generator.decoder_.waiting(*place));
      VOLTA_TRY(generator.decoder_.set_counts(*place, request.prompt));
    }
    return {};
  }

  // The first free slot. With reuse_prefix, the free slot that holds most of the prompt's
  // beginning; of equal ones, the one that holds the fewest tokens.
  std::optional<std::int64_t> free_slot(std::span<const std::int32_t> prompt) const {
    const Decoder& decoder = generator.decoder_;
    std::optional<std::int64_t> best;
    std::pair<std::int64_t, std::int64_t> most;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot]) continue;
      const auto place = static_cast<std::int64_t>(slot);
      if (!generator.options_.reuse_prefix) return place;
      const std::pair held(decoder.reusable(place, prompt), -decoder.cache().length(place));
      if (!best || held > most) best = place, most = held;
    }
    return best;
  }

  // `waiting` tokens of the prompt have still to be read; a slot already held the others.
  void note_prompt(std::span<const std::int32_t> prompt, std::int64_t waiting) {
    generator.timing_.prompt_tokens += std::ssize(prompt);
    generator.timing_.reused_tokens += std::ssize(prompt) - waiting;
  }

  // The most tokens of a request that may be in the cache.
  std::int64_t room_of(const GenerationRequest& request) const {
    const std::int64_t capacity = generator.decoder_.capacity();
    return request.context > 0 ? std::min(request.context, capacity) : capacity;
  }

  // The most tokens of a request that are in the cache at one time. The last token never is.
  std::int64_t cached_tokens(const GenerationRequest& request) const {
    const std::int64_t room = std::min(room_of(request), generator.decoder_.cache().longest());
    const std::int64_t prompt = std::ssize(request.prompt);
    return prompt + std::min(room - prompt, request.max_new_tokens - 1);
  }

  // Reserves memory for all tokens that a request may generate, so that its steps allocate nothing.
  void reserve(Running& run) {
    const GenerationRequest& request = requests[run.index];
    const std::int64_t room =
        room_of(request) + 1 - static_cast<std::int64_t>(request.prompt.size());
    const auto tokens = static_cast<std::size_t>(std::min(request.max_new_tokens, room));
    run.sequence.reserve(request.prompt.size() + tokens);
    results[run.index].tokens.reserve(tokens);
    results[run.index].logprobs.reserve(tokens);
    if (generator.options_.top_logprobs > 0) results[run.index].top.reserve(tokens);
    std::vector<double>& times = generator.timing_.token_seconds;
    times.reserve(times.size() + tokens);
  }

  Result<bool> forget_an_idle_slot() {
    Decoder& decoder = generator.decoder_;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      const auto place = static_cast<std::int64_t>(slot);
      if (slots[slot] || decoder.cache().length(place) == 0) continue;
      VOLTA_TRY(decoder.forget(place));
      return true;
    }
    return false;
  }

  // Feeds a slot its whole sequence, or what it does not hold of it yet. While there are too few
  // pages, idle slots lose theirs.
  Status feed_sequence(std::int64_t slot) {
    const Running& run = *slots[static_cast<std::size_t>(slot)];
    const GenerationRequest& request = requests[run.index];
    const SamplingRow sampling = sampling_row(request.sampling);
    const std::int64_t room = cached_tokens(request);
    Decoder& decoder = generator.decoder_;
    while (true) {
      Status begun = generator.options_.reuse_prefix
                         ? decoder.resume(slot, run.sequence, sampling, rng(run), room)
                         : decoder.begin(slot, run.sequence, sampling, rng(run), room);
      if (begun || begun.error().code() != ErrorCode::kOutOfMemory) return begun;
      VOLTA_TRY(const bool freed, forget_an_idle_slot());
      if (!freed) return begun;
    }
  }

  // Whether the cached keys of a sequence were rotated with factors that are no longer valid. With
  // longrope, the factors change at the token that makes the sequence longer than the original
  // context.
  bool changes_rotation(const Running& run) const {
    const RopeScaling& scaling = generator.decoder_.model().config().rope_scaling;
    return scaling.kind == RopeKind::kLongrope && std::ssize(run.sequence) == scaling.original + 1;
  }

  // Feeds a slot its newest token, for which it has a page.
  Status feed_token(std::int64_t slot) {
    const Running& run = *slots[static_cast<std::size_t>(slot)];
    if (!generator.options_.use_cache || changes_rotation(run)) return feed_sequence(slot);
    const SamplingRow sampling = sampling_row(requests[run.index].sampling);
    return generator.decoder_.set_next(slot, run.sequence.back(), sampling, rng(run));
  }

  // Runs one step: the next token for every running request whose prompt has been read. Returns
  // false if no request runs.
  Result<bool> advance() {
    Decoder& decoder = generator.decoder_;
    bool any = false;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (!slots[slot]) continue;
      const auto place = static_cast<std::int64_t>(slot);
      if (decoder.waiting(place) == 0) VOLTA_TRY(feed_token(place));
      any = true;
    }
    if (!any) return false;
    auto stepped = decoder.step();
    if (!stepped && stepped.error().code() == ErrorCode::kInterrupted) {
      cancel();
      return true;
    }
    VOLTA_TRY(std::move(stepped));
    VOLTA_TRY(accept_drawn());
    return true;
  }

  // Takes the tokens that the last step drew, and reports the progress of prompts.
  Status accept_drawn() {
    Decoder& decoder = generator.decoder_;
    bool timed = false;
    for (std::size_t slot = 0; slot < slots.size() && !cancelled; ++slot) {
      if (!slots[slot]) continue;
      const auto place = static_cast<std::int64_t>(slot);
      if (decoder.waiting(place) > 0) {
        tell_prompt(*slots[slot], decoder.cache().length(place));
        continue;
      }
      if (!std::exchange(timed, true)) note_time();
      VOLTA_TRY(const DrawnToken drawn, decoder.drawn(place));
      VOLTA_TRY(accept(place, drawn));
    }
    return {};
  }

  void tell_prompt(Running& run, std::int64_t done) {
    if (done == std::exchange(run.heard, done) || !callbacks.prompt) return;
    if (!callbacks.prompt({run.index, done, std::ssize(run.sequence)})) cancel();
  }

  SampleRng rng(const Running& run) const {
    const GenerationRequest& request = requests[run.index];
    return {static_cast<std::int64_t>(request.sampling.seed),
            static_cast<std::int64_t>(run.sequence.size() - request.prompt.size())};
  }

  // Records a drawn token, and frees the slot if its request ends.
  Status accept(std::int64_t slot, const DrawnToken& drawn) {
    Running& run = *slots[static_cast<std::size_t>(slot)];
    GenerationResult& result = results[run.index];
    if (!std::isfinite(drawn.logprob)) return not_finite(run);
    result.tokens.push_back(drawn.token);
    result.logprobs.push_back(drawn.logprob);
    if (!drawn.top.empty()) result.top.push_back(drawn.top);
    run.sequence.push_back(drawn.token);
    const auto reason = finished(run);
    if (callbacks.token && !callbacks.token({run.index, drawn.token, drawn.logprob, drawn.top}))
      cancel();
    if (cancelled || !reason) return {};
    return end(slot, *reason);
  }

  // Frees the slot of a request. Its cached tokens stay, for a later prompt with the same
  // beginning.
  Status end(std::int64_t slot, StopReason reason) {
    VOLTA_TRY(generator.decoder_.set_idle(slot));
    const std::size_t index = slots[static_cast<std::size_t>(slot)]->index;
    slots[static_cast<std::size_t>(slot)].reset();
    lacks_pages = false;
    finish(index, reason);
    return {};
  }

  void finish(std::size_t index, StopReason reason) {
    results[index].reason = reason;
    if (callbacks.finished && !callbacks.finished(index, results[index])) cancel();
  }

  std::unexpected<Error> not_finite(const Running& run) const {
    const std::size_t step = run.sequence.size() - requests[run.index].prompt.size();
    return fail(ErrorCode::kNonFinite,
                fmt::format("request {}, step {}: the logits are not finite, so that no token can "
                            "be drawn; the model's weights are damaged or overflow: take an "
                            "earlier checkpoint or another model, or compute and keep the KV "
                            "cache in f32",
                            run.index, step));
  }

  void cancel() {
    cancelled = true;
    for (const auto& run : slots) {
      if (run) results[run->index].reason = StopReason::kCancelled;
    }
  }

  // The reason why a request ends after its newest token; nothing if it continues.
  std::optional<StopReason> finished(const Running& run) const {
    const GenerationRequest& request = requests[run.index];
    const auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), run.sequence.back()) != stops.end()) {
      return StopReason::kStopToken;
    }
    if (request.stop_when && request.stop_when(run.sequence.back())) {
      return StopReason::kStopCondition;
    }
    if (run.sequence.size() - request.prompt.size() >=
        static_cast<std::size_t>(request.max_new_tokens)) {
      return StopReason::kLength;
    }
    // The newest token must fit the cache before another one can be drawn.
    const std::int64_t tokens = std::ssize(run.sequence);
    if (tokens > room_of(request)) return StopReason::kContextFull;
    if (tokens > generator.decoder_.cache().longest()) return StopReason::kCacheFull;
    return std::nullopt;
  }

  void note_time() {
    const double now = monotonic_seconds();
    GenerationTiming& timing = generator.timing_;
    if (timing.first_token_seconds == 0.0) {
      timing.first_token_seconds = now - last_time;
    } else {
      timing.token_seconds.push_back(now - last_time);
    }
    last_time = now;
  }
};

Result<Generator> Generator::create(const Transformer& model, const GeneratorOptions& options) {
  const std::int64_t vocab = model.config().vocab_size;
  if (options.top_logprobs < 0 || options.top_logprobs > vocab) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} log-probabilities a token; the vocabulary has {} tokens",
                            options.top_logprobs, vocab));
  }
  const DecoderOptions decoder_options{.slots = options.slots,
                                       .capacity = options.capacity,
                                       .pages = options.pages,
                                       .cache_dtype = options.cache_dtype,
                                       .compute_dtype = options.compute_dtype,
                                       .top = options.top_logprobs,
                                       .prompts_first = options.prompts_first};
  VOLTA_TRY(Decoder decoder, Decoder::create(model, decoder_options));
  Generator generator(std::move(decoder), options);
  generator.options_.reuse_prefix = options.reuse_prefix && options.use_cache;
  return generator;
}

Result<std::vector<GenerationResult>> Generator::generate(
    std::span<const GenerationRequest> requests, const TokenCallback& on_token) {
  return generate(requests, GenerationCallbacks{.token = on_token});
}

Result<std::vector<GenerationResult>> Generator::generate(
    std::span<const GenerationRequest> requests, const GenerationCallbacks& callbacks) {
  const std::int64_t vocab = decoder_.model().config().vocab_size;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (auto ok = validate(requests[i], vocab, decoder_.capacity()); !ok) {
      return std::unexpected(std::move(ok).error().with_context(fmt::format("request {}", i)));
    }
    const std::int64_t tokens = std::ssize(requests[i].prompt);
    if (tokens <= decoder_.cache().longest()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("request {}: the prompt has {} tokens, more than the {} pages of {} "
                            "tokens of the KV cache hold; shorten the prompt or give the cache "
                            "more pages",
                            i, tokens, options_.pages, kAttentionKeyBlock));
  }
  timing_ = {};
  Session session{.generator = *this, .requests = requests, .callbacks = callbacks};
  return session.run();
}

GeneratorMemory Generator::memory() const {
  return {.weight_bytes = decoder_.model().weight_bytes(),
          .cache_bytes = decoder_.cache().bytes(),
          .activation_bytes = decoder_.activation_bytes(),
          .plans = decoder_.plan_count()};
}

}  // namespace volta
