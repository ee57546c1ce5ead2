// The kernels of groups of calls: blocks go over the chunks of all calls in strides of the grid.
// Bound by bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/update.cuh"
#include "kernels/cuda/update_group.h"

namespace volta::cuda {
namespace {

constexpr int kThreads = kElementwiseThreads;
constexpr std::int64_t kChunk = 8 * 1024;  // Elements.

static_assert(kChunk % (kThreads * kUpdateCount) == 0);

// Calls body(call, first) for all elements of all calls that this thread has.
template <typename Body>
__device__ void for_calls(const GroupTable& table, const Body& body) {
  for (std::int64_t c = blockIdx.x; c < table.chunk_count; c += gridDim.x) {
    const GroupChunk chunk = table.chunks[c];
    const GroupCall call = table.calls[chunk.call];
    const std::int64_t begin = chunk.index * kChunk;
    const std::int64_t end = min(call.elements, begin + kChunk);
    body(call, begin + threadIdx.x * kUpdateCount, end);
  }
}

struct AdamWGroup {
  Schedule schedule;
  AdamWRates rates;

  __device__ void operator()(const GroupTable& table) const {
    __shared__ AdamWStep shared;
    if (schedule.stats[2] == 0.0f) return;  // The same for all threads.
    if (threadIdx.x == 0) shared = AdamWStep(schedule);
    __syncthreads();
    const AdamWStep step = shared;
    for_calls(table, [&](const GroupCall& call, std::int64_t first, std::int64_t end) {
      const float decay = step.decay(call.number);
      // SAFETY: the views of the call hold `elements` floats each.
      for (; first < end; first += kThreads * kUpdateCount) {
        update_adamw(static_cast<float*>(call.data[0]), static_cast<const float*>(call.data[1]),
                     static_cast<float*>(call.data[2]), static_cast<float*>(call.data[3]), first,
                     call.elements, call.vectors, rates, step, decay);
      }
    });
  }
};

struct SgdGroup {
  Schedule schedule;
  float momentum;

