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
#include "kernels/cpu/attention_blocks-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// Values go to rows without gaps. Row by row: what is read lies side by side.
template <typename T>
void append_values(const attention::AppendedRows<T>& rows) {
  const F32 d;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const float* x = rows.from + row * rows.stride;
    T* y = rows.to + row * rows.head_dim;
    for (std::int64_t head = 0; head < rows.heads;
         ++head, x += rows.head_dim, y += rows.to_stride) {
      for_each_vector(rows.head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
        store(d, load(d, x + i, extent), y + i, extent);
      });
    }
  }
}

// Keys go to columns of a block [dim, kKeyBlock], a vector of columns at a time. No other column is
// touched: in a ring it may hold a key that is still seen.
template <typename T>
void append_keys(const attention::AppendedRows<T>& rows) {
  constexpr std::int64_t kLanes = attention::kLanes;
  const F32 d;
  std::int64_t row = 0;
  for (; row + kLanes <= rows.count; row += kLanes) {
    const float* x = rows.from + row * rows.stride;
    T* y = rows.to + row;
    for (std::int64_t head = 0; head < rows.heads;
         ++head, x += rows.head_dim, y += rows.to_stride) {
      attention::transpose([&](std::int64_t i) { return x + i * rows.stride; }, rows.head_dim, y);
    }
  }
  for (; row < rows.count; ++row) {
    const float* x = rows.from + row * rows.stride;
    T* y = rows.to + row;
    for (std::int64_t head = 0; head < rows.heads;
         ++head, x += rows.head_dim, y += rows.to_stride) {
      for_each_vector(rows.head_dim, [&](std::int64_t i, auto extent) HWY_ATTR {
        alignas(64) T rounded[kLanes];
        store(d, load(d, x + i, extent), rounded);
        const std::int64_t n = std::min(kLanes, rows.head_dim - i);
        for (std::int64_t j = 0; j < n; ++j) y[(i + j) * attention::kKeyBlock] = rounded[j];
      });
    }
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
  View cache_k, cache_v;  // [sequences, kv_heads, blocks, dim, 64], [.., positions, dim]
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

// Rows `times` of a sequence, which lie in one key block.
void append_block(const Append& call, std::int64_t sequence, CachedTimes times,
                  const Context& context) {
  const Shape& shape = call.cache_v.shape;
  const std::int64_t heads = shape[1], positions = shape[2], dim = shape[3];
  // SAFETY: times keeps start + t within [0, positions), but for a ring, where it is not negative;
  // a head has as many keys as values, in whole blocks.
  const std::int64_t place = (times.start + times.begin) % positions;
  const std::int64_t column = place % attention::kKeyBlock;
  const std::int64_t count = times.end - times.begin;
  const std::int64_t first = sequence * heads * positions * dim;
  visit_float(call.cache_v.dtype, [&](auto element) {
    using T = decltype(element);
    attention::AppendedRows<T> rows = {
        call.k.at(sequence, times.begin, 0),
        call.k.stride,
        count,
        heads,
        dim,
        call.cache_k.as<T>() + first + (place - column) * dim + column,
        positions * dim};
    VOLTA_SIMD_CALL(context.simd, append_keys<T>, rows);
    rows.from = call.v.at(sequence, times.begin, 0);
    rows.to = call.cache_v.as<T>() + first + place * dim;
    VOLTA_SIMD_CALL(context.simd, append_values<T>, rows);
  });
}

}  // namespace

std::int64_t workspace_bytes(const KvAppend&, const ArgShapes&, const Context&) { return 0; }

void run(const KvAppend& op, const Args& args, const Context& context) noexcept {
  using attention::kKeyBlock;
  const Append call = append_operands(op.shape, args.inputs);
  const std::int64_t time = call.k.time, sequences = call.cache_v.shape[0];
  const std::int64_t positions = attention::cached_positions(op.shape, call.cache_v.shape[2]);
  // So many blocks does a step meet at most, wherever it begins.
  const std::int64_t blocks = (time + kKeyBlock - 2) / kKeyBlock + 1;
  const std::int64_t row = 2 * std::int64_t{op.shape.kv_heads} * op.shape.head_dim;
  split_rows(context, sequences * blocks, std::min(time, kKeyBlock) * row,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i) {
                 const std::int64_t s = i / blocks;
                 CachedTimes times =
                     attention::cached_times(context, call.start, call.count, s, time, positions);
                 const std::int64_t first = times.start + times.begin;  // Negative: no times.
                 const std::int64_t block = (first / kKeyBlock + i % blocks) * kKeyBlock;
                 times.begin = std::max(times.begin, block - times.start);
                 times.end = std::min(times.end, block + kKeyBlock - times.start);
                 if (times.begin < times.end) append_block(call, s, times, context);
               }
             });
}

}  // namespace volta::cpu
#endif
