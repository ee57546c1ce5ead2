#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "device/checking_device.h"
#include "graph/passes.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 31;

TrainingGraphOptions graph_options(const TrainerOptions& o, const LoraConfig& lora) {
  return {.batch = o.batch,
          .time = o.time,
          .accumulate = o.accumulate,
          .masked = o.masked,
          .dropout = {o.dropout},
          .optimizer = o.optimizer,
          .lora = lora};
}

// The optimised graphs of an update: that of a micro-batch and, when accumulating, that which
// applies the gradients.
struct UpdateGraphs {
  Graph micro;
  std::optional<Graph> apply;
};

Result<UpdateGraphs> build_graphs(const TransformerConfig& config, const LoraConfig& lora,
                                  const TrainerOptions& options, Device& device) {
  const TrainingGraphOptions wanted = graph_options(options, lora);
  const OptimizeOptions passes{.compute_dtype = options.compute_dtype,
                               .rounding = Rounding::kActivations};
  const bool accumulate = options.accumulate > 1;
  VOLTA_TRY(const Graph built, accumulate ? build_accumulate_graph(config, wanted)
                                          : build_training_graph(config, wanted));
  UpdateGraphs graphs;
  VOLTA_TRY(graphs.micro, optimize(built, device, passes));
  if (!accumulate) return graphs;
  VOLTA_TRY(const Graph update, build_apply_graph(config, wanted));
  VOLTA_TRY(graphs.apply, optimize(update, device, passes));
  return graphs;
}

// An element of a result that has been fetched.
Result<float> read_scalar(Executable& executable, std::string_view name, std::size_t index = 0) {
  VOLTA_TRY(const Tensor result, executable.result(name));
  VOLTA_TRY(const std::span<const float> values, result.values<float>());
  if (index < values.size()) return values[index];
  return fail(ErrorCode::kInternal,
              fmt::format("the result '{}' is {}", name, to_string(result.spec())));
}

Status run_and_fetch(Executable& executable) {
  VOLTA_TRY(executable.run());
  return executable.fetch();
}

// Removes the sign of a NaN, which means nothing to a reader.
double unsigned_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

}  // namespace

Status validate(const TrainerOptions& o) {
  const auto bad = [](std::string_view what, auto value, std::string_view range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("training: {} is {}; it must be {}", what, value, range));
  };
  if (o.batch < 1) return bad("batch", o.batch, "at least 1");
  if (o.time < 1) return bad("the sequence length", o.time, "at least 1");
  if (o.batch > kMaxBatchTokens / o.time) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("training: a batch of {} with sequences of {} is too large, because it "
                            "may have {} at most; use a smaller --batch and more --accumulate",
                            o.batch, counted(o.time, "token"), counted(kMaxBatchTokens, "token")));
  }
  if (o.accumulate < 1 || o.accumulate > (1 << 20)) {
    return bad("accumulate", o.accumulate, "between 1 and 1048576");
  }
  if (!(o.dropout >= 0.0f && o.dropout < 1.0f)) return bad("dropout", o.dropout, "in [0, 1)");
  const OptimizerConfig& opt = o.optimizer;
  if (!(opt.beta1 >= 0.0f && opt.beta1 < 1.0f)) return bad("beta1", opt.beta1, "in [0, 1)");
  if (!(opt.beta2 >= 0.0f && opt.beta2 < 1.0f)) return bad("beta2", opt.beta2, "in [0, 1)");
  if (!(opt.eps > 0.0f) || !std::isfinite(opt.eps)) return bad("eps", opt.eps, "positive");
  if (!(opt.weight_decay >= 0.0f) || !std::isfinite(opt.weight_decay)) {
    return bad("weight_decay", opt.weight_decay, "0 or positive");
  }
  if (!(opt.momentum >= 0.0f && opt.momentum < 1.0f)) {
    return bad("momentum", opt.momentum, "in [0, 1)");
  }
  if (!(opt.clip >= 0.0f) || !std::isfinite(opt.clip))
    return bad("clip", opt.clip, "0 (off) or positive");
  if (o.compute_dtype != DType::kF32 && o.compute_dtype != DType::kBF16) {
    return bad("the compute type", dtype_name(o.compute_dtype), "f32 or bf16");
  }
  VOLTA_TRY(validate(o.schedule));
  // Every step reduces each weight by the fraction lr * weight_decay, which must be below 1.
  if (!(o.schedule.lr * static_cast<double>(opt.weight_decay) < 1.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("training: lr is {} and weight_decay {}; their product must be below 1 "
                            "(usual: an lr of 1e-4 to 1e-2, a weight_decay of 0.1)",
                            o.schedule.lr, opt.weight_decay));
  }
  return {};
}

