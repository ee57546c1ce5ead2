// The plain kernels of CachedAttention, for any float types and any head_dim. They compute in f32.
// cached_attention.cu chooses between them and the tensor-core kernels (cached_attention_mma.cuh).
//
// Decoding is bound by the bytes of the cache, each of which is read once for all query heads that
// share it.
//
// Keys are taken in splits of 256, at fixed positions counted from 0. Each split gives a maximum, a
// sum and an output that is not yet divided, and the splits are joined in order. With few rows a
// thread block computes one split, and a second kernel joins them. With many rows a thread block
// goes over all splits of a few rows and joins them in registers, in the same way. Within a split
// every row's sums are taken in an order that depends on positions and head_dim alone. So a row's
// bits depend on its q and its cache, and not on the other rows or on how the work was cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cuda/cached_attention.cuh"
#include "kernels/cuda/launch.cuh"

namespace volta::cuda::attention {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSplit = 256;  // Keys.
constexpr int kSplitPages = kSplit / kKeyBlock;
// A thread reads 8 neighbouring elements of a cache. So a warp reads one dim of all keys of a
// split, and each of the four warps sums a quarter of the dims.
constexpr int kRun = 8;
static_assert(kWarp * kRun == kSplit);
constexpr int kDims = 256;  // Of an output that a work item computes, and of q staged at once.
constexpr int kMostQueries = 8;
static_assert(kMostBlocks <= std::numeric_limits<int>::max() / kSplit);
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Call : CachedCall {
  // Whether kRun elements of a cache can be loaded at once.
  bool runs_of_keys = false, runs_of_values = false;
  // The work: a work item is `rows_at_once` rows, `heads_at_once` query heads of one key/value
  // head, and kDims dims of the output; if `partials` is given, also one split.
  int rows_at_once = 1, heads_at_once = 1;
  std::int64_t head_groups = 1, chunks = 1, splits = 1;
  // [rows, heads, splits, head_dim + 2]: the output, the maximum and the sum of each split.
  float* partials = nullptr;
};

__device__ float* partial_of(const Call& call, std::int64_t row, std::int64_t head,
                             std::int64_t split) {
  return call.partials + ((row * call.heads + head) * call.splits + split) * (call.q.dim + 2);
}

// The largest score of some splits, and the sum of their weights relative to it.
struct Joined {
  float max, sum;
};
constexpr Joined kNothing = {kLowest, 0.0f};
// How the outputs so far and those of the next split are scaled when they are added.
struct Factors {
  float before, next;
};
// Adds a split's maximum and sum. A split with a maximum of -inf changes nothing.
__device__ Factors join(Joined& joined, float max, float sum) {
  const float now = fmaxf(joined.max, max);
  const float shift = now == kLowest ? 0.0f : now;
  const Factors factors = {expf(joined.max - shift), expf(max - shift)};
  joined.sum = fmaf(sum, factors.next, joined.sum * factors.before);
  joined.max = now;
  return factors;
}
__device__ float join(const Factors& factors, float before, float next) {
  return fmaf(next, factors.next, before * factors.before);
}

// Loads kRun elements of a cache. Without `at_once`, elements from `count` on are zeros.
template <typename T>
__device__ void load_run(const T* from, bool at_once, int count, float (&to)[kRun]) {
  if (at_once) {
    // SAFETY: at_once says that the address is a multiple of kRun elements, or of 16 bytes.
    constexpr int kCount = kVector<T> < kRun ? kVector<T> : kRun;
#pragma unroll
    for (int i = 0; i < kRun; i += kCount) {
      const auto v = *reinterpret_cast<const Vector<T, kCount>*>(from + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) to[i + j] = to_f32(v.at[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) to[i] = i < count ? to_f32(from[i]) : 0.0f;
}

// The queries of a work item: the same heads of consecutive rows of one sequence.
struct Queries {
  std::int64_t first_row;
  int rows, first_head, heads, kv_head;

  __device__ int count() const { return rows * heads; }
  __device__ std::int64_t row(int i) const { return first_row + i / heads; }
  __device__ int head(int i) const { return first_head + i % heads; }
};

// Element n < kOutputs of a thread is element threadIdx.x + n kThreads of [query, dim].
template <int kQueries>
constexpr int kOutputs = kQueries * kDims / kThreads;
// Dims of q that are staged at once.
template <int kQueries>
constexpr int kStaged = kQueries > 4 ? kDims / 2 : kDims;

// At most 48 KiB.
template <int kQueries>
struct Shared {
  alignas(16) float q[kStaged<kQueries> * kQueries];    // [dim, query], scaled.
  alignas(16) float parts[kWarps * kQueries * kSplit];  // See partial_scores(), mix_values().
  alignas(16) float weights[kSplit * kQueries];         // [key, query]
  Joined joined[kQueries];
  Factors factors[kQueries];
  Keys keys[kQueries];              // What each query sees; empty if there is no such query.
  std::int64_t pages[kSplitPages];  // See find_pages().
};

// Scores of this thread's kRun keys, summed over a quarter of the dims: parts[warp, query, key].
template <typename T, int kQueries>
__device__ void partial_scores(const Call& call, const Queries& queries, int split,
                               Shared<kQueries>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int key = lane * kRun;  // Within the split.
  const std::int64_t dim = call.q.dim;
  const std::int64_t page = shared.pages[key / kKeyBlock];
  bool seen = false;
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    const Keys keys = shared.keys[i];
    seen = seen || (split + key < keys.end && split + key + kRun > keys.begin);
  }
  seen = seen && page >= 0;
  const T* const from =
      static_cast<const T*>(call.cache_k) +
      (max(page, std::int64_t{0}) * call.kv_heads + queries.kv_head) * dim * kKeyBlock +
      key % kKeyBlock;
  float score[kQueries][kRun] = {};
  for (std::int64_t first = 0; first < dim; first += kStaged<kQueries>) {
    const int dims = static_cast<int>(min(std::int64_t{kStaged<kQueries>}, dim - first));
    __syncthreads();  // What was staged before has been read.
    for (int i = static_cast<int>(threadIdx.x); i < dims * kQueries; i += kThreads) {
      const int query = i % kQueries;
      float q = 0.0f;
      if (query < queries.count()) {
        q = call.scale * load_element(call.q.data, call.dtype,
                                      call.q.index(0, queries.row(query), queries.head(query)) +
                                          first + i / kQueries);
      }
      shared.q[i] = q;
    }
    __syncthreads();
    if (!seen) continue;
#pragma unroll(kQueries > 4 ? 2 : kQueries > 1 ? 4 : 16)
    for (int d = warp; d < dims; d += kWarps) {
      float k[kRun];
      load_run(from + (first + d) * kKeyBlock, call.runs_of_keys, kRun, k);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        const float q = shared.q[d * kQueries + i];
#pragma unroll
        for (int n = 0; n < kRun; ++n) score[i][n] = fmaf(q, k[n], score[i][n]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
#pragma unroll
    for (int n = 0; n < kRun; ++n) {
      shared.parts[(warp * kQueries + i) * kSplit + key + n] = score[i][n];
    }
  }
}

// Adds the four parts of each score, turns the scores of a split into weights, and joins the split
// to those before: a warp for each query. Weights of keys that a query does not see are 0.
template <int kQueries>
__device__ void softmax_split(const Call& call, int split, Shared<kQueries>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < kQueries; i += kWarps) {
    const Keys keys = shared.keys[i];
    float score[kRun], largest = kLowest;
#pragma unroll
    for (int n = 0; n < kRun; ++n) {
      const int key = n * kWarp + lane;
      float s = shared.parts[i * kSplit + key];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) s += shared.parts[(w * kQueries + i) * kSplit + key];
      float slope;
      if (call.softcap > 0.0f) s = cap_score(s, call.softcap, slope);
      score[n] = split + key >= keys.begin && split + key < keys.end ? s : kLowest;
      largest = fmaxf(largest, score[n]);
    }
    largest = warp_max(largest);
    const float shift = largest == kLowest ? 0.0f : largest;
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < kRun; ++n) {
      const float p = expf(score[n] - shift);
      total += p;
      shared.weights[(n * kWarp + lane) * kQueries + i] = p;
    }
    total = warp_sum(total);
    if (lane != 0) continue;
    Factors factors = {1.0f, 0.0f};
    // A split of which the query sees nothing is skipped, as it is when the query is alone.
    if (split < keys.end && split + kSplit > keys.begin) {
      factors = join(shared.joined[i], largest, total);
    }
    shared.factors[i] = factors;
  }
}

// The outputs of a split are added to those of the splits before. Thread (column, lane) sums the
// values of kRun dims of the keys lane, lane + lanes, and so on: parts[lane, query, column * kRun].
// Then the lanes are added in order.
template <typename T, int kQueries>
__device__ void mix_values(const Call& call, const Queries& queries, int split, std::int64_t first,
                           Shared<kQueries>& shared, float (&out)[kOutputs<kQueries>]) {
  const std::int64_t dim = call.q.dim;
  const int dims = static_cast<int>(min(std::int64_t{kDims}, dim - first));
  const int columns = ceil_div(dims, kRun), lanes = kThreads / columns;
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int lane = static_cast<int>(threadIdx.x) / columns;
  int begin = kSplit, end = 0;  // Of what any query sees.
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    const Keys keys = shared.keys[i];
    if (keys.begin == keys.end) continue;
    begin = min(begin, max(keys.begin - split, 0));
    end = max(end, min(keys.end - split, kSplit));
  }
  if (lane < lanes) {
    float sum[kQueries][kRun] = {};
#pragma unroll(kQueries > 4 ? 2 : 4)
    for (int key = begin / lanes * lanes + lane; key < end; key += lanes) {
      const std::int64_t page = shared.pages[key / kKeyBlock];
      if (key < begin || page < 0) continue;
      const T* const from =
          static_cast<const T*>(call.cache_v) +
          ((page * call.kv_heads + queries.kv_head) * kKeyBlock + key % kKeyBlock) * dim + first +
          column * kRun;
      float v[kRun];
      load_run(from, call.runs_of_values, dims - column * kRun, v);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        // A value that the query does not see may be NaN, and 0 times NaN is NaN: skip it.
        const Keys keys = shared.keys[i];
        if (split + key < keys.begin || split + key >= keys.end) continue;
        const float p = shared.weights[key * kQueries + i];
#pragma unroll
        for (int n = 0; n < kRun; ++n) sum[i][n] = fmaf(p, v[n], sum[i][n]);
      }
    }
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
#pragma unroll
      for (int n = 0; n < kRun; ++n) {
        shared.parts[((lane * kQueries + i) * columns + column) * kRun + n] = sum[i][n];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kOutputs<kQueries>; ++n) {
    const int at = static_cast<int>(threadIdx.x) + n * kThreads;
    if (at >= queries.count() * dims) continue;
    const int query = at / dims;
    float next = 0.0f;
    for (int l = 0; l < lanes; ++l) {
      next += shared.parts[(l * kQueries + query) * columns * kRun + at % dims];
    }
    out[n] = join(shared.factors[query], out[n], next);
  }
}

// The pages of a split: -1 where no query sees the page, or where it is missing.
template <int kQueries>
__device__ void find_pages(const Call& call, const Queries& queries, int split,
                           Shared<kQueries>& shared) {
  if (threadIdx.x >= kSplitPages) return;
  const int begin = split + static_cast<int>(threadIdx.x) * kKeyBlock;
  bool seen = false;
  for (int i = 0; i < kQueries; ++i) {
    const Keys keys = shared.keys[i];
    seen = seen || (begin < keys.end && begin + kKeyBlock > keys.begin);
  }
  shared.pages[threadIdx.x] = seen ? call.rows.page(queries.first_row, begin / kKeyBlock) : -1;
}

// Stores the queries' results: to y or, with partials, to the workspace. `joined` then has one
// split alone, which joining to kNothing has not changed.
template <int kQueries>
__device__ void store_outputs(const Call& call, const Queries& queries, std::int64_t split,
                              std::int64_t first, const Shared<kQueries>& shared,
                              const float (&out)[kOutputs<kQueries>]) {
  const int dims = static_cast<int>(min(std::int64_t{kDims}, call.q.dim - first));
#pragma unroll
  for (int n = 0; n < kOutputs<kQueries>; ++n) {
    const int at = static_cast<int>(threadIdx.x) + n * kThreads;
    if (at >= queries.count() * dims) continue;
    const int query = at / dims;
    const std::int64_t row = queries.row(query), d = first + at % dims;
    if (call.partials != nullptr) {
      partial_of(call, row, queries.head(query), split)[d] = out[n];
    } else {
      store_element(call.y.data, call.dtype, call.y.index(0, row, queries.head(query)) + d,
                    out[n] / shared.joined[query].sum);
    }
  }
  const int query = static_cast<int>(threadIdx.x);
  if (call.partials == nullptr || first > 0 || query >= queries.count()) return;
  float* const partial = partial_of(call, queries.row(query), queries.head(query), split);
  partial[call.q.dim] = shared.joined[query].max;
  partial[call.q.dim + 1] = shared.joined[query].sum;
}

// Goes over the splits that the queries see; with partials, over split `only` alone.
template <typename T, int kQueries>
__device__ void attend(const Call& call, const Queries& queries, std::int64_t only,
                       std::int64_t first, Shared<kQueries>& shared) {
  __syncthreads();  // All threads have finished with what was here before.
  if (threadIdx.x < kQueries) {
    const int query = static_cast<int>(threadIdx.x);
    shared.keys[query] = query < queries.count() ? keys_of(call, queries.row(query)) : Keys{0, 0};
    shared.joined[query] = kNothing;
  }
  __syncthreads();
  int begin = std::numeric_limits<int>::max(), end = 0;
#pragma unroll 1  // Unrolled, the loop would load the keys of queries that do not exist.
  for (int i = 0; i < queries.count(); ++i) {
    begin = min(begin, shared.keys[i].begin);
    end = max(end, shared.keys[i].end);
  }
  begin = begin / kSplit * kSplit;
  if (call.partials != nullptr) {
    const std::int64_t wanted = only * kSplit;
    if (wanted < begin || wanted >= end) return;
    begin = static_cast<int>(wanted);
    end = begin + 1;
  }
  float out[kOutputs<kQueries>] = {};
  for (int split = begin; split < end; split += kSplit) {
    find_pages(call, queries, split, shared);
    __syncthreads();
    partial_scores<T>(call, queries, split, shared);
    __syncthreads();
    softmax_split(call, split, shared);
    __syncthreads();
    mix_values<T>(call, queries, split, first, shared, out);
    __syncthreads();
  }
  store_outputs(call, queries, only, first, shared, out);
}

// Zeros for these dims of a row that is not computed.
__device__ void clear_row(const Call& call, const Queries& queries, std::int64_t first) {
  const int dims = static_cast<int>(min(std::int64_t{kDims}, call.q.dim - first));
  for (int i = static_cast<int>(threadIdx.x); i < queries.heads * dims; i += kThreads) {
    const std::int64_t head = call.y.index(0, queries.first_row, queries.head(i / dims));
    store_element(call.y.data, call.dtype, head + first + i % dims, 0.0f);
  }
}

// How many rows from `row` on, which counts, can be read and belong to one sequence: 0 if `row`
// itself cannot be read.
__device__ int rows_of_sequence(const Call& call, std::int64_t row, std::int64_t end) {
  int rows = 0;
  while (row + rows < end && call.rows.sequences[row + rows] == call.rows.sequences[row] &&
         readable(call, row + rows)) {
    ++rows;
  }
  return rows;
}

// The rows of a work item; those of one sequence are computed together. With partials, only the
// place of a row is checked here. combine_kernel clears and reports the rows that cannot be read.
template <typename T, int kQueries>
__device__ void attend_item(const Call& call, Queries queries, std::int64_t split,
                            std::int64_t first, Shared<kQueries>& shared) {
  const bool whole = call.partials == nullptr;
  const std::int64_t end = min(call.rows.all, queries.first_row + call.rows_at_once);
  const std::int64_t count = min(end, call.rows.count());
  while (queries.first_row < end) {
    const std::int64_t row = queries.first_row;
    queries.rows = 0;
    if (row < count) {
      queries.rows = whole ? rows_of_sequence(call, row, count) : (call.rows.placed(row) ? 1 : 0);
    }
    if (queries.rows > 0) {
      attend<T>(call, queries, split, first, shared);
    } else if (whole) {
      const bool once = first == 0 && queries.first_head == 0 && threadIdx.x == 0;
      if (row < count && once) call.fault.report(row);
      clear_row(call, queries, first);
    }
    queries.first_row += max(queries.rows, 1);
  }
}

template <typename T, int kQueries>
__global__ void __launch_bounds__(kThreads, kQueries == 1   ? 6
                                            : kQueries == 4 ? 4
                                                            : 3) attend_kernel(const Call call) {
  __shared__ Shared<kQueries> shared;
  let_next_begin();
  wait_for_earlier();
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const int group = call.heads / call.kv_heads;
  const std::int64_t splits = call.partials == nullptr ? 1 : call.splits;
  const std::int64_t row_groups = ceil_div(call.rows.all, std::int64_t{call.rows_at_once});
  const std::int64_t items = row_groups * call.kv_heads * call.head_groups * call.chunks * splits;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    std::int64_t rest = item;
    const auto digit = [&rest](std::int64_t radix) {
      const std::int64_t value = rest % radix;
      rest /= radix;
      return value;
    };
    const std::int64_t split = digit(splits);
    const std::int64_t first = digit(call.chunks) * kDims;
    const int head_group = static_cast<int>(digit(call.head_groups));
    Queries queries;
    queries.kv_head = static_cast<int>(digit(call.kv_heads));
    queries.first_head = queries.kv_head * group + head_group * call.heads_at_once;
    queries.heads = min(call.heads_at_once, group - head_group * call.heads_at_once);
    // The later rows of a prompt see more keys, so they come first.
    queries.first_row = (row_groups - 1 - rest) * call.rows_at_once;
    attend_item<T>(call, queries, split, first, shared);
  }
}

