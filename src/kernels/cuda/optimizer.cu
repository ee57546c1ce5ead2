// AdamW and Sgd: one pass over a parameter, its gradient and its state, in place. Nothing is
// changed if the step's gradients were not finite. Bound by bytes: 28 per element of AdamW. A plan
// runs many of them in one launch: update_group.cu.
#include <cstdint>

#include "kernels/cuda/update.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = kElementwiseThreads;

// Calls body(first) for the elements of this thread.
template <typename Body>
__device__ void for_elements(std::int64_t n, const Body& body) {
  const std::int64_t stride = std::int64_t{gridDim.x} * (kThreads * kUpdateCount);
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kUpdateCount;
       first < n; first += stride) {
    body(first);
  }
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(float* param, const float* grad, float* m, float* v, std::int64_t n,
                 const Schedule schedule, const AdamWRates rates, float weight_decay,
                 bool vectors) {
  __shared__ AdamWStep shared;
  if (schedule.stats[2] == 0.0f) return;  // The same for all threads.
  if (threadIdx.x == 0) shared = AdamWStep(schedule);
  __syncthreads();
  const AdamWStep step = shared;
  const float decay = step.decay(weight_decay);
  for_elements(n, [&](std::int64_t first) {
    update_adamw(param, grad, m, v, first, n, vectors, rates, step, decay);
  });
}

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(float* param, const float* grad, float* velocity, std::int64_t n,
               const Schedule schedule, float momentum, float weight_decay, bool vectors) {
  if (schedule.stats[2] == 0.0f) return;
  const float factor = schedule.stats[1], lr = schedule.schedule[0];
  for_elements(n, [&](std::int64_t first) {
    update_sgd(param, grad, velocity, first, n, vectors, lr, factor, momentum, weight_decay);
  });
}

// Enough blocks to fill the GPU once; each reads the schedule once and goes over the rest in
// strides.
unsigned blocks_of(std::int64_t n, const Context& context) {
  return blocks_for(n, kThreads * kUpdateCount, std::int64_t{context.multiprocessors} * 8);
}

// Whether the first `count` inputs are 16-byte aligned.
bool all_aligned(const Args& args, std::size_t count) {
  bool aligned = true;
  for (const View& input : args.inputs.first(count)) {
    aligned = aligned && is_aligned(input.data, 16);
  }
  return aligned;
}

}  // namespace

std::int64_t workspace_bytes(const AdamW&, const ArgShapes&, const Context&) { return 0; }
bool supports(const AdamW&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const AdamW& op, const Args& args, const Context& context) noexcept {
  const std::int64_t n = args.inputs[0].shape.elements();
  if (n == 0) return cudaSuccess;
  const Schedule schedule = {args.inputs[4].as<const float>(), args.inputs[5].as<const float>()};
  adamw_kernel<<<blocks_of(n, context), kThreads, 0, context.stream>>>(
      args.inputs[0].as<float>(), args.inputs[1].as<const float>(), args.inputs[2].as<float>(),
      args.inputs[3].as<float>(), n, schedule, AdamWRates(op), op.weight_decay,
      all_aligned(args, 4));
  return launch_error();
}

std::int64_t workspace_bytes(const Sgd&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Sgd&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Sgd& op, const Args& args, const Context& context) noexcept {
  const std::int64_t n = args.inputs[0].shape.elements();
  if (n == 0) return cudaSuccess;
  const std::size_t last = args.inputs.size() - 1;
  const Schedule schedule = {args.inputs[last - 1].as<const float>(),
                             args.inputs[last].as<const float>()};
  float* velocity = args.inputs.size() == 5 ? args.inputs[2].as<float>() : nullptr;
  sgd_kernel<<<blocks_of(n, context), kThreads, 0, context.stream>>>(
      args.inputs[0].as<float>(), args.inputs[1].as<const float>(), velocity, n, schedule,
      op.momentum, op.weight_decay, all_aligned(args, last - 1));
  return launch_error();
}

}  // namespace volta::cuda
