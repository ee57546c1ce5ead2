// Softmax and SoftmaxGrad. Both are bound by bytes: rows of at most kHeldColumns columns are read
// once, longer ones twice. The output may be the memory of an input: a thread writes nothing but
// elements that it alone has read, and not before all threads of its team have read the row.
#include <cstdint>

#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

// scale * x of a vector; -infinity, whose weight is 0, for elements after the end of the row.
template <typename T, typename Index>
__device__ void load_scaled(const RowVector<T>& x, float scale, Index i, Index n,
                            float (&to)[kVector<T>]) {
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    to[j] = i + j < n ? __fmul_rn(scale, to_f32(x.at[j])) : -infinity();
  }
}

// ---- Softmax ----------------------------------------------------------------------------------

// A row whose elements are all -infinity, or with one that is NaN or +infinity, becomes NaN.
template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>)
    softmax_held(float scale, const T* all_x, T* all_y, std::int64_t rows, std::int64_t columns) {
  __shared__ float shared[kTeam / kWarp];
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const auto n = static_cast<int>(columns);
  const T* const x = all_x + row * n;
  T* const y = all_y + row * n;

  float held[kHeldElements / kVector<T>][kVector<T>];
  float largest = -infinity();
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
    load_scaled<T>(load_vector(x, i, n, T(0.0f)), scale, i, n, held[v]);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) largest = fmaxf(largest, held[v][j]);
  });
  largest = team_max<kTeam>(largest, shared);
  float sum = 0.0f;
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      held[v][j] = expf(held[v][j] - largest);
      sum += held[v][j];  // 0 after the end of the row.
    }
  });
  const float inverse = 1.0f / team_sum<kTeam>(sum, shared);
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) held[v][j] *= inverse;
    store_vector(y, i, n, narrow<T>(held[v]));
  });
}

template <typename T>
__global__ void __launch_bounds__(kLongThreads)
    softmax_long(float scale, const T* all_x, T* all_y, std::int64_t n) {
  __shared__ float shared[kLongThreads / kWarp];
  const int rank = static_cast<int>(threadIdx.x);
  const T* const x = all_x + blockIdx.x * n;
  T* const y = all_y + blockIdx.x * n;

  ExpSum row;
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    float z[kVector<T>];
    load_scaled<T>(load_vector(x, i, n, T(0.0f)), scale, i, n, z);
    row.add(z);
  });
  row.join<kLongThreads>(shared);
  // A sum of 0 means that all elements are -infinity; 1 / 0 * 0 makes them NaN, as it should be.
  const float inverse = 1.0f / row.sum;
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    float z[kVector<T>];
    load_scaled<T>(load_vector(x, i, n, T(0.0f)), scale, i, n, z);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) z[j] = expf(z[j] - row.around) * inverse;
    store_vector(y, i, n, narrow<T>(z));
  });
}

// ---- SoftmaxGrad ------------------------------------------------------------------------------

// y * dy summed over a vector. After the end of the row both are 0.
template <typename T>
__device__ float dot_of(const RowVector<T>& y, const RowVector<T>& dy) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) sum = fmaf(to_f32(y.at[j]), to_f32(dy.at[j]), sum);
  return sum;
}

template <typename T>
__device__ RowVector<T> softmax_slope(float scale, const RowVector<T>& y, const RowVector<T>& dy,
                                      float dot) {
  RowVector<T> dx;
#pragma unroll
  for (int j = 0; j < kVector<T>; ++j) {
    dx.at[j] = from_f32<T>(__fmul_rn(__fmul_rn(scale, to_f32(y.at[j])), to_f32(dy.at[j]) - dot));
  }
  return dx;
}

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>)
    softmax_grad_held(float scale, const T* all_y, const T* all_dy, T* all_dx, std::int64_t rows,
                      std::int64_t columns) {
  __shared__ float shared[kTeam / kWarp];
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const auto n = static_cast<int>(columns);
  const T* const y = all_y + row * n;
  const T* const dy = all_dy + row * n;
  T* const dx = all_dx + row * n;

  RowVector<T> held_y[kHeldElements / kVector<T>], held_dy[kHeldElements / kVector<T>];
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
    held_y[v] = load_vector(y, i, n, T(0.0f));
    held_dy[v] = load_vector(dy, i, n, T(0.0f));
  });
  float sum = 0.0f;
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int) { sum += dot_of<T>(held_y[v], held_dy[v]); });
  const float dot = team_sum<kTeam>(sum, shared);
  for_held_vectors<T, kTeam>(rank, n, [&](int v, int i) {
    store_vector(dx, i, n, softmax_slope<T>(scale, held_y[v], held_dy[v], dot));
  });
}

