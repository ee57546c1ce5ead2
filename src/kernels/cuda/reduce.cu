// Reduce. It treats x as [outer, length, inner] and removes the middle axis. Bound by the bytes of
// x.
//
// The middle axis is cut into chunks of a fixed length. A group of threads folds one chunk, and
// then the chunks are folded as if they were the middle axis, until there is one. All of this
// depends on `length` and `inner` alone, so that the bits of a result depend neither on the other
// rows nor on addresses. Elements of all types are folded in the same order.
#include <cstdint>

#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;  // Elements of a contiguous axis that a thread loads at once.
// Contiguous rows up to this length are folded by a part of a warp each, longer ones by blocks.
constexpr std::int64_t kShortRow = 1024;
constexpr std::int64_t kChunkElements = 16 * 1024;  // Of a contiguous axis.
// Where there are inner axes, a thread folds kGroup neighbouring columns.
constexpr int kMostLanes = 16;  // Threads that share a row of a chunk: a block folds 128 columns.
constexpr int kBatch = 8;       // Rows that a thread loads at once.
constexpr int kBatches = 4;     // Batches of a chunk.

// A tensor split at the axes [begin, end) of its shape.
struct Middle {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
};

Middle middle_of(const Reduce& op, const Shape& shape) {
  return {shape.product(0, op.begin), shape.product(op.begin, op.end),
          shape.product(op.end, shape.rank())};
}

// How many threads of a block share a row: a power of two. The others have rows of their own. More
// threads share a row if the axis is so short that a thread would not load a whole batch.
int tile_lanes(const Middle& m) {
  int lanes = 1;
  const auto more = [&] {
    return lanes < kMostLanes || (lanes < kThreads && m.length < kThreads / lanes * kBatch);
  };
  while (std::int64_t{lanes} * kGroup < m.inner && more()) lanes *= 2;
  return lanes;
}

std::int64_t chunk_length(const Middle& m) {
  if (m.inner == 1) return kChunkElements;
  return std::int64_t{kThreads / tile_lanes(m)} * kBatch * kBatches;
}

// An empty axis is one empty chunk, whose fold is the neutral element.
std::int64_t chunk_count(const Middle& m) {
  return std::max<std::int64_t>(1, ceil_div(m.length, chunk_length(m)));
}

template <bool kMax>
__device__ inline float neutral() {
  return kMax ? -INFINITY : 0.0f;
}

// The larger of the two, NaN when either is; or the sum.
template <bool kMax>
__device__ inline float combine(float a, float b) {
  if constexpr (kMax) return b != b || b > a ? b : a;
  return __fadd_rn(a, b);
}

// The next kGroup elements of a row, of which `left` exist. With `vectors`, x is a multiple of 16.
template <bool kMax, typename T>
__device__ inline void load_group(const T* x, std::int64_t left, bool vectors,
                                  float (&to)[kGroup]) {
  constexpr int kCount = kVector<T>;
  if (vectors && left >= kGroup) {
#pragma unroll
    for (int v = 0; v < kGroup; v += kCount) {
      const auto vector = *reinterpret_cast<const Vector<T, kCount>*>(x + v);
#pragma unroll
      for (int i = 0; i < kCount; ++i) to[v + i] = to_f32(vector.at[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) to[i] = i < left ? to_f32(x[i]) : neutral<kMax>();
  }
}

// y[outer, chunks] = the folds of x[outer, length], divided by `divisor`. `lanes` threads fold one
// chunk: a power of two up to 32, or all kThreads.
template <typename T, bool kMax>
__global__ void __launch_bounds__(kThreads)
    fold_rows(const T* x, float* y, std::int64_t outer, std::int64_t length, std::int64_t chunks,
              int lanes, float divisor) {
  __shared__ float shared[kThreads / kWarp];
  const std::int64_t unit =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;  // row * chunks + chunk
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool inside = unit < outer * chunks;
  std::int64_t count = 0;  // Threads without a chunk take part in the exchanges below.
  const T* from = x;
  if (inside) {
    const std::int64_t row = unit / chunks;
    const std::int64_t first = (unit - row * chunks) * kChunkElements;
    count = length - first < kChunkElements ? length - first : kChunkElements;
    from = x + row * length + first;
  }
  const bool vectors = reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  float folds[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) folds[i] = neutral<kMax>();
  // SAFETY: load_group reads below `count` only.
  for (std::int64_t at = std::int64_t{lane} * kGroup; at < count;
       at += std::int64_t{lanes} * kGroup) {
    float values[kGroup];
    load_group<kMax>(from + at, count - at, vectors, values);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) folds[i] = combine<kMax>(folds[i], values[i]);
  }
#pragma unroll
  for (int distance = kGroup / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < distance; ++i) folds[i] = combine<kMax>(folds[i], folds[i + distance]);
  }
  float fold = folds[0];
  for (int distance = (lanes < kWarp ? lanes : kWarp) / 2; distance > 0; distance /= 2) {
    fold = combine<kMax>(fold, __shfl_xor_sync(kAllLanes, fold, distance));
  }
  if (lanes > kWarp) {
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = fold;
    __syncthreads();
    fold = shared[0];
#pragma unroll
    for (int i = 1; i < kThreads / kWarp; ++i) fold = combine<kMax>(fold, shared[i]);
  }
  if (inside && lane == 0) y[unit] = __fdiv_rn(fold, divisor);
}

