#include "nn/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "graph/passes.h"
#include "nn/transformer_graph.h"

namespace volta {
namespace {

// Tokens a slot has room for from the start; longer sequences grow their list.
constexpr std::int64_t kReservedTokens = 65536;

constexpr std::array<std::int64_t, 4> kPrefillChunks = {kLargestChunk, 64, 16, 1};

// The row that makes Sample skip a slot.
constexpr SamplingRow kSkip = {-1.0f};

// What the host writes of one input before a run.
template <typename T>
Status find_input(const Executable& executable, std::string_view name, std::span<T>& values) {
  VOLTA_TRY(Tensor input, executable.binding(name));
  VOLTA_TRY(values, input.mutable_values<T>());
  return {};
}

// Where the host reads one result after a run.
template <typename T>
Status find_result(Executable& executable, std::string_view name, std::span<const T>& values) {
  VOLTA_TRY(const Tensor result, executable.result(name));
  VOLTA_TRY(values, result.values<T>());
  return {};
}

// Row `index` of a [slots, columns].
template <typename T>
std::span<T> row_of(std::span<T> values, std::int64_t index, std::size_t columns) {
  return values.subspan(static_cast<std::size_t>(index) * columns, columns);
}

}  // namespace

std::span<const std::int64_t> prefill_chunks() { return kPrefillChunks; }

Result<Decoder> Decoder::create(const Transformer& model, const DecoderOptions& options) {
  Decoder decoder(model, options);
  const TransformerConfig& config = model.config();
  Device& device = *model.device();
  const std::int64_t capacity = options.capacity == 0 ? config.context : options.capacity;
  VOLTA_TRY(decoder.cache_, TransformerKvCache::create(config, options.slots, capacity,
                                                       options.cache_dtype, device));
  VOLTA_TRY(
      decoder.counts_,
      Tensor::zeros({DType::kI32, Shape(options.slots, 2, config.vocab_size)}, device.memory()));
  if (config.position == PositionKind::kRotary) {
    VOLTA_TRY(decoder.make_rope_tables());
  }
  decoder.slots_.resize(static_cast<std::size_t>(options.slots));
  const std::int64_t reserved = std::min(capacity, kReservedTokens);
  for (Slot& slot : decoder.slots_) slot.tokens.reserve(static_cast<std::size_t>(reserved));
  return decoder;
}

// A token's angles stay what they were when it came. Where they depend on the length, a prompt's
// tokens come together, and each later token as the last of a sequence of its own length.
Status Decoder::make_rope_tables() {
  const TransformerConfig& config = model_.config();
  Device& device = *model_.device();
  VOLTA_TRY(rope_, RopeTable::create(config, capacity(), device));
  VOLTA_TRY(rope_.cover(1));  // For rows that are skipped.
  if (!rope_depends_on_length(config)) return {};
  VOLTA_TRY(steps_rope_, RopeTable::create(config, capacity(), device, RopeRows::kSteps));
  return steps_rope_->cover(1);
}

Status Decoder::cover(RopeTable& table, std::int64_t length) const {
  if (model_.config().position != PositionKind::kRotary) return {};
  return table.cover(length);
}

Result<std::shared_ptr<const Plan>> Decoder::make(std::int64_t slots, std::int64_t chunk) const {
  const CachedGraphOptions wanted{.slots = slots,
                                  .chunk = chunk,
                                  .capacity = capacity(),
                                  .cache_dtype = options_.cache_dtype,
                                  .top = options_.top,
                                  .lora = model_.lora()};
  VOLTA_TRY(const Graph built, build_cached_graph(model_.config(), wanted));
  VOLTA_TRY(Plan plan, model_.plan(built, options_.compute_dtype));
  return std::make_shared<const Plan>(std::move(plan));
}

Result<Decoder::Runner> Decoder::bind(const std::shared_ptr<const Plan>& plan, std::int64_t first,
                                      std::int64_t slots, std::int64_t chunk,
                                      const Tensor& rope_table) const {
  Device& device = *model_.device();
  const auto lookup = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    if (binding.kind == ValueKind::kInput) return std::nullopt;
    if (binding.name == "rope.table") return rope_table;
    if (binding.kind != ValueKind::kState) return model_.bind(binding);
    if (binding.name == "counts") return counts_.slice(first, first + slots);
    VOLTA_TRY(const Tensor all_slots, cache_.bind(binding));
    return all_slots.slice(first, first + slots);
  };
  VOLTA_TRY(Executable loaded, device.load(plan, lookup));
  Runner runner{.executable = std::move(loaded), .chunk = chunk};
  VOLTA_TRY(find_input(runner.executable, "ids", runner.ids));
  VOLTA_TRY(find_input(runner.executable, "positions", runner.positions));
  VOLTA_TRY(find_input(runner.executable, "start", runner.start));
  VOLTA_TRY(find_input(runner.executable, "count", runner.count));
  VOLTA_TRY(find_input(runner.executable, "last", runner.last));
  VOLTA_TRY(find_input(runner.executable, "sampling", runner.sampling));
  VOLTA_TRY(find_input(runner.executable, "sample_rng", runner.rng));
  VOLTA_TRY(find_result(runner.executable, "token", runner.token));
  VOLTA_TRY(find_result(runner.executable, "logprob", runner.logprob));
  if (options_.top > 0) {
    VOLTA_TRY(find_result(runner.executable, "top_tokens", runner.top_tokens));
    VOLTA_TRY(find_result(runner.executable, "top_logprobs", runner.top_logprobs));
  }
  return runner;
}

