// What the attention kernels share: where the heads of operands lie, the keys that a row sees, the
// mask of dropout, and the tensor-core launchers that attention.cu chooses.
//
// All of them follow one scheme (Dao et al. 2022; online softmax of Milakov & Gimelshein 2018).
// Keys are taken in order, in blocks of 64 counted from position 0 of the sequence. No sum crosses
// thread blocks, so that nothing depends on timing, and every sum over keys or over rows has an
// order that only the shape decides.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/arithmetic.h"
#include "base/rng.h"
#include "kernels/cuda/common.cuh"

namespace volta::cuda::attention {

/// The number of keys between two corrections of the running maximum.
inline constexpr int kKeyBlock = static_cast<int>(kAttentionKeyBlock);
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

/// Rows of heads, as [batch, time, stride] elements: element d of head h of row (b, t) is at
/// index(b, t, h) + d. Data of any float type.
struct HeadRows {
  void* data = nullptr;
  std::int64_t time = 0;
  std::int64_t stride = 0;  ///< Elements from one row to the next.
  std::int64_t first = 0;   ///< Elements before head 0 in a row.
  std::int64_t dim = 0;     ///< Elements of a head.

  __host__ __device__ std::int64_t index(std::int64_t batch, std::int64_t t, std::int64_t h) const {
    return (batch * time + t) * stride + first + h * dim;
  }
  /// Whether every head begins at a multiple of `elements` elements and of their bytes, and is a
  /// whole number of them. Then `elements` elements can be loaded at once.
  bool is_aligned_for(std::int64_t elements, DType dtype) const {
    return is_aligned(data, static_cast<std::size_t>(elements * dtype_size(dtype))) &&
           stride % elements == 0 && first % elements == 0 && dim % elements == 0;
  }
};

struct QkvRows {
  HeadRows q, k, v;
};

/// The number of views that q, k and v take together.
constexpr std::size_t qkv_views(const AttentionShape& shape) { return shape.packed ? 1 : 3; }

/// Rows of all query heads side by side, like y and dy.
inline HeadRows query_rows(const AttentionShape& shape, const View& view) {
  return {view.data, view.shape[1], view.shape[2], 0, shape.head_dim};
}

/// The q, k and v (or dq, dk and dv) that `views` begins with: one packed view, or three.
inline QkvRows qkv_rows(const AttentionShape& shape, std::span<const View> views) {
  const std::int64_t dim = shape.head_dim;
  if (!shape.packed) {
    return {query_rows(shape, views[0]), query_rows(shape, views[1]), query_rows(shape, views[2])};
  }
  const HeadRows q = query_rows(shape, views[0]);
  HeadRows k = q, v = q;
  k.first = shape.heads * dim;
  v.first = (std::int64_t{shape.heads} + shape.kv_heads) * dim;
  return {q, k, v};
}

/// Which keys a row sees. Rows and keys are numbered from 0 within their sequence.
struct Mask {
  int time = 0;
  int window = 0;
  bool causal = true;

  /// Row t sees keys [begin(t), end(t)).
  __device__ int begin(int t) const { return window > 0 ? max(0, t - window + 1) : 0; }
  __device__ int end(int t) const { return causal ? min(t + 1, time) : time; }
  /// The rows that see any of the keys [first, last] are in [first_row(first), end_row(last)).
  __device__ int first_row(int first) const { return causal ? first : 0; }
  __device__ int end_row(int last) const {
    return window > 0 ? static_cast<int>(min(std::int64_t{time}, std::int64_t{last} + window))
                      : time;
  }
  /// Whether any of `rows` rows from t on may see any of `keys` keys from `first` on.
  __device__ bool meet(int t, int rows, int first, int keys) const {
    const int last = min(t + rows, time) - 1;
    return t <= last && first < end(last) && first + keys > begin(t);
  }
  /// Whether all of `rows` rows from t on exist and see all of `keys` keys from `first` on.
  __device__ bool sees_all(int t, int rows, int first, int keys) const {
    return t + rows <= time && first >= begin(t + rows - 1) && first + keys <= end(t);
  }
};

/// Which attention weights dropout keeps; see Attention in ops/op.h. The numbers are those of
/// base/rng.h, and the element's index is that of [batch, heads, row, key].
struct DropoutRule {
  const std::int64_t* rng = nullptr;  ///< {seed, step}; null without dropout.
  std::uint32_t stream = 0;
  std::uint32_t threshold = 0;  ///< Kept when the upper 24 bits are at least this.
  float kept_scale = 1.0f;      ///< 1 / (1 - p)