// Folds elements [0, kGroup) of the rows begin, begin + lines, ... of x, at most kBatch of them and
// those before `end`, into `folds`. `left` columns exist. With kWhole, all of them do, and the rows
// begin at multiples of 16.
template <bool kWhole, bool kMax, typename T>
__device__ inline void fold_batch(const T* x, std::int64_t inner, std::int64_t begin,
                                  std::int64_t end, int lines, std::int64_t left,
                                  float (&folds)[kGroup]) {
  constexpr int kCount = kVector<T>;
  constexpr int kParts = kGroup / kCount;
  Words words[kBatch][kParts];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const std::int64_t r = begin + std::int64_t{i} * lines;
    if (r >= end) break;
    // SAFETY: row r exists, and load_words reads below `left`.
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      words[i][part] = load_words<kWhole>(x + r * inner, std::int64_t{part * kCount}, left);
    }
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (begin + std::int64_t{i} * lines >= end) break;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float values[kCount];
      widen<T>(words[i][part], values);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        folds[part * kCount + j] = combine<kMax>(folds[part * kCount + j], values[j]);
      }
    }
  }
}

// y[outer, chunks, inner] = the folds of x[outer, length, inner], divided by `divisor`. `lanes`
// threads fold kGroup columns each of a row of a chunk, and kThreads / lanes such lines of threads
// share its rows. With `vectors`, all rows begin at multiples of 16.
template <typename T, bool kMax>
__global__ void __launch_bounds__(kThreads)
    fold_columns(const T* x, float* y, const Middle m, std::int64_t chunks, std::int64_t tiles,
                 int lanes, float divisor, bool vectors) {
  __shared__ float shared[kGroup][kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lines = kThreads / lanes;
  const int line = thread / lanes;
  for (std::int64_t unit = blockIdx.x; unit < m.outer * chunks * tiles; unit += gridDim.x) {
    const std::int64_t output = unit / tiles;  // outer * chunks + chunk
    const std::int64_t column = ((unit - output * tiles) * lanes + thread % lanes) * kGroup;
    const std::int64_t row = output / chunks;
    const std::int64_t first = (output - row * chunks) * (std::int64_t{lines} * kBatch * kBatches);
    const std::int64_t left = m.inner - column;        // Columns; perhaps none.
    const std::int64_t end = left > 0 ? m.length : 0;  // Threads without columns have no rows.
    const T* from = x + row * m.length * m.inner + column;
    float folds[kGroup];
#pragma unroll
    for (int j = 0; j < kGroup; ++j) folds[j] = neutral<kMax>();
    const bool whole = vectors && left >= kGroup;
    for (int batch = 0; batch < kBatches; ++batch) {
      const std::int64_t begin = first + line + std::int64_t{batch} * kBatch * lines;
      if (begin >= end) break;
      if (whole) {
        fold_batch<true, kMax>(from, m.inner, begin, end, lines, left, folds);
      } else {
        fold_batch<false, kMax>(from, m.inner, begin, end, lines, left, folds);
      }
    }
#pragma unroll
    for (int j = 0; j < kGroup; ++j) shared[j][thread] = folds[j];
    __syncthreads();
    for (int half = lines / 2; half > 0; half /= 2) {
      if (line < half) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          shared[j][thread] = combine<kMax>(shared[j][thread], shared[j][thread + half * lanes]);
        }
      }
      __syncthreads();
    }
    // Until the next barrier a thread touches only its own elements of `shared`.
    if (line != 0) continue;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      if (j < left) y[output * m.inner + column + j] = __fdiv_rn(shared[j][thread], divisor);
    }
  }
}

