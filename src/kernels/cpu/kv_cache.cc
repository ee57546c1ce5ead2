// KvAppend: writes the keys and values of new tokens into the caches, in the caches' type. It knows
// nothing of how they are read.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

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

template <typename T>
void append_rows(const HeadRows<const float>& rows, const View& cache, std::int64_t sequence,
                 std::int64_t head, CachedTimes times) {
  const std::int64_t capacity = cache.shape[2], dim = cache.shape[3];
  // SAFETY: times keeps start + t within [0, capacity), but for a ring, where it is not negative.
  T* const at = cache.as<T>() + (sequence * cache.shape[1] + head) * capacity * dim;
  for (std::int64_t t = times.begin; t < times.end; ++t) {
    const float* from = rows.at(sequence, t, head);
    std::transform(from, from + dim, at + (times.start + t) % capacity * dim, from_f32<T>);
  }
}

}  // namespace

void run(const KvAppend& op, const Args& args, const Context& context) noexcept {
  const Append call = append_operands(op.shape, args.inputs);
  const std::int64_t time = call.k.time, heads = op.shape.kv_heads;
  const std::int64_t positions = attention::cached_positions(op.shape, call.cache_k.shape[2]);
  split_rows(context, call.cache_k.shape[0] * heads, 2 * time * op.shape.head_dim,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i) {
                 const std::int64_t s = i / heads;
                 const CachedTimes times =
                     attention::cached_times(context, call.start, call.count, s, time, positions);
                 visit_float(call.cache_k.dtype, [&](auto element) {
                   append_rows<decltype(element)>(call.k, call.cache_k, s, i % heads, times);
                 });
                 visit_float(call.cache_v.dtype, [&](auto element) {
                   append_rows<decltype(element)>(call.v, call.cache_v, s, i % heads, times);
                 });
               }
             });
}

}  // namespace volta::cpu
