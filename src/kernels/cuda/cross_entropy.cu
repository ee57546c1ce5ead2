// CrossEntropy and CrossEntropyGrad. Both are bound by bytes: each reads the logits once, and the
// gradient writes as many; so does the gradient with the loss, if a row fits into shared memory.
// Rows of a vocabulary like 50257 begin at odd addresses; they are still read and written in pieces
// of 16 bytes.
#include <cstdint>
#include <cstring>

#include "kernels/cuda/ptx.cuh"
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

// e^x for logits of type T and results of that type. In 16 bits the few units of 2^-22 by which
// exp2's instruction is off do not count, but subnormal results do.
template <typename T>
__device__ inline float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
// The same for a term of a sum that is at least 1, where a subnormal term is nothing.
template <typename T>
__device__ inline float exp_term(float x) {
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
      sum *= exp_term<T>(around - largest);
      around = largest;
    }
#pragma unroll
    for (const Words& words : group) {
      float x[kVector<T>];
      widen<T>(words, x);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) sum += exp_term<T>(x[j] - around);
    }
  }

  template <int kTeam>
  __device__ void join(float* shared) {
    const float largest = team_max<kTeam>(around, shared);
    sum = team_sum<kTeam>(sum * exp_term<T>(around - largest), shared);
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
  __device__ bool inside(int first, int last) const {
    return first > 0 && std::int64_t{last + 2} * kVector<T> <= n;
  }
  // Vector `first + g * step` is group[g]. They are inside.
  template <int kGroup>
  __device__ void load(int first, int step, Words (&group)[kGroup]) const {
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
  __device__ Words load_one(int vector, T fill) const {
    const RowVector<T> from = load_vector(row, std::int64_t{vector} * kVector<T>, n, fill);
    Words words;
    memcpy(&words, &from, sizeof(words));
    return words;
  }
};

constexpr int kAtOnce = 4;  // Vectors that a thread loads at once.

// A thread's part of the sum over a row. Before the team reads elements [0, end) for the first
// time, all of its threads call ready(end).
template <typename T, int kTeam, int kPiece, typename Ready>
__device__ void add_pieces(const T* x, std::int64_t n, int rank, GroupSum<T>& sum,
                           const Ready& ready) {
  const T nothing = from_f32<T>(__int_as_float(0xff800000));  // -infinity
  const RowPieces<T, kPiece> row(x, n);
  const auto vectors = static_cast<int>(ceil_div(n, std::int64_t{kVector<T>}));
  for (int begin = 0; begin < vectors; begin += kAtOnce * kTeam) {
    ready(min(n, std::int64_t{begin + kAtOnce * kTeam + 1} * kVector<T>));
    const int first = begin + rank;
    if (first >= vectors) break;
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

// The same, for a row that lies anywhere.
template <typename T, int kTeam, typename Ready>
__device__ void add_row(const T* x, std::int64_t n, int rank, GroupSum<T>& sum,
                        const Ready& ready) {
  // The same for all threads of a team.
  const unsigned before = misalignment(x);
  if (before == 0) {
    add_pieces<T, kTeam, kAligned>(x, n, rank, sum, ready);
  } else if (before < 4) {
    add_pieces<T, kTeam, 0>(x, n, rank, sum, ready);
  } else if (before < 8) {
    add_pieces<T, kTeam, 1>(x, n, rank, sum, ready);
  } else if (before < 12) {
    add_pieces<T, kTeam, 2>(x, n, rank, sum, ready);
  } else {
    add_pieces<T, kTeam, 3>(x, n, rank, sum, ready);
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
  add_row<T, kTeam>(x, n, rank, sum, [](std::int64_t) {});
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

// ---- The loss and the gradient at once ----------------------------------------------------------

// A block keeps its row in shared memory, and two blocks share a multiprocessor: one loads its row
// while the other one stores.
constexpr int kBothThreads = kHeldThreads;
constexpr std::int64_t kBothBlocks = 2;
// What the system takes of the shared memory of each block.
constexpr std::int64_t kSystemBytes = 1024;
// The row arrives in this many groups of copies; the sum over a part begins when it is there.
constexpr int kArrivals = 4;

// The shared memory for a row, which begins as far after a multiple of 16 as in the GPU's memory.
constexpr std::int64_t both_bytes(std::int64_t columns, std::int64_t element) {
  return round_up(columns * element + 16, std::int64_t{16});
}

// Copies a row x to shared memory. `to` has the same address modulo 16 as x, so most of the row is
// copied in pieces of 16 bytes; the elements before the first piece and behind the last are copied
// one by one. Each arrival (group of asynchronous copies) brings a quarter of the pieces; after
// arrival a, the elements up to end(a) are there.
template <typename T>
struct RowCopy {
  static constexpr int kCount = kVector<T>;
  std::int64_t n, head, pieces, quarter;

  __device__ RowCopy(const T* x, std::int64_t n_) : n(n_) {
    head = min(n, static_cast<std::int64_t>((16u - misalignment(x)) % 16u / sizeof(T)));
    pieces = (n - head) / kCount;
    quarter = ceil_div(pieces, std::int64_t{kArrivals});
  }
  __device__ std::int64_t end(int arrival) const {
    return arrival + 1 == kArrivals ? n : min(n, head + (arrival + 1) * quarter * kCount);
  }
  __device__ void start(const T* x, T* to, int rank) const {
    for (std::int64_t i = rank; i < head; i += kBothThreads) to[i] = x[i];
    for (std::int64_t i = head + pieces * kCount + rank; i < n; i += kBothThreads) to[i] = x[i];
    // SAFETY: the pieces are within the row and at multiples of 16, in both places.
#pragma unroll
    for (int arrival = 0; arrival < kArrivals; ++arrival) {
      const std::int64_t last = min(pieces, (arrival + 1) * quarter);
      for (std::int64_t p = arrival * quarter + rank; p < last; p += kBothThreads) {
        copy_async_16(shared_address(to + head + p * kCount), x + head + p * kCount, 16);
      }
      commit_copies();
    }
  }
};

// Waits until all of a block's copies of arrivals [0, arrived] are there.
__device__ inline void wait_for_arrival(int arrival) {
  static_assert(kArrivals == 4);
  switch (arrival) {
    case 0:
      wait_for_copies<3>();
      break;
    case 1:
      wait_for_copies<2>();
      break;
    case 2:
      wait_for_copies<1>();
      break;
    default:
      wait_for_copies<0>();
      break;
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(kBothThreads)
    cross_entropy_both(const T* logits, const std::int32_t* targets, const float* dloss, T* dlogits,
                       float* loss, std::int64_t n, Fault fault) {
  extern __shared__ uint4 memory[];
  __shared__ float shared[kBothThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const int rank = static_cast<int>(threadIdx.x);
  const T* const x = logits + row * n;
  T* const y = dlogits + row * n;
  const std::int64_t target = target_of(targets, row, n, rank, fault);
  if (target < 0) {
    for (std::int64_t i = rank; i < n; i += kBothThreads) y[i] = T(0.0f);
    if (rank == 0) loss[row] = 0.0f;
    return;
  }
  auto* const held = reinterpret_cast<T*>(reinterpret_cast<char*>(memory) + misalignment(x));
  const RowCopy<T> copy(x, n);
  copy.start(x, held, rank);
  GroupSum<T> sum;
  int arrived = -1;
  add_row<T, kBothThreads>(held, n, rank, sum, [&](std::int64_t end) {
    if (arrived >= 0 && copy.end(arrived) >= end) return;
    while (++arrived + 1 < kArrivals && copy.end(arrived) < end) {
    }
    wait_for_arrival(arrived);
  });
  sum.template join<kBothThreads>(shared);
  const float lse = sum.around + logf(sum.sum);
  if (rank == 0) loss[row] = lse - to_f32(held[target]);
  store_grad<T, kBothThreads>({held, y, n, target, lse, dloss[row]}, rank);
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

namespace {

// Whether a row is long enough for a block, and so many of them fit into a multiprocessor of the
// current GPU.
bool fits_both(const View& logits) {
  const std::int64_t columns = logits.shape.columns();
  int gpu = 0, bytes = 0;
  if (columns <= kWarpColumns || cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, gpu) !=
          cudaSuccess) {
    return false;
  }
  return kBothBlocks * (both_bytes(columns, dtype_size(logits.dtype)) + 2 * kSystemBytes) <= bytes;
}

cudaError_t run_both(const Args& args, const Context& context) {
  const View& logits = args.inputs[0];
  return with_float(logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t rows = logits.shape.rows(), columns = logits.shape.columns();
    const std::int64_t bytes = both_bytes(columns, sizeof(T));
    const auto kernel = cross_entropy_both<T>;
    if (const cudaError_t error = allow_shared(kernel, bytes); error != cudaSuccess) return error;
    const cudaError_t preferred = cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (preferred != cudaSuccess) return preferred;
    kernel<<<blocks_for(rows, 1), kBothThreads, static_cast<std::size_t>(bytes), context.stream>>>(
        logits.as<const T>(), args.inputs[1].as<const std::int32_t>(),
        args.inputs[2].as<const float>(), args.outputs[0].as<T>(), args.outputs[1].as<float>(),
        columns, Fault(context));
    return launch_error();
  });
}

}  // namespace

// The loss and the gradient one after the other need a place for lse; whether they run so depends
// on the GPU.
std::int64_t workspace_bytes(const CrossEntropyGrad& op, const ArgShapes& shapes, const Context&) {
  if (!op.with_loss) return 0;
  return shapes.inputs[0].shape.rows() * std::int64_t{sizeof(float)};
}

cudaError_t run(const CrossEntropyGrad& op, const Args& args, const Context& context) noexcept {
  const View& logits = args.inputs[0];
  const std::int64_t rows = logits.shape.rows(), columns = logits.shape.columns();
  if (rows == 0) return cudaSuccess;
  if (op.with_loss) {
    if (fits_both(logits)) return run_both(args, context);
    const View& loss = args.outputs[1];
    const View lse(args.workspace.data(), loss.spec());
    const View inputs[] = {logits, args.inputs[1], lse, args.inputs[2]};
    const View losses[] = {loss, lse};
    const cudaError_t error = run(CrossEntropy{}, {args.inputs.first(2), losses, {}}, context);
    if (error != cudaSuccess) return error;
    return run(CrossEntropyGrad{}, {inputs, args.outputs.first(1), {}}, context);
  }
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