// One level: y[outer, chunks, inner] from x[outer, length, inner].
template <typename T, bool kMax>
cudaError_t fold_chunks(const T* x, float* y, const Middle& m, float divisor,
                        const Context& context) {
  const std::int64_t chunks = chunk_count(m);
  if (m.inner == 1) {
    int lanes = kThreads;
    if (m.length <= kShortRow) {
      lanes = 1;
      while (lanes < kWarp && std::int64_t{lanes} * kGroup < m.length) lanes *= 2;
    }
    const unsigned blocks = blocks_for(m.outer * chunks, kThreads / lanes);
    fold_rows<T, kMax>
        <<<blocks, kThreads, 0, context.stream>>>(x, y, m.outer, m.length, chunks, lanes, divisor);
  } else {
    const int lanes = tile_lanes(m);
    const std::int64_t tiles = ceil_div(m.inner, std::int64_t{lanes} * kGroup);
    const unsigned blocks = blocks_for(m.outer * chunks * tiles, 1);
    const bool vectors = is_aligned(x, 16) && m.inner % kVector<T> == 0;
    fold_columns<T, kMax>
        <<<blocks, kThreads, 0, context.stream>>>(x, y, m, chunks, tiles, lanes, divisor, vectors);
  }
  return launch_error();
}

// All levels. The folds of every level but the last follow each other in the workspace.
template <typename T, bool kMax>
cudaError_t reduce(const T* x, float* y, Middle m, float divisor, std::byte* workspace,
                   const Context& context) {
  // SAFETY: workspace_bytes counts the same levels, and workspaces are 256-byte aligned.
  auto* partial = reinterpret_cast<float*>(workspace);
  std::int64_t chunks = chunk_count(m);
  if (chunks == 1) return fold_chunks<T, kMax>(x, y, m, divisor, context);
  cudaError_t error = fold_chunks<T, kMax>(x, partial, m, 1.0f, context);
  while (error == cudaSuccess) {
    m.length = chunks;
    chunks = chunk_count(m);
    if (chunks == 1) return fold_chunks<float, kMax>(partial, y, m, divisor, context);
    float* next = partial + m.outer * m.length * m.inner;
    error = fold_chunks<float, kMax>(partial, next, m, 1.0f, context);
    partial = next;
  }
  return error;
}

}  // namespace

std::int64_t workspace_bytes(const Reduce& op, const ArgShapes& shapes, const Context&) {
  Middle m = middle_of(op, shapes.inputs[0].shape);
  std::int64_t folds = 0;
  for (std::int64_t chunks = chunk_count(m); chunks > 1; chunks = chunk_count(m)) {
    folds += m.outer * chunks * m.inner;
    m.length = chunks;
  }
  return folds * std::int64_t{sizeof(float)};
}

bool supports(const Reduce&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Reduce& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  auto* y = args.outputs[0].as<float>();
  const Middle m = middle_of(op, x.shape);
  if (m.outer * m.inner == 0) return cudaSuccess;
  const float divisor = op.kind == ReduceKind::kMean ? static_cast<float>(m.length) : 1.0f;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = x.as<const T>();
    std::byte* workspace = args.workspace.data();
    return op.kind == ReduceKind::kMax ? reduce<T, true>(from, y, m, divisor, workspace, context)
                                       : reduce<T, false>(from, y, m, divisor, workspace, context);
  });
}

}  // namespace volta::cuda
