// Executable: gives a plan its memory, resolves every address once, and runs it.
#include "device/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/memory_check.h"
#include "graph/memory_planner.h"
#include "ops/rules.h"

namespace volta {

namespace {

std::string describe(const PlanBinding& binding) {
  return fmt::format("{} '{}'", kind_name(binding.kind), binding.name);
}

// The checked tensor for one binding; nothing for an input that the executable should keep.
Result<std::optional<Tensor>> resolve(const PlanBinding& binding, const Device& device,
                                      const TensorLookup& lookup) {
  if (binding.kind == ValueKind::kConstant) {
    // A constant in the device's own memory is shared, because nothing writes it.
    const bool here =
        binding.constant.bytes() == 0 || binding.constant.buffer()->owner() == device.memory();
    if (here) return binding.constant;
    return binding.constant.clone_to(device.memory());
  }
  if (!lookup) {
    return fail(ErrorCode::kInvalidArgument, "no lookup was given to find it");
  }
  VOLTA_TRY(std::optional<Tensor> found, lookup(binding));
  if (!found) {
    if (binding.kind == ValueKind::kInput) return found;
    return fail(ErrorCode::kInvalidArgument,
                "the lookup gave no tensor; only inputs can go without");
  }
  const Tensor& tensor = *found;
  if (tensor.spec() != binding.spec) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the plan needs {}, but the lookup gave {}", to_string(binding.spec),
                            to_string(tensor.spec())));
  }
  VOLTA_TRY(check_memory(device, tensor, binding.written, "its tensor"));
  return found;
}

// A plan that points outside its memory is a bug in the code that made it. Stop before a kernel
// uses it.
Status check_window(std::int64_t offset, std::int64_t length, std::int64_t available,
                    std::string_view what) {
  if (offset >= 0 && length >= 0 && offset <= available && length <= available - offset) return {};
  return fail(ErrorCode::kInternal, fmt::format("{} takes bytes [{}, {} + {}) of {}", what, offset,
                                                offset, length, available));
}

Status check_operand(const Plan& plan, const PlanOperand& operand, bool written) {
  if (operand.binding < 0) {
    return check_window(operand.offset, operand.spec.bytes(), plan.arena_bytes,
                        "an operand in the arena");
  }
  if (static_cast<std::size_t>(operand.binding) >= plan.bindings.size()) {
    return fail(ErrorCode::kInternal, fmt::format("an operand names binding {} of {}",
                                                  operand.binding, plan.bindings.size()));
  }
  const PlanBinding& binding = plan.bindings[static_cast<std::size_t>(operand.binding)];
  if (written && !binding.written) {
    return fail(ErrorCode::kInternal,
                fmt::format("{} is written but not declared so", describe(binding)));
  }
  return check_window(operand.offset, operand.spec.bytes(), binding.spec.bytes(),
                      "an operand in " + describe(binding));
}

Status check_step(const Plan& plan, const PlanStep& step) {
  const std::uint32_t written = writes(step.op, step.inputs.size());
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    VOLTA_TRY(check_operand(plan, step.inputs[i], writes_input(written, i)));
  }
  for (const PlanOperand& output : step.outputs) VOLTA_TRY(check_operand(plan, output, true));
  return check_window(step.workspace_offset, step.workspace_bytes, plan.arena_bytes,
                      "the workspace");
}

// The steps of a plan may run in the order of the plan, so no step may wait for a later one.
Status check_waits(const Plan& plan, std::size_t step) {
  for (const std::size_t wait : plan.steps[step].waits) {
    if (wait < step) continue;
    return fail(ErrorCode::kInternal,
                fmt::format("it waits for step {}, which does not come before it", wait + 1));
  }
  return {};
}

// A plan may come from a file, which may have been made for a device with more streams.
Status check_stream(const Device& device, const PlanStep& step) {
  if (step.stream >= 0 && step.stream < device.streams()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("it runs in stream {}, and device '{}' has {} (from 0): was the plan made for "
                  "another device? Make it with this one",
                  step.stream, device.info().id, device.streams()));
}