Result<std::shared_ptr<const Plan>> Decoder::prefill_plan(std::int64_t chunk) {
  if (const auto known = plans_.find(chunk); known != plans_.end()) return known->second;
  VOLTA_TRY(auto plan, make(1, chunk));
  plans_.emplace(chunk, plan);
  return plan;
}

Status Decoder::make_decode_plan() {
  if (decode_plan_ == nullptr) {
    VOLTA_TRY(decode_plan_, make(slots(), 1));
  }
  return {};
}

Status Decoder::prepare(std::int64_t tokens) {
  for (std::int64_t left = std::min(tokens, capacity()); left > 0;) {
    const std::int64_t chunk = next_chunk(left);
    VOLTA_TRY(prefill_plan(chunk));
    left -= chunk;
  }
  return make_decode_plan();
}

Result<Decoder::Runner*> Decoder::prefill_runner(std::int64_t slot, std::int64_t chunk) {
  // Plans are shared; only the runners of the slot that was filled last are kept, which bounds
  // their memory.
  if (slot != prefill_slot_) prefill_runners_.clear();
  prefill_slot_ = slot;
  if (const auto known = prefill_runners_.find(chunk); known != prefill_runners_.end()) {
    return &known->second;
  }
  VOLTA_TRY(const auto plan, prefill_plan(chunk));
  VOLTA_TRY(Runner runner, bind(plan, slot, 1, chunk, rope_.tensor()));
  return &prefill_runners_.emplace(chunk, std::move(runner)).first->second;
}

Result<Decoder::Runner*> Decoder::decode_runner() {
  if (!decode_runner_) {
    VOLTA_TRY(make_decode_plan());
    VOLTA_TRY(Runner runner, bind(decode_plan_, 0, slots(), 1, steps_rope_table().tensor()));
    for (std::int64_t slot = 0; slot < slots(); ++slot) {
      set_row(runner, slot, {.sampling = kSkip});
    }
    decode_runner_ = std::move(runner);
  }
  return &*decode_runner_;
}

// The smallest chunk that holds all that is left, unless less than half of it would be used; then
// the next smaller one, which is full. A few rows take the smallest chunk all the same: row by row
// they would read the weights as many times. A chunk never exceeds the cache.
std::int64_t Decoder::next_chunk(std::int64_t left) const {
  constexpr std::int64_t kFew = 16;
  std::int64_t chosen = 1;
  for (const std::int64_t chunk : kPrefillChunks) {
    if (chunk <= capacity() && (chunk < 2 * left || (chunk == kFew && left > 1))) {
      chosen = std::max(chosen, chunk);
    }
  }
  return chosen;
}

void Decoder::set_row(const Runner& runner, std::int64_t index, const Row& row) {
  const auto chunk = static_cast<std::size_t>(runner.chunk);
  const auto at = static_cast<std::size_t>(index);
  const std::span<std::int32_t> ids = row_of(runner.ids, index, chunk);
  std::ranges::fill(std::ranges::copy(row.tokens, ids.begin()).out, ids.end(), 0);
  const std::int64_t last = std::max<std::int64_t>(std::ssize(row.tokens) - 1, 0);
  std::int64_t t = 0;
  for (std::int32_t& position : row_of(runner.positions, index, chunk)) {
    position =
        static_cast<std::int32_t>(row.start + std::min(t++, last));  // Padding stays in range.
  }
  runner.start[at] = static_cast<std::int32_t>(row.start);
  runner.count[at] = static_cast<std::int32_t>(row.tokens.size());
  runner.last[at] = static_cast<std::int32_t>(last);
  std::ranges::copy(row.sampling, row_of(runner.sampling, index, row.sampling.size()).begin());
  std::ranges::copy(row.rng, row_of(runner.rng, index, row.rng.size()).begin());
}

