// Reduce and Expand, whose shapes are inverse to each other. Both treat x as [outer, length,
// inner]; the middle axis is removed or added.
//
// The middle axis is cut into chunks of fixed length. Each chunk is folded by itself (in any order
// and on any thread), then the chunks of one output are folded in order. So bits do not depend on
// threads.
#include <algorithm>
#include <limits>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

// The larger of the two, NaN when either is.
V32 max_or_nan(V32 a, V32 b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Gt(b, a), b, a));
}

void max_columns(const float* x, std::int64_t stride, std::int64_t rows, float* y,
                 std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; ++j) y[j] = -std::numeric_limits<float>::infinity();
  for (std::int64_t r = 0; r < rows; ++r) {
    transform(
        columns, y, [](V32 a, V32 b) HWY_ATTR { return max_or_nan(a, b); }, y, x + r * stride);
  }
}

}  // namespace

// y[j] = fold over r < length of x[r * stride + j] for j < columns.
void fold(ReduceKind kind, const float* x, std::int64_t stride, std::int64_t length, float* y,
          std::int64_t columns) {
  const bool is_max = kind == ReduceKind::kMax;
  if (stride == 1) {  // One output, whose elements are contiguous.
    y[0] = is_max ? max(length, x) : sum(length, [](V32 v) HWY_ATTR { return v; }, x);
  } else if (is_max) {
    max_columns(x, stride, length, y, columns);
  } else {
    sum_columns(x, stride, length, y, columns);
  }
}

void scaled_copy(float scale, const float* x, float* y, std::int64_t n) {
  const V32 factor = hn::Set(F32(), scale);
  transform(n, y, [&](V32 v) HWY_ATTR { return hn::Mul(factor, v); }, x);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// A tensor split at the axes [begin, end) of its shape.
struct Middle {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
};

Middle middle_of(const Shape& shape, int begin, int end) {
  return {shape.product(0, begin), shape.product(begin, end), shape.product(end, shape.rank())};
}

constexpr std::int64_t kChunkElements = 16 * 1024;  // Of a contiguous axis.
constexpr std::int64_t kChunkRows = 128;            // Of an axis with inner axes.
constexpr std::int64_t kTileColumns = 256;          // Work is handed out in tiles this wide.

std::int64_t chunk_length(const Middle& m) { return m.inner == 1 ? kChunkElements : kChunkRows; }

// An empty axis is one empty chunk, whose fold is the neutral element.
std::int64_t chunk_count(const Middle& m) {
  return std::max<std::int64_t>(1, ceil_div(m.length, chunk_length(m)));
}

// y[outer, chunks, inner] = the folds of x[outer, length, inner], chunk by chunk.
void fold_chunks(ReduceKind kind, const Middle& m, std::int64_t chunk, const float* x, float* y,
                 const Context& context) {
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(m.length, chunk));
  const std::int64_t tiles = ceil_div(m.inner, kTileColumns);
  const std::int64_t cost = std::min(m.length, chunk) * std::min(m.inner, kTileColumns);
  split_rows(context, m.outer * chunks * tiles, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t column = unit % tiles * kTileColumns;
      const std::int64_t output = unit / tiles;  // outer * chunks + chunk
      const std::int64_t first = output % chunks * chunk;
      const std::int64_t rows = std::min(chunk, m.length - first);
      const float* from = x + (output / chunks * m.length + first) * m.inner + column;
      const std::int64_t columns = std::min(kTileColumns, m.inner - column);
      VOLTA_SIMD_CALL(context.simd, fold, kind, from, m.inner, rows, y + output * m.inner + column,
                      columns);
    }
  });
}

}  // namespace

std::int64_t workspace_bytes(const Reduce& op, const ArgShapes& shapes, const Context&) {
  const Middle m = middle_of(shapes.inputs[0].shape, op.begin, op.end);
  const std::int64_t chunks = chunk_count(m);
  return chunks == 1 ? 0 : m.outer * chunks * m.inner * std::int64_t{sizeof(float)};
}

void run(const Reduce& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<float>();
  const Middle m = middle_of(args.inputs[0].shape, op.begin, op.end);
  const std::int64_t chunks = chunk_count(m);
  if (chunks == 1) {
    fold_chunks(op.kind, m, chunk_length(m), x, y, context);
  } else {
    // SAFETY: workspace_bytes asked for this many floats, and workspaces are 64-byte aligned.
    auto* partial = reinterpret_cast<float*>(args.workspace.data());
    fold_chunks(op.kind, m, chunk_length(m), x, partial, context);
    fold_chunks(op.kind, {m.outer, chunks, m.inner}, chunks, partial, y, context);
  }
  if (op.kind != ReduceKind::kMean) return;
  const auto count = static_cast<float>(m.length);
  const std::int64_t outputs = m.outer * m.inner;
  for (std::int64_t i = 0; i < outputs; ++i) y[i] /= count;
}

std::int64_t workspace_bytes(const Expand&, const ArgShapes&, const Context&) { return 0; }

void run(const Expand& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<float>();
  const int added = op.shape.rank() - args.inputs[0].shape.rank();
  const Middle m = middle_of(op.shape, op.begin, op.begin + added);
  if (m.inner == 1) {
    split_rows(context, m.outer, m.length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::fill_n(y + row * m.length, m.length, op.scale * x[row]);
      }
    });
    return;
  }
  split_rows(context, m.outer * m.length, m.inner, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      VOLTA_SIMD_CALL(context.simd, scaled_copy, op.scale, x + row / m.length * m.inner,
                      y + row * m.inner, m.inner);
    }
  });
}

}  // namespace volta::cpu
#endif
