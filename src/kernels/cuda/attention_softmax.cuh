// What the tensor-core kernels of Attention do with scores between the two products: scale,
// soft-cap and mask them, and the online softmax, on elements in registers.
//
// kCount elements of a thread are 16 rows and 2 kCount columns of a warp, as multiply_add()
// (ptx.cuh) and wgmma give them: with g = lane / 4 and t = lane % 4, element 4 j + 2 h + i is row g
// + 8 h, column 8 j + 2 t + i.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_mma.cuh"

namespace volta::cuda::attention {

/// What a thread carries from block to block of keys: of rows g and g + 8 the largest score, and
/// its part of the sum of their weights.
struct RowState {
  float max[2] = {mma::kLowest, mma::kLowest};
  float sum[2] = {0.0f, 0.0f};
};

/// Soft-caps and scales scores, in units of ln 2. Without a soft cap, weigh() can scale them.
template <int kCount>
__device__ inline void scale_scores(const Forward& call, float (&scores)[kCount]) {
  if (call.softcap > 0.0f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float slope;
      scores[i] = cap_score(scores[i] * call.scale, call.softcap, slope) * kLog2E;
    }
  } else {
    const float factor = call.scale * kLog2E;
#pragma unroll
    for (int i = 0; i < kCount; ++i) scores[i] *= factor;
  }
}

/// Sets the scores that the mask hides to -inf. `row` is the warp's first row, and `key` the first
/// column.
template <int kCount>
__device__ inline void hide_scores(const Mask& mask, int row, int key, float (&scores)[kCount]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = key + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = row + lane / 4 + 8 * half;
    const int begin = mask.begin(t) - column, end = mask.end(t) - column;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * j + i < begin || 8 * j + i >= end) scores[4 * j + 2 * half + i] = mma::kLowest;
      }
    }
  }
}

/// Turns scores into weights and updates the rows' state. Weights are 2^(factor (score - max)), in
/// f16 times 2^15; `correction` is what outputs and sums so far are multiplied by. A block in which
/// a row sees no key does not change its state.
template <typename T, int kCount>
__device__ inline void weigh(float factor, float (&scores)[kCount], RowState& state,
                             float (&correction)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float even = scores[2 * half], odd = scores[2 * half + 1];
#pragma unroll
    for (int j = 1; j < kCount / 4; ++j) {
      even = fmaxf(even, scores[4 * j + 2 * half]);
      odd = fmaxf(odd, scores[4 * j + 2 * half + 1]);
    }
    float largest = fmaxf(state.max[half], fmaxf(even, odd));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    // A row that has seen no key yet: all its weights become 0.
    const float shift = largest == mma::kLowest ? 0.0f : largest * factor;
    correction[half] = mma::exp2_weight(fmaf(state.max[half], factor, -shift));
    state.max[half] = largest;
    const float base = mma::kWeightExponent<T> - shift;
    float sum_even = 0.0f, sum_odd = 0.0f;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      float& first = scores[4 * j + 2 * half];
      float& second = scores[4 * j + 2 * half + 1];
      first = mma::exp2_weight(fmaf(first, factor, base));
      second = mma::exp2_weight(fmaf(second, factor, base));
      sum_even += first;
      sum_odd += second;
    }
    state.sum[half] = fmaf(state.sum[half], correction[half], sum_even + sum_odd);
  }
}

/// Sets the weights of dropped elements to 0. The others are scaled at the end. `row` is the warp's
/// first row, and `key` the first column.
template <int kCount>
__device__ inline void drop_weights(const Forward& call, const DropoutMask& dropout,
                                    std::int64_t batch, int head, int row, int key,
                                    float (&weights)[kCount]) {
  const std::int64_t first = (batch * call.heads + head) * call.mask.time + row;
  constexpr int kPart = 32;  // Bits of a word, and so elements.
  static_assert(kCount % kPart == 0);
#pragma unroll
  for (int part = 0; part < kCount / kPart; ++part) {
    const unsigned kept = mma::kept_of_tiles<false, kPart / 4>(
        dropout, first * call.mask.time + key + part * kPart * 2, call.mask.time);
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      if ((kept >> i & 1u) == 0) weights[part * kPart + i] = 0.0f;
    }
  }
}

/// The sums of rows g and g + 8, in all lanes of a quad.
__device__ inline void finish_sums(RowState& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.sum[half] += __shfl_xor_sync(kAllLanes, state.sum[half], 1);
    state.sum[half] += __shfl_xor_sync(kAllLanes, state.sum[half], 2);
  }
}

/// The log of a row's denominator. `log_factor` is what the scores of weigh() must be multiplied
/// by.
template <typename T>
__device__ inline float log_sum(float max, float sum, float log_factor) {
  return fmaf(max, log_factor, (log2f(sum) - mma::kWeightExponent<T>)*kLn2);
}

/// Whether scores need more than the scale before the softmax: dropout, a soft cap, or a scale that
/// is not positive, so that the largest product is not the largest score.
inline bool needs_extras(const Forward& call) {
  return call.dropout.rng != nullptr || call.softcap > 0.0f || !(call.scale > 0.0f);
}

}  // namespace volta::cuda::attention