Result<Trainer> Trainer::create(const Transformer& model, const TrainerOptions& options) {
  VOLTA_TRY(validate(options));
  Trainer trainer(model, options);
  VOLTA_TRY(UpdateGraphs graphs,
            build_graphs(model.config(), model.lora(), options, *model.device()));
  trainer.graph_ = std::move(graphs.micro);
  VOLTA_TRY(trainer.micro_, trainer.load(trainer.graph_));
  if (graphs.apply) {
    VOLTA_TRY(trainer.apply_, trainer.load(*graphs.apply));
  }
  const std::int64_t tokens = options.batch * options.time;
  VOLTA_TRY(trainer.ids_, try_make_array<std::int32_t>(tokens));
  VOLTA_TRY(trainer.targets_, try_make_array<std::int32_t>(tokens));
  std::vector<std::int32_t> positions(static_cast<std::size_t>(options.time));
  std::iota(positions.begin(), positions.end(), 0);
  VOLTA_TRY(Tensor input, trainer.micro_->binding("positions"));
  VOLTA_TRY(input.write(std::span<const std::int32_t>(positions)));
  return trainer;
}

Result<TrainerMemory> Trainer::estimate(const TransformerConfig& model, const LoraConfig& lora,
                                        const TrainerOptions& options, Device& device) {
  VOLTA_TRY(validate(options));
  VOLTA_TRY(const UpdateGraphs graphs, build_graphs(model, lora, options, device));
  TrainerMemory memory;
  memory.weights = 4 * parameter_count(model);
  std::set<std::string, std::less<>> states;
  for (const Graph* graph : {&graphs.micro, graphs.apply ? &*graphs.apply : nullptr}) {
    if (graph == nullptr) continue;
    VOLTA_TRY(const Plan plan, make_plan(*graph, device));
    memory.activations += plan.arena_bytes;
    for (const PlanBinding& binding : plan.bindings) {
      const bool state = binding.kind == ValueKind::kState && states.insert(binding.name).second;
      if (state) memory.optimizer += binding.spec.bytes();
    }
  }
  return memory;
}

Result<Executable> Trainer::load(const Graph& graph) {
  Device& device = *model_.device();
  VOLTA_TRY(Plan plan, make_plan(graph, device));
  const auto lookup = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    if (binding.kind == ValueKind::kInput) return std::nullopt;
    if (binding.kind != ValueKind::kState) return model_.bind(binding);
    auto& tensors = binding.name.starts_with("grad.") ? gradients_ : state_;
    Tensor& state = tensors[binding.name];
    if (state.spec() != binding.spec) {
      VOLTA_TRY(state, Tensor::zeros(binding.spec, device.memory()));
    }
    return state;
  };
  return device.load(std::make_shared<const Plan>(std::move(plan)), lookup);
}

TrainerMemory Trainer::memory() const {
  TrainerMemory memory;
  memory.weights = model_.weight_bytes();
  for (const auto& [name, tensor] : state_) memory.optimizer += tensor.bytes();
  for (const auto& [name, tensor] : gradients_) memory.optimizer += tensor.bytes();
  memory.activations = micro_->plan().arena_bytes + (apply_ ? apply_->plan().arena_bytes : 0);
  return memory;
}

Status Trainer::write_batch(const BatchSource& batches, std::int64_t micro) {
  const std::span<std::int32_t> ids = ids_.span();
  const std::span<std::int32_t> targets = targets_.span();
  VOLTA_TRY(batches.fill(step_, micro, ids, targets));
  const auto vocab = static_cast<std::int32_t>(model_.config().vocab_size);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab || targets[i] >= vocab) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("step {}: token id {} is outside the vocabulary of {}; the data was "
                              "made with another tokenizer, or for a larger --vocab",
                              step_ + 1, targets[i] >= vocab ? targets[i] : ids[i], vocab));
    }
  }
  VOLTA_TRY(Tensor ids_input, micro_->binding("ids"));
  VOLTA_TRY(ids_input.write(std::span<const std::int32_t>(ids)));
  VOLTA_TRY(Tensor targets_input, micro_->binding("targets"));
  VOLTA_TRY(targets_input.write(std::span<const std::int32_t>(targets)));
  if (options_.dropout > 0.0f || model_.lora().dropout > 0.0f) {
    const std::array<std::int64_t, 2> rng = {static_cast<std::int64_t>(options_.seed),
                                             step_ * options_.accumulate + micro};
    VOLTA_TRY(Tensor input, micro_->binding("rng"));
    VOLTA_TRY(input.write(std::span<const std::int64_t>(rng)));
  }
  return {};
}

