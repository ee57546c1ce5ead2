// NormGrad: the gradients of layer norm and RMS norm. Bound by bytes: it reads x and dy and writes
// dx once, except for rows longer than kMostColumns, whose x and dy are read three times.
//
// A team has a range of rows. It holds one of them in registers, loads the next one meanwhile, and
// sums its columns for the gradients of the weight and the bias. How many rows a team has follows
// from the shape. The sums of a block's teams are a part, and a second kernel adds the parts in
// order.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

// The threads of a block in which warps have the rows.
constexpr int kWarpBlock = 128;
template <int kTeam>
constexpr int kGradThreads = kTeam == kWarp ? kWarpBlock : kTeam;
// The elements of a row that a thread of a team holds: a warp serves rows of up to 768 elements of
// 16 bits.
template <typename T, int kTeam>
constexpr int kGradElements = kTeam == kWarp && sizeof(T) == 2 ? 24 : 16;

constexpr int kSmallThreads = 128, kMediumThreads = 256, kLargeThreads = 512;
constexpr std::int64_t columns_of(int threads) { return std::int64_t{threads} * 16; }
constexpr std::int64_t kMostColumns = columns_of(kLargeThreads);

// The threads that fit into a multiprocessor, because each has up to 128 registers, and the number
// of multiprocessors of a large GPU, which one wave of blocks should fill. Both are constants, so
// that the sums have the same order everywhere.
constexpr int kResidentThreads = 512;
constexpr int kMultiprocessors = 132;
// A team has at least this many rows.
constexpr std::int64_t kMinTeamRows = 4;

// How the rows are divided.
struct Split {
  int team = kWarp;            // The threads of a team; 0 for longer rows.
  std::int64_t teams = 1;      // Of a block.
  std::int64_t team_rows = 1;  // How many rows a team has.
  std::int64_t parts = 0;      // How many parts the sums over rows have.

  Split(std::int64_t rows, std::int64_t columns, DType dtype) {
    const std::int64_t warp_columns =
        kWarp * (dtype == DType::kF32 ? kGradElements<float, kWarp> : kGradElements<bf16, kWarp>);
    if (columns <= warp_columns) {
      teams = kWarpBlock / kWarp;
    } else if (columns <= columns_of(kSmallThreads)) {
      team = kSmallThreads;
    } else if (columns <= columns_of(kMediumThreads)) {
      team = kMediumThreads;
    } else {
      team = columns <= kMostColumns && dtype != DType::kF32 ? kLargeThreads : 0;
    }
    const int threads = team == 0 ? kLargeThreads : team;
    const std::int64_t most_teams = kMultiprocessors * kResidentThreads / threads;
    team_rows = std::max(kMinTeamRows, ceil_div(rows, most_teams));
    parts = ceil_div(rows, team_rows * teams);
  }
};

//   h = (x - mean) rstd, g = dy weight:  dx = rstd (g - mean(g) - h mean(g h)),
//   dweight = sum over rows of dy h, dbias = sum over rows of dy; without mean(g) for kRms.
struct GradCall {
  const void* x = nullptr;
  FloatRow weight;
  const float* stats = nullptr;  // [rows, 2]
  const void* dy = nullptr;
  void* dx = nullptr;
  float* parts = nullptr;  // [parts, 1 or 2, columns]: dweight, then dbias.
  std::int64_t rows = 0, columns = 0, team_rows = 0;
  bool layer = false, has_bias = false, plus_one = false;

  __device__ float* part(std::int64_t index) const {
    return parts + index * columns * (has_bias ? 2 : 1);
  }
};

// A vector of a row: h and dy in f32, and what multiplies h. After the end of the row dy is 0, and
// so is all that it multiplies.
template <typename T>
struct GradVector {
  float h[kVector<T>], dy[kVector<T>], factor[kVector<T>];

  // The caller sets `factor`.
  __device__ GradVector(const Words& x, const Words& upstream, float mean, float rstd) {
    widen<T>(x, h);
    widen<T>(upstream, dy);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) h[j] = __fmul_rn(h[j] - mean, rstd);
  }

  // Adds g and g h to the sums.
  __device__ void add_to(float (&sums)[2]) const {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      const float product = __fmul_rn(dy[j], factor[j]);
      sums[0] += product;
      sums[1] = fmaf(product, h[j], sums[1]);
    }
  }
  __device__ Words dx(const float (&means)[2], float rstd) const {
    float to[kVector<T>];
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      const float centred = __fmul_rn(dy[j], factor[j]) - means[0];
      to[j] = __fmul_rn(rstd, fmaf(-h[j], means[1], centred));
    }
    return narrow_words<T>(to);
  }
};

