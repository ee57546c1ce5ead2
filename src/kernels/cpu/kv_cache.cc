// KvAppend: writes the keys and values of new tokens into the pages of their sequences, in the
// caches' type. It does not know how they are read.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/arithmetic.h"
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

// Values go to contiguous rows. The loop is row by row, because a row is contiguous where it is
// read.
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
// written, because it may hold an earlier key.
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

using attention::HeadRows;
using attention::kKeyBlock;
using attention::PagedRows;

// The fewest rows that a thread takes: as many as append_keys() turns into columns at once.
constexpr std::int64_t kRowsAtOnce = 16;

struct Append {
  HeadRows<const float> k, v;
  View cache_k, cache_v;  // [pages, kv_heads, dim, 64], [.., 64, dim]
  PagedRows rows;
};

// The operands: one packed row q | k | v, or rows of k and of v; then the inputs of PagedRows.
Append append_operands(const AttentionShape& shape, const Args& args, const Context& context) {
  const std::int64_t dim = shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * dim;
  const std::int64_t time = args.inputs[0].shape[0];
  const auto rest = args.inputs.subspan(shape.packed ? 1 : 2);
  const float* first = args.inputs[0].as<const float>();
  Append call = {{}, {}, rest[0], rest[1], attention::paged_rows(context, rest)};
  if (shape.packed) {
    const std::int64_t q_width = shape.heads * dim;
    const std::int64_t stride = q_width + 2 * kv_width;
    call.k = {first + q_width, time, stride, dim};
    call.v = {first + q_width + kv_width, time, stride, dim};
  } else {
    call.k = {first, time, kv_width, dim};
    call.v = {args.inputs[1].as<const float>(), time, kv_width, dim};
  }
  return call;
}

// Appends rows [begin, begin + count), which follow each other within one block that has a page.
void append_block(const Append& call, std::int64_t begin, std::int64_t count,
                  const Context& context) {
  const Shape& shape = call.cache_v.shape;
  const std::int64_t heads = shape[1], dim = shape[3];
  const std::int64_t position = call.rows.positions[begin];
  const std::int64_t column = position % kKeyBlock;
  const std::int64_t head = kKeyBlock * dim;
  // SAFETY: the caller has checked that the page is one of the pool, and that the rows stay in it.
  const std::int64_t page = call.rows.table_of(begin)[position / kKeyBlock] * heads * head;
  visit_float(call.cache_v.dtype, [&](auto element) {
    using T = decltype(element);
    attention::AppendedRows<T> rows = {call.k.at(0, begin, 0),
                                       call.k.stride,
                                       count,
                                       heads,
                                       dim,
                                       call.cache_k.as<T>() + page + column,
                                       head};
    VOLTA_SIMD_CALL(context.simd, append_keys<T>, rows);
    rows.from = call.v.at(0, begin, 0);
    rows.to = call.cache_v.as<T>() + page + column * dim;
    VOLTA_SIMD_CALL(context.simd, append_values<T>, rows);
  });
}

// Appends rows [begin, end), in pieces that are in one page. Rows without a page are left out and
// reported.
void append_rows(const Append& call, std::int64_t begin, std::int64_t end, const Context& context) {
  const PagedRows& rows = call.rows;
  while (begin < end) {
    if (!rows.placed(begin) || !rows.has_page(begin, rows.positions[begin] / kKeyBlock)) {
      report_bad_index(context, begin++);
      continue;
    }
    std::int64_t next = begin + 1;
    while (next < end && rows.follows(next) && rows.positions[next] % kKeyBlock != 0) ++next;
    append_block(call, begin, next - begin, context);
    begin = next;
  }
}

}  // namespace

std::int64_t workspace_bytes(const KvAppend&, const ArgShapes&, const Context&) { return 0; }

void run(const KvAppend& op, const Args& args, const Context& context) noexcept {
  const Append call = append_operands(op.shape, args, context);
  const std::int64_t count = call.rows.count;
  const std::int64_t row = 2 * std::int64_t{op.shape.kv_heads} * op.shape.head_dim;
  split_rows(context, ceil_div(count, kRowsAtOnce), std::min(count, kRowsAtOnce) * row,
             [&](std::int64_t begin, std::int64_t end) {
               append_rows(call, begin * kRowsAtOnce, std::min(end * kRowsAtOnce, count), context);
             });
}

}  // namespace volta::cpu
#endif