  DropoutRule() = default;
  DropoutRule(float p, std::uint32_t its_stream, const View& key) {
    if (!(p > 0.0f)) return;
    rng = key.as<const std::int64_t>();
    stream = its_stream;
    // A uniform number bits * 2^-24 is at least p exactly when bits is at least ceil(p 2^24). The
    // product is exact in double.
    const double scaled = static_cast<double>(p) * 0x1p24;
    threshold = static_cast<std::uint32_t>(scaled);
    if (static_cast<double>(threshold) < scaled) ++threshold;
    kept_scale = 1.0f / (1.0f - p);
  }
};

/// A rule with its seed, in a thread's registers.
class DropoutMask {
 public:
  __device__ explicit DropoutMask(const DropoutRule& rule)
      : on_(rule.rng != nullptr),
        stream_(rule.stream),
        threshold_(rule.threshold),
        kept_(rule.kept_scale) {
    if (!on_) return;
    seed_ = static_cast<std::uint64_t>(rule.rng[0]);
    step_ = static_cast<std::uint32_t>(rule.rng[1]);
  }
  __device__ bool on() const { return on_; }
  __device__ Random4 words(std::uint64_t block) const {
    return random_bits(seed_, stream_, step_, block);
  }
  /// Whether an element is kept, by its random word.
  __device__ bool keeps(std::uint32_t word) const { return (word >> 8) >= threshold_; }
  /// 0 or 1 / (1 - p) for elements [element, element + kCount), with kCount up to 4.
  template <int kCount>
  __device__ void factors(std::uint64_t element, float (&to)[kCount]) const {
    const auto lane = static_cast<std::uint32_t>(element % 4);
    const Random4 low = words(element / 4);
    // Philox makes blocks of four words. The next one is needed if the elements cross into it.
    const Random4 high = lane + kCount > 4 ? words(element / 4 + 1) : low;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t at = lane + i;
      to[i] = keeps(at < 4 ? low.lane(at) : high.lane(at - 4)) ? kept_ : 0.0f;
    }
  }

 private:
  bool on_;
  std::uint32_t stream_, threshold_, step_ = 0;
  float kept_;
  std::uint64_t seed_ = 0;
};

/// The operands of Attention.
struct Forward {
  QkvRows in;
  HeadRows y;
  float* lse = nullptr;  ///< [batch, heads, time]
  DType dtype = DType::kF32;
  Mask mask;
  DropoutRule dropout;
  std::int64_t batch = 0;
  int heads = 1, kv_heads = 1;
  float scale = 1.0f, softcap = 0.0f;
};

/// The operands of AttentionGrad.
struct Backward {
  QkvRows in, out;
  HeadRows y, dy;
  const float* lse = nullptr;  ///< [batch, heads, time]
  float* delta = nullptr;      ///< The same shape: sums of dy y over head_dim.
  DType dtype = DType::kF32;
  Mask mask;
  DropoutRule dropout;
  std::int64_t batch = 0;
  int heads = 1, kv_heads = 1;
  float scale = 1.0f, softcap = 0.0f;
};

/// Whether the tensor-core kernels of Attention take this type and head_dim. It must depend on
/// nothing else, so that a row's bits do not depend on its neighbours.
constexpr bool has_tensor_core_kernel(DType dtype, std::int64_t head_dim) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && (head_dim == 64 || head_dim == 128);
}
cudaError_t forward_bf16(const Forward& call, const Context& context) noexcept;
cudaError_t forward_f16(const Forward& call, const Context& context) noexcept;

/// Element i of data of any float type.
__device__ inline float load_element(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
  if (dtype == DType::kBF16) return to_f32(static_cast<const bf16*>(data)[i]);
  return to_f32(static_cast<const f16*>(data)[i]);
}
__device__ inline void store_element(void* data, DType dtype, std::int64_t i, float x) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = x;
  } else if (dtype == DType::kBF16) {
    static_cast<bf16*>(data)[i] = from_f32<bf16>(x);
  } else {
    static_cast<f16*>(data)[i] = from_f32<f16>(x);
  }
}

/// A soft-capped score, softcap * tanh(score / softcap), and its slope.
__device__ inline float cap_score(float score, float softcap, float& slope) {
  const float t = tanhf(score / softcap);
  slope = fmaf(-t, t, 1.0f);
  // Not a part of a multiply-add, so that every kernel gets the same bits.
  return __fmul_rn(softcap, t);
}

}  // namespace volta::cuda::attention
