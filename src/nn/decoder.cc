#include "nn/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/arithmetic.h"
#include "ops/op.h"

namespace volta {
namespace {

// Tokens for which a slot reserves memory at the start; the lists of longer sequences grow.
constexpr std::int64_t kReservedTokens = 65536;

// The row of parameters with which Sample draws nothing.
constexpr SamplingRow kSkip = {-1.0f};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

StepCosts costs_of(const Transformer& model, const InferenceChoices& choices) {
  const bool integers = std::ranges::any_of(model.weights(), [](const auto& weight) {
    return weight.second.spec().encoding.quantized();
  });
  return integers ? choices.integer_costs : choices.costs;
}

}  // namespace

std::int64_t shared_step_rows(std::int64_t decoding, const KvCacheSizes& sizes,
                              const StepCosts& costs, bool prompts_first) {
  // If nearly all rows of the largest step are decoding, prompts get rows beyond it. The plan of a
  // step for all slots has such rows in any case.
  constexpr std::int64_t kPromptRows = 64;
  if (decoding > sizes.step_rows - kPromptRows) {
    return std::max(sizes.step_rows, std::min(sizes.slots, decoding + kPromptRows));
  }
  if (decoding == 0 || prompts_first) return sizes.step_rows;
  std::int64_t most = std::min(std::max(4 * decoding, 2 * costs.overhead_rows), sizes.step_rows);
  if (2 * decoding <= costs.fast_rows) most = std::min(most, costs.fast_rows);
  // Use one of the step sizes, because other steps would be padded with rows that do not count.
  return *std::ranges::prev(std::ranges::upper_bound(step_sizes(), most));
}

Result<Decoder> Decoder::create(const Transformer& model, const DecoderOptions& options) {
  Decoder decoder(model, options);
  const TransformerConfig& config = model.config();
  Device& device = *model.device();
  const InferenceChoices choices = device.inference_choices(options.compute_dtype);
  KvCacheSizes sizes{.slots = options.slots,
                     .capacity = options.capacity,
                     .pages = options.pages,
                     .dtype = options.cache_dtype.value_or(choices.cache),
                     .step_rows = choices.step_rows};
  VOLTA_TRY(decoder.cache_, TransformerKvCache::create(config, sizes, device));
  sizes.capacity = decoder.capacity();
  VOLTA_TRY(
      decoder.counts_,
      Tensor::zeros({DType::kI32, Shape(options.slots, 2, config.vocab_size)}, device.memory()));
  if (config.rotates()) VOLTA_TRY(decoder.make_rope_tables());
  decoder.plans_ =
      StepPlans({.cache = sizes, .top = options.top, .lora = model.lora()}, options.compute_dtype);
  decoder.slots_.resize(index(options.slots));
  decoder.costs_ = costs_of(model, choices);
  decoder.work_ = StepWork(config, decoder.costs_.overhead_rows);
  decoder.pieces_.reserve(index(options.slots));
  decoder.prompts_.reserve(index(options.slots));
  const std::int64_t reserved = std::min(decoder.capacity(), kReservedTokens);
  for (Slot& slot : decoder.slots_) slot.tokens.reserve(index(reserved));
  return decoder;
}

// The angles of a token do not change after it was fed. If angles depend on the length of the
// sequence, the tokens of a prompt use the length of the whole prompt, and each later token uses
// the length of the sequence that ends with it. Up to the model's original context both are the
// same.
Status Decoder::make_rope_tables() {
  const TransformerConfig& config = model_.config();
  const bool by_length = rope_depends_on_length(config);
  const std::int64_t rows = capacity();
  VOLTA_TRY(rope_,
            Tensor::empty({DType::kF32, Shape(by_length ? 2 * rows : rows, config.rotated())},
                          model_.device()->memory()));
  VOLTA_TRY(Tensor steps, rope_.slice(0, rows));
  VOLTA_TRY(steps_rope_, RopeTable::over(config, std::move(steps),
                                         by_length ? RopeRows::kSteps : RopeRows::kSequence));
  if (by_length) {
    VOLTA_TRY(Tensor prompt, rope_.slice(rows, 2 * rows));
    VOLTA_TRY(prompt_rope_, RopeTable::over(config, std::move(prompt), RopeRows::kSequence));
  }
  if (config.rope_local_theta > 0.0f) {
    VOLTA_TRY(local_rope_, RopeTable::create(local_rope_config(config), rows, *model_.device()));
  }
  return cover_steps(1);  // For rows that do not count.
}

// Computes the angles of positions below `length`, except for prompts that are rotated for their
// own length.
Status Decoder::cover_steps(std::int64_t length) {
  if (steps_rope_) VOLTA_TRY(steps_rope_->cover(length));
  if (local_rope_) VOLTA_TRY(local_rope_->cover(length));
  return {};
}

Status Decoder::prepare(std::int64_t tokens) {
  const KvCacheSizes& sizes = plans_.sizes();
  for (std::int64_t left = std::min(tokens, capacity()); left > 0; left -= sizes.step_rows) {
    VOLTA_TRY(plans_.prepare(model_, size_for(std::min(left, sizes.step_rows), 1, sizes)));
  }
  for (std::int64_t rows = 1; rows <= slots(); rows = step_size(rows, sizes) + 1) {
    VOLTA_TRY(plans_.prepare(model_, size_for(rows, rows, sizes)));
  }
  return {};
}

Status Decoder::check_slot(std::int64_t slot) const {
  if (slot >= 0 && slot < slots()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no slot {} in a decoder with {} slots", slot, slots()));
}

Status Decoder::check_prompt(std::span<const std::int32_t> tokens) const {
  if (!tokens.empty() && static_cast<std::int64_t>(tokens.size()) <= capacity()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("a prompt of {} tokens; it must be between 1 and {}", tokens.size(), capacity()));
}

Status Decoder::set_counts(std::int64_t slot, std::span<const std::int32_t> tokens) {
  VOLTA_TRY(check_slot(slot));
  // Two rows: the counts of the prompt and those of the output.
  std::vector<std::int32_t> row(2 * index(model_.config().vocab_size), 0);
  for (const std::int32_t token : tokens) ++row[static_cast<std::size_t>(token)];
  VOLTA_TRY(Tensor counts, counts_.slice(slot, slot + 1));
  return counts.write(std::span<const std::int32_t>(row));
}

Status Decoder::begin(std::int64_t slot, std::span<const std::int32_t> tokens,
                      const SamplingRow& sampling, const SampleRng& rng, std::int64_t room) {
  VOLTA_TRY(check_prompt(tokens));
  VOLTA_TRY(forget(slot));
  return queue(slot, tokens, sampling, rng, room);
}

Status Decoder::resume(std::int64_t slot, std::span<const std::int32_t> tokens,
                       const SamplingRow& sampling, const SampleRng& rng, std::int64_t room) {
  VOLTA_TRY(check_prompt(tokens));
  VOLTA_TRY(set_idle(slot));
  VOLTA_TRY(rewind(slot, reusable(slot, tokens)));
  return queue(slot, tokens, sampling, rng, room);
}

bool Decoder::has_room(std::int64_t slot, std::int64_t room,
                       FunctionRef<bool(std::int64_t slot)> given_up) const {
  return check_slot(slot).has_value() && cache_.could_reserve(slot, room, given_up);
}

// Queues the tokens of `tokens` that the slot does not hold.
Status Decoder::queue(std::int64_t slot, std::span<const std::int32_t> tokens,
                      const SamplingRow& sampling, const SampleRng& rng, std::int64_t room) {
  const std::int64_t length = std::ssize(tokens);
  Slot& state = at(slot);
  if (!cache_.reserve(slot, std::max(length, room))) {
    VOLTA_TRY(rewind(slot, cache_.length(slot)));  // Some groups may have given it pages.
    return no_pages(slot);
  }
  state.prompt = length;
  if (!takes_prompt_rope(state)) VOLTA_TRY(cover_steps(length));
  if (local_rope_) VOLTA_TRY(local_rope_->cover(length));
  const auto held = static_cast<std::size_t>(cache_.length(slot));
  state.tokens.insert(state.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(held),
                      tokens.end());
  state.rotated_for = std::max(state.rotated_for, length);
  state.turn = ++turns_;
  state.sampling = sampling;
  state.rng = rng;
  return {};
}

std::unexpected<Error> Decoder::no_pages(std::int64_t slot) const {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  for (std::size_t group = 0; group < cache_.groups(); ++group) {
    free = std::min(free, cache_.pool(group).free());
  }
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("the KV cache has too few free pages for slot {}: {} of {} tokens are "
                          "left; let other sequences end, or make the cache larger",
                          slot, free, kAttentionKeyBlock));
}

std::int64_t Decoder::reusable(std::int64_t slot, std::span<const std::int32_t> tokens) const {
  if (!check_slot(slot) || tokens.empty()) return 0;
  const TransformerConfig& config = model_.config();
  const Slot& state = at(slot);
  // The keys in the slot were rotated for a sequence of another length.
  if (rope_depends_on_length(config) &&
      std::max<std::int64_t>(std::ssize(tokens), state.rotated_for) >
          config.rope_scaling.original) {
    return 0;
  }
  // The last token is always fed, because its row gives the logits.
  const auto held = std::span(state.tokens).first(index(cache_.length(slot)));
  const auto last = std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end() - 1).first;
  const std::int64_t common = last - held.begin();
  return cache_.can_rewind(slot, common) ? common : 0;
}

