// Norm and NormGrad: layer norm and RMS norm. Both are bound by bytes: Norm reads x and writes y
// once; NormGrad reads x and dy and writes dx once, except for rows longer than kGradColumns, whose
// x and dy are read three times. Parts of the gradients of the weight and of the bias are summed
// over a number of rows that follows from the shape, and a second kernel adds the parts in order.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

// ---- Norm -------------------------------------------------------------------------------------

struct NormCall {
  const void* x = nullptr;
  FloatRow weight, bias;
  void* y = nullptr;
  float* stats = nullptr;  // [rows, 2]
  std::int64_t rows = 0, columns = 0;
  float eps = 0.0f;
  bool layer = false, has_bias = false, plus_one = false;
};

// Normalises a vector of x and stores it as elements i and following of row y.
template <typename T, typename Index>
__device__ void normalise(const NormCall& call, const RowVector<T>& from, float mean, float rstd,
                          Index i, Index n, T* y) {
  float x[kVector<T>], weight[kVector<T>], bias[kVector<T>] = {}, to[kVector<T>];
  widen(from, x);
  call.weight.load(i, n, weight);
  if (call.has_bias) call.bias.load(i, n, bias);
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    const float h = __fmul_rn(x[j] - mean, rstd);
    const float factor = call.plus_one ? 1.0f + weight[j] : weight[j];
    to[j] = call.has_bias ? fmaf(h, factor, bias[j]) : __fmul_rn(h, factor);
  }
  store_vector(y, i, n, narrow<T>(to));
}

// The sum of the squares of x - mean over a vector; elements after the end of the row do not count.
template <typename T, typename Index>
__device__ float squares(const RowVector<T>& x, float mean, Index i, Index n) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    const float delta = i + j < n ? to_f32(x.at[j]) - mean : 0.0f;
    sum = fmaf(delta, delta, sum);
  }
  return sum;
}

template <typename T>
__device__ float sum_of(const RowVector<T>& x) {
  float sum = to_f32(x.at[0]);
#pragma unroll
  for (int j = 1; j < kVector<T>; ++j) sum += to_f32(x.at[j]);
  return sum;
}

__device__ float inverse_deviation(const NormCall& call, float squares) {
  return 1.0f / sqrtf(squares / static_cast<float>(call.columns) + call.eps);
}

// Each team holds one row in registers. The variance is taken around the mean in a second pass,
// which loses no precision if the mean is large.
template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>) norm_held(NormCall call) {
  __shared__ float shared[kTeam / kWarp];
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = team_row<kTeam>();
  if (row >= call.rows) return;
  const int rank = team_rank<kTeam>();
  const auto n = static_cast<int>(call.columns);
  const T* const x = static_cast<const T*>(call.x) + row * n;
  T* const y = static_cast<T*>(call.y) + row * n;

  RowVector<T> held[kHeldElements / kVector<T>];
  for_held_vectors<T, kTeam>(rank, n,
                             [&](int v, int i) { held[v] = load_vector(x, i, n, T(0.0f)); });
  float mean = 0.0f;
  if (call.layer) {
    float sum = 0.0f;
    for_held_vectors<T, kTeam>(rank, n, [&](int v, int) { sum += sum_of<T>(held[v]); });
    mean = team_sum<kTeam>(sum, shared) / static_cast<float>(n);
  }
  float sum = 0.0f;
  for_held_vectors<T, kTeam>(rank, n,
                             [&](int v, int i) { sum += squares<T>(held[v], mean, i, n); });
  const float rstd = inverse_deviation(call, team_sum<kTeam>(sum, shared));
  if (rank == 0) {
    call.stats[2 * row] = mean;
    call.stats[2 * row + 1] = rstd;
  }
  for_held_vectors<T, kTeam>(rank, n,
                             [&](int v, int i) { normalise(call, held[v], mean, rstd, i, n, y); });
}