Status Trainer::write_schedule() {
  const auto t = static_cast<double>(step_ + 1);
  const OptimizerConfig& optimizer = options_.optimizer;
  const std::array<float, 3> values = {
      static_cast<float>(learning_rate(options_.schedule, step_)),
      static_cast<float>(1.0 - std::pow(static_cast<double>(optimizer.beta1), t)),
      static_cast<float>(1.0 - std::pow(static_cast<double>(optimizer.beta2), t))};
  VOLTA_TRY(Tensor schedule, (apply_ ? *apply_ : *micro_).binding("schedule"));
  return schedule.write(std::span<const float>(values));
}

// Counts the targets of the whole update, by which its loss is divided.
Status Trainer::write_loss_scale(const BatchSource& batches) {
  std::int64_t count = 0;
  for (std::int64_t micro = 0; micro < options_.accumulate; ++micro) {
    VOLTA_TRY(batches.fill(step_, micro, ids_.span(), targets_.span()));
    count += std::ranges::count_if(targets_, [](std::int32_t target) { return target >= 0; });
  }
  if (count == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("step {}: no token of the batch is a target", step_ + 1));
  }
  const std::array<float, 1> scale = {static_cast<float>(1.0 / static_cast<double>(count))};
  VOLTA_TRY(Tensor input, micro_->binding("loss_scale"));
  return input.write(std::span<const float>(scale));
}

// Runs every micro-batch of the update and returns their mean loss.
Result<double> Trainer::run_micro_batches(const BatchSource& batches) {
  if (options_.masked) VOLTA_TRY(write_loss_scale(batches));
  double loss = 0.0;
  for (std::int64_t micro = 0; micro < options_.accumulate; ++micro) {
    VOLTA_TRY(write_batch(batches, micro));
    VOLTA_TRY(run_and_fetch(*micro_));
    VOLTA_TRY(const float one, read_scalar(*micro_, "loss"));
    loss += static_cast<double>(one);
  }
  return options_.masked ? loss : loss / static_cast<double>(options_.accumulate);
}

Status Trainer::zero_gradients() {
  for (auto& [name, gradient] : gradients_) VOLTA_TRY(gradient.set_zero());
  return {};
}

Result<StepReport> Trainer::step(const BatchSource& batches) {
  VOLTA_TRY(write_schedule());
  auto ran = run_micro_batches(batches);
  Status applied;
  if (ran && apply_) applied = run_and_fetch(*apply_);
  if (!ran || !applied) {  // The next step must start from zero gradients.
    VOLTA_TRY(zero_gradients());
    VOLTA_TRY(std::move(applied));
    return std::unexpected(std::move(ran).error());
  }
  const double loss = *ran;
  Executable& update = apply_ ? *apply_ : *micro_;
  VOLTA_TRY(const float norm, read_scalar(update, "stats", 0));
  VOLTA_TRY(const float finite, read_scalar(update, "stats", 2));
  if (finite == 0.0f)
    return std::unexpected(name_non_finite(batches, loss, static_cast<double>(norm)));
  const StepReport report{step_ + 1, loss, learning_rate(options_.schedule, step_),
                          static_cast<double>(norm)};
  ++step_;
  return report;
}

// The update was skipped, so weights and moments are unchanged. Running it again with a check
// computes the same numbers and stops at the first op that gives a non-finite one.
Error Trainer::name_non_finite(const BatchSource& batches, double loss, double norm) {
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}; the weights are those of the step before. Lower the "
      "learning rate, clip gradients or check the data",
      step_ + 1, unsigned_nan(loss), unsigned_nan(norm));
  const auto check = std::make_shared<FiniteCheck>(model_.device()->memory());
  micro_->add_listener(check);
  if (apply_) apply_->add_listener(check);
  auto again = run_micro_batches(batches);
  Status applied;
  if (again && apply_) applied = run_and_fetch(*apply_);
  micro_->remove_listener(*check);
  if (apply_) apply_->remove_listener(*check);
  if (auto zeroed = zero_gradients(); !zeroed) return std::move(zeroed).error();
  if (!again) return std::move(again).error().with_context(what);
  if (!applied) return std::move(applied).error().with_context(what);
  return Error(ErrorCode::kNonFinite, what);
}

Status Trainer::restore(std::int64_t steps_done, const std::map<std::string, Tensor>& state) {
  if (steps_done < 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} steps done", steps_done));
  }
  for (const auto& [name, tensor] : state_) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.spec() != tensor.spec()) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("optimiser tensor '{}' {} is {}; the checkpoint belongs to another "
                              "model or optimiser",
                              name, to_string(tensor.spec()),
                              found == state.end() ? "missing" : to_string(found->second.spec())));
    }
  }
  for (auto& [name, tensor] : state_) {
    VOLTA_TRY(const Tensor host, state.find(name)->second.clone_to());
    VOLTA_TRY(const auto bytes, host.host_bytes());
    VOLTA_TRY(tensor.write_bytes(bytes));
  }
  step_ = steps_done;
  return {};
}

}  // namespace volta
