// What an optimiser does to a group of elements: shared by the kernels of one parameter
// (optimizer.cu) and of many (update_group.cu), which therefore give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {

/// The elements that a thread updates at once.
inline constexpr int kUpdateCount = kVector<float>;

/// The last two inputs of every optimiser: {lr, 1 - beta1^t, 1 - beta2^t}, and {norm, factor,
/// finite} of GlobalNorm.
struct Schedule {
  const float* schedule = nullptr;
  const float* stats = nullptr;
};

/// The attributes of an AdamW, and 1 - beta.
struct AdamWRates {
  float m_rate = 0.0f;
  float beta2 = 0.0f, v_rate = 0.0f;
  float eps = 0.0f;

  AdamWRates() = default;
  explicit AdamWRates(const AdamW& op)
      : m_rate(static_cast<float>(1.0 - static_cast<double>(op.beta1))),
        beta2(op.beta2),
        v_rate(static_cast<float>(1.0 - static_cast<double>(op.beta2))),
        eps(op.eps) {}
};

/// Numbers that are the same for all elements of a step, in f64 as on the CPU.
struct AdamWStep {
  double lr;
  float factor;           ///< Of the gradient, from clipping.
  float step;             ///< lr / (1 - beta1^t)
  float root_correction;  ///< sqrt(1 - beta2^t)

  AdamWStep() = default;
  __device__ explicit AdamWStep(const Schedule& inputs)
      : lr(inputs.schedule[0]),
        factor(inputs.stats[1]),
        step(static_cast<float>(lr / static_cast<double>(inputs.schedule[1]))),
        root_correction(static_cast<float>(sqrt(static_cast<double>(inputs.schedule[2])))) {}
  /// What a parameter is multiplied by: 1 - lr weight_decay.
  __device__ float decay(float weight_decay) const {
    return static_cast<float>(__dsub_rn(1.0, __dmul_rn(lr, static_cast<double>(weight_decay))));
  }
};

/// Updates elements [first, first + kUpdateCount), as far as they are before n. Computes in the
/// order of PyTorch's AdamW, as the CPU's kernel does.
__device__ inline void update_adamw(float* param, const float* grad, float* m, float* v,
                                    std::int64_t first, std::int64_t n, bool vectors,
                                    const AdamWRates& rates, const AdamWStep& step, float decay) {
  float p[kUpdateCount], g[kUpdateCount], means[kUpdateCount], squares[kUpdateCount];
  load_elements(param, first, n, vectors, p);
  load_elements(grad, first, n, vectors, g);
  load_elements(m, first, n, vectors, means);
  load_elements(v, first, n, vectors, squares);
#pragma unroll
  for (int i = 0; i < kUpdateCount; ++i) {
    const float scaled = __fmul_rn(step.factor, g[i]);
    means[i] = fmaf(__fsub_rn(scaled, means[i]), rates.m_rate, means[i]);
    squares[i] = fmaf(__fmul_rn(rates.v_rate, scaled), scaled, __fmul_rn(rates.beta2, squares[i]));
    const float root =
        __fadd_rn(__fdiv_rn(__fsqrt_rn(squares[i]), step.root_correction), rates.eps);
    const float change = __fdiv_rn(__fmul_rn(step.step, means[i]), root);
    p[i] = __fsub_rn(__fmul_rn(decay, p[i]), change);
  }
  store_elements(means, m, first, n, vectors);
  store_elements(squares, v, first, n, vectors);
  store_elements(p, param, first, n, vectors);
}

/// The same for Sgd. Without momentum `velocity` is null and is not updated.
__device__ inline void update_sgd(float* param, const float* grad, float* velocity,
                                  std::int64_t first, std::int64_t n, bool vectors, float lr,
                                  float factor, float momentum, float weight_decay) {
  float p[kUpdateCount], changes[kUpdateCount];
  load_elements(param, first, n, vectors, p);
  load_elements(grad, first, n, vectors, changes);
#pragma unroll
  for (int i = 0; i < kUpdateCount; ++i) {
    changes[i] = fmaf(weight_decay, p[i], __fmul_rn(factor, changes[i]));
  }
  if (velocity != nullptr) {
    float old[kUpdateCount];
    load_elements(velocity, first, n, vectors, old);
#pragma unroll
    for (int i = 0; i < kUpdateCount; ++i) changes[i] = fmaf(momentum, old[i], changes[i]);
    store_elements(changes, velocity, first, n, vectors);
  }
#pragma unroll
  for (int i = 0; i < kUpdateCount; ++i) p[i] = fmaf(-lr, changes[i], p[i]);
  store_elements(p, param, first, n, vectors);
}

/// target += scale * x, as the single Accumulate.
__device__ inline void update_sum(float* target, const float* x, std::int64_t first, std::int64_t n,
                                  bool vectors, float scale) {
  float sum[kUpdateCount], more[kUpdateCount];
  load_elements(target, first, n, vectors, sum);
  load_elements(x, first, n, vectors, more);
#pragma unroll
  for (int i = 0; i < kUpdateCount; ++i) sum[i] = fmaf(scale, more[i], sum[i]);
  store_elements(sum, target, first, n, vectors);
}

}  // namespace volta::cuda
