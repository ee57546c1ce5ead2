// AdamW and Sgd: one pass over a parameter, its gradient and its state, in place. Nothing is
// changed if the step's gradients were not finite. Bound by bytes: 28 per element of AdamW.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = kElementwiseThreads;
constexpr int kCount = kVector<float>;

// The last two inputs of every optimiser: {lr, 1 - beta1^t, 1 - beta2^t}, and {norm, factor,
// finite} of GlobalNorm.
struct Schedule {
  const float* schedule;
  const float* stats;
};

// Numbers that are the same for all elements of a step.
struct AdamWStep {
  float factor;           // Of the gradient, from clipping.
  float decay;            // 1 - lr weight_decay
  float step;             // lr / (1 - beta1^t)
  float root_correction;  // sqrt(1 - beta2^t)
};

// The attributes of an AdamW, and 1 - beta.
struct AdamWRates {
  float m_rate;
  float beta2, v_rate;
  float eps;
  float weight_decay;
};

// In f64, as on the CPU.
__device__ AdamWStep adamw_step(const Schedule& inputs, float weight_decay) {
  const double lr = inputs.schedule[0];
  return {inputs.stats[1],
          static_cast<float>(__dsub_rn(1.0, __dmul_rn(lr, static_cast<double>(weight_decay)))),
          static_cast<float>(lr / static_cast<double>(inputs.schedule[1])),
          static_cast<float>(sqrt(static_cast<double>(inputs.schedule[2])))};
}

// Computes in the order of PyTorch's AdamW, as the CPU's kernel does.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(float* param, const float* grad, float* m, float* v, std::int64_t n,
                 const Schedule schedule, const AdamWRates rates, bool vectors) {
  __shared__ AdamWStep shared;
  if (schedule.stats[2] == 0.0f) return;  // The same for all threads.
  if (threadIdx.x == 0) shared = adamw_step(schedule, rates.weight_decay);
  __syncthreads();
  const AdamWStep step = shared;
  const std::int64_t stride = std::int64_t{gridDim.x} * (kThreads * kCount);
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; first < n;
       first += stride) {
    float p[kCount], g[kCount], means[kCount], squares[kCount];
    load_elements(param, first, n, vectors, p);
    load_elements(grad, first, n, vectors, g);
    load_elements(m, first, n, vectors, means);
    load_elements(v, first, n, vectors, squares);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float scaled = __fmul_rn(step.factor, g[i]);
      means[i] = fmaf(__fsub_rn(scaled, means[i]), rates.m_rate, means[i]);
      squares[i] =
          fmaf(__fmul_rn(rates.v_rate, scaled), scaled, __fmul_rn(rates.beta2, squares[i]));
      const float root =
          __fadd_rn(__fdiv_rn(__fsqrt_rn(squares[i]), step.root_correction), rates.eps);
      const float change = __fdiv_rn(__fmul_rn(step.step, means[i]), root);
      p[i] = __fsub_rn(__fmul_rn(step.decay, p[i]), change);
    }
    store_elements(means, m, first, n, vectors);
    store_elements(squares, v, first, n, vectors);
    store_elements(p, param, first, n, vectors);
  }
}

// Without momentum `velocity` is null and is not updated.
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(float* param, const float* grad, float* velocity, std::int64_t n,
               const Schedule schedule, float momentum, float weight_decay, bool vectors) {
  if (schedule.stats[2] == 0.0f) return;
  const float factor = schedule.stats[1], lr = schedule.schedule[0];
  const std::int64_t stride = std::int64_t{gridDim.x} * (kThreads * kCount);
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; first < n;
       first += stride) {
    float p[kCount], changes[kCount];
    load_elements(param, first, n, vectors, p);
    load_elements(grad, first, n, vectors, changes);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      changes[i] = fmaf(weight_decay, p[i], __fmul_rn(factor, changes[i]));
    }
    if (velocity != nullptr) {
      float old[kCount];
      load_elements(velocity, first, n, vectors, old);
#pragma unroll
      for (int i = 0; i < kCount; ++i) changes[i] = fmaf(momentum, old[i], changes[i]);
      store_elements(changes, velocity, first, n, vectors);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = fmaf(-lr, changes[i], p[i]);
    store_elements(p, param, first, n, vectors);
  }
}

// Enough blocks to fill the GPU once; each reads the schedule once and goes over the rest in
// strides.
unsigned blocks_of(std::int64_t n, const Context& context) {
  return blocks_for(n, kThreads * kCount, std::int64_t{context.multiprocessors} * 8);
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
  const AdamWRates rates = {
      .m_rate = static_cast<float>(1.0 - static_cast<double>(op.beta1)),
      .beta2 = op.beta2,
      .v_rate = static_cast<float>(1.0 - static_cast<double>(op.beta2)),
      .eps = op.eps,
      .weight_decay = op.weight_decay,
  };
  adamw_kernel<<<blocks_of(n, context), kThreads, 0, context.stream>>>(
      args.inputs[0].as<float>(), args.inputs[1].as<const float>(), args.inputs[2].as<float>(),
      args.inputs[3].as<float>(), n, schedule, rates, all_aligned(args, 4));
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