Status Decoder::set_counts(std::int64_t slot, std::span<const std::int32_t> tokens) {
  VOLTA_TRY(check_slot(slot));
  // Two rows: the prompt's counts, and those of the output.
  std::vector<std::int32_t> row(2 * static_cast<std::size_t>(model_.config().vocab_size), 0);
  for (const std::int32_t token : tokens) ++row[static_cast<std::size_t>(token)];
  VOLTA_TRY(Tensor counts, counts_.slice(slot, slot + 1));
  return counts.write(std::span<const std::int32_t>(row));
}

Result<DrawnToken> Decoder::prefill(std::int64_t slot, std::span<const std::int32_t> tokens,
                                    const SamplingRow& sampling, const SampleRng& rng,
                                    PrefillProgress progress) {
  VOLTA_TRY(check_prompt(tokens));
  VOLTA_TRY(rewind(slot, 0));
  return fill(slot, tokens, sampling, rng, progress);
}

Result<DrawnToken> Decoder::extend(std::int64_t slot, std::span<const std::int32_t> tokens,
                                   const SamplingRow& sampling, const SampleRng& rng,
                                   PrefillProgress progress) {
  VOLTA_TRY(check_prompt(tokens));
  VOLTA_TRY(check_slot(slot));
  VOLTA_TRY(rewind(slot, reusable(slot, tokens)));
  return fill(slot, tokens, sampling, rng, progress);
}

Status Decoder::check_prompt(std::span<const std::int32_t> tokens) const {
  if (!tokens.empty() && static_cast<std::int64_t>(tokens.size()) <= capacity()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("a prompt of {} tokens; it must be between 1 and {}", tokens.size(), capacity()));
}

std::int64_t Decoder::reusable(std::int64_t slot, std::span<const std::int32_t> tokens) const {
  if (!check_slot(slot) || tokens.empty()) return 0;
  const TransformerConfig& config = model_.config();
  const std::vector<std::int32_t>& held = slots_[static_cast<std::size_t>(slot)].tokens;
  // The keys that are held were rotated for a sequence of another length.
  if (config.position == PositionKind::kRotary && rope_depends_on_length(config) &&
      std::max<std::int64_t>(std::ssize(tokens),
                             slots_[static_cast<std::size_t>(slot)].rotated_for) >
          config.rope_scaling.original) {
    return 0;
  }
  // The last token runs in any case: its row gives the logits.
  const auto last = std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end() - 1).first;
  const std::int64_t common = last - held.begin();
  return cache_.can_rewind(slot, common) ? common : 0;
}

// Keeps the first `length` tokens of a slot.
Status Decoder::rewind(std::int64_t slot, std::int64_t length) {
  VOLTA_TRY(cache_.rewind(slot, length));
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.tokens.resize(static_cast<std::size_t>(length));
  if (length == 0) state.rotated_for = 0;
  return {};
}

// Runs what the slot does not hold of `tokens`, in chunks.
Result<DrawnToken> Decoder::fill(std::int64_t slot, std::span<const std::int32_t> tokens,
                                 const SamplingRow& sampling, const SampleRng& rng,
                                 PrefillProgress progress) {
  VOLTA_TRY(set_idle(slot));  // A token that waited there is of another sequence.
  VOLTA_TRY(cover(rope_, static_cast<std::int64_t>(tokens.size())));
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.rotated_for = std::max<std::int64_t>(state.rotated_for, std::ssize(tokens));
  std::vector<std::int32_t>& held = state.tokens;
  Runner* runner = nullptr;
  while (held.size() < tokens.size()) {
    const std::size_t done = held.size();
    const std::size_t left = tokens.size() - done;
    const std::int64_t chunk = next_chunk(static_cast<std::int64_t>(left));
    const std::size_t rows = std::min(static_cast<std::size_t>(chunk), left);
    const auto now = tokens.subspan(done, rows);
    VOLTA_TRY(runner, prefill_runner(slot, chunk));
    set_row(*runner, 0,
            {.tokens = now,
             .start = static_cast<std::int64_t>(done),
             .sampling = rows == left ? sampling : kSkip,
             .rng = rng});
    Status ran = runner->executable.run();
    if (ran && rows == left) ran = runner->executable.fetch();
    if (!ran) return fail_fill(slot, std::move(ran).error());
    VOLTA_TRY(cache_.advance(slot, static_cast<std::int64_t>(rows)));
    held.insert(held.end(), now.begin(), now.end());
    if (rows < left && !progress(static_cast<std::int64_t>(held.size()))) {
      // What stays in the slot is to be what was computed without an error.
      if (Status done_all = runner->executable.synchronize(); !done_all) {
        return fail_fill(slot, std::move(done_all).error());
      }
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} prompt tokens",
                                                       held.size(), tokens.size()));
    }
  }
  return read_drawn(*runner, 0);
}

