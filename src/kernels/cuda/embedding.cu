// Embedding and EmbeddingGrad: rows of a table by id. Both are bound by bytes. An id that is out of
// range reads as zeros, adds nothing, and is reported.
//
// The gradient sorts the rows of dy by id with a radix sort that keeps the order of equal ids. A
// table's row is then a sum over a segment of the sorted rows. It is taken in pieces of kPiece
// rows, counted from the start of the segment, and the pieces are added in order. So its bits
// depend on nothing but the rows that have its id, and a frequent token is spread over many blocks.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quant.h"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

// ---- Embedding --------------------------------------------------------------------------------

template <typename T>
__global__ void look_up(FloatRow table, std::int64_t table_rows, std::int64_t columns,
                        const std::int32_t* ids, std::int64_t count, T* y, Fault fault) {
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = grid_row();
  if (row >= count) return;
  const std::int64_t id = ids[row];
  const bool inside = id >= 0 && id < table_rows;
  if (!inside && grid_vector() == 0) fault.report(row);
  const FloatRow from = table.from(inside ? id * columns : 0);
  const std::int64_t step = grid_stride() * kVector<T>;
  for (std::int64_t i = grid_vector() * kVector<T>; i < columns; i += step) {
    float x[kVector<T>] = {};
    if (inside) from.load(i, columns, x);
    store_vector(y + row * columns, i, columns, narrow<T>(x));
  }
}

// ---- EmbeddingGrad: the sort ------------------------------------------------------------------

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kSortThreads = kDigits;  // A thread has a digit, too.
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kWarpKeys = 256;  // Consecutive keys of one warp.
constexpr int kTileKeys = kSortWarps * kWarpKeys;
constexpr int kScanThreads = 1024;

// Stands behind the last key. Keys are at most 2^31.
constexpr std::uint32_t kNoKey = 0xffffffffu;

// The key of ids that are out of range: behind all others.
constexpr std::uint32_t outside_key(std::int64_t table_rows) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(table_rows, std::int64_t{1} << 31));
}

// One pass of the sort, by the digit at bit `shift`.
struct SortPass {
  const std::uint32_t* keys = nullptr;
  const std::uint32_t* rows = nullptr;  // Null in the first pass: row i belongs to key i.
  std::uint32_t* sorted_keys = nullptr;
  std::uint32_t* sorted_rows = nullptr;
  std::uint32_t* counts = nullptr;  // [kDigits, tiles]: keys, then the place of the first of them.
  std::int64_t count = 0, tiles = 0;
  int shift = 0;

  __device__ std::uint32_t digit(std::uint32_t key) const { return key >> shift & (kDigits - 1); }
};

__global__ void make_keys(const std::int32_t* ids, std::int64_t count, std::int64_t table_rows,
                          std::uint32_t outside, std::uint32_t* keys, Fault fault) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t id = ids[i];
  const bool inside = id >= 0 && id < table_rows;
  if (!inside) fault.report(i);
  keys[i] = inside ? static_cast<std::uint32_t>(id) : outside;
}

// Counts the digits of each tile. Sums of integers do not depend on their order.
__global__ void __launch_bounds__(kSortThreads) count_digits(SortPass pass) {
  __shared__ std::uint32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTileKeys;
  const std::int64_t end = min(pass.count, begin + kTileKeys);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kSortThreads) {
    atomicAdd(&counts[pass.digit(pass.keys[i])], 1u);
  }
  __syncthreads();
  pass.counts[threadIdx.x * pass.tiles + blockIdx.x] = counts[threadIdx.x];
}

// Replaces each of n counts by the sum of those before it. One block; a thread has neighbours.
__global__ void __launch_bounds__(kScanThreads) scan_counts(std::uint32_t* counts, std::int64_t n) {
  __shared__ std::uint32_t warps[kScanThreads / kWarp];
  const std::int64_t each = ceil_div(n, std::int64_t{kScanThreads});
  const std::int64_t begin = min(n, each * threadIdx.x), end = min(n, begin + each);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += counts[i];
  std::uint32_t before = sum;  // Becomes the sum up to and with this thread's, within the warp.
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == kWarp - 1) warps[warp] = before;
  __syncthreads();
  before -= sum;
  for (unsigned i = 0; i < warp; ++i) before += warps[i];
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint32_t own = counts[i];
    counts[i] = before;
    before += own;
  }
}