// Joins the splits of one row and head. Rows that do not count or cannot be read are cleared here;
// the partial results of the latter are never read.
__global__ void __launch_bounds__(kThreads) combine_kernel(const Call call) {
  let_next_begin();
  wait_for_earlier();
  const std::int64_t items = call.rows.all * call.heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t row = item / call.heads;
    const int head = static_cast<int>(item % call.heads);
    const bool counts = row < call.rows.count();
    const bool good = counts && readable(call, row);
    if (counts && !good && head == 0 && threadIdx.x == 0) call.fault.report(row);
    const Keys keys = good ? keys_of(call, row) : Keys{0, 0};
    for (std::int64_t d = threadIdx.x; d < call.q.dim; d += kThreads) {
      Joined joined = kNothing;
      float out = 0.0f;
      for (std::int64_t split = keys.begin / kSplit; split * kSplit < keys.end; ++split) {
        const float* const partial = partial_of(call, row, head, split);
        const Factors factors = join(joined, partial[call.q.dim], partial[call.q.dim + 1]);
        out = join(factors, out, partial[d]);
      }
      store_element(call.y.data, call.dtype, call.y.index(0, row, head) + d,
                    good ? out / joined.sum : 0.0f);
    }
  }
}

// How the work is cut. With few work items a thread block takes one split of one row, and
// combine_kernel joins the splits' results, which lie in the workspace. No cut changes any bit.
struct Cut {
  int rows_at_once = 1, heads_at_once = 1;
  std::int64_t head_groups = 1, splits = 1, partial_bytes = 0;
};
Cut cut_work(const AttentionShape& shape, std::int64_t rows, std::int64_t blocks,
             const Context& context) {
  Cut cut;
  const int group = shape.heads / shape.kv_heads;
  cut.splits = ceil_div(blocks, std::int64_t{kSplitPages});
  // If there are too few work items for all multiprocessors, each query head is a work item of its
  // own. Heads that share a key/value head then read the same part of the caches several times, but
  // from memory only once, and from the L2 cache after that.
  const bool alone = rows * shape.heads * cut.splits <= std::int64_t{2} * context.multiprocessors;
  cut.heads_at_once = alone ? 1 : std::min(group, kMostQueries);
  cut.head_groups = ceil_div(group, cut.heads_at_once);
  const std::int64_t items = rows * shape.kv_heads * cut.head_groups;
  const std::int64_t bytes = rows * shape.heads * cut.splits * (shape.head_dim + std::int64_t{2}) *
                             static_cast<std::int64_t>(sizeof(float));
  if (cut.splits > 1 && items < std::int64_t{4} * context.multiprocessors &&
      bytes <= kMostPartialBytes) {
    cut.partial_bytes = bytes;
  } else if (items >= std::int64_t{8} * context.multiprocessors) {
    cut.rows_at_once = kMostQueries / cut.heads_at_once;
  }
  return cut;
}

