// Ops that move bytes and compute nothing: Reshape, Permute, Slice and Pad. They use only the size
// of an element, never its value.
#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

namespace volta::cpu {
namespace {

const std::byte* bytes_of(const View& view) { return static_cast<const std::byte*>(view.data); }
std::byte* writable_bytes_of(const View& view) { return static_cast<std::byte*>(view.data); }

// split_elements and split_rows count f32 elements.
std::int64_t as_floats(std::int64_t bytes) { return ceil_div(bytes, 4); }

void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void zero(std::byte* to, std::int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
}

// A permutation as loops over the output, outermost first: the length of each loop, and how far one
// step of it moves in the input, in elements. Axes that stay together are merged, and axes of
// length 1 are left out.
struct Walk {
  std::int64_t length[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  int rank = 0;
};

Walk make_walk(const Permute& op, const Shape& x) {
  std::int64_t strides[kMaxRank] = {};
  for (int axis = 0; axis < x.rank(); ++axis) strides[axis] = x.product(axis + 1, x.rank());
  Walk walk;
  for (int i = 0; i < x.rank(); ++i) {
    const int axis = op.perm[static_cast<std::size_t>(i)];
    if (x[axis] == 1) continue;
    const int last = walk.rank - 1;
    if (walk.rank > 0 && walk.stride[last] == strides[axis] * x[axis]) {
      walk.length[last] *= x[axis];
      walk.stride[last] = strides[axis];
      continue;
    }
    walk.length[walk.rank] = x[axis];
    walk.stride[walk.rank] = strides[axis];
    ++walk.rank;
  }
  if (walk.rank == 0) {  // A single element.
    walk.length[0] = 1;
    walk.stride[0] = 1;
    walk.rank = 1;
  }
  return walk;
}

// The offset in the input of output row `row` (all axes but the last, flattened).
std::int64_t row_offset(const Walk& walk, std::int64_t row) {
  std::int64_t offset = 0;
  for (int axis = walk.rank - 2; axis >= 0; --axis) {
    offset += row % walk.length[axis] * walk.stride[axis];
    row /= walk.length[axis];
  }
  return offset;
}

// Output rows [begin, end). If the last axis stays in place, a row is one copy. Otherwise rows that
// are neighbours in the input are copied together, one tile at a time, so that every cache line
// that is read is used completely.
template <typename T>
void permute_rows(const Walk& walk, const T* x, T* y, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kTile = 32;
  const std::int64_t columns = walk.length[walk.rank - 1];
  const std::int64_t stride = walk.stride[walk.rank - 1];
  if (stride == 1) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::copy_n(x + row_offset(walk, row), columns, y + row * columns);
    }
    return;
  }
  for (std::int64_t row = begin; row < end; row += kTile) {
    const std::int64_t rows = std::min(kTile, end - row);
    std::int64_t offsets[kTile];
    for (std::int64_t r = 0; r < rows; ++r) offsets[r] = row_offset(walk, row + r);
    for (std::int64_t column = 0; column < columns; column += kTile) {
      const std::int64_t stop = std::min(columns, column + kTile);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = column; c < stop; ++c) {
          y[(row + r) * columns + c] = x[offsets[r] + c * stride];
        }
      }
    }
  }
}

template <typename T>
void permute(const Walk& walk, const Args& args, const Context& context) {
  // SAFETY: T has the element's size, and views are aligned to their element; T is an unsigned
  // integer standing for the element's bytes, which nothing else accesses meanwhile.
  const T* x = args.inputs[0].as<const T>();
  T* y = args.outputs[0].as<T>();
  const std::int64_t columns = walk.length[walk.rank - 1];
  if (columns == 0) return;
  split_rows(context, args.outputs[0].shape.elements() / columns, columns,
             [&](std::int64_t begin, std::int64_t end) { permute_rows(walk, x, y, begin, end); });
}

}  // namespace

std::int64_t workspace_bytes(const Reshape&, const ArgShapes&, const Context&) { return 0; }

void run(const Reshape&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  if (x.data == y.data) return;
  const std::int64_t bytes = x.shape.elements() * dtype_size(x.dtype);
  split_elements(context, bytes, [&](std::int64_t begin, std::int64_t end) {
    copy(writable_bytes_of(y) + begin, bytes_of(x) + begin, end - begin);
  });
}

std::int64_t workspace_bytes(const Permute&, const ArgShapes&, const Context&) { return 0; }

void run(const Permute& op, const Args& args, const Context& context) noexcept {
  const Walk walk = make_walk(op, args.inputs[0].shape);
  switch (dtype_size(args.inputs[0].dtype)) {
    case 1:
      return permute<std::uint8_t>(walk, args, context);
    case 2:
      return permute<std::uint16_t>(walk, args, context);
    case 4:
      return permute<std::uint32_t>(walk, args, context);
    default:
      return permute<std::uint64_t>(walk, args, context);
  }
}

std::int64_t workspace_bytes(const Slice&, const ArgShapes&, const Context&) { return 0; }

void run(const Slice& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const int axis = op.axis;
  const std::int64_t inner =
      x.shape.product(axis + 1, x.shape.rank()) * dtype_size(x.dtype);  // Bytes of one step.
  const std::int64_t from_row = x.shape[axis] * inner;
  const std::int64_t to_row = op.length * inner;
  const std::byte* from = bytes_of(x) + op.begin * inner;
  std::byte* to = writable_bytes_of(args.outputs[0]);
  split_rows(context, x.shape.product(0, axis), as_floats(to_row),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) {
                 copy(to + row * to_row, from + row * from_row, to_row);
               }
             });
}

std::int64_t workspace_bytes(const Pad&, const ArgShapes&, const Context&) { return 0; }

void run(const Pad& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const int axis = op.axis;
  const std::int64_t inner = x.shape.product(axis + 1, x.shape.rank()) * dtype_size(x.dtype);
  const std::int64_t from_row = x.shape[axis] * inner;
  const std::int64_t before = op.before * inner;
  const std::int64_t after = op.after * inner;
  const std::int64_t to_row = before + from_row + after;
  const std::byte* from = bytes_of(x);
  std::byte* to = writable_bytes_of(args.outputs[0]);
  split_rows(context, x.shape.product(0, axis), as_floats(to_row),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) {
                 std::byte* out = to + row * to_row;
                 zero(out, before);
                 copy(out + before, from + row * from_row, from_row);
                 zero(out + before + from_row, after);
               }
             });
}

}  // namespace volta::cpu
