// CrossEntropy and CrossEntropyGrad. Both are bound by bytes: each reads the logits once, and the
// gradient writes as many. Rows of a vocabulary like 50257 begin at odd addresses; they are still
// read and written in pieces of 16 bytes.
#include <cstdint>

#include "kernels/cuda/rows.cuh"

namespace volta::cuda {
namespace {

// The target of a row; -1 if it has none. A target beyond the vocabulary is reported and counts as
// none.
__device__ std::int64_t target_of(const std::int32_t* targets, std::int64_t row,
                                  std::int64_t classes, int rank, const Fault& fault) {
  const std::int64_t target = targets[row];
  if (target < 0) return -1;
  if (target < classes) return target;
  if (rank == 0) fault.report(row);
  return -1;
}

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>)
    cross_entropy(const T* logits, const std::int32_t* targets, float* loss, float* lse,
                  std::int64_t rows, std::int64_t n, Fault fault) {
  __shared__ float shared[kTeam / kWarp];
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const T* const x = logits + row * n;
  const T nothing = from_f32<T>(__int_as_float(0xff800000));  // -infinity
  ExpSum sum;
  // The next vector is on its way while the exponentials of this one are computed.
  constexpr int kStep = kTeam * kVector<T>;
  std::int64_t i = rank * kVector<T>;
  RowVector<T> next;
  if (i < n) next = load_vector(x, i, n, nothing);
  while (i < n) {
    float z[kVector<T>];
    widen(next, z);
    i += kStep;
    if (i < n) next = load_vector(x, i, n, nothing);
    sum.add(z);
  }
  sum.join<kTeam>(shared);
  if (rank != 0) return;
  const float result = sum.around + logf(sum.sum);
  lse[row] = result;
  const std::int64_t target = target_of(targets, row, n, rank, fault);
  loss[row] = target < 0 ? 0.0f : result - to_f32(x[target]);
}

// y[i] = body(x[i], i) for the elements of a row, in f32. Vectors are counted from the first
// multiple of 16 among the addresses of y, because each element stands for itself. x and y may be
// the same memory.
template <int kTeam, typename T, typename Body>
__device__ void map_row(int rank, const T* x, T* y, std::int64_t n, const Body& body) {
  constexpr int kCount = kVector<T>;
  constexpr int kAtOnce = 2;  // Vectors that are read before one is written.
  const auto one = [&](std::int64_t i) { y[i] = from_f32<T>(body(to_f32(x[i]), i)); };
  if (misalignment(x) != misalignment(y)) {
    for (std::int64_t i = rank; i < n; i += kTeam) one(i);
    return;
  }
  const std::int64_t head =
      min(n, static_cast<std::int64_t>((16u - misalignment(y)) % 16u / sizeof(T)));
  const std::int64_t tail = n - (n - head) % kCount;
  if (rank < head) one(rank);
  for (std::int64_t i = head + rank * kCount; i < tail; i += kAtOnce * kTeam * kCount) {
    RowVector<T> held[kAtOnce];
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v) {
      const std::int64_t at = i + v * kTeam * kCount;
      // SAFETY: [head, tail) is whole vectors, the first of them at a multiple of 16 in x and y.
      if (at < tail) held[v] = *reinterpret_cast<const RowVector<T>*>(x + at);
    }
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v) {
      const std::int64_t at = i + v * kTeam * kCount;
      if (at >= tail) break;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        held[v].at[j] = from_f32<T>(body(to_f32(held[v].at[j]), at + j));
      }
      *reinterpret_cast<RowVector<T>*>(y + at) = held[v];
    }
  }
  if (rank < n - tail) one(tail + rank);
}

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>)
    cross_entropy_grad(const T* logits, const std::int32_t* targets, const float* lse,
                       const float* dloss, T* dlogits, std::int64_t rows, std::int64_t n,
                       Fault fault) {
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const std::int64_t target = target_of(targets, row, n, rank, fault);
  const T* const x = logits + row * n;
  T* const y = dlogits + row * n;
  if (target < 0) {
    for (std::int64_t i = rank; i < n; i += kTeam) y[i] = T(0.0f);
    return;
  }
  const float shift = lse[row], scale = dloss[row];
  map_row<kTeam>(rank, x, y, n, [&](float z, std::int64_t i) {
    const float p = expf(z - shift);
    return __fmul_rn(scale, i == target ? p - 1.0f : p);
  });
}

}  // namespace

bool supports(const CrossEntropy&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const CrossEntropy&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const CrossEntropy&, const Args& args, const Context& context) noexcept {
  const View& logits = args.inputs[0];
  const std::int64_t rows = logits.shape.rows(), columns = logits.shape.columns();
  if (rows == 0) return cudaSuccess;
  return with_float(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto launch = [&](auto team) {
      constexpr int kTeam = decltype(team)::kThreads;
      cross_entropy<T, kTeam><<<row_blocks<kTeam>(rows), kBlockThreads<kTeam>, 0, context.stream>>>(
          logits.as<const T>(), args.inputs[1].as<const std::int32_t>(),
          args.outputs[0].as<float>(), args.outputs[1].as<float>(), rows, columns, Fault(context));
      return launch_error();
    };
    if (columns <= kWarpColumns) return launch(Team<kWarp>());
    return launch(Team<kLongThreads>());
  });
}

bool supports(const CrossEntropyGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const CrossEntropyGrad&, const ArgShapes&, const Context&) {
  return 0;
}

cudaError_t run(const CrossEntropyGrad&, const Args& args, const Context& context) noexcept {
  const View& logits = args.inputs[0];
  const std::int64_t rows = logits.shape.rows(), columns = logits.shape.columns();
  if (rows == 0) return cudaSuccess;
  return with_float(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto launch = [&](auto team) {
      constexpr int kTeam = decltype(team)::kThreads;
      cross_entropy_grad<T, kTeam>
          <<<row_blocks<kTeam>(rows), kBlockThreads<kTeam>, 0, context.stream>>>(
              logits.as<const T>(), args.inputs[1].as<const std::int32_t>(),
              args.inputs[2].as<const float>(), args.inputs[3].as<const float>(),
              args.outputs[0].as<T>(), rows, columns, Fault(context));
      return launch_error();
    };
    if (columns <= kWarpColumns) return launch(Team<kWarp>());
    return launch(Team<kLongThreads>());
  });
}

}  // namespace volta::cuda
