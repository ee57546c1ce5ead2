// CrossEntropy and CrossEntropyGrad. Both are bound by bytes: each reads the logits once, and the
// gradient writes as many. Rows of a vocabulary like 50257 begin at odd addresses; they are still
// read and written in pieces of 16 bytes.
#include <cstdint>
#include <cstring>

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

// e^x for sums over logits of type T, and for results of that type. In 16 bits the few units of
// 2^-22 by which exp2's instruction is off do not count.
template <typename T>
__device__ inline float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}

// The sum of e^(x - around) over a part of a row, as ExpSum in rows.cuh, but of whole groups of
// vectors.
template <typename T>
struct GroupSum {
  float around = -3.402823466e38f;
  float sum = 0.0f;

  template <int kGroup>
  __device__ void add(Words (&group)[kGroup]) {
    float largest = around;
#pragma unroll
    for (Words& words : group) {
      float x[kVector<T>];
      widen<T>(words, x);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) largest = fmaxf(largest, x[j]);
      forget_results(words);
    }
    if (largest > around) {
      sum *= exp_of<T>(around - largest);
      around = largest;
    }
#pragma unroll
    for (const Words& words : group) {
      float x[kVector<T>];
      widen<T>(words, x);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) sum += exp_of<T>(x[j] - around);
    }
  }

  template <int kTeam>
  __device__ void join(float* shared) {
    const float largest = team_max<kTeam>(around, shared);
    sum = team_sum<kTeam>(sum * exp_of<T>(around - largest), shared);
    around = largest;
  }
};

// The vectors of a row, counted from its first element, wherever that is. kPiece tells how the row
// lies: kAligned, or the 32-bit word of a 16-byte piece in which it begins; then a vector is cut
// out of two pieces.
constexpr int kAligned = -1;

template <typename T, int kPiece>
struct RowPieces {
  const T* row;
  std::int64_t n;
  const uint4* pieces;
  unsigned bits;  // By which the row's first element lies after that word: 0, or 16.

  __device__ RowPieces(const T* row_, std::int64_t n_) : row(row_), n(n_) {
    const unsigned before = misalignment(row);
    pieces = reinterpret_cast<const uint4*>(reinterpret_cast<std::uintptr_t>(row) - before);
    bits = before % 4 * 8;
  }
  // Whether both pieces of the vectors from `first` to `last` are within the row.
  __device__ bool inside(std::int64_t first, std::int64_t last) const {
    return first > 0 && (last + 2) * kVector<T> <= n;
  }
  // Vector `first + g * step` is group[g]. They are inside.
  template <int kGroup>
  __device__ void load(std::int64_t first, int step, Words (&group)[kGroup]) const {
    // SAFETY: the caller asked inside().
    uint4 low[kGroup], high[kGroup];
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      low[g] = pieces[first + g * step];
      if constexpr (kPiece != kAligned) high[g] = pieces[first + g * step + 1];
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      if constexpr (kPiece == kAligned) {
        group[g] = low[g];
      } else {
        const std::uint32_t word[9] = {low[g].x,  low[g].y,  low[g].z,  low[g].w, high[g].x,
                                       high[g].y, high[g].z, high[g].w, 0};
        group[g] = {__funnelshift_r(word[kPiece], word[kPiece + 1], bits),
                    __funnelshift_r(word[kPiece + 1], word[kPiece + 2], bits),
                    __funnelshift_r(word[kPiece + 2], word[kPiece + 3], bits),
                    __funnelshift_r(word[kPiece + 3], word[kPiece + 4], bits)};
      }
    }
  }
  // Any vector; `fill` after the end of the row.
  __device__ Words load_one(std::int64_t vector, T fill) const {
    const RowVector<T> from = load_vector(row, vector * kVector<T>, n, fill);
    Words words;
    memcpy(&words, &from, sizeof(words));
    return words;
  }
};

constexpr int kAtOnce = 4;  // Vectors that a thread loads at once.