// From the sums of g and g h over a row to their means.
__device__ inline void take_means(const GradCall& call, float (&sums)[2]) {
  const auto count = static_cast<float>(call.columns);
  sums[0] = call.layer ? sums[0] / count : 0.0f;
  sums[1] = sums[1] / count;
}

// The vectors of a row of x and of dy that a thread holds, and the row's statistics.
template <typename T, int kTeam, bool kWhole>
struct HeldRow {
  static constexpr int kElements = kGradElements<T, kTeam>;
  static constexpr int kVectors = kElements / kVector<T>;
  Words x[kVectors], dy[kVectors];
  float mean, rstd;

  __device__ void load(const GradCall& call, std::int64_t row, int rank, int n) {
    const T* const from_x = static_cast<const T*>(call.x) + row * n;
    const T* const from_dy = static_cast<const T*>(call.dy) + row * n;
    mean = call.stats[2 * row];
    rstd = call.stats[2 * row + 1];
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      x[v] = load_words<kWhole>(from_x, i, n);
      dy[v] = load_words<kWhole>(from_dy, i, n);
    });
  }
  __device__ void forget() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      forget_results(x[v]);
      forget_results(dy[v]);
    }
  }
};

// The sums over the rows of a team, of the columns of a thread.
template <typename T, int kTeam>
struct ColumnSums {
  static constexpr int kElements = kGradElements<T, kTeam>;
  float weight[kElements / kVector<T>][kVector<T>] = {},
                           bias[kElements / kVector<T>][kVector<T>] = {};
};

// Stores the sums of a block as a part. Warps add their sums one after the other.
template <typename T, int kTeam>
__device__ void store_part(const GradCall& call, const ColumnSums<T, kTeam>& own, int rank, int n) {
  constexpr int kElements = ColumnSums<T, kTeam>::kElements;
  float* const part = call.part(blockIdx.x);
  if constexpr (kTeam == kWarp) {
    constexpr int kTeams = kWarpBlock / kWarp;
    __shared__ float sums[2][kWarp * kElements];
    for (int adding = 0; adding < kTeams; ++adding) {
      if (static_cast<int>(threadIdx.x) / kWarp == adding) {
        for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
#pragma unroll
          for (int j = 0; j < kVector<T>; ++j) {
            float* const weight = &sums[0][i + j];
            float* const bias = &sums[1][i + j];
            *weight = adding == 0 ? own.weight[v][j] : *weight + own.weight[v][j];
            *bias = adding == 0 ? own.bias[v][j] : *bias + own.bias[v][j];
          }
        });
      }
      __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kWarpBlock) {
      part[i] = sums[0][i];
      if (call.has_bias) part[n + i] = sums[1][i];
    }
  } else {
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) {
        if (i + j >= n) break;
        part[i + j] = own.weight[v][j];
        if (call.has_bias) part[n + i + j] = own.bias[v][j];
      }
    });
  }
}

