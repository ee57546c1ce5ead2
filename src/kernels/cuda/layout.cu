// Ops that move bytes and compute nothing: Reshape, Permute, Slice and Pad. They use only the size
// of an element, never its value. Bound by bytes.
//
// Rows that stay together are moved in units of up to 16 bytes: the largest that divides the
// lengths, the strides and the addresses. A permutation that moves the last axis goes through tiles
// in shared memory, so that reads and writes are both contiguous.
#include <cstdint>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;

struct alignas(16) Unit16 {
  std::uint64_t at[2];
};

// Calls body(Type<U>()) with a type of `bytes` bytes, which are 1, 2, 4, 8 or 16.
template <typename Body>
cudaError_t with_unit(std::int64_t bytes, const Body& body) {
  switch (bytes) {
    case 1:
      return body(Type<std::uint8_t>());
    case 2:
      return body(Type<std::uint16_t>());
    case 4:
      return body(Type<std::uint32_t>());
    case 8:
      return body(Type<std::uint64_t>());
    default:
      return body(Type<Unit16>());
  }
}

// The largest power of two up to 16 that divides `lengths`, all their bits or'ed, and both
// addresses.
std::int64_t unit_bytes(std::int64_t lengths, const View& x, const View& y) {
  std::int64_t unit = 16;
  while (unit > 1 && (lengths % unit != 0 || !is_aligned(x.data, static_cast<std::size_t>(unit)) ||
                      !is_aligned(y.data, static_cast<std::size_t>(unit)))) {
    unit /= 2;
  }
  return unit;
}

// A thread moves several small units, so that enough bytes are under way.
template <typename Unit>
constexpr int kUnitsPerThread = sizeof(Unit) >= 8 ? 1 : 4;

// y[i] = read(i) for i < n.
template <typename Unit, typename Read>
__device__ inline void move_units(Unit* y, std::int64_t n, const Read& read) {
  constexpr int kUnits = kUnitsPerThread<Unit>;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kUnits) + threadIdx.x;
  Unit units[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (i < n) units[u] = read(i);
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (i < n) y[i] = units[u];
  }
}

template <typename Unit>
unsigned move_blocks(std::int64_t n) {
  return blocks_for(n, std::int64_t{kThreads} * kUnitsPerThread<Unit>);
}

// ---- Slice and Pad ----------------------------------------------------------------------------

// y[row][i] = x[row][i - shift] where there is such an element, otherwise 0.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    shift_rows(const Unit* x, Unit* y, std::int64_t n, std::int64_t from_row, std::int64_t to_row,
               std::int64_t shift) {
  move_units(y, n, [&](std::int64_t i) {
    const std::int64_t row = i / to_row;
    const std::int64_t at = i - row * to_row - shift;
    return at >= 0 && at < from_row ? x[row * from_row + at] : Unit{};
  });
}

// All lengths are in bytes.
cudaError_t launch_shift(const View& x, const View& y, std::int64_t rows, std::int64_t from_row,
                         std::int64_t to_row, std::int64_t shift, const Context& context) {
  if (rows == 0 || to_row == 0) return cudaSuccess;
  const std::int64_t lengths = from_row | to_row | (shift < 0 ? -shift : shift);
  return with_unit(unit_bytes(lengths, x, y), [&](auto type) {
    using Unit = typename decltype(type)::type;
    // SAFETY: every length and address is a multiple of the unit; bytes of any type may be moved.
    constexpr std::int64_t kBytes = sizeof(Unit);
    const std::int64_t n = rows * (to_row / kBytes);
    shift_rows<Unit><<<move_blocks<Unit>(n), kThreads, 0, context.stream>>>(
        x.as<const Unit>(), y.as<Unit>(), n, from_row / kBytes, to_row / kBytes, shift / kBytes);
    return launch_error();
  });
}

// ---- Permute ----------------------------------------------------------------------------------

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

// Output elements in order; the last axis has stride 1, so that neighbours read neighbours.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const Walk walk, const Unit* x, Unit* y, std::int64_t n) {
  move_units(y, n, [&](std::int64_t i) {
    std::int64_t offset = 0;
#pragma unroll
    for (int axis = kMaxRank - 1; axis >= 0; --axis) {
      if (axis >= walk.rank) continue;
      const std::int64_t rest = i / walk.length[axis];
      offset += (i - rest * walk.length[axis]) * walk.stride[axis];
      i = rest;
    }
    return x[offset];
  });
}

cudaError_t launch_gather(Walk walk, const View& x, const View& y, const Context& context) {
  const std::int64_t size = dtype_size(x.dtype);
  const int last = walk.rank - 1;
  std::int64_t lengths = walk.length[last];
  for (int axis = 0; axis < last; ++axis) lengths |= walk.stride[axis];
  return with_unit(unit_bytes(lengths * size, x, y), [&](auto type) {
    using Unit = typename decltype(type)::type;
    // SAFETY: rows, strides and addresses are multiples of the unit, which has at least the size of
    // an element.
    const std::int64_t per_unit = static_cast<std::int64_t>(sizeof(Unit)) / size;
    walk.length[last] /= per_unit;
    for (int axis = 0; axis < last; ++axis) walk.stride[axis] /= per_unit;
    const std::int64_t n = x.shape.elements() / per_unit;
    gather_rows<Unit><<<move_blocks<Unit>(n), kThreads, 0, context.stream>>>(
        walk, x.as<const Unit>(), y.as<Unit>(), n);
    return launch_error();
  });
}