// Keeps the first `length` tokens of a slot for which nothing is queued.
Status Decoder::rewind(std::int64_t slot, std::int64_t length) {
  VOLTA_TRY(cache_.rewind(slot, length));
  Slot& state = at(slot);
  state.tokens.resize(index(length));
  if (length == 0) state.rotated_for = 0;
  return {};
}

// Removes what is queued for the slot; it keeps its pages.
void Decoder::drop_waiting(std::int64_t slot) {
  Slot& state = at(slot);
  state.tokens.resize(index(cache_.length(slot)));
  state.prompt = 0;
  state.drawn = -1;
  if (prompt_rope_slot_ == slot) prompt_rope_slot_ = -1;
}

Status Decoder::set_idle(std::int64_t slot) {
  VOLTA_TRY(check_slot(slot));
  drop_waiting(slot);
  return cache_.rewind(slot, cache_.length(slot));  // Frees pages without tokens.
}

Status Decoder::forget(std::int64_t slot) {
  VOLTA_TRY(set_idle(slot));
  return rewind(slot, 0);
}

std::int64_t Decoder::waiting(std::int64_t slot) const {
  return check_slot(slot) ? std::ssize(at(slot).tokens) - cache_.length(slot) : 0;
}

Status Decoder::set_next(std::int64_t slot, std::int32_t token, const SamplingRow& sampling,
                         const SampleRng& rng) {
  VOLTA_TRY(check_slot(slot));
  drop_waiting(slot);
  const std::int64_t length = cache_.length(slot);
  if (length >= capacity()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("slot {} is full: it holds {} tokens", slot, capacity()));
  }
  if (!cache_.reserve(slot, length + 1)) return no_pages(slot);
  VOLTA_TRY(cover_steps(length + 1));
  Slot& state = at(slot);
  state.tokens.push_back(token);
  state.sampling = sampling;
  state.rng = rng;
  return {};
}

