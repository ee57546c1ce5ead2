// Embedding and EmbeddingGrad: rows of a table by id. An id out of range reads as zeros, adds
// nothing, and is reported.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/split.h"

namespace volta::cpu {
namespace {

struct Table {
  std::int64_t rows, columns;
  Encoding encoding;  // Plain, or transposed panels.
};

template <typename T>
void copy_row(const T* elements, const Table& table, std::int64_t row, float* to) {
  const std::int64_t columns = table.columns;
  const Encoding& encoding = table.encoding;
  if (encoding.quantized()) {
    const std::int64_t blocks = encoding.blocks(columns);
    QuantBlock q;
    for (std::int64_t block = 0; block < blocks; ++block) {
      // SAFETY: a quantised table is bytes; the row is a column of its panels.
      get_block(reinterpret_cast<const std::uint8_t*>(elements), encoding, blocks, row, block, q);
      const float scale = f32_from_f16(q.scale);
      const std::int64_t begin = block * encoding.block;
      for (std::int64_t i = 0; i < encoding.block && begin + i < columns; ++i) {
        to[begin + i] = scale * static_cast<float>(q.q[static_cast<std::size_t>(i)]);
      }
    }
    return;
  }
  if (encoding.plain()) {
    for (std::int64_t c = 0; c < columns; ++c) to[c] = to_f32(elements[row * columns + c]);
    return;
  }
  // The row is a column of the panels: one group of it in every `width` groups.
  const T* from = elements + encoding.at(columns, 0, row);
  const std::int64_t step = std::int64_t{encoding.width} * encoding.group;
  for (std::int64_t c = 0; c < columns; c += encoding.group, from += step) {
    const std::int64_t n = std::min<std::int64_t>(encoding.group, columns - c);
    for (std::int64_t i = 0; i < n; ++i) to[c + i] = to_f32(from[i]);
  }
}

template <typename T>
void look_up(const T* elements, const Table& table, const std::int32_t* ids, float* y,
             std::int64_t begin, std::int64_t end, const Context& context) {
  for (std::int64_t i = begin; i < end; ++i) {
    float* to = y + i * table.columns;
    if (ids[i] < 0 || ids[i] >= table.rows) {
      report_bad_index(context, i);
      std::fill_n(to, table.columns, 0.0f);
    } else {
      copy_row(elements, table, ids[i], to);
    }
  }
}

}  // namespace

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

// Threads take columns, and each goes through all rows in order: no sum is ever split.
void run(const EmbeddingGrad& op, const Args& args, const Context& context) noexcept {
  const auto* ids = args.inputs[0].as<const std::int32_t>();
  const auto* dy = args.inputs[1].as<const float>();
  auto* dtable = args.outputs[0].as<float>();
  const std::int64_t count = args.inputs[0].shape.elements();
  const std::int64_t columns = args.outputs[0].shape[1];
  split_columns(context, columns, count + op.rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < op.rows; ++row) {
      std::fill(dtable + row * columns + begin, dtable + row * columns + end, 0.0f);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= op.rows) {
        report_bad_index(context, i);
        continue;
      }
      const float* from = dy + i * columns;
      float* to = dtable + ids[i] * columns;
      for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  });
}

}  // namespace volta::cpu
