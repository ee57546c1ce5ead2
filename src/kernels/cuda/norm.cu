// Norm: layer norm and RMS norm. Bound by bytes: it reads x and writes y once, except for rows
// longer than kMostColumns, which are read up to three times.
//
// A team has a row in registers. It goes over the rows in strides of the grid and loads the next
// row while it sums this one; the weight and the bias wait in shared memory.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

constexpr int kMediumThreads = 128;
constexpr std::int64_t kMediumColumns = std::int64_t{kMediumThreads} * kHeldElements;
constexpr std::int64_t kMostColumns = kHeldColumns;

// The blocks of a multiprocessor: as many as the registers suffice for. Rows that are not whole
// aligned vectors (kWhole) need more.
template <typename T, int kTeam, bool kWhole>
constexpr int kResidentBlocks = (sizeof(T) == 2 && kWhole ? 768 : 512) / kBlockThreads<kTeam>;

struct NormCall {
  const void* x = nullptr;
  FloatRow weight, bias;
  void* y = nullptr;
  float* stats = nullptr;  // [rows, 2]
  std::int64_t rows = 0, columns = 0;
  float eps = 0.0f;
  bool layer = false, has_bias = false, plus_one = false;
};

// A vector of y from one of x, the factor and the bias.
template <typename T>
__device__ Words normalised(const Words& from, float mean, float rstd,
                            const float (&factor)[kVector<T>], const float (&bias)[kVector<T>],
                            bool has_bias) {
  float x[kVector<T>];
  widen<T>(from, x);
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    const float h = __fmul_rn(x[j] - mean, rstd);
    x[j] = has_bias ? fmaf(h, factor[j], bias[j]) : __fmul_rn(h, factor[j]);
  }
  return narrow_words<T>(x);
}

// The sum of the squares of x - mean over the first `left` elements of a vector.
template <typename T>
__device__ float squares(const Words& from, float mean, std::int64_t left) {
  float x[kVector<T>];
  widen<T>(from, x);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    const float delta = j < left ? x[j] - mean : 0.0f;
    sum = fmaf(delta, delta, sum);
  }
  return sum;
}

template <typename T>
__device__ float sum_of(const Words& from) {
  float x[kVector<T>];
  widen<T>(from, x);
  float sum = x[0];
#pragma unroll
  for (int j = 1; j < kVector<T>; ++j) sum += x[j];
  return sum;
}

__device__ float inverse_deviation(const NormCall& call, float squares) {
  return 1.0f / sqrtf(squares / static_cast<float>(call.columns) + call.eps);
}

// The variance is taken around the mean in a second pass over the registers, which loses no
// precision if the mean is large.
template <typename T, int kTeam, bool kWhole>
__global__ void __launch_bounds__(kBlockThreads<kTeam>, kResidentBlocks<T, kTeam, kWhole>)
    norm_held(const NormCall call) {
  constexpr int kVectors = kHeldElements / kVector<T>;
  extern __shared__ float4 memory[];
  __shared__ float shared[2][2][kTeam / kWarp];
  let_next_begin();
  wait_for_earlier();
  const int rank = team_rank<kTeam>();
  const auto n = static_cast<int>(call.columns);
  const std::int64_t teams = std::int64_t{gridDim.x} * (kBlockThreads<kTeam> / kTeam);
  std::int64_t row = team_row<kTeam>();

  Words next[kVectors];
  const auto fetch = [&] {
    if (row >= call.rows) return;
    const T* const x = static_cast<const T*>(call.x) + row * n;
    for_held_vectors<T, kTeam>(rank, n,
                               [&](int v, int i) { next[v] = load_words<kWhole>(x, i, n); });
  };
  fetch();
  // SAFETY: the launcher gives the kernel room for both rows, as floats.
  auto* const floats = reinterpret_cast<float*>(memory);
  const SharedRow<kVector<T>> factor(floats, n);
  const SharedRow<kVector<T>> bias(floats + factor.vectors * kVector<T>, n);
  factor.fill(call.weight, n, call.plus_one ? 1.0f : 0.0f);
  if (call.has_bias) bias.fill(call.bias, n, 0.0f);
  __syncthreads();

  for (int turn = 0; row < call.rows; turn ^= 1) {
    Words held[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) held[v] = next[v];
    T* const y = static_cast<T*>(call.y) + row * n;
    float* const stats = call.stats + 2 * row;
    row += teams;
    fetch();
    float sum[1] = {};
    float mean = 0.0f;
    if (call.layer) {
      for_held_vectors<T, kTeam>(rank, n, [&](int v, int) { sum[0] += sum_of<T>(held[v]); });
      team_sums<kTeam>(sum, shared[turn][0]);
      mean = sum[0] / static_cast<float>(n);
      sum[0] = 0.0f;
    }
    for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
      sum[0] += squares<T>(held[v], mean, kWhole ? kVector<T> : n - i);
    });
    team_sums<kTeam>(sum, shared[turn][1]);
    const float rstd = inverse_deviation(call, sum[0]);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) forget_results(held[v]);
    if (rank == 0) {
      stats[0] = mean;
      stats[1] = rstd;
    }
    for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
      float by[kVector<T>], plus[kVector<T>] = {};
      factor.load(i, by);
      if (call.has_bias) bias.load(i, plus);
      store_words<kWhole>(y, i, n, normalised<T>(held[v], mean, rstd, by, plus, call.has_bias));
    });
  }
}

