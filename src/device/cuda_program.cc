// CudaProgram: launches of single units, and the recorded graph of all units.
#include "device/cuda_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda_dispatch.h"
#include "ops/rules.h"

namespace volta {

namespace {

/// The bytes of the GPU's memory that some calls write.
class WrittenMemory {
 public:
  explicit WrittenMemory(std::span<const OpCall> calls) {
    for (const OpCall& call : calls) {
      const std::uint32_t written = writes(*call.op, call.inputs.size());
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        if (writes_input(written, i)) add(call.inputs[i]);
      }
      for (const View& output : call.outputs) add(output);
      // SAFETY: addresses are compared as numbers only, here and below.
      add({reinterpret_cast<std::uintptr_t>(call.workspace.data()), call.workspace.size()});
    }
    std::ranges::sort(ranges_, {}, &Range::begin);
    std::size_t merged = 0;
    for (const Range& range : ranges_) {
      if (merged > 0 && range.begin <= ranges_[merged - 1].begin + ranges_[merged - 1].bytes) {
        Range& last = ranges_[merged - 1];
        last.bytes = std::max(last.bytes, range.begin + range.bytes - last.begin);
      } else {
        ranges_[merged++] = range;
      }
    }
    ranges_.resize(merged);
  }

  bool meets(const View& view) const {
    const Range range = range_of(view);
    const auto after = std::ranges::upper_bound(ranges_, range.begin, {}, &Range::begin);
    const bool into_next = after != ranges_.end() && after->begin < range.begin + range.bytes;
    if (into_next || after == ranges_.begin()) return into_next;
    const Range& before = *std::prev(after);
    return range.begin < before.begin + before.bytes;
  }

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  static Range range_of(const View& view) {
    return {reinterpret_cast<std::uintptr_t>(view.data),
            static_cast<std::size_t>(view.spec().bytes())};
  }
  void add(const View& view) { add(range_of(view)); }
  void add(const Range& range) {
    if (range.bytes > 0) ranges_.push_back(range);
  }

  std::vector<Range> ranges_;  ///< Sorted and apart.
};

}  // namespace

Result<std::unique_ptr<Program>> CudaProgram::create(std::shared_ptr<CudaQueue> queue,
                                                     const std::shared_ptr<MemoryOwner>& memory,
                                                     std::span<const OpCall> calls,
                                                     const std::function<bool()>& interrupted) {
  VOLTA_TRY(CudaUnits units, make_units(calls, memory));
  VOLTA_TRY(const unsigned long long first, queue->add_calls(calls));
  return std::unique_ptr<Program>(
      new CudaProgram(std::move(queue), std::move(units), calls, interrupted, first));
}

// A fault that was not read yet stays for the next wait, which then cannot name the op.
CudaProgram::~CudaProgram() {
  if (queue_->select()) {
    static_cast<void>(cudaStreamSynchronize(queue_->stream()));
    if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
  }
  queue_->remove_calls(first_call_);
}

void CudaProgram::describe_calls() {
  const WrittenMemory written(calls_);
  decode_calls_.reserve(calls_.size());
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const OpCall& call = calls_[i];
    std::uint32_t steady = 0;
    for (std::size_t j = 0; j < std::min<std::size_t>(call.inputs.size(), 32); ++j) {
      if (!written.meets(call.inputs[j])) steady |= std::uint32_t{1} << j;
    }
    decode_calls_.push_back({.op = call.op,
                             .args = {call.inputs, call.outputs, call.workspace},
                             .number = first_call_ + i,
                             .steady_inputs = steady});
  }
}

void CudaProgram::join_decode_groups() {
  std::vector<CudaUnit> joined;
  for (std::size_t i = 0; i < units_.units.size();) {
    CudaUnit unit = units_.units[i];
    std::size_t single = 0;  // Units of one call from here on.
    while (i + single < units_.units.size() && !units_.units[i + single].is_group()) ++single;
    std::size_t taken = 1;
    if (single > 0) {
      taken = cuda::decode_group_size(std::span(decode_calls_).subspan(unit.begin, single),
                                      queue_->context(0));
      unit.end = unit.begin + taken;
    }
    joined.push_back(unit);
    i += taken;
  }
  units_.units = std::move(joined);
}

cuda::Context CudaProgram::context(std::size_t step, cudaStream_t stream, bool begins_early) const {
  cuda::Context context = queue_->context(first_call_ + step);
  context.stream = stream;
  context.steady_inputs = decode_calls_[step].steady_inputs;
  context.begins_early = begins_early;
  return context;
}

Status CudaProgram::launch_step(std::size_t step, const cuda::Context& context) {
  const OpCall& call = calls_[step];
  const cudaError_t error = cuda_run(*call.op, decode_calls_[step].args, context);
  if (error == cudaSuccess) [[likely]]
    return {};
  return cuda_error(error, describe(call));
}

Status CudaProgram::launch_unit(const CudaUnit& unit, cudaStream_t stream, bool early) {
  const OpCall& call = calls_[unit.begin];
  const std::size_t count = unit.end - unit.begin;
  const cuda::Context context = this->context(unit.begin, stream, early && unit.begin > 0);
  if (!unit.is_group()) return launch_step(unit.begin, context);
  const cudaError_t error =
      unit.of_updates()
          ? cuda::run_group(*call.op, {call.inputs, call.outputs, call.workspace}, unit.table,
                            context)
          : cuda::run_decode_group(std::span(decode_calls_).subspan(unit.begin, count), context);
  if (error == cudaSuccess) [[likely]]
    return {};
  return cuda_error(error, describe(call));
}

Status CudaProgram::launch_all(cudaStream_t stream, bool recording) {
  for (const CudaUnit& unit : units_.units) {
    if (!recording) VOLTA_TRY(check_stop(unit.begin));
    Status status = launch_unit(unit, stream, recording);
    if (status) [[likely]]
      continue;
    return std::unexpected(std::move(status).error().with_context(
        fmt::format("step {} of {}", unit.begin + 1, calls_.size())));
  }
  return {};
}

Status CudaProgram::check_stop(std::size_t step) const {
  if (calls_[step].may_stop && interrupted_ && interrupted_()) [[unlikely]]
    return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

Status CudaProgram::submit_step(std::size_t step) {
  VOLTA_TRY(check_stop(step));
  VOLTA_TRY(queue_->select());
  return launch_step(step, context(step, queue_->stream(), false));
}

Status CudaProgram::submit() {
  if (calls_.empty()) return {};
  if (graph_ == nullptr && runs_ > 0) VOLTA_TRY(record());
  VOLTA_TRY(queue_->select());
  if (graph_ == nullptr) {
    runs_ = 1;
    return launch_all(queue_->stream(), false);
  }
  VOLTA_TRY(check_stop(0));
  return cuda_status(cudaGraphLaunch(graph_, queue_->stream()), "running a plan");
}

Status CudaProgram::record() {
  VOLTA_TRY(queue_->select());
  // A stream of its own: what other threads submit meanwhile must not be recorded.
  cudaStream_t stream = nullptr;
  VOLTA_TRY(cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                        "making a stream to record a plan"));
  Status status = record_units(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  return status;
}

Status CudaProgram::record_units(cudaStream_t stream) {
  VOLTA_TRY(cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                        "recording a plan"));
  Status status = launch_all(stream, true);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status) status = cuda_status(ended, "recording a plan");
  if (status) status = cuda_status(cudaGraphInstantiate(&graph_, graph, 0), "recording a plan");
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return status;
}

}  // namespace volta