std::vector<TensorSpec> specs_of(std::span<const PlanOperand> operands) {
  std::vector<TensorSpec> specs;
  specs.reserve(operands.size());
  for (const PlanOperand& operand : operands) specs.push_back(operand.spec);
  return specs;
}

// A plan is made for one device. Another one may lack a kernel, or its kernels may need more
// workspace because of another instruction set or number of threads.
Status check_kernel(const Device& device, const PlanStep& step) {
  const std::vector<TensorSpec> inputs = specs_of(step.inputs);
  if (!device.supports(step.op, inputs)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("device '{}' has no kernel for it: was the plan made for another "
                            "device? Make it with this one",
                            device.info().id));
  }
  const std::int64_t needed = device.workspace_bytes(step.op, inputs, specs_of(step.outputs));
  if (needed <= step.workspace_bytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("device '{}' needs a workspace of {} bytes, the plan has {}: it was made "
                          "for another device or number of threads; make it with this one",
                          device.info().id, needed, step.workspace_bytes));
}

Status check_plan(const Plan& plan, const Device& device) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Status status = check_step(plan, plan.steps[i]);
    if (status) status = check_waits(plan, i);
    if (status) status = check_stream(device, plan.steps[i]);
    if (status) status = check_kernel(device, plan.steps[i]);
    if (!status) {
      return std::unexpected(std::move(status).error().with_context(
          fmt::format("plan step {} of {}, {} '{}'", i + 1, plan.steps.size(),
                      to_string(plan.steps[i].op), plan.steps[i].label)));
    }
  }
  for (const PlanOutput& output : plan.outputs) {
    if (Status status = check_operand(plan, output.operand, false); !status) {
      return std::unexpected(
          std::move(status).error().with_context(fmt::format("plan output '{}'", output.name)));
    }
  }
  return {};
}

Status check_overlaps(const Plan& plan, std::span<const Tensor> tensors) {
  std::vector<TensorUse> uses;
  uses.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    uses.push_back({&tensors[i], plan.bindings[i].written});
  }
  const auto overlap = find_written_overlap(uses);
  if (!overlap) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("binding {}: the plan writes it, but its tensor shares memory with that "
                          "of {}: give one of them memory of its own",
                          describe(plan.bindings[overlap->written]),
                          describe(plan.bindings[overlap->other])));
}

// The arena that the caller gave, or a new one.
Result<std::shared_ptr<DeviceBuffer>> arena_for(const Plan& plan, Device& device,
                                                std::shared_ptr<DeviceBuffer> given) {
  if (given == nullptr) {
    auto arena = DeviceBuffer::allocate(device.memory(), plan.arena_bytes);
    if (arena) return std::make_shared<DeviceBuffer>(*std::move(arena));
    return std::unexpected(std::move(arena).error().with_context("allocating the plan's arena"));
  }
  if (given->owner() != device.memory()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the arena is not in the memory of device '{}'; allocate it there",
                            device.info().id));
  }
  if (given->bytes() < plan.arena_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the arena has {} bytes, the plan needs {}; give it a larger one",
                            given->bytes(), plan.arena_bytes));
  }
  return given;
}

// A bound tensor must not be in the arena, because every step may write anywhere in it.
Status check_beside_arena(const Plan& plan, std::span<const Tensor> tensors,
                          const std::shared_ptr<DeviceBuffer>& arena) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].bytes() == 0 || tensors[i].buffer() != arena) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("binding {}: its tensor lies in the plan's arena: give it memory of "
                            "its own",
                            describe(plan.bindings[i])));
  }
  return {};
}

// Whether a step writes a parameter, as the update of an optimiser does.
bool changes_parameter(const Plan& plan, const PlanStep& step) {
  const std::uint32_t written = writes(step.op, step.inputs.size());
  for (std::size_t i = 0; written != 0 && i < step.inputs.size(); ++i) {
    const std::int32_t binding = step.inputs[i].binding;
    if (writes_input(written, i) && binding >= 0 &&
        plan.bindings[static_cast<std::size_t>(binding)].kind == ValueKind::kParameter) {
      return true;
    }
  }
  return false;
}