// Whether the tokens of a slot's prompt are rotated for the prompt's length, which differs from the
// length at each token.
bool Decoder::takes_prompt_rope(const Slot& slot) const {
  return prompt_rope_ && slot.prompt > model_.config().rope_scaling.original;
}

// Prepares the prompt's table for a slot; returns false while another slot's prompt needs it.
Result<bool> Decoder::take_prompt_rope(std::int64_t slot) {
  if (!takes_prompt_rope(at(slot)) || prompt_rope_slot_ == slot) return true;
  if (prompt_rope_slot_ >= 0) return false;
  VOLTA_TRY(prompt_rope_->cover(at(slot).prompt));
  prompt_rope_slot_ = slot;
  return true;
}

// The slot whose prompt began first after `turn`, among prompts with queued tokens; -1 if there is
// none.
std::int64_t Decoder::next_prompt(std::int64_t turn) const {
  std::int64_t found = -1;
  for (std::int64_t slot = 0; slot < slots(); ++slot) {
    if (at(slot).prompt == 0 || at(slot).turn <= turn || waiting(slot) == 0) continue;
    if (found < 0 || at(slot).turn < at(found).turn) found = slot;
  }
  return found;
}

Status Decoder::choose_pieces() {
  pieces_.clear();
  for (std::int64_t slot = 0; slot < slots(); ++slot) {
    if (at(slot).prompt > 0 || waiting(slot) == 0) continue;
    if (!cache_.reserve(slot, cache_.length(slot) + 1)) return no_pages(slot);
    pieces_.push_back({slot, 1});
  }
  const std::int64_t decoding = std::ssize(pieces_);
  const std::int64_t most =
      shared_step_rows(decoding, plans_.sizes(), costs_, options_.prompts_first) - decoding;
  VOLTA_TRY(list_prompts(most));
  std::int64_t left = prompts_.empty() ? 0 : prompt_rows(most);
  for (const Piece& prompt : prompts_) {
    const std::int64_t rows = std::min(prompt.rows, left);
    if (rows == 0) break;
    if (!cache_.reserve(prompt.slot, cache_.length(prompt.slot) + rows)) {
      return no_pages(prompt.slot);
    }
    pieces_.push_back({prompt.slot, rows});
    left -= rows;
  }
  return {};
}

