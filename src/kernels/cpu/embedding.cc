// Embedding and EmbeddingGrad: rows of a table by id. An id that is out of range reads as zeros,
// adds nothing, and is reported.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// Rows may be anywhere in the table, so that the hardware cannot prefetch the next one. It is
// prefetched here while one row is computed, one cache line at a time, because the processor drops
// some prefetches if there are many at once.

// y = x, n elements. The row at `next` will be read afterwards.
template <typename T>
void widen_row(const T* x, const T* next, float* y, std::int64_t n) {
  const F32 d;
  for_each_vector(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    __builtin_prefetch(next + i);
    store(d, load(d, x + i, extent), y + i, extent);
  });
}

// sum += x, n elements. Afterwards next_x will be added to next_sum.
void add_row(const float* x, const float* next_x, float* sum, const float* next_sum,
             std::int64_t n) {
  const F32 d;
  for_each_vector(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    __builtin_prefetch(next_x + i);
    __builtin_prefetch(next_sum + i);
    store(d, hn::Add(load(d, sum + i, extent), load(d, x + i, extent)), sum + i, extent);
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

struct Table {
  std::int64_t rows, columns;
  Encoding encoding;  // Plain, transposed panels, or rows of blocks.
};

// A row of an encoded table.
template <typename T>
void decode_row(const T* elements, const Table& table, std::int64_t row, float* to) {
  const std::int64_t columns = table.columns;
  const Encoding& encoding = table.encoding;
  if (encoding.quantized()) {
    const std::int64_t blocks = encoding.blocks(columns);
    WeightBlock q;
    for (std::int64_t block = 0; block < blocks; ++block) {
      // SAFETY: a quantised table is bytes; the row is a column of its transpose.
      get_block(reinterpret_cast<const std::uint8_t*>(elements), encoding, blocks, row, block, q);
      const std::int64_t begin = block * encoding.block;
      const std::int64_t count = std::min<std::int64_t>(encoding.block, columns - begin);
      decode_block(encoding.quant, q, std::span(to + begin, static_cast<std::size_t>(count)));
    }
    return;
  }
  // The row is a column of the panels: it has one group in every `width` groups.
  const T* from = elements + panel_index(encoding, columns, 0, row);
  const std::int64_t step = std::int64_t{encoding.width} * encoding.group;
  for (std::int64_t c = 0; c < columns; c += encoding.group, from += step) {
    const std::int64_t n = std::min<std::int64_t>(encoding.group, columns - c);
    for (std::int64_t i = 0; i < n; ++i) to[c + i] = to_f32(from[i]);
  }
}

template <typename T>
void look_up(const T* elements, const Table& table, const std::int32_t* ids, float* y,
             std::int64_t begin, std::int64_t end, const Context& context) {
  const auto inside = [&](std::int64_t i) { return ids[i] >= 0 && ids[i] < table.rows; };
  for (std::int64_t i = begin; i < end; ++i) {
    float* to = y + i * table.columns;
    if (!inside(i)) {
      report_bad_index(context, i);
      std::fill_n(to, table.columns, 0.0f);
    } else if (table.encoding.plain()) {
      const std::int64_t next = i + 1 < end && inside(i + 1) ? i + 1 : i;
      VOLTA_SIMD_CALL(context.simd, widen_row<T>, elements + ids[i] * table.columns,
                      elements + ids[next] * table.columns, to, table.columns);
    } else {
      decode_row(elements, table, ids[i], to);
    }
  }
}

}  // namespace

std::int64_t workspace_bytes(const Embedding&, const ArgShapes&, const Context&) { return 0; }

void run(const Embedding&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const Table table{x.shape[0], x.shape[1], x.encoding};
  const auto* ids = args.inputs[1].as<const std::int32_t>();
  auto* y = args.outputs[0].as<float>();
  visit_float(x.dtype, [&](auto element) {
    using T = decltype(element);
    split_rows(context, args.inputs[1].shape.elements(), table.columns,
               [&](std::int64_t begin, std::int64_t end) {
                 look_up(x.as<const T>(), table, ids, y, begin, end, context);
               });
  });
}

std::int64_t workspace_bytes(const EmbeddingGrad&, const ArgShapes&, const Context&) { return 0; }

// Each thread takes some columns and goes through all rows in order, so that no sum is ever split.
void run(const EmbeddingGrad& op, const Args& args, const Context& context) noexcept {
  const auto* ids = args.inputs[0].as<const std::int32_t>();
  const auto* dy = args.inputs[1].as<const float>();
  auto* dtable = args.outputs[0].as<float>();
  const std::int64_t count = args.inputs[0].shape.elements();
  const std::int64_t columns = args.outputs[0].shape[1];
  split_elements(context, op.rows * columns, [&](std::int64_t begin, std::int64_t end) {
    std::fill(dtable + begin, dtable + end, 0.0f);
  });
  const auto inside = [&](std::int64_t i) { return ids[i] >= 0 && ids[i] < op.rows; };
  split_columns(context, columns, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (!inside(i)) {
        report_bad_index(context, i);
        continue;
      }
      const std::int64_t next = i + 1 < count && inside(i + 1) ? i + 1 : i;
      VOLTA_SIMD_CALL(context.simd, add_row, dy + i * columns + begin, dy + next * columns + begin,
                      dtable + ids[i] * columns + begin, dtable + ids[next] * columns + begin,
                      end - begin);
    }
  });
}

}  // namespace volta::cpu
#endif