  __device__ void operator()(const GroupTable& table) const {
    if (schedule.stats[2] == 0.0f) return;
    const float factor = schedule.stats[1], lr = schedule.schedule[0];
    for_calls(table, [&](const GroupCall& call, std::int64_t first, std::int64_t end) {
      for (; first < end; first += kThreads * kUpdateCount) {
        update_sgd(static_cast<float*>(call.data[0]), static_cast<const float*>(call.data[1]),
                   static_cast<float*>(call.data[2]), first, call.elements, call.vectors, lr,
                   factor, momentum, call.number);
      }
    });
  }
};

struct AccumulateGroup {
  __device__ void operator()(const GroupTable& table) const {
    for_calls(table, [&](const GroupCall& call, std::int64_t first, std::int64_t end) {
#pragma unroll 4
      for (; first < end; first += kThreads * kUpdateCount) {
        update_sum(static_cast<float*>(call.data[0]), static_cast<const float*>(call.data[1]),
                   first, call.elements, call.vectors, call.number);
      }
    });
  }
};

struct FillGroup {
  __device__ void operator()(const GroupTable& table) const {
    for_calls(table, [&](const GroupCall& call, std::int64_t first, std::int64_t end) {
      float values[kUpdateCount];
#pragma unroll
      for (float& value : values) value = call.number;
      for (; first < end; first += kThreads * kUpdateCount) {
        store_elements(values, static_cast<float*>(call.data[0]), first, call.elements,
                       call.vectors);
      }
    });
  }
};

// From f32 to T, as the single Cast.
template <typename T>
struct CastGroup {
  __device__ void operator()(const GroupTable& table) const {
    for_calls(table, [&](const GroupCall& call, std::int64_t first, std::int64_t end) {
#pragma unroll 4
      for (; first < end; first += kThreads * kUpdateCount) {
        float values[kUpdateCount];
        load_elements(static_cast<const float*>(call.data[0]), first, call.elements, call.vectors,
                      values);
        store_elements(values, static_cast<T*>(call.data[1]), first, call.elements, call.vectors);
      }
    });
  }
};

template <typename Body>
__global__ void __launch_bounds__(kThreads) group_kernel(const GroupTable table, const Body body) {
  body(table);
}

template <typename Body>
cudaError_t launch(const Body& body, const GroupTable& table, const Context& context) {
  if (table.chunk_count == 0) return cudaSuccess;
  const unsigned blocks =
      blocks_for(table.chunk_count, 1, std::int64_t{context.multiprocessors} * 8);
  group_kernel<<<blocks, kThreads, 0, context.stream>>>(table, body);
  return launch_error();
}

// The operands of a call that an update reads or writes element by element, and its number.
struct Operands {
  std::vector<View> views;
  float number = 0.0f;
};

std::optional<Operands> operands_of(const Op& op, const Args& args) {
  const auto inputs = [&](std::size_t count) {
    return std::vector<View>(args.inputs.begin(),
                             args.inputs.begin() + static_cast<std::ptrdiff_t>(count));
  };
  if (const auto* adamw = std::get_if<AdamW>(&op)) return Operands{inputs(4), adamw->weight_decay};
  if (const auto* sgd = std::get_if<Sgd>(&op)) {
    return Operands{inputs(args.inputs.size() - 2), sgd->weight_decay};
  }
  if (const auto* sum = std::get_if<Accumulate>(&op)) return Operands{inputs(2), sum->scale};
  if (const auto* fill = std::get_if<Fill>(&op)) return Operands{inputs(1), fill->value};
  if (const auto* cast = std::get_if<Cast>(&op)) {
    const bool narrows = args.inputs[0].dtype == DType::kF32 &&
                         (cast->to == DType::kBF16 || cast->to == DType::kF16);
    if (narrows) return Operands{{args.inputs[0], args.outputs[0]}, 0.0f};
  }
  return std::nullopt;
}

Schedule schedule_of(const Args& args) {
  const std::size_t last = args.inputs.size() - 1;
  return {args.inputs[last - 1].as<const float>(), args.inputs[last].as<const float>()};
}

bool same_schedule(const Args& a, const Args& b) {
  return a.inputs.size() == b.inputs.size() && schedule_of(a).schedule == schedule_of(b).schedule &&
         schedule_of(a).stats == schedule_of(b).stats;
}

}  // namespace

std::optional<GroupCall> group_call(const Op& op, const Args& args) {
  const auto operands = operands_of(op, args);
  if (!operands || operands->views.size() > std::size(GroupCall().data)) return std::nullopt;
  GroupCall call;
  call.elements = operands->views.front().shape.elements();
  call.number = operands->number;
  call.vectors = true;
  for (std::size_t i = 0; i < operands->views.size(); ++i) {
    call.data[i] = operands->views[i].data;
    call.vectors = call.vectors && is_aligned(call.data[i], 16);
  }
  return call;
}

bool same_group(const Op& a, const Args& a_args, const Op& b, const Args& b_args) {
  if (a.index() != b.index()) return false;
  if (const auto* one = std::get_if<AdamW>(&a)) {
    const auto& other = std::get<AdamW>(b);
    return one->beta1 == other.beta1 && one->beta2 == other.beta2 && one->eps == other.eps &&
           same_schedule(a_args, b_args);
  }
  if (const auto* one = std::get_if<Sgd>(&a)) {
    return one->momentum == std::get<Sgd>(b).momentum && same_schedule(a_args, b_args);
  }
  if (const auto* one = std::get_if<Cast>(&a)) return one->to == std::get<Cast>(b).to;
  return true;
}

std::optional<std::vector<GroupChunk>> group_chunks(std::span<const GroupCall> calls) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::int64_t count = 0;
  for (const GroupCall& call : calls) count += ceil_div(call.elements, kChunk);
  if (count > kMost || std::ssize(calls) > kMost) return std::nullopt;
  std::vector<GroupChunk> chunks;
  chunks.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::int64_t own = ceil_div(calls[i].elements, kChunk);
    for (std::int64_t index = 0; index < own; ++index) {
      chunks.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(index)});
    }
  }
  return chunks;
}

cudaError_t run_group(const Op& op, const Args& args, const GroupTable& table,
                      const Context& context) noexcept {
  if (const auto* adamw = std::get_if<AdamW>(&op)) {
    return launch(AdamWGroup{schedule_of(args), AdamWRates(*adamw)}, table, context);
  }
  if (const auto* sgd = std::get_if<Sgd>(&op)) {
    return launch(SgdGroup{schedule_of(args), sgd->momentum}, table, context);
  }
  if (std::holds_alternative<Accumulate>(op)) return launch(AccumulateGroup{}, table, context);
  if (std::holds_alternative<Fill>(op)) return launch(FillGroup{}, table, context);
  if (const auto* cast = std::get_if<Cast>(&op)) {
    if (cast->to == DType::kBF16) return launch(CastGroup<bf16>{}, table, context);
    if (cast->to == DType::kF16) return launch(CastGroup<f16>{}, table, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace volta::cuda
