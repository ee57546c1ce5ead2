// KvAppend: writes the keys and values of new tokens into the caches, in the caches' type. It knows
// nothing of how they are read.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_cache.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// `heads` rows of `dim` elements, one after another, to rows `stride` apart.
template <typename T>
void scatter_heads(const float* x, std::int64_t heads, std::int64_t dim, T* y,
                   std::int64_t stride) {
  const F32 d;
  for (std::int64_t head = 0; head < heads; ++head, x += dim, y += stride) {
    for_each_vector(dim, [&](std::int64_t i, auto extent)
                             HWY_ATTR { store(d, load(d, x + i, extent), y + i, extent); });
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

using attention::CachedTimes;
using attention::HeadRows;

struct Append {
  HeadRows<const float> k, v;
  View cache_k, cache_v;  // [sequences, kv_heads, capacity, head_dim]
  const std::int32_t* start;
  const std::int32_t* count;
};

// The operands: one packed row q | k | v, or rows of k and of v; then the caches, start, count.
Append append_operands(const AttentionShape& shape, std::span<const View> inputs) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * dim;
  const std::int64_t time = inputs[0].shape[1];
  const float* first = inputs[0].as<const float>();
  Append call;
  if (shape.packed) {
    const std::int64_t q_width = shape.heads * dim;
    const std::int64_t stride = q_width + 2 * kv_width;
    call.k = {first + q_width, time, stride, dim};
    call.v = {first + q_width + kv_width, time, stride, dim};
  } else {
    call.k = {first, time, kv_width, dim};
    call.v = {inputs[1].as<const float>(), time, kv_width, dim};
  }
  const auto rest = inputs.subspan(shape.packed ? 1 : 2);
  call.cache_k = rest[0];
  call.cache_v = rest[1];
  call.start = rest[2].as<const std::int32_t>();
  call.count = rest[3].as<const std::int32_t>();
  return call;
}

// Rows are handed out in blocks of so many.
constexpr std::int64_t kBlockTimes = 32;

// Row by row: what is read lies side by side, and a row's heads go to as many places.
void append_rows(const HeadRows<const float>& rows, const View& cache, std::int64_t sequence,
                 CachedTimes times, const Context& context) {
  const std::int64_t heads = cache.shape[1], capacity = cache.shape[2], dim = cache.shape[3];
  visit_float(cache.dtype, [&](auto element) {
    using T = decltype(element);
    // SAFETY: times keeps start + t within [0, capacity), but for a ring, where it is not negative.
    T* const at = cache.as<T>() + sequence * heads * capacity * dim;
    for (std::int64_t t = times.begin; t < times.end; ++t) {
      VOLTA_SIMD_CALL(context.simd, scatter_heads<T>, rows.at(sequence, t, 0), heads, dim,
                      at + (times.start + t) % capacity * dim, capacity * dim);
    }
  });
}

}  // namespace

void run(const KvAppend& op, const Args& args, const Context& context) noexcept {
  const Append call = append_operands(op.shape, args.inputs);
  const std::int64_t time = call.k.time, sequences = call.cache_k.shape[0];
  const std::int64_t positions = attention::cached_positions(op.shape, call.cache_k.shape[2]);
  const std::int64_t blocks = ceil_div(time, kBlockTimes);
  const std::int64_t row = 2 * std::int64_t{op.shape.kv_heads} * op.shape.head_dim;
  split_rows(context, sequences * blocks, kBlockTimes * row,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i) {
                 const std::int64_t s = i / blocks, first = i % blocks * kBlockTimes;
                 CachedTimes times =
                     attention::cached_times(context, call.start, call.count, s, time, positions);
                 times.begin = std::max(times.begin, first);
                 times.end = std::min(times.end, first + kBlockTimes);
                 append_rows(call.k, call.cache_k, s, times, context);
                 append_rows(call.v, call.cache_v, s, times, context);
               }
             });
}

}  // namespace volta::cpu
#endif