// Rows of whole aligned vectors (kWhole) need fewer registers than others.
template <typename T, int kTeam, bool kWhole>
__global__ void __launch_bounds__(kGradThreads<kTeam>,
                                  kResidentThreads / (kWhole ? 1 : 2) / kGradThreads<kTeam>)
    norm_grad_held(const GradCall call) {
  constexpr int kElements = kGradElements<T, kTeam>;
  constexpr int kTeams = kGradThreads<kTeam> / kTeam;
  extern __shared__ float4 memory[];
  __shared__ float shared[2][2 * (kTeam / kWarp)];
  const int rank = team_rank<kTeam>();
  const int team = static_cast<int>(threadIdx.x) / kTeam;
  const auto n = static_cast<int>(call.columns);
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kTeams + team) * call.team_rows;
  const std::int64_t end = min(call.rows, begin + call.team_rows);

  HeldRow<T, kTeam, kWhole> next;
  if (begin < end) next.load(call, begin, rank, n);
  const SharedRow<kVector<T>> factor(reinterpret_cast<float*>(memory), n);
  factor.fill(call.weight, n, call.plus_one ? 1.0f : 0.0f);
  __syncthreads();

  ColumnSums<T, kTeam> own;
  int turn = 0;
  for (std::int64_t row = begin; row < end; ++row, turn ^= 1) {
    HeldRow<T, kTeam, kWhole> held = next;
    if (row + 1 < end) next.load(call, row + 1, rank, n);
    float means[2] = {};
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      GradVector<T> at(held.x[v], held.dy[v], held.mean, held.rstd);
      factor.load(i, at.factor);
      at.add_to(means);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) {
        own.weight[v][j] = fmaf(at.dy[j], at.h[j], own.weight[v][j]);
        own.bias[v][j] += at.dy[j];
      }
    });
    team_sums<kTeam>(means, shared[turn]);
    take_means(call, means);
    held.forget();
    T* const dx = static_cast<T*>(call.dx) + row * n;
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      GradVector<T> at(held.x[v], held.dy[v], held.mean, held.rstd);
      factor.load(i, at.factor);
      store_words<kWhole>(dx, i, n, at.dx(means, held.rstd));
    });
  }
  store_part<T, kTeam>(call, own, rank, n);
}

// dx of a row of any length, which is read twice.
template <typename T>
__global__ void __launch_bounds__(kLongThreads) norm_grad_long(const GradCall call) {
  __shared__ float shared[2 * (kLongThreads / kWarp)];
  const std::int64_t row = blockIdx.x;
  const int rank = static_cast<int>(threadIdx.x);
  const std::int64_t n = call.columns;
  const float mean = call.stats[2 * row], rstd = call.stats[2 * row + 1];
  const T* const x = static_cast<const T*>(call.x) + row * n;
  const T* const dy = static_cast<const T*>(call.dy) + row * n;
  T* const dx = static_cast<T*>(call.dx) + row * n;
  const auto load = [&](std::int64_t i) {
    GradVector<T> at(load_words<false>(x, i, n), load_words<false>(dy, i, n), mean, rstd);
    call.weight.load(i, n, at.factor);
    if (call.plus_one) {
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) at.factor[j] = 1.0f + at.factor[j];
    }
    return at;
  };
  float means[2] = {};
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) { load(i).add_to(means); });
  team_sums<kLongThreads>(means, shared);
  take_means(call, means);
  for_vectors<T, kLongThreads>(
      rank, n, [&](std::int64_t i) { store_words<false>(dx, i, n, load(i).dx(means, rstd)); });
}

constexpr int kColumnThreads = 256;

// The parts of the sums over rows, for norm_grad_long: a thread has a column of a part.
template <typename T>
__global__ void __launch_bounds__(kColumnThreads) norm_grad_columns(GradCall call) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  const std::int64_t n = call.columns;
  if (column >= n) return;
  const std::int64_t begin = blockIdx.y * call.team_rows;
  const std::int64_t end = min(call.rows, begin + call.team_rows);
  float dweight = 0.0f, dbias = 0.0f;
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    const float x = to_f32(static_cast<const T*>(call.x)[row * n + column]);
    const float dy = to_f32(static_cast<const T*>(call.dy)[row * n + column]);
    const float h = __fmul_rn(x - call.stats[2 * row], call.stats[2 * row + 1]);
    dweight = fmaf(dy, h, dweight);
    dbias += dy;
  }
  float* const part = call.part(blockIdx.y);
  part[column] = dweight;
  if (call.has_bias) part[n + column] = dbias;
}

// Adds the parts of each column: pieces of them in order, then the pieces in order.
constexpr int kPieces = 32;

