// KvAppend: writes the keys and values of new tokens into the pages of their sequences, in the
// caches' type. Bound by bytes. A thread block moves a tile of 32 rows and 32 columns of k and v:
// the columns of a page of keys are rows of k, so that keys go through shared memory and both sides
// are read and written along their rows.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/paged_rows.cuh"

namespace volta::cuda {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace): this file is a part of it.

constexpr int kTile = 32;
constexpr int kThreads = 256;

struct Append {
  HeadRows k, v;  // One batch entry.
  DType dtype, cache_dtype;
  void* cache_k;  // [pages, kv_heads, dim, 64]
  void* cache_v;  // [pages, kv_heads, 64, dim]
  std::int64_t kv_heads;
  PagedRows rows;
  Fault fault;
};

// Where a row goes.
struct CachePosition {
  std::int64_t page = -1;  // -1: nowhere.
  int column = 0;
};

__device__ CachePosition cache_position(const Append& call, std::int64_t row, std::int64_t count) {
  if (row >= count || !call.rows.placed(row)) return {};
  const int position = call.rows.positions[row];
  return {call.rows.page(row, position / kKeyBlock), position % kKeyBlock};
}

__global__ void __launch_bounds__(kThreads) append_kernel(const Append call) {
  __shared__ CachePosition places[kTile];
  __shared__ float keys[kTile][kTile + 1];  // [row, column of k]
  if (blockIdx.x == 0 && threadIdx.x == 0) call.rows.check_count(call.fault);
  const std::int64_t count = call.rows.count();
  const std::int64_t dim = call.k.dim, width = call.kv_heads * dim;
  const std::int64_t wide = ceil_div(width, std::int64_t{kTile});
  const std::int64_t items = ceil_div(count, std::int64_t{kTile}) * wide;
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t first = item / wide * kTile, column = item % wide * kTile;
    __syncthreads();  // All threads have finished the tile before.
    if (y == 0) {
      places[x] = cache_position(call, first + x, count);
      if (column == 0 && first + x < count && places[x].page < 0) call.fault.report(first + x);
    }
    __syncthreads();
    for (int i = y; i < kTile; i += kThreads / kTile) {
      const CachePosition place = places[i];
      if (place.page < 0 || column + x >= width) continue;
      const std::int64_t from = (first + i) * call.k.stride + column + x;
      keys[i][x] = load_element(call.k.data, call.dtype, call.k.first + from);
      const std::int64_t head = (column + x) / dim, d = (column + x) % dim;
      const std::int64_t to =
          ((place.page * call.kv_heads + head) * kKeyBlock + place.column) * dim + d;
      store_element(call.cache_v, call.cache_dtype, to,
                    load_element(call.v.data, call.dtype, call.v.first + from));
    }
    __syncthreads();
    const CachePosition place = places[x];
    for (int i = y; i < kTile; i += kThreads / kTile) {
      if (place.page < 0 || column + i >= width) continue;
      // Element d of a head is at row head * dim + d of a page.
      const std::int64_t to = (place.page * width + column + i) * kKeyBlock + place.column;
      store_element(call.cache_k, call.cache_dtype, to, keys[x][i]);
    }
  }
}

// Rows of k or v, which have no batch axis.
HeadRows token_rows(const View& view, std::int64_t first, std::int64_t dim) {
  return {view.data, view.shape[0], view.shape[1], first, dim};
}

}  // namespace

bool supports(const KvAppend&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const KvAppend&, const ArgShapes&, const Context&) { return 0; }

cudaError_t run(const KvAppend& op, const Args& args, const Context& context) noexcept {
  const AttentionShape& shape = op.shape;
  const std::int64_t dim = shape.head_dim;
  const std::int64_t q_width = shape.heads * dim, kv_width = shape.kv_heads * dim;
  const View& k = args.inputs[0];
  const View& v = args.inputs[shape.packed ? 0 : 1];
  const auto caches = args.inputs.subspan(shape.packed ? 1 : 2);
  const Append call = {.k = token_rows(k, shape.packed ? q_width : 0, dim),
                       .v = token_rows(v, shape.packed ? q_width + kv_width : 0, dim),
                       .dtype = k.dtype,
                       .cache_dtype = caches[0].dtype,
                       .cache_k = caches[0].data,
                       .cache_v = caches[1].data,
                       .kv_heads = shape.kv_heads,
                       .rows = PagedRows(caches),
                       .fault = Fault(context)};
  const std::int64_t items =
      ceil_div(call.rows.all, std::int64_t{kTile}) * ceil_div(kv_width, std::int64_t{kTile});
  append_kernel<<<blocks_for(items, 1), kThreads, 0, context.stream>>>(call);
  return launch_error();
}

}  // namespace volta::cuda