// Moves the keys of each tile and their rows to their places. Keys of one digit keep their order:
// tiles, the warps of a tile, the rounds of a warp and the lanes of a round follow each other.
__global__ void __launch_bounds__(kSortThreads) move_keys(SortPass pass) {
  __shared__ std::uint32_t places[kSortWarps][kDigits];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int i = 0; i < kSortWarps; ++i) places[i][threadIdx.x] = 0;
  __syncthreads();

  const std::int64_t begin = std::int64_t{blockIdx.x} * kTileKeys + warp * kWarpKeys + lane;
  std::uint32_t* const mine = places[warp];
  // Counts the warp's keys by digit in the first turn, and places them in the second one.
  for (int turn = 0; turn < 2; ++turn) {
    for (std::int64_t i = begin; i < begin + kWarpKeys; i += kWarp) {
      const bool inside = i < pass.count;
      const unsigned active = __ballot_sync(kAllLanes, inside);
      std::uint32_t key = 0, digit = 0, place = 0;
      unsigned same = 0;  // The lanes with the same digit.
      if (inside) {
        key = pass.keys[i];
        digit = pass.digit(key);
        same = __match_any_sync(active, digit);
        place = mine[digit];
      }
      __syncwarp();  // All lanes have read `mine`.
      const unsigned before = same & ((1u << lane) - 1u);
      if (inside && before == 0) mine[digit] = place + __popc(same);
      __syncwarp();
      if (turn == 0 || !inside) continue;
      place += __popc(before);
      pass.sorted_keys[place] = key;
      pass.sorted_rows[place] = pass.rows == nullptr ? static_cast<std::uint32_t>(i) : pass.rows[i];
    }
    __syncthreads();
    if (turn == 1) return;
    std::uint32_t place = pass.counts[threadIdx.x * pass.tiles + blockIdx.x];
    for (int i = 0; i < kSortWarps; ++i) {
      const std::uint32_t own = places[i][threadIdx.x];
      places[i][threadIdx.x] = place;
      place += own;
    }
    __syncthreads();
  }
}

// ---- EmbeddingGrad: the sums ------------------------------------------------------------------

constexpr int kPiece = 64;  // Rows per piece, and sorted rows per tile of sum_pieces.
constexpr int kSumThreads = 128;
constexpr int kRowsAtOnce = 4;  // Rows of dy that are read before they are added.

struct SumCall {
  const void* dy = nullptr;
  const std::uint32_t* keys = nullptr;  // Sorted.
  const std::uint32_t* rows = nullptr;  // The row of dy of each key.
  float* table = nullptr;               // [table rows, columns], zeros before.
  // Sums of the pieces of segments with more than kPiece rows, [tiles, columns]: of whole pieces,
  // and of shorter last ones. The tile in which a piece starts is its index: whole pieces do not
  // overlap, and a segment with a shorter last piece has a whole one before it. So no two pieces of
  // a kind start in one tile.
  float* whole = nullptr;
  float* last = nullptr;
  std::int64_t count = 0, columns = 0;
  std::uint32_t outside = 0;
};