// A block has a row of any length, which it reads again for every pass.
template <typename T>
__global__ void __launch_bounds__(kLongThreads) norm_long(NormCall call) {
  __shared__ float shared[kLongThreads / kWarp];
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = blockIdx.x;
  const int rank = static_cast<int>(threadIdx.x);
  const std::int64_t n = call.columns;
  const T* const x = static_cast<const T*>(call.x) + row * n;
  T* const y = static_cast<T*>(call.y) + row * n;

  float mean = 0.0f;
  if (call.layer) {
    float sum = 0.0f;
    for_vectors<T, kLongThreads>(
        rank, n, [&](std::int64_t i) { sum += sum_of<T>(load_vector(x, i, n, T(0.0f))); });
    mean = block_sum<kLongThreads>(sum, shared) / static_cast<float>(n);
  }
  float sum = 0.0f;
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    sum += squares<T>(load_vector(x, i, n, T(0.0f)), mean, i, n);
  });
  const float rstd = inverse_deviation(call, block_sum<kLongThreads>(sum, shared));
  if (rank == 0) {
    call.stats[2 * row] = mean;
    call.stats[2 * row + 1] = rstd;
  }
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    normalise(call, load_vector(x, i, n, T(0.0f)), mean, rstd, i, n, y);
  });
}

// ---- NormGrad: rows ---------------------------------------------------------------------------

// Rows of at most this length are read once: by a warp up to kWarpColumns, by a block beyond.
constexpr int kGradElements = 16;  // That each thread of such a block holds.
constexpr std::int64_t kGradColumns = std::int64_t{kHeldThreads} * kGradElements;
constexpr int kGradWarps = 2;  // Teams of a block in which warps have the rows.

// The sums over rows come in at most this many parts.
constexpr std::int64_t kMaxParts = 1024;
// A team sums over at least this many rows.
constexpr std::int64_t kMinTeamRows = 4;

constexpr std::int64_t teams_of(std::int64_t columns) {
  return columns <= kWarpColumns ? kGradWarps : 1;
}
// How many rows a team has.
std::int64_t team_rows(std::int64_t rows, std::int64_t columns) {
  return std::max(kMinTeamRows, ceil_div(rows, kMaxParts * teams_of(columns)));
}
// How many parts the sums over rows have.
std::int64_t parts_of(std::int64_t rows, std::int64_t columns) {
  return ceil_div(rows, team_rows(rows, columns) * teams_of(columns));
}

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
  // Elements i and following of what multiplies h.
  template <int kCount, typename Index>
  __device__ void load_factor(Index i, Index n, float (&to)[kCount]) const {
    weight.load(i, n, to);
    if (!plus_one) return;
#pragma unroll
    for (int j = 0; j < kCount; ++j) to[j] = 1.0f + to[j];
  }
};

struct Means {
  float g = 0.0f, gh = 0.0f;

  template <int kCount>
  __device__ void add(const float (&dy)[kCount], const float (&h)[kCount],
                      const float (&factor)[kCount]) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float product = __fmul_rn(dy[j], factor[j]);
      g += product;
      gh = fmaf(product, h[j], gh);
    }
  }
  // From the sums of the threads of a team to the means over its row.
  template <int kTeam>
  __device__ void join(const GradCall& call, float* shared) {
    const auto count = static_cast<float>(call.columns);
    gh = team_sum<kTeam>(gh, shared) / count;
    g = call.layer ? team_sum<kTeam>(g, shared) / count : 0.0f;
  }
};

// A vector of a row: h and dy in f32, and what multiplies h. After the end of the row dy is 0, and
// so is all that it multiplies.
template <typename T>
struct GradVector {
  float h[kVector<T>], dy[kVector<T>], factor[kVector<T>];

