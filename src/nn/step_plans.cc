#include "nn/step_plans.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "nn/rope_table.h"

namespace volta {
namespace {

constexpr std::array<std::int64_t, 12> kStepSizes = {1,  2,   4,   8,   16,   32,
                                                     64, 128, 256, 512, 1024, 2048};

// The host's memory of one input, to be written before a run.
template <typename T>
Status find_input(const Executable& executable, std::string_view name, std::span<T>& values) {
  VOLTA_TRY(Tensor input, executable.binding(name));
  VOLTA_TRY(values, input.mutable_values<T>());
  return {};
}

// The host's memory of one result, to be read after a run.
template <typename T>
Status find_result(Executable& executable, std::string_view name, std::span<const T>& values) {
  VOLTA_TRY(const Tensor result, executable.result(name));
  VOLTA_TRY(values, result.values<T>());
  return {};
}

Status find_inputs(StepRunner& runner, const TransformerConfig& config) {
  const Executable& executable = runner.executable;
  VOLTA_TRY(find_input(executable, "ids", runner.ids));
  VOLTA_TRY(find_input(executable, "positions", runner.positions));
  VOLTA_TRY(find_input(executable, "sequences", runner.sequences));
  VOLTA_TRY(find_input(executable, "rows", runner.rows));
  VOLTA_TRY(find_input(executable, "logit_rows", runner.logit_rows));
  VOLTA_TRY(find_input(executable, "sampling", runner.sampling));
  VOLTA_TRY(find_input(executable, "sample_rng", runner.rng));
  VOLTA_TRY(find_input(executable, "sample_sequences", runner.sample_sequences));
  if (rope_depends_on_length(config)) {
    VOLTA_TRY(find_input(executable, "rotations", runner.rotations));
  }
  for (const CacheGroup& group : cache_groups(config)) {
    std::span<std::int32_t> table;
    VOLTA_TRY(find_input(executable, group.table, table));
    runner.tables.push_back(table);
  }
  return {};
}

}  // namespace

std::span<const std::int64_t> step_sizes() { return kStepSizes; }

std::int64_t most_step_rows(const KvCacheSizes& sizes) {
  const std::int64_t most = std::max(sizes.step_rows, sizes.slots);
  // Avoids slots * capacity, which may overflow.
  return sizes.slots > most / sizes.capacity ? most
                                             : step_size(sizes.slots * sizes.capacity, sizes);
}

std::int64_t step_size(std::int64_t rows, const KvCacheSizes& sizes) {
  // More rows than step_rows occur only where more slots than that are decoding.
  const auto listed = std::ranges::lower_bound(kStepSizes, rows);
  if (rows > sizes.step_rows || listed == kStepSizes.end()) return std::max(rows, sizes.slots);
  return sizes.slots >= rows ? std::min(*listed, sizes.slots) : *listed;
}

StepSize size_for(std::int64_t rows, std::int64_t draws, const KvCacheSizes& sizes) {
  const std::int64_t size = step_size(rows, sizes);
  return {size, draws <= 1 ? 1 : step_size(std::min(size, sizes.slots), sizes)};
}

StepSize largest_size(const KvCacheSizes& sizes) {
  return size_for(most_step_rows(sizes), sizes.slots, sizes);
}

Result<StepPlans::Entry*> StepPlans::entry(const Transformer& model, const StepSize& size) {
  if (const auto known = plans_.find(size); known != plans_.end()) return &known->second;
  CachedGraphOptions wanted = options_;
  wanted.rows = size.rows;
  wanted.logit_rows = size.logit_rows;
  VOLTA_TRY(const Graph built, build_cached_graph(model.config(), wanted));
  VOLTA_TRY(Plan plan, model.plan(built, compute_dtype_));
  Entry added{.plan = std::make_shared<const Plan>(std::move(plan))};
  return &plans_.emplace(size, std::move(added)).first->second;
}

Status StepPlans::prepare(const Transformer& model, const StepSize& size) {
  if (arena_bytes_ == 0) {
    VOLTA_TRY(const Entry* const largest, entry(model, largest_size(options_.cache)));
    arena_bytes_ = largest->plan->arena_bytes;
  }
  VOLTA_TRY(entry(model, size));
  return {};
}

Status StepPlans::make_arena(const Transformer& model) {
  if (arena_ != nullptr) return {};
  auto arena = DeviceBuffer::allocate(model.device()->memory(), arena_bytes_);
  if (!arena) {
    return std::unexpected(
        std::move(arena).error().with_context("allocating the activations of a step"));
  }
  arena_ = std::make_shared<DeviceBuffer>(*std::move(arena));
  return {};
}

Result<StepRunner> StepPlans::load(const Transformer& model, const StepSize& size,
                                   const std::shared_ptr<const Plan>& plan,
                                   const TensorLookup& state) const {
  const auto lookup = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    if (binding.kind == ValueKind::kInput) return std::nullopt;
    const bool table = binding.name == kRopeTable || binding.name == kLocalRopeTable;
    if (binding.kind == ValueKind::kState || table) return state(binding);
    return model.bind(binding);
  };
  const bool fits = plan->arena_bytes <= arena_bytes_;
  VOLTA_TRY(Executable loaded, model.device()->load(plan, lookup, fits ? arena_ : nullptr));
  StepRunner runner{.executable = std::move(loaded), .size = size};
  VOLTA_TRY(find_inputs(runner, model.config()));
  // Not the logits, which are a thousand times as large.
  constexpr std::array<std::string_view, 4> kResults = {"token", "logprob", "top_tokens",
                                                        "top_logprobs"};
  VOLTA_TRY(runner.executable.limit_results(std::span(kResults).first(options_.top > 0 ? 4 : 2)));
  VOLTA_TRY(find_result(runner.executable, "token", runner.token));
  VOLTA_TRY(find_result(runner.executable, "logprob", runner.logprob));
  if (options_.top > 0) {
    VOLTA_TRY(find_result(runner.executable, "top_tokens", runner.top_tokens));
    VOLTA_TRY(find_result(runner.executable, "top_logprobs", runner.top_logprobs));
  }
  return runner;
}

Result<StepRunner*> StepPlans::runner(const Transformer& model, const StepSize& size,
                                      const TensorLookup& state) {
  VOLTA_TRY(prepare(model, size));
  VOLTA_TRY(Entry* const known, entry(model, size));
  if (!known->runner) {
    VOLTA_TRY(make_arena(model));
    VOLTA_TRY(known->runner, load(model, size, known->plan, state));
  }
  return &*known->runner;
}

std::int64_t StepPlans::activation_bytes() const {
  std::int64_t bytes = arena_bytes_;
  for (const auto& [size, entry] : plans_) {
    if (entry.plan->arena_bytes > arena_bytes_) bytes += entry.plan->arena_bytes;
  }
  return bytes;
}

}  // namespace volta