// Whether a run may be given up before some of its steps, as long as no earlier step has changed a
// parameter. With several streams, steps that are later in the plan may have run already.
bool may_stop_at_all(const Plan& plan) {
  const auto in_other_stream = [](const PlanStep& step) { return step.stream != 0; };
  const auto changes = [&](const PlanStep& step) { return changes_parameter(plan, step); };
  return std::ranges::none_of(plan.steps, in_other_stream) ||
         std::ranges::none_of(plan.steps, changes);
}

Error in_step(Error error, std::size_t step, std::size_t steps) {
  return std::move(error).with_context(fmt::format("step {} of {}", step + 1, steps));
}

}  // namespace

Status Program::submit() {
  for (std::size_t i = 0; i < steps_; ++i) {
    Status status = submit_step(i);
    if (!status) [[unlikely]]
      return std::unexpected(in_step(std::move(status).error(), i, steps_));
  }
  return {};
}

Result<Executable> Executable::bind(std::shared_ptr<const Plan> plan, Device& device,
                                    const TensorLookup& lookup,
                                    std::shared_ptr<DeviceBuffer> arena) {
  if (plan == nullptr) return fail(ErrorCode::kInvalidArgument, "there is no plan to load");
  VOLTA_TRY(check_plan(*plan, device));

  Executable bound;
  // Allocates the largest block first, so that a plan that cannot fit fails before lookup makes
  // anything.
  VOLTA_TRY(bound.arena_, arena_for(*plan, device, std::move(arena)));
  bound.plan_ = std::move(plan);
  VOLTA_TRY(bound.bind_tensors(device, lookup));
  VOLTA_TRY(check_overlaps(*bound.plan_, bound.bindings_));
  VOLTA_TRY(check_beside_arena(*bound.plan_, bound.bindings_, bound.arena_));
  bound.device_ = &device;
  bound.kept_device_ = device.weak_from_this().lock();
  bound.resolve_calls();
  return bound;
}

Status Executable::bind_tensors(Device& device, const TensorLookup& lookup) {
  bindings_.resize(plan_->bindings.size());
  input_offsets_.assign(plan_->bindings.size(), -1);
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    const PlanBinding& binding = plan_->bindings[i];
    auto tensor = resolve(binding, device, lookup);
    if (!tensor) {
      return std::unexpected(
          std::move(tensor).error().with_context("binding " + describe(binding)));
    }
    if (*tensor) {
      bindings_[i] = **std::move(tensor);
    } else {
      input_offsets_[i] = 0;
    }
  }
  return place_inputs(device);
}

// Allocates the block of the inputs that have no tensor yet, and makes their tensors.
Status Executable::place_inputs(Device& device) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    if (input_offsets_[i] < 0) continue;
    input_offsets_[i] = bytes;
    VOLTA_TRY(add_aligned(bytes, plan_->bindings[i].spec.bytes()));
  }
  if (bytes == 0) return {};
  const auto allocate = [&](const std::shared_ptr<MemoryOwner>& owner) -> Result<DeviceBuffer> {
    auto block = DeviceBuffer::allocate(owner, bytes);
    if (block) VOLTA_TRY(block->fill(0, bytes, std::byte{0}));
    if (block) return block;
    return std::unexpected(std::move(block).error().with_context("allocating the plan's inputs"));
  };
  VOLTA_TRY(DeviceBuffer block, allocate(device.memory()));
  inputs_ = std::make_shared<DeviceBuffer>(std::move(block));
  host_inputs_ = inputs_;
  if (device.memory() != host_memory()) {
    VOLTA_TRY(DeviceBuffer staged, allocate(host_memory()));
    host_inputs_ = std::make_shared<DeviceBuffer>(std::move(staged));
  }
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    if (input_offsets_[i] < 0) continue;
    VOLTA_TRY(bindings_[i],
              Tensor::from_buffer(inputs_, input_offsets_[i], plan_->bindings[i].spec));
  }
  return {};
}