  template <typename Index>
  __device__ GradVector(const GradCall& call, const RowVector<T>& x, const RowVector<T>& upstream,
                        float mean, float rstd, Index i, Index n) {
    widen(x, h);
    widen(upstream, dy);
    call.load_factor(i, n, factor);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) h[j] = __fmul_rn(h[j] - mean, rstd);
  }

  __device__ RowVector<T> dx(const Means& means, float rstd) const {
    float to[kVector<T>];
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      const float centred = __fmul_rn(dy[j], factor[j]) - means.g;
      to[j] = __fmul_rn(rstd, fmaf(-h[j], means.gh, centred));
    }
    return narrow<T>(to);
  }
};

// Each team holds one row at a time, and the sums over its rows of its columns.
template <typename T, int kTeam, int kElements>
__global__ void __launch_bounds__(kTeam == kWarp ? kGradWarps * kWarp : kTeam)
    norm_grad_held(GradCall call) {
  constexpr int kVectors = kElements / kVector<T>;
  constexpr int kTeams = kTeam == kWarp ? kGradWarps : 1;
  __shared__ float shared[kTeam / kWarp];
  __shared__ float sums[2][kTeam * kElements];
  const int rank = team_rank<kTeam>();
  const int team = static_cast<int>(threadIdx.x) / kTeam;
  const auto n = static_cast<int>(call.columns);
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kTeams + team) * call.team_rows;
  const std::int64_t end = min(call.rows, begin + call.team_rows);

  float dweight[kVectors][kVector<T>] = {}, dbias[kVectors][kVector<T>] = {};
  for (std::int64_t row = begin; row < end; ++row) {
    const float mean = call.stats[2 * row], rstd = call.stats[2 * row + 1];
    const T* const x = static_cast<const T*>(call.x) + row * n;
    const T* const dy = static_cast<const T*>(call.dy) + row * n;
    T* const dx = static_cast<T*>(call.dx) + row * n;
    RowVector<T> held_x[kVectors], held_dy[kVectors];
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      held_x[v] = load_vector(x, i, n, T(0.0f));
      held_dy[v] = load_vector(dy, i, n, T(0.0f));
    });
    Means means;
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      const GradVector<T> at(call, held_x[v], held_dy[v], mean, rstd, i, n);
      means.add(at.dy, at.h, at.factor);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) {
        dweight[v][j] = fmaf(at.dy[j], at.h[j], dweight[v][j]);
        dbias[v][j] += at.dy[j];
      }
    });
    means.join<kTeam>(call, shared);
    for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
      const GradVector<T> at(call, held_x[v], held_dy[v], mean, rstd, i, n);
      store_vector(dx, i, n, at.dx(means, rstd));
    });
  }

  // The teams of a block add their sums one after the other.
  for (int adding = 0; adding < kTeams; ++adding) {
    if (team == adding) {
      for_held_vectors<T, kTeam, kElements>(rank, n, [&](int v, int i) {
#pragma unroll
        for (int j = 0; j < kVector<T>; ++j) {
          float* const weight_sum = &sums[0][i + j];
          float* const bias_sum = &sums[1][i + j];
          *weight_sum = adding == 0 ? dweight[v][j] : *weight_sum + dweight[v][j];
          *bias_sum = adding == 0 ? dbias[v][j] : *bias_sum + dbias[v][j];
        }
      });
    }
    __syncthreads();
  }
  float* const part = call.part(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    part[i] = sums[0][i];
    if (call.has_bias) part[n + i] = sums[1][i];
  }
}

// dx of a row of any length, which is read twice.
template <typename T>
__global__ void __launch_bounds__(kLongThreads) norm_grad_long(GradCall call) {
  __shared__ float shared[kLongThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const int rank = static_cast<int>(threadIdx.x);
  const std::int64_t n = call.columns;
  const float mean = call.stats[2 * row], rstd = call.stats[2 * row + 1];
  const T* const x = static_cast<const T*>(call.x) + row * n;
  const T* const dy = static_cast<const T*>(call.dy) + row * n;
  T* const dx = static_cast<T*>(call.dx) + row * n;
  const auto load = [&](std::int64_t i) {
    return GradVector<T>(call, load_vector(x, i, n, T(0.0f)), load_vector(dy, i, n, T(0.0f)), mean,
                         rstd, i, n);
  };
  Means means;
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    const GradVector<T> at = load(i);
    means.add(at.dy, at.h, at.factor);
  });
  means.join<kLongThreads>(call, shared);
  for_vectors<T, kLongThreads>(
      rank, n, [&](std::int64_t i) { store_vector(dx, i, n, load(i).dx(means, rstd)); });
}