// The first of the keys [0, n) that is at least `key` (or, with kAbove, above it); n if none is.
template <bool kAbove>
__device__ std::int64_t first_key(const std::uint32_t* keys, std::int64_t n, std::uint32_t key) {
  std::int64_t low = 0, high = n;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (keys[middle] > key || (!kAbove && keys[middle] == key)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <int kCount>
__device__ void store_sums(float* row, std::int64_t i, std::int64_t n,
                           const float (&sums)[kCount]) {
#pragma unroll
  for (int part = 0; part < kCount; part += kVector<float>) {
    Vector<float, kVector<float>> to;
#pragma unroll
    for (int j = 0; j < kVector<float>; ++j) to.at[j] = sums[part + j];
    store_vector(row, i + part, n, to);
  }
}

// A block has the pieces that start in one tile of sorted rows, in some columns. Its threads do the
// same, each for kVector columns.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) sum_pieces(SumCall call) {
  __shared__ std::uint32_t keys[2 * kPiece], rows[2 * kPiece];
  __shared__ std::int64_t segment;  // Where the segment of the tile's first key starts.
  const std::int64_t tile = std::int64_t{blockIdx.x} * kPiece;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kPiece; i += kSumThreads) {
    const bool inside = tile + i < call.count;
    keys[i] = inside ? call.keys[tile + i] : kNoKey;
    rows[i] = inside ? call.rows[tile + i] : 0;
  }
  if (threadIdx.x == 0) {
    const std::uint32_t key = call.keys[tile];
    const bool starts = tile == 0 || call.keys[tile - 1] != key;
    segment = starts ? tile : first_key<false>(call.keys, tile, key);
  }
  __syncthreads();
  const std::int64_t column = (std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * kVector<T>;
  if (column >= call.columns) return;

  // A piece that started before this tile belongs to another block.
  const int rest = static_cast<int>((tile - segment) % kPiece);
  int piece = 0;
  while (rest > 0 && piece < kPiece - rest && keys[piece] == keys[0]) ++piece;

  float sums[kVector<T>] = {};
  // Stores the sums of the piece [piece, end).
  const auto store = [&](int end) {
    const std::uint32_t key = keys[piece];
    const bool first = piece > 0 ? keys[piece - 1] != key : segment == tile;
    float* to = call.table + std::int64_t{key} * call.columns;
    if (!first || keys[end] == key) {
      to = (end - piece == kPiece ? call.whole : call.last) + blockIdx.x * call.columns;
    }
    store_sums(to, column, call.columns, sums);
  };
  const int begin = piece;
  for (int i = begin;; i += kRowsAtOnce) {
    RowVector<T> held[kRowsAtOnce];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int at = i + r;
      // Beyond the tile there is at most the rest of the piece that its last row belongs to.
      const bool needed = at < 2 * kPiece && keys[at] < call.outside &&
                          (at < kPiece || keys[at] == keys[kPiece - 1]);
      if (!needed) continue;
      const T* const row = static_cast<const T*>(call.dy) + std::int64_t{rows[at]} * call.columns;
      held[r] = load_vector(row, column, call.columns, T(0.0f));
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int at = i + r;
      if (at == begin || keys[at] != keys[at - 1] || at == piece + kPiece) {
        if (at > begin) store(at);
        if (at >= kPiece || keys[at] >= call.outside) return;
        piece = at;
#pragma unroll
        for (int j = 0; j < kVector<T>; ++j) sums[j] = 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) sums[j] += to_f32(held[r].at[j]);
    }
  }
}

// Adds the pieces of the segment of more than kPiece rows that starts in a tile, if one does. There
// is at most one.
__global__ void __launch_bounds__(kSumThreads) join_pieces(SumCall call) {
  __shared__ std::int64_t segment, end;
  if (threadIdx.x == 0) segment = -1;
  __syncthreads();
  const std::int64_t at = std::int64_t{blockIdx.x} * kPiece + threadIdx.x;
  if (threadIdx.x < kPiece && at + kPiece < call.count) {
    const std::uint32_t key = call.keys[at];
    const bool starts = at == 0 || call.keys[at - 1] != key;
    if (starts && key < call.outside && call.keys[at + kPiece] == key) {
      segment = at;
      end = first_key<true>(call.keys, call.count, key);
    }
  }
  __syncthreads();
  if (segment < 0) return;
  const std::int64_t pieces = ceil_div(end - segment, std::int64_t{kPiece});
  const bool shorter = (end - segment) % kPiece != 0;
  const std::int64_t tile = segment / kPiece;
  const std::int64_t column = std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x;
  if (column >= call.columns) return;
  float sum = 0.0f;
#pragma unroll 8
  for (std::int64_t i = 0; i < pieces - (shorter ? 1 : 0); ++i) {
    sum += call.whole[(tile + i) * call.columns + column];
  }
  if (shorter) sum += call.last[(tile + pieces - 1) * call.columns + column];
  call.table[std::int64_t{call.keys[segment]} * call.columns + column] = sum;
}

// ---- EmbeddingGrad: the launches --------------------------------------------------------------

// Where the arrays are in the workspace.
struct GradSpace {
  std::int64_t keys[2], rows[2], counts, whole, last, bytes;

  GradSpace(std::int64_t count, std::int64_t columns) {
    std::int64_t at = 0;
    const auto take = [&](std::int64_t words) {
      const std::int64_t begin = at;
      at += round_up(words * std::int64_t{4}, std::int64_t{256});
      return begin;
    };
    for (std::int64_t& each : keys) each = take(count);
    for (std::int64_t& each : rows) each = take(count);
    counts = take(kDigits * ceil_div(count, std::int64_t{kTileKeys}));
    const std::int64_t sums = ceil_div(count, std::int64_t{kPiece}) * columns;
    whole = take(sums);
    last = take(sums);
    bytes = at;
  }
};