// Members are replaced before those that they refer to: the old program before the old calls, and
// so on.
Executable& Executable::operator=(Executable&& other) noexcept {
  if (this == &other) return *this;
  listeners_ = std::move(other.listeners_);
  program_ = std::move(other.program_);
  calls_ = std::move(other.calls_);
  views_ = std::move(other.views_);
  bindings_ = std::move(other.bindings_);
  inputs_ = std::move(other.inputs_);
  host_inputs_ = std::move(other.host_inputs_);
  input_offsets_ = std::move(other.input_offsets_);
  host_results_ = std::move(other.host_results_);
  results_begin_ = other.results_begin_;
  wanted_results_ = std::move(other.wanted_results_);
  arena_ = std::move(other.arena_);
  plan_ = std::move(other.plan_);
  device_ = std::exchange(other.device_, nullptr);
  kept_device_ = std::move(other.kept_device_);
  return *this;
}

Status Executable::run() {
  if (host_inputs_ != inputs_) {
    VOLTA_TRY(const auto bytes, host_inputs_->host_bytes(0, host_inputs_->bytes()));
    if (Status copied = inputs_->write(0, bytes); !copied) {
      return std::unexpected(std::move(copied).error().with_context("copying the plan's inputs"));
    }
  }
  return listeners_.empty() ? program_->submit() : run_with_listeners();
}

Status Executable::synchronize() const { return device_->synchronize(); }

Status Executable::copy_results() {
  VOLTA_TRY(stage_results());
  if (host_results_ == arena_) return {};
  VOLTA_TRY(const auto bytes, host_results_->host_bytes(0, host_results_->bytes()));
  if (Status copied = arena_->submit_read(results_begin_, bytes); !copied) {
    return std::unexpected(std::move(copied).error().with_context("copying the plan's results"));
  }
  return {};
}

Status Executable::fetch() {
  VOLTA_TRY(copy_results());
  return synchronize();
}

// Allocates the host's copy of the results, or uses the arena if that is in host memory.
Status Executable::stage_results() {
  if (host_results_ != nullptr) return {};
  if (arena_->owner() == host_memory()) {
    host_results_ = arena_;
    return {};
  }
  std::int64_t begin = plan_->arena_bytes;
  std::int64_t end = 0;
  const auto include = [&](const PlanOperand& operand) {
    if (operand.binding >= 0) return;
    begin = std::min(begin, operand.offset);
    end = std::max(end, operand.offset + operand.spec.bytes());
  };
  for (const PlanOperand* const operand : wanted_results_) include(*operand);
  if (wanted_results_.empty()) {
    for (const PlanOutput& output : plan_->outputs) include(output.operand);
  }
  begin = std::min(begin, end);
  auto block = DeviceBuffer::allocate(device_->result_memory(), end - begin);
  if (!block) {
    return std::unexpected(std::move(block).error().with_context("a copy of the plan's results"));
  }
  host_results_ = std::make_shared<DeviceBuffer>(*std::move(block));
  results_begin_ = begin;
  return {};
}

Status Executable::limit_results(std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    VOLTA_TRY(const PlanOperand* const operand, find_output(name));
    wanted_results_.push_back(operand);
  }
  return {};
}

void Executable::add_listener(std::shared_ptr<StepListener> listener) {
  if (listener != nullptr) listeners_.push_back(std::move(listener));
}

void Executable::remove_listener(const StepListener& listener) {
  std::erase_if(listeners_, [&](const auto& known) { return known.get() == &listener; });
}

Status Executable::run_with_listeners() {
  for (const auto& listener : listeners_) listener->run_begins();
  Status status;
  std::size_t done = 0;
  while (done < calls_.size()) {
    status = run_step_with_listeners(done);
    if (!status) [[unlikely]]
      break;
    ++done;
  }
  for (const auto& listener : listeners_) listener->run_ends(done, status.has_value());
  if (!status) return std::unexpected(in_step(std::move(status).error(), done, calls_.size()));
  return {};
}

Status Executable::run_step_with_listeners(std::size_t step) {
  for (const auto& listener : listeners_) VOLTA_TRY(listener->step_begins(step, calls_[step]));
  VOLTA_TRY(program_->submit_step(step));
  VOLTA_TRY(device_->synchronize());
  for (const auto& listener : listeners_) VOLTA_TRY(listener->step_ends(step, calls_[step]));
  return {};
}