// Lists the prompts that can be read now, until they have enough rows for the step.
Status Decoder::list_prompts(std::int64_t most_rows) {
  prompts_.clear();
  std::int64_t turn = 0;
  while (most_rows > 0) {
    const std::int64_t slot = next_prompt(turn);
    if (slot < 0) break;
    turn = at(slot).turn;
    VOLTA_TRY(const bool ready, take_prompt_rope(slot));
    if (!ready) continue;
    prompts_.push_back({slot, waiting(slot)});
    most_rows -= waiting(slot);
  }
  return {};
}

// How many rows of prompts (at least one, at most `most_rows`) run beside the sequences that are
// being decoded, whose pieces are already chosen. The step is predicted to take at most kSlowdown
// times as long as without them. A larger step pays for more padding rows, so a smaller one may
// have room for more of the prompt.
std::int64_t Decoder::prompt_rows(std::int64_t most_rows) const {
  const KvCacheSizes& sizes = plans_.sizes();
  constexpr double kSlowdown = 4;
  const std::int64_t decoding = std::ssize(pieces_);
  if (decoding == 0 || options_.prompts_first) return most_rows;
  double attention = 0;
  for (const Piece& piece : pieces_) attention += work_.attention(cache_.length(piece.slot));
  const auto matrices = [&](std::int64_t rows, std::int64_t draws) {
    const StepSize size = size_for(rows, draws, sizes);
    return work_.matrices(size.rows, size.logit_rows);
  };
  const double limit = kSlowdown * (matrices(decoding, decoding) + attention);
  std::int64_t best = 1;
  for (std::int64_t rows = decoding + 1; rows <= decoding + most_rows;) {
    const std::int64_t size = step_size(rows, sizes);
    const double left = limit - attention - matrices(size, decoding + 1);
    best = std::max(best, rows_within(left, std::min(size - decoding, most_rows)));
    rows = size + 1;
  }
  return best;
}

// How many rows of the listed prompts, the oldest first, have attention that costs at most `work`.
std::int64_t Decoder::rows_within(double work, std::int64_t most_rows) const {
  std::int64_t rows = 0;
  for (const Piece& prompt : prompts_) {
    for (std::int64_t i = 0; i < prompt.rows && rows < most_rows; ++i, ++rows) {
      work -= work_.attention(cache_.length(prompt.slot) + i);
      if (work < 0) return rows;
    }
  }
  return rows;
}

Result<StepRunner*> Decoder::runner_for_pieces() {
  std::int64_t rows = 0, draws = 0;
  for (const Piece& piece : pieces_) {
    rows += piece.rows;
    if (piece.rows == waiting(piece.slot)) ++draws;
  }
  return plans_.runner(model_, size_for(rows, draws, plans_.sizes()),
                       [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
                         if (binding.name == kRopeTable) return rope_;
                         if (binding.name == kLocalRopeTable) return local_rope_->tensor();
                         if (binding.name == "counts") return counts_;
                         return cache_.bind(binding);
                       });
}

void Decoder::write_tables(StepRunner& runner, std::int64_t slot, std::int64_t positions) const {
  for (std::size_t group = 0; group < runner.tables.size(); ++group) {
    const PagePool& pool = cache_.pool(group);
    const PageRange held = pool.held(slot);
    // Leaves out the pages that the slot will need only later.
    const std::int64_t end = std::min(held.end, ceil_div(positions, kAttentionKeyBlock));
    const auto pages = pool.table(slot).subspan(index(held.first), index(end - held.first));
    const auto row = row_of(runner.tables[group], index(slot), index(pool.blocks()));
    std::ranges::copy(pages, row.subspan(index(held.first)).begin());
  }
}