// Sorts the keys in `pass`; afterwards `pass.keys` and `pass.rows` are sorted. `other` are the
// arrays that are not in use.
void sort(SortPass& pass, std::uint32_t* other_keys, std::uint32_t* own_rows,
          std::uint32_t* other_rows, std::uint32_t largest, cudaStream_t stream) {
  const unsigned tiles = blocks_for(pass.count, kTileKeys);
  pass.tiles = tiles;
  pass.sorted_keys = other_keys;
  pass.sorted_rows = other_rows;
  for (; pass.shift < 32 && (pass.shift == 0 || largest >> pass.shift != 0);
       pass.shift += kDigitBits) {
    count_digits<<<tiles, kSortThreads, 0, stream>>>(pass);
    scan_counts<<<1, kScanThreads, 0, stream>>>(pass.counts, pass.tiles * kDigits);
    move_keys<<<tiles, kSortThreads, 0, stream>>>(pass);
    // The sorted arrays are the input of the next pass, whose output goes to those that were read.
    auto* const read_keys = const_cast<std::uint32_t*>(pass.keys);
    auto* const read_rows = pass.rows == nullptr ? own_rows : const_cast<std::uint32_t*>(pass.rows);
    pass.keys = pass.sorted_keys;
    pass.rows = pass.sorted_rows;
    pass.sorted_keys = read_keys;
    pass.sorted_rows = read_rows;
  }
}

}  // namespace

bool supports(const Embedding&, std::span<const TensorSpec> inputs) {
  return inputs[0].encoding.packing == Packing::kRows;
}

std::int64_t workspace_bytes(const Embedding&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const Embedding&, const Args& args, const Context& context) noexcept {
  const View& table = args.inputs[0];
  if (table.encoding.quantized()) return embedding_quantized(args, context);
  const View& y = args.outputs[0];
  const std::int64_t count = args.inputs[1].shape.elements();
  const std::int64_t columns = table.shape[1];
  if (count == 0) return cudaSuccess;
  return with_float(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const VectorGrid grid(count, ceil_div(columns, std::int64_t{kVector<T>}));
    return launch_early(&look_up<T>, grid.blocks, grid.threads, 0, context, FloatRow(table),
                        table.shape[0], columns, args.inputs[1].as<const std::int32_t>(), count,
                        y.as<T>(), Fault(context));
  });
}

bool supports(const EmbeddingGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const EmbeddingGrad&, const ArgShapes& shapes, const Context&) {
  return GradSpace(shapes.inputs[0].shape.elements(), shapes.inputs[1].shape.columns()).bytes;
}

cudaError_t run(const EmbeddingGrad& op, const Args& args, const Context& context) noexcept {
  const std::int64_t count = args.inputs[0].shape.elements();
  const View& dy = args.inputs[1];
  const View& table = args.outputs[0];
  const std::int64_t columns = dy.shape.columns();
  const GradSpace space(count, columns);
  // SAFETY: workspace_bytes asked for these arrays, and the workspace is 256-byte aligned.
  const auto array = [&](std::int64_t offset) {
    return reinterpret_cast<std::uint32_t*>(args.workspace.data() + offset);
  };
  if (columns > 0) {
    const cudaError_t error = cudaMemsetAsync(
        table.data, 0, static_cast<std::size_t>(op.rows * columns) * sizeof(float), context.stream);
    if (error != cudaSuccess) return error;
  }
  if (count == 0) return cudaSuccess;
  const std::uint32_t outside = outside_key(op.rows);
  constexpr int kThreads = 256;
  make_keys<<<blocks_for(count, kThreads), kThreads, 0, context.stream>>>(
      args.inputs[0].as<const std::int32_t>(), count, op.rows, outside, array(space.keys[0]),
      Fault(context));
  if (columns == 0) return launch_error();

  SortPass pass;
  pass.keys = array(space.keys[0]);
  pass.counts = array(space.counts);
  pass.count = count;
  sort(pass, array(space.keys[1]), array(space.rows[0]), array(space.rows[1]), outside,
       context.stream);

  SumCall call;
  call.dy = dy.data;
  call.keys = pass.keys;
  call.rows = pass.rows;
  call.table = table.as<float>();
  // SAFETY: as above; these words are floats.
  call.whole = reinterpret_cast<float*>(array(space.whole));
  call.last = reinterpret_cast<float*>(array(space.last));
  call.count = count;
  call.columns = columns;
  call.outside = outside;
  const unsigned tiles = blocks_for(count, kPiece);
  return with_float(dy.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const dim3 grid(tiles, blocks_for(columns, kSumThreads * kVector<T>));
    sum_pieces<T><<<grid, kSumThreads, 0, context.stream>>>(call);
    if (count > kPiece) {
      const dim3 join_grid(tiles, blocks_for(columns, kSumThreads));
      join_pieces<<<join_grid, kSumThreads, 0, context.stream>>>(call);
    }
    return launch_error();
  });
}

}  // namespace volta::cuda