template <typename T>
__global__ void __launch_bounds__(kLongThreads)
    softmax_grad_long(float scale, const T* all_y, const T* all_dy, T* all_dx, std::int64_t n) {
  __shared__ float shared[kLongThreads / kWarp];
  const int rank = static_cast<int>(threadIdx.x);
  const T* const y = all_y + blockIdx.x * n;
  const T* const dy = all_dy + blockIdx.x * n;
  T* const dx = all_dx + blockIdx.x * n;
  float sum = 0.0f;
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    sum += dot_of<T>(load_vector(y, i, n, T(0.0f)), load_vector(dy, i, n, T(0.0f)));
  });
  const float dot = block_sum<kLongThreads>(sum, shared);
  for_vectors<T, kLongThreads>(rank, n, [&](std::int64_t i) {
    const RowVector<T> to =
        softmax_slope<T>(scale, load_vector(y, i, n, T(0.0f)), load_vector(dy, i, n, T(0.0f)), dot);
    store_vector(dx, i, n, to);
  });
}

}  // namespace

bool supports(const Softmax&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Softmax&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const Softmax& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const std::int64_t rows = x.shape.rows(), columns = x.shape.columns();
  if (rows == 0 || columns == 0) return cudaSuccess;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* const from = x.as<const T>();
    T* const to = args.outputs[0].as<T>();
    if (columns <= kWarpColumns) {
      softmax_held<T, kWarp><<<row_blocks<kWarp>(rows), kBlockThreads<kWarp>, 0, context.stream>>>(
          op.scale, from, to, rows, columns);
    } else if (columns <= kHeldColumns) {
      softmax_held<T, kHeldThreads>
          <<<row_blocks<kHeldThreads>(rows), kHeldThreads, 0, context.stream>>>(op.scale, from, to,
                                                                                rows, columns);
    } else {
      softmax_long<T>
          <<<blocks_for(rows, 1), kLongThreads, 0, context.stream>>>(op.scale, from, to, columns);
    }
    return launch_error();
  });
}

bool supports(const SoftmaxGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const SoftmaxGrad&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const SoftmaxGrad& op, const Args& args, const Context& context) noexcept {
  const View& y = args.inputs[0];
  const std::int64_t rows = y.shape.rows(), columns = y.shape.columns();
  if (rows == 0 || columns == 0) return cudaSuccess;
  return with_float(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* const from = y.as<const T>();
    const T* const dy = args.inputs[1].as<const T>();
    T* const dx = args.outputs[0].as<T>();
    if (columns <= kWarpColumns) {
      softmax_grad_held<T, kWarp>
          <<<row_blocks<kWarp>(rows), kBlockThreads<kWarp>, 0, context.stream>>>(op.scale, from, dy,
                                                                                 dx, rows, columns);
    } else if (columns <= kHeldColumns) {
      softmax_grad_held<T, kHeldThreads>
          <<<row_blocks<kHeldThreads>(rows), kHeldThreads, 0, context.stream>>>(op.scale, from, dy,
                                                                                dx, rows, columns);
    } else {
      softmax_grad_long<T><<<blocks_for(rows, 1), kLongThreads, 0, context.stream>>>(
          op.scale, from, dy, dx, columns);
    }
    return launch_error();
  });
}

}  // namespace volta::cuda