// ---- NormGrad: columns ------------------------------------------------------------------------

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

template <typename T>
cudaError_t launch_grad_rows(const GradCall& call, std::int64_t parts, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(parts);
  if (call.columns <= kWarpColumns) {
    norm_grad_held<T, kWarp, kHeldElements><<<blocks, kGradWarps * kWarp, 0, stream>>>(call);
  } else if (call.columns <= kGradColumns) {
    norm_grad_held<T, kHeldThreads, kGradElements><<<blocks, kHeldThreads, 0, stream>>>(call);
  } else {
    norm_grad_long<T><<<blocks_for(call.rows, 1), kLongThreads, 0, stream>>>(call);
    const dim3 grid(blocks_for(call.columns, kColumnThreads), blocks);
    norm_grad_columns<T><<<grid, kColumnThreads, 0, stream>>>(call);
  }
  return launch_error();
}

}  // namespace

bool supports(const Norm&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Norm&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const Norm& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  NormCall call;
  call.x = x.data;
  call.weight = FloatRow(args.inputs[1]);
  if (op.has_bias) call.bias = FloatRow(args.inputs[2]);
  call.y = args.outputs[0].data;
  call.stats = args.outputs[1].as<float>();
  call.rows = x.shape.rows();
  call.columns = x.shape.columns();
  call.eps = op.eps;
  call.layer = op.kind == NormKind::kLayer;
  call.has_bias = op.has_bias;
  call.plus_one = op.plus_one;
  if (call.rows == 0) return cudaSuccess;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (call.columns <= kWarpColumns) {
      return launch_early(&norm_held<T, kWarp>, row_blocks<kWarp>(call.rows), kBlockThreads<kWarp>,
                          0, context, call);
    }
    if (call.columns <= kHeldColumns) {
      return launch_early(&norm_held<T, kHeldThreads>, row_blocks<kHeldThreads>(call.rows),
                          kHeldThreads, 0, context, call);
    }
    return launch_early(&norm_long<T>, blocks_for(call.rows, 1), kLongThreads, 0, context, call);
  });
}

bool supports(const NormGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const NormGrad& op, const ArgShapes& shapes, const Context&) {
  const Shape& x = shapes.inputs[0].shape;
  return parts_of(x.rows(), x.columns()) * x.columns() * (op.has_bias ? 2 : 1) *
         std::int64_t{sizeof(float)};
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
  call.team_rows = team_rows(call.rows, call.columns);
  call.layer = op.kind == NormKind::kLayer;
  call.has_bias = op.has_bias;
  call.plus_one = op.plus_one;
  if (call.columns == 0) return cudaSuccess;
  const std::int64_t parts = parts_of(call.rows, call.columns);
  if (call.rows > 0) {
    const cudaError_t error = with_float(x.dtype, [&](auto type) {
      return launch_grad_rows<typename decltype(type)::type>(call, parts, context.stream);
    });
    if (error != cudaSuccess) return error;
  }
  // Without rows there are no parts, and the sums are 0.
  float* const dbias = op.has_bias ? args.outputs[2].as<float>() : nullptr;
  const std::int64_t sums = call.columns * (op.has_bias ? 2 : 1);
  add_parts<<<blocks_for(sums, kWarp), kWarp * kPieces, 0, context.stream>>>(
      call.parts, parts, call.columns, args.outputs[1].as<float>(), dbias);
  return launch_error();
}

}  // namespace volta::cuda