constexpr int kTile = 32;
constexpr int kTileRows = kThreads / kTile;

// The transpose of the axes `near` (stride 1 in the input) and the last axis of the output, for all
// indices of the other axes.
struct Transpose {
  Walk outer;                             // The other axes. Strides are those of the input.
  std::int64_t to_stride[kMaxRank] = {};  // Those of the output.
  std::int64_t columns = 0;               // The length of the output's last axis.
  std::int64_t column_stride = 0;         // Its stride in the input.
  std::int64_t rows = 0;                  // The length of `near`.
  std::int64_t row_stride = 0;            // Its stride in the output.
  std::int64_t row_tiles = 0;
  std::int64_t column_tiles = 0;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    transpose_tiles(const Transpose t, const T* x, T* y, std::int64_t tiles) {
  __shared__ T tile[kTile][kTile + 1];  // [column][row]; the padding spreads a column over banks.
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int line = static_cast<int>(threadIdx.x) / kTile;
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    std::int64_t rest = index / t.column_tiles;
    const std::int64_t column = (index - rest * t.column_tiles) * kTile;
    std::int64_t outer = rest / t.row_tiles;
    const std::int64_t row = (rest - outer * t.row_tiles) * kTile;
    std::int64_t from = row + column * t.column_stride;
    std::int64_t to = column + row * t.row_stride;
    for (int axis = t.outer.rank - 1; axis >= 0; --axis) {
      rest = outer / t.outer.length[axis];
      const std::int64_t at = outer - rest * t.outer.length[axis];
      from += at * t.outer.stride[axis];
      to += at * t.to_stride[axis];
      outer = rest;
    }
#pragma unroll
    for (int c = line; c < kTile; c += kTileRows) {
      if (column + c < t.columns && row + lane < t.rows) {
        tile[c][lane] = x[from + c * t.column_stride + lane];
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = line; r < kTile; r += kTileRows) {
      if (row + r < t.rows && column + lane < t.columns) {
        y[to + r * t.row_stride + lane] = tile[lane][r];
      }
    }
    __syncthreads();  // The next tile overwrites this one.
  }
}

cudaError_t launch_transpose(const Walk& walk, const View& x, const View& y,
                             const Context& context) {
  Transpose t;
  const int last = walk.rank - 1;
  t.columns = walk.length[last];
  t.column_stride = walk.stride[last];
  std::int64_t to_stride = t.columns;
  std::int64_t outer = 1;
  for (int axis = last - 1; axis >= 0; --axis) {
    if (walk.stride[axis] == 1) {  // No other axis is longer than 1 and has this stride.
      t.rows = walk.length[axis];
      t.row_stride = to_stride;
    } else {
      t.outer.length[t.outer.rank] = walk.length[axis];
      t.outer.stride[t.outer.rank] = walk.stride[axis];
      t.to_stride[t.outer.rank] = to_stride;
      ++t.outer.rank;
      outer *= walk.length[axis];
    }
    to_stride *= walk.length[axis];
  }
  t.row_tiles = ceil_div(t.rows, std::int64_t{kTile});
  t.column_tiles = ceil_div(t.columns, std::int64_t{kTile});
  const std::int64_t tiles = outer * t.row_tiles * t.column_tiles;
  return with_unit(dtype_size(x.dtype), [&](auto type) {
    using T = typename decltype(type)::type;
    transpose_tiles<T><<<blocks_for(tiles, 1), kThreads, 0, context.stream>>>(t, x.as<const T>(),
                                                                              y.as<T>(), tiles);
    return launch_error();
  });
}

}  // namespace

std::int64_t workspace_bytes(const Reshape&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Reshape&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Reshape&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  const std::int64_t bytes = x.shape.elements() * dtype_size(x.dtype);
  if (x.data == y.data || bytes == 0) return cudaSuccess;
  return cudaMemcpyAsync(y.data, x.data, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                         context.stream);
}

std::int64_t workspace_bytes(const Permute&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Permute&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Permute& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  if (x.shape.elements() == 0) return cudaSuccess;
  const Walk walk = make_walk(op, x.shape);
  if (walk.stride[walk.rank - 1] == 1) return launch_gather(walk, x, y, context);
  return launch_transpose(walk, x, y, context);
}

std::int64_t workspace_bytes(const Slice&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Slice&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Slice& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const std::int64_t inner =
      x.shape.product(op.axis + 1, x.shape.rank()) * dtype_size(x.dtype);  // Bytes of one step.
  return launch_shift(x, args.outputs[0], x.shape.product(0, op.axis), x.shape[op.axis] * inner,
                      op.length * inner, -op.begin * inner, context);
}

std::int64_t workspace_bytes(const Pad&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Pad&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Pad& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const std::int64_t inner = x.shape.product(op.axis + 1, x.shape.rank()) * dtype_size(x.dtype);
  const std::int64_t from_row = x.shape[op.axis] * inner;
  const std::int64_t to_row = op.before * inner + from_row + op.after * inner;
  return launch_shift(x, args.outputs[0], x.shape.product(0, op.axis), from_row, to_row,
                      op.before * inner, context);
}

}  // namespace volta::cuda
