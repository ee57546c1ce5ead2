// Embedding and EmbeddingGrad: rows of a table by id. An id out of range reads as zeros, adds
// nothing, and is reported.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

namespace volta::cpu {
namespace {

// A table's elements: column c of row r is at [begin(r) + c * step].
struct Table {
  std::int64_t rows, columns;
  Encoding encoding;  // Plain, or transposed panels.
  std::int64_t step() const { return encoding.plain() ? 1 : encoding.width; }
  std::int64_t begin(std::int64_t row) const {
    if (encoding.plain()) return row * columns;
    return row / encoding.width * columns * encoding.width + row % encoding.width;
  }
};

template <typename T>
void look_up(const T* elements, const Table& table, const std::int32_t* ids, float* y,
             std::int64_t begin, std::int64_t end, const Context& context) {
  const std::int64_t columns = table.columns;
  for (std::int64_t i = begin; i < end; ++i) {
    float* to = y + i * columns;
    if (ids[i] < 0 || ids[i] >= table.rows) {
      report_bad_index(context, i);
      std::fill_n(to, columns, 0.0f);
      continue;
    }
    const T* from = elements + table.begin(ids[i]);
    const std::int64_t step = table.step();
    if (step == 1) {
      for (std::int64_t c = 0; c < columns; ++c) to[c] = to_f32(from[c]);
    } else {
      for (std::int64_t c = 0; c < columns; ++c) to[c] = to_f32(from[c * step]);
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