template <typename T, int kQueries>
cudaError_t launch(const Call& call, std::int64_t items, const Context& context) {
  return launch_early(&attend_kernel<T, kQueries>, blocks_for(items, 1), kThreads, 0, context,
                      call);
}

cudaError_t launch_all(const Call& call, const Context& context) {
  const std::int64_t items = ceil_div(call.rows.all, std::int64_t{call.rows_at_once}) *
                             call.kv_heads * call.head_groups * call.chunks *
                             (call.partials == nullptr ? 1 : call.splits);
  const int queries = call.rows_at_once * call.heads_at_once;
  const cudaError_t error = with_float(call.cache_dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (queries == 1) return launch<T, 1>(call, items, context);
    if (queries <= 4) return launch<T, 4>(call, items, context);
    return launch<T, kMostQueries>(call, items, context);
  });
  if (error != cudaSuccess || call.partials == nullptr) return error;
  return launch_early(&combine_kernel, blocks_for(call.rows.all * call.heads, 1), kThreads, 0,
                      context, call);
}

}  // namespace

std::int64_t cached_plain_workspace(const AttentionShape& shape, std::int64_t rows,
                                    std::int64_t blocks, const Context& context) {
  return cut_work(shape, rows, blocks, context).partial_bytes;
}

cudaError_t cached_plain(const AttentionShape& shape, const CachedCall& cached, float* workspace,
                         const Context& context) noexcept {
  const Cut cut = cut_work(shape, cached.rows.all, cached.rows.blocks, context);
  const std::size_t run_bytes =
      std::min<std::size_t>(16, static_cast<std::size_t>(kRun * dtype_size(cached.cache_dtype)));
  Call call{cached};
  call.runs_of_keys = is_aligned(cached.cache_k, run_bytes);
  call.runs_of_values = is_aligned(cached.cache_v, run_bytes) && shape.head_dim % kRun == 0;
  call.rows_at_once = cut.rows_at_once;
  call.heads_at_once = cut.heads_at_once;
  call.head_groups = cut.head_groups;
  call.chunks = ceil_div(std::int64_t{shape.head_dim}, std::int64_t{kDims});
  call.splits = cut.splits;
  if (cut.partial_bytes > 0) call.partials = workspace;
  return launch_all(call, context);
}

}  // namespace volta::cuda::attention