void Executable::resolve_calls() {
  std::size_t operands = 0;
  for (const PlanStep& step : plan_->steps) operands += step.inputs.size() + step.outputs.size();
  views_.reserve(operands);  // Calls keep spans of it, so it must not grow later.
  calls_.reserve(plan_->steps.size());

  const auto add_views = [this](std::span<const PlanOperand> list) {
    const std::size_t first = views_.size();
    for (const PlanOperand& operand : list) views_.push_back(view_of(operand));
    return std::span<const View>(views_).subspan(first, list.size());
  };
  bool may_stop = may_stop_at_all(*plan_);
  for (const PlanStep& step : plan_->steps) {
    may_stop = may_stop && !changes_parameter(*plan_, step);
    OpCall call;
    call.may_stop = may_stop;
    call.op = &step.op;
    call.inputs = add_views(step.inputs);
    call.outputs = add_views(step.outputs);
    // SAFETY: check_plan() found the workspace inside the arena, which lives as long as this does.
    call.workspace = {static_cast<std::byte*>(arena_->at_offset(step.workspace_offset)),
                      static_cast<std::size_t>(step.workspace_bytes)};
    call.label = step.label;
    call.stream = step.stream;
    call.waits = step.waits;
    calls_.push_back(call);
  }
}

// SAFETY: check_plan() found the operand inside the arena or its binding, whose tensor has exactly
// the binding's size (resolve()); both live as long as this object.
View Executable::view_of(const PlanOperand& operand) const {
  View view(nullptr, operand.spec);
  if (operand.spec.bytes() == 0) return view;
  if (operand.binding < 0) {
    view.data = arena_->at_offset(operand.offset);
  } else {
    const Tensor& tensor = bindings_[static_cast<std::size_t>(operand.binding)];
    view.data = tensor.buffer()->at_offset(tensor.offset() + operand.offset);
  }
  return view;
}

Result<Tensor> Executable::binding(std::string_view name) const {
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    const PlanBinding& binding = plan_->bindings[i];
    if (binding.name != name) continue;
    const std::int64_t offset = input_offsets_[i];
    if (offset < 0 || host_inputs_ == nullptr) return bindings_[i];
    return Tensor::from_buffer(host_inputs_, offset, binding.spec);
  }
  std::string known;
  for (const PlanBinding& binding : plan_->bindings) {
    known += (known.empty() ? "" : ", ") + binding.name;
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("the plan binds no '{}'; it binds: {}", name, known));
}

Result<const PlanOperand*> Executable::find_output(std::string_view name) const {
  std::string known;
  for (const PlanOutput& output : plan_->outputs) {
    if (output.name == name) return &output.operand;
    known += (known.empty() ? "" : ", ") + output.name;
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("the plan has no output '{}'; it has: {}", name, known));
}

Result<Tensor> Executable::output(std::string_view name) const {
  VOLTA_TRY(const PlanOperand* const operand, find_output(name));
  if (operand->binding < 0) return Tensor::from_buffer(arena_, operand->offset, operand->spec);
  const Tensor& tensor = bindings_[static_cast<std::size_t>(operand->binding)];
  if (tensor.bytes() == 0) return Tensor::empty(operand->spec, arena_->owner());
  return Tensor::from_buffer(tensor.buffer(), tensor.offset() + operand->offset, operand->spec);
}

Result<Tensor> Executable::result(std::string_view name) {
  VOLTA_TRY(const PlanOperand* const operand, find_output(name));
  if (operand->binding >= 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output '{}' is the bound tensor '{}'; read that one", name,
                            plan_->bindings[static_cast<std::size_t>(operand->binding)].name));
  }
  VOLTA_TRY(stage_results());
  const std::int64_t offset = operand->offset - results_begin_;
  if (offset < 0 || offset + operand->spec.bytes() > host_results_->bytes()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output '{}' is not among the results that are copied", name));
  }
  return Tensor::from_buffer(host_results_, offset, operand->spec);
}

}  // namespace volta