// A thread's part of the sum over a row.
template <typename T, int kTeam, int kPiece>
__device__ void add_row(const T* x, std::int64_t n, int rank, GroupSum<T>& sum) {
  const T nothing = from_f32<T>(__int_as_float(0xff800000));  // -infinity
  const RowPieces<T, kPiece> row(x, n);
  const std::int64_t vectors = ceil_div(n, std::int64_t{kVector<T>});
  for (std::int64_t first = rank; first < vectors; first += kAtOnce * kTeam) {
    Words group[kAtOnce];
    if (row.inside(first, first + (kAtOnce - 1) * kTeam)) {
      row.load(first, kTeam, group);
    } else {
#pragma unroll
      for (int g = 0; g < kAtOnce; ++g) group[g] = row.load_one(first + g * kTeam, nothing);
    }
    sum.add(group);
  }
}

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>, 1024 / kBlockThreads<kTeam>)
    cross_entropy(const T* logits, const std::int32_t* targets, float* loss, float* lse,
                  std::int64_t rows, std::int64_t n, Fault fault) {
  __shared__ float shared[kTeam / kWarp];
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const T* const x = logits + row * n;
  GroupSum<T> sum;
  // The same for all threads of a team.
  const unsigned before = misalignment(x);
  if (before == 0) {
    add_row<T, kTeam, kAligned>(x, n, rank, sum);
  } else if (before < 4) {
    add_row<T, kTeam, 0>(x, n, rank, sum);
  } else if (before < 8) {
    add_row<T, kTeam, 1>(x, n, rank, sum);
  } else if (before < 12) {
    add_row<T, kTeam, 2>(x, n, rank, sum);
  } else {
    add_row<T, kTeam, 3>(x, n, rank, sum);
  }
  sum.template join<kTeam>(shared);
  if (rank != 0) return;
  const float result = sum.around + logf(sum.sum);
  lse[row] = result;
  const std::int64_t target = target_of(targets, row, n, rank, fault);
  loss[row] = target < 0 ? 0.0f : result - to_f32(x[target]);
}

// A row of the gradient. Each element stands for itself, so vectors are counted from an address.
template <typename T>
struct GradRow {
  const T* x;
  T* y;  // May be x.
  std::int64_t n, target;
  float shift, scale;

  __device__ float slope(float z, std::int64_t i) const {
    const float p = exp_of<T>(z - shift);
    return __fmul_rn(scale, i == target ? p - 1.0f : p);
  }
  __device__ void one(std::int64_t i) const { y[i] = from_f32<T>(slope(to_f32(x[i]), i)); }
  // Elements i and following, except that none of them is taken for the target.
  __device__ Words others(const Words& from) const {
    float z[kVector<T>];
    widen<T>(from, z);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) z[j] = __fmul_rn(scale, exp_of<T>(z[j] - shift));
    return narrow_words<T>(z);
  }
};

// Lines of the cache should be written whole.
constexpr unsigned kLineBytes = 128;

template <typename T, int kTeam>
__device__ void store_grad(const GradRow<T>& row, int rank) {
  constexpr int kCount = kVector<T>;
  const std::int64_t n = row.n;
  if (misalignment(row.x) != misalignment(row.y)) {
    for (std::int64_t i = rank; i < n; i += kTeam) row.one(i);
    return;
  }
  const auto past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(row.y) % kLineBytes);
  const std::int64_t head =
      min(n, static_cast<std::int64_t>((kLineBytes - past) % kLineBytes / sizeof(T)));
  const std::int64_t vectors = (n - head) / kCount;
  // SAFETY: the vectors are within the row, and begin at a multiple of 16 in x and in y.
  const auto* const from = reinterpret_cast<const Words*>(row.x + head);
  auto* const to = reinterpret_cast<Words*>(row.y + head);
  // The thread that has the target's vector, or none, computes that vector by elements.
  const std::int64_t target = row.target - head;
  const std::int64_t special = target < 0 ? -1 : target / kCount;
  for (std::int64_t i = rank; i < head; i += kTeam) row.one(i);
  for (std::int64_t first = rank; first < vectors; first += kAtOnce * kTeam) {
    Words held[kAtOnce];
#pragma unroll
    for (int g = 0; g < kAtOnce; ++g) {
      if (first + g * kTeam < vectors) held[g] = from[first + g * kTeam];
    }
#pragma unroll
    for (int g = 0; g < kAtOnce; ++g) {
      const std::int64_t vector = first + g * kTeam;
      if (vector >= vectors) break;
      if (vector == special) {
        for (int j = 0; j < kCount; ++j) row.one(head + vector * kCount + j);
      } else {
        to[vector] = row.others(held[g]);
      }
    }
  }
  for (std::int64_t i = head + vectors * kCount + rank; i < n; i += kTeam) row.one(i);
}

template <typename T, int kTeam>
__global__ void __launch_bounds__(kBlockThreads<kTeam>, 1024 / kBlockThreads<kTeam>)
    cross_entropy_grad(const T* logits, const std::int32_t* targets, const float* lse,
                       const float* dloss, T* dlogits, std::int64_t rows, std::int64_t n,
                       Fault fault) {
  const std::int64_t row = team_row<kTeam>();
  if (row >= rows) return;
  const int rank = team_rank<kTeam>();
  const std::int64_t target = target_of(targets, row, n, rank, fault);
  T* const y = dlogits + row * n;
  if (target < 0) {
    for (std::int64_t i = rank; i < n; i += kTeam) y[i] = T(0.0f);
    return;
  }
  store_grad<T, kTeam>({logits + row * n, y, n, target, lse[row], dloss[row]}, rank);
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
    return launch(Team<kHeldThreads>());
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
    return launch(Team<kHeldThreads>());
  });
}

}  // namespace volta::cuda