// A block has a row of any length, which it reads again for every pass.
template <typename T>
__global__ void __launch_bounds__(kLongThreads) norm_long(const NormCall call) {
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
        rank, n, [&](std::int64_t i) { sum += sum_of<T>(load_words<false>(x, i, n)); });
    mean = block_sum<kLongThreads>(sum, shared) / static_cast<float>(n);
  }
  float sum = 0.0f;
  for_vectors<T, kLongThreads>(
      rank, n, [&](std::int64_t i) { sum += squares<T>(load_words<false>(x, i, n), mean, n - i); });
  const float rstd = inverse_deviation(call, block_sum<kLongThreads>(sum, shared));
  if (rank == 0) {
    call.stats[2 * row] = mean;
    call.stats[2 * row + 1] = rstd;
  }
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    float by[kVector<T>], plus[kVector<T>] = {};
    call.weight.load(i, n, by);
    if (call.plus_one) {
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) by[j] = 1.0f + by[j];
    }
    if (call.has_bias) call.bias.load(i, n, plus);
    store_words<false>(
        y, i, n, normalised<T>(load_words<false>(x, i, n), mean, rstd, by, plus, call.has_bias));
  });
}

template <typename T, int kTeam, bool kWhole>
cudaError_t launch_held(const NormCall& call, const Context& context) {
  const std::int64_t bytes = SharedRow<kVector<T>>::floats_of(call.columns) *
                             (call.has_bias ? 2 : 1) * std::int64_t{sizeof(float)};
  const auto kernel = norm_held<T, kTeam, kWhole>;
  if (const cudaError_t error = allow_shared(kernel, bytes); error != cudaSuccess) return error;
  const unsigned blocks =
      blocks_for(call.rows, kBlockThreads<kTeam> / kTeam,
                 std::int64_t{context.multiprocessors} * kResidentBlocks<T, kTeam, kWhole>);
  return launch_early(kernel, blocks, kBlockThreads<kTeam>, static_cast<std::size_t>(bytes),
                      context, call);
}

template <typename T, bool kWhole>
cudaError_t launch(const NormCall& call, const Context& context) {
  if (call.columns <= kWarpColumns) return launch_held<T, kWarp, kWhole>(call, context);
  if (call.columns <= kMediumColumns) return launch_held<T, kMediumThreads, kWhole>(call, context);
  if (call.columns <= kMostColumns) return launch_held<T, kHeldThreads, kWhole>(call, context);
  return launch_early(&norm_long<T>, blocks_for(call.rows, 1), kLongThreads, 0, context, call);
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
    const bool whole =
        call.columns % kVector<T> == 0 && is_aligned(call.x, 16) && is_aligned(call.y, 16);
    return whole ? launch<T, true>(call, context) : launch<T, false>(call, context);
  });
}

}  // namespace volta::cuda