// Ends a fill that the device could not do: nobody knows what it wrote.
std::unexpected<Error> Decoder::fail_fill(std::int64_t slot, Error error) {
  if (Status rewound = rewind(slot, 0); !rewound) {
    return std::unexpected(std::move(rewound).error());
  }
  return std::unexpected(std::move(error));
}

Status Decoder::set_next(std::int64_t slot, std::int32_t token, const SamplingRow& sampling,
                         const SampleRng& rng) {
  VOLTA_TRY(check_slot(slot));
  if (cache_.length(slot) >= capacity()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("slot {} is full: it holds {} tokens", slot, capacity()));
  }
  VOLTA_TRY(Runner* const runner, decode_runner());
  VOLTA_TRY(cover(steps_rope_table(), cache_.length(slot) + 1));
  set_row(*runner, slot,
          {.tokens = std::span(&token, 1),
           .start = cache_.length(slot),
           .sampling = sampling,
           .rng = rng});
  Slot& state = slots_[static_cast<std::size_t>(slot)];
  state.state = Slot::State::kSet;
  state.next = token;
  return {};
}

Status Decoder::check_slot(std::int64_t slot) const {
  if (slot >= 0 && slot < slots()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no slot {} in a decoder with {} slots", slot, slots()));
}

Status Decoder::set_idle(std::int64_t slot) {
  VOLTA_TRY(check_slot(slot));
  slots_[static_cast<std::size_t>(slot)].state = Slot::State::kIdle;
  if (decode_runner_) set_row(*decode_runner_, slot, {.sampling = kSkip});
  return {};
}

Status Decoder::step() {
  VOLTA_TRY(Runner* const runner, decode_runner());
  for (std::int64_t slot = 0; slot < slots(); ++slot) {
    if (slots_[static_cast<std::size_t>(slot)].state == Slot::State::kFed) {
      VOLTA_TRY(set_idle(slot));
    }
  }
  VOLTA_TRY(runner->executable.run());
  VOLTA_TRY(runner->executable.fetch());
  for (std::int64_t slot = 0; slot < slots(); ++slot) {
    Slot& state = slots_[static_cast<std::size_t>(slot)];
    if (state.state != Slot::State::kSet) continue;
    VOLTA_TRY(cache_.advance(slot, 1));
    state.tokens.push_back(state.next);
    state.state = Slot::State::kFed;
  }
  return {};
}

Result<DrawnToken> Decoder::drawn(std::int64_t slot) const {
  VOLTA_TRY(check_slot(slot));
  if (!decode_runner_) return fail(ErrorCode::kInternal, "no step has run yet");
  return read_drawn(*decode_runner_, slot);
}

DrawnToken Decoder::read_drawn(const Runner& runner, std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  DrawnToken drawn{.token = runner.token[at], .logprob = runner.logprob[at]};
  const auto top = static_cast<std::size_t>(options_.top);
  if (top == 0) return drawn;
  const std::span<const std::int32_t> tokens = row_of(runner.top_tokens, index, top);
  const std::span<const float> logprobs = row_of(runner.top_logprobs, index, top);
  drawn.top.reserve(top);
  for (std::size_t i = 0; i < top; ++i) drawn.top.push_back({tokens[i], logprobs[i]});
  return drawn;
}

std::int64_t Decoder::activation_bytes() const {
  std::int64_t bytes = decode_plan_ == nullptr ? 0 : decode_plan_->arena_bytes;
  for (const auto& [chunk, plan] : plans_) bytes += plan->arena_bytes;
  return bytes;
}

std::int64_t Decoder::plan_count() const {
  return static_cast<std::int64_t>(plans_.size()) + (decode_plan_ == nullptr ? 0 : 1);
}

}  // namespace volta