__global__ void __launch_bounds__(kWarp* kPieces)
    add_parts(const float* parts, std::int64_t count, std::int64_t columns, float* dweight,
              float* dbias) {
  __shared__ float shared[kPieces][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int piece = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t stride = columns * (dbias == nullptr ? 1 : 2);
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + lane;
  const std::int64_t length = ceil_div(count, std::int64_t{kPieces});
  const std::int64_t begin = piece * length, end = min(count, begin + length);
  float sum = 0.0f;
  if (column < stride) {
#pragma unroll 8
    for (std::int64_t i = begin; i < end; ++i) sum += parts[i * stride + column];
  }
  shared[piece][lane] = sum;
  __syncthreads();
  if (piece != 0 || column >= stride) return;
#pragma unroll
  for (int i = 1; i < kPieces; ++i) sum += shared[i][lane];
  if (column < columns) {
    dweight[column] = sum;
  } else {
    dbias[column - columns] = sum;
  }
}

template <typename T, int kTeam, bool kWhole>
cudaError_t launch_held(const GradCall& call, std::int64_t parts, cudaStream_t stream) {
  const std::int64_t bytes =
      SharedRow<kVector<T>>::floats_of(call.columns) * std::int64_t{sizeof(float)};
  norm_grad_held<T, kTeam, kWhole><<<static_cast<unsigned>(parts), kGradThreads<kTeam>,
                                     static_cast<std::size_t>(bytes), stream>>>(call);
  return launch_error();
}

template <typename T, bool kWhole>
cudaError_t launch_rows(const GradCall& call, const Split& split, cudaStream_t stream) {
  static_assert(kMostColumns * sizeof(float) <= 48 * 1024);
  switch (split.team) {
    case kWarp:
      return launch_held<T, kWarp, kWhole>(call, split.parts, stream);
    case kSmallThreads:
      return launch_held<T, kSmallThreads, kWhole>(call, split.parts, stream);
    case kMediumThreads:
      return launch_held<T, kMediumThreads, kWhole>(call, split.parts, stream);
    case kLargeThreads:  // An f32 row of so many threads would not fit into their registers.
      if constexpr (sizeof(T) == 2)
        return launch_held<T, kLargeThreads, kWhole>(call, split.parts, stream);
      break;
    default:
      break;
  }
  norm_grad_long<T><<<blocks_for(call.rows, 1), kLongThreads, 0, stream>>>(call);
  const dim3 grid(blocks_for(call.columns, kColumnThreads), static_cast<unsigned>(split.parts));
  norm_grad_columns<T><<<grid, kColumnThreads, 0, stream>>>(call);
  return launch_error();
}

}  // namespace

bool supports(const NormGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const NormGrad& op, const ArgShapes& shapes, const Context&) {
  const View& x = shapes.inputs[0];
  const Split split(x.shape.rows(), x.shape.columns(), x.dtype);
  return split.parts * x.shape.columns() * (op.has_bias ? 2 : 1) * std::int64_t{sizeof(float)};
}

cudaError_t run(const NormGrad& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  GradCall call;
  call.x = x.data;
  call.weight = FloatRow(args.inputs[1]);
  call.stats = args.inputs[2].as<const float>();
  call.dy = args.inputs[3].data;
  call.dx = args.outputs[0].data;
  // SAFETY: workspace_bytes asked for these floats, and the workspace is 256-byte aligned.
  call.parts = reinterpret_cast<float*>(args.workspace.data());
  call.rows = x.shape.rows();
  call.columns = x.shape.columns();
  const Split split(call.rows, call.columns, x.dtype);
  call.team_rows = split.team_rows;
  call.layer = op.kind == NormKind::kLayer;
  call.has_bias = op.has_bias;
  call.plus_one = op.plus_one;
  if (call.columns == 0) return cudaSuccess;
  if (call.rows > 0) {
    const cudaError_t error = with_float(x.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      const bool whole = call.columns % kVector<T> == 0 && is_aligned(call.x, 16) &&
                         is_aligned(call.dy, 16) && is_aligned(call.dx, 16);
      return whole ? launch_rows<T, true>(call, split, context.stream)
                   : launch_rows<T, false>(call, split, context.stream);
    });
    if (error != cudaSuccess) return error;
  }
  // Without rows there are no parts, and the sums are 0.
  float* const dbias = op.has_bias ? args.outputs[2].as<float>() : nullptr;
  const std::int64_t sums = call.columns * (op.has_bias ? 2 : 1);
  add_parts<<<blocks_for(sums, kWarp), kWarp * kPieces, 0, context.stream>>>(
      call.parts, split.parts, call.columns, args.outputs[1].as<float>(), dbias);
  return launch_error();
}

}  // namespace volta::cuda