// Writes the inputs of a step. Rows that no piece fills get values in range and do not count.
void Decoder::write_rows(StepRunner& runner) {
  std::size_t row = 0, draw = 0;
  for (const Piece& piece : pieces_) {
    Slot& state = at(piece.slot);
    const std::int64_t start = cache_.length(piece.slot);
    write_tables(runner, piece.slot, start + piece.rows);
    for (std::int64_t i = start; i < start + piece.rows; ++i, ++row) {
      runner.ids[row] = state.tokens[index(i)];
      runner.positions[row] = static_cast<std::int32_t>(i);
      runner.sequences[row] = static_cast<std::int32_t>(piece.slot);
      if (runner.rotations.empty()) continue;
      const bool prompt = i < state.prompt && takes_prompt_rope(state);
      runner.rotations[row] = static_cast<std::int32_t>(prompt ? capacity() + i : i);
    }
    if (start + piece.rows < std::ssize(state.tokens)) continue;
    state.drawn = static_cast<std::int64_t>(draw);
    runner.logit_rows[draw] = static_cast<std::int32_t>(row - 1);
    runner.sample_sequences[draw] = static_cast<std::int32_t>(piece.slot);
    std::ranges::copy(state.sampling, row_of(runner.sampling, draw, kSampleParams).begin());
    std::ranges::copy(state.rng, row_of(runner.rng, draw, state.rng.size()).begin());
    ++draw;
  }
  runner.rows[0] = static_cast<std::int32_t>(row);
  for (; row < runner.ids.size(); ++row) {
    runner.ids[row] = runner.positions[row] = runner.sequences[row] = 0;
    if (!runner.rotations.empty()) runner.rotations[row] = 0;
  }
  for (; draw < runner.logit_rows.size(); ++draw) {
    runner.logit_rows[draw] = runner.sample_sequences[draw] = 0;
    std::ranges::copy(kSkip, row_of(runner.sampling, draw, kSampleParams).begin());
  }
}

Status Decoder::step() {
  for (Slot& slot : slots_) slot.drawn = -1;
  VOLTA_TRY(choose_pieces());
  if (pieces_.empty()) return {};
  VOLTA_TRY(last_, runner_for_pieces());
  write_rows(*last_);
  Status ran = last_->executable.run();
  if (ran) ran = last_->executable.fetch();
  if (!ran) {
    for (Slot& slot : slots_) slot.drawn = -1;
    return ran;
  }
  for (const Piece& piece : pieces_) {
    VOLTA_TRY(cache_.advance(piece.slot, piece.rows));
    if (piece.slot == prompt_rope_slot_ && waiting(piece.slot) == 0) prompt_rope_slot_ = -1;
  }
  return {};
}

Result<DrawnToken> Decoder::prefill(std::int64_t slot, std::span<const std::int32_t> tokens,
                                    const SamplingRow& sampling, const SampleRng& rng,
                                    PrefillProgress progress) {
  VOLTA_TRY(begin(slot, tokens, sampling, rng));
  return run_prompt(slot, progress);
}

Result<DrawnToken> Decoder::extend(std::int64_t slot, std::span<const std::int32_t> tokens,
                                   const SamplingRow& sampling, const SampleRng& rng,
                                   PrefillProgress progress) {
  VOLTA_TRY(resume(slot, tokens, sampling, rng));
  return run_prompt(slot, progress);
}

// Steps until the slot's prompt is in the cache. If that ends earlier, nothing is queued
// afterwards.
Result<DrawnToken> Decoder::run_prompt(std::int64_t slot, PrefillProgress progress) {
  const std::size_t total = at(slot).tokens.size();
  while (true) {
    if (Status ran = step(); !ran) {
      VOLTA_TRY(set_idle(slot));
      return std::unexpected(std::move(ran).error());
    }
    if (waiting(slot) == 0) return drawn(slot);
    if (progress(cache_.length(slot))) continue;
    VOLTA_TRY(set_idle(slot));
    return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} prompt tokens",
                                                     cache_.length(slot), total));
  }
}

Result<DrawnToken> Decoder::drawn(std::int64_t slot) const {
  VOLTA_TRY(check_slot(slot));
  if (last_ == nullptr) return fail(ErrorCode::kInternal, "no step has run yet");
  if (at(slot).drawn < 0) return DrawnToken{.token = -1};
  return read_drawn(*last_, index(at(slot).drawn));
}

DrawnToken Decoder::read_drawn(const StepRunner& runner, std::size_t row) const {
  DrawnToken drawn{.token = runner.token[row], .logprob = runner.logprob[row]};
  const auto top = static_cast<std::size_t>(options_.top);
  if (top == 0) return drawn;
  const std::span<const std::int32_t> tokens = row_of(runner.top_tokens, row, top);
  const std::span<const float> logprobs = row_of(runner.top_logprobs, row, top);
  drawn.top.reserve(top);
  for (std::size_t i = 0; i < top; ++i) drawn.top.push_back({tokens[i], logprobs[i]});
  return drawn;
}

}  // namespace volta
