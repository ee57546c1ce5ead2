// The rotations of the queries and keys of a few rows, and the keys' and values' way into the
// cache, as one kernel (rope_append.h). Bound by the latency of a launch: a thread has one pair of
// elements of a head, or one element that is not rotated.
#include <cstdint>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/paged_rows.cuh"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/rotation.cuh"

namespace volta::cuda {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace): this file is a part of it.

constexpr int kThreads = 128;
constexpr std::int64_t kMostRows = 64;  // With more, the bytes count.

// What is rotated: rows of `heads` heads.
struct Rotated {
  const void* x = nullptr;
  void* y = nullptr;
  int heads = 0;
  float sign = 1.0f;
  Fault fault;
};

struct Call {
  Rotated q, k;
  const void* v = nullptr;
  DType dtype, cache_dtype;
  const std::int32_t* positions = nullptr;  // In the table.
  const float* table = nullptr;             // [table_rows, rotary]
  std::int64_t table_rows = 0;
  int dim = 0, rotary = 0;
  bool interleaved = false;
  void* cache_k = nullptr;  // [pages, kv_heads, dim, 64]
  void* cache_v = nullptr;  // [pages, kv_heads, 64, dim]
  PagedRows rows;
  Fault fault;  // Of the append.

  /// What a head has: pairs, then elements that are not rotated.
  __host__ __device__ int head_items() const { return dim - rotary / 2; }
};

// Where a row goes in the cache.
struct CachePosition {
  std::int64_t page = -1;  // -1: nowhere.
  int column = 0;
};

__device__ float rounded(float x, DType dtype) {
  if (dtype == DType::kBF16) return to_f32(from_f32<bf16>(x));
  if (dtype == DType::kF16) return to_f32(from_f32<f16>(x));
  return x;
}

__device__ void store_key(const Call& call, const CachePosition& place, int head, int d, float x) {
  if (place.page < 0) return;
  const std::int64_t at =
      ((place.page * call.k.heads + head) * call.dim + d) * kKeyBlock + place.column;
  store_element(call.cache_k, call.cache_dtype, at, rounded(x, call.dtype));
}

// Item `item` of q or k of a row. `place` is given for k.
__device__ void rotate_item(const Call& call, const Rotated& rotated, std::int64_t row, int item,
                            const CachePosition* place) {
  const int pairs = call.rotary / 2;
  const int head = item / call.head_items(), in_head = item % call.head_items();
  const std::int64_t begin = (row * rotated.heads + head) * call.dim;
  const std::int64_t position = call.positions[row];
  const bool inside = position >= 0 && position < call.table_rows;
  if (!inside && item == 0) rotated.fault.report(row);
  if (in_head >= pairs) {
    const int d = call.rotary + in_head - pairs;
    const float x = inside ? load_element(rotated.x, call.dtype, begin + d) : 0.0f;
    store_element(rotated.y, call.dtype, begin + d, x);
    if (place != nullptr) store_key(call, *place, head, d, x);
    return;
  }
  const int first = call.interleaved ? 2 * in_head : in_head;
  const int second = call.interleaved ? first + 1 : first + pairs;
  float a = 0.0f, b = 0.0f;
  if (inside) {
    const float* const angles = call.table + position * call.rotary + in_head;
    a = load_element(rotated.x, call.dtype, begin + first);
    b = load_element(rotated.x, call.dtype, begin + second);
    turn(angles[0], rotated.sign * angles[pairs], a, b);
  }
  store_element(rotated.y, call.dtype, begin + first, a);
  store_element(rotated.y, call.dtype, begin + second, b);
  if (place == nullptr) return;
  store_key(call, *place, head, first, a);
  store_key(call, *place, head, second, b);
}

__device__ CachePosition cache_position(const Call& call, std::int64_t row) {
  if (row >= call.rows.count() || !call.rows.placed(row)) return {};
  const int position = call.rows.positions[row];
  return {call.rows.page(row, position / kKeyBlock), position % kKeyBlock};
}

__global__ void __launch_bounds__(kThreads) rope_append_kernel(const Call call) {
  let_next_begin();
  wait_for_earlier();
  const std::int64_t row = blockIdx.y;
  const int q_items = call.q.heads * call.head_items();
  const int k_items = call.k.heads * call.head_items();
  const int item = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (item == 0 && row == 0) call.rows.check_count(call.fault);
  if (item < q_items) return rotate_item(call, call.q, row, item, nullptr);
  const CachePosition place = cache_position(call, row);
  if (item < q_items + k_items) {
    if (item == q_items && row < call.rows.count() && place.page < 0) call.fault.report(row);
    return rotate_item(call, call.k, row, item - q_items, &place);
  }
  const int i = item - q_items - k_items;
  if (i >= call.k.heads * call.dim || place.page < 0) return;
  const std::int64_t head = i / call.dim, d = i % call.dim;
  const std::int64_t at =
      ((place.page * call.k.heads + head) * kKeyBlock + place.column) * call.dim + d;
  store_element(call.cache_v, call.cache_dtype, at,
                load_element(call.v, call.dtype, row * call.k.heads * call.dim + i));
}

Rotated rotated(const Rope& op, const Args& args, const Context& context,
                unsigned long long number) {
  Rotated result = {args.inputs[0].data, args.outputs[0].data, op.heads, op.inverse ? -1.0f : 1.0f,
                    Fault(context)};
  result.fault.call = number;
  return result;
}

bool same_rotation(const Rope& a, const Args& a_args, const Rope& b, const Args& b_args) {
  return a.head_dim == b.head_dim && a.interleaved == b.interleaved &&
         a_args.inputs[1].data == b_args.inputs[1].data &&
         a_args.inputs[2].data == b_args.inputs[2].data &&
         a_args.inputs[0].dtype == b_args.inputs[0].dtype;
}

bool whole_rows(const Rope& op, const Args& args) {
  const Shape& x = args.inputs[0].shape;
  return x.rank() == 2 && x[1] == std::int64_t{op.heads} * op.head_dim &&
         args.inputs[1].shape.elements() == x[0];
}

}  // namespace

bool rope_append_applies(const RopeAppend& c) {
  const AttentionShape& shape = c.append->shape;
  const Shape& q = c.q.inputs[0].shape;
  if (shape.packed || !whole_rows(*c.rope_q, c.q) || !whole_rows(*c.rope_k, c.k)) return false;
  if (!same_rotation(*c.rope_q, c.q, *c.rope_k, c.k)) return false;
  if (q[0] == 0 || q[0] > kMostRows || c.k.inputs[0].shape[0] != q[0]) return false;
  return c.rope_q->heads == shape.heads && c.rope_k->heads == shape.kv_heads &&
         c.rope_k->head_dim == shape.head_dim && c.kv.inputs[0].data == c.k.outputs[0].data &&
         c.kv.inputs[0].dtype == c.k.inputs[0].dtype && c.kv.inputs[1].dtype == c.k.inputs[0].dtype;
}

cudaError_t rope_append(const RopeAppend& c, const Context& context) {
  const View& table = c.q.inputs[2];
  const auto caches = c.kv.inputs.subspan(2);
  Call call = {.q = rotated(*c.rope_q, c.q, context, c.q_call),
               .k = rotated(*c.rope_k, c.k, context, c.k_call),
               .v = c.kv.inputs[1].data,
               .dtype = c.q.inputs[0].dtype,
               .cache_dtype = caches[0].dtype,
               .positions = c.q.inputs[1].as<const std::int32_t>(),
               .table = table.as<const float>(),
               .table_rows = table.shape[0],
               .dim = c.append->shape.head_dim,
               .rotary = static_cast<int>(table.shape[1]),
               .interleaved = c.rope_q->interleaved,
               .cache_k = caches[0].data,
               .cache_v = caches[1].data,
               .rows = PagedRows(caches),
               .fault = Fault(context)};
  call.fault.call = c.kv_call;
  const std::int64_t items = std::int64_t{call.q.heads + call.k.heads} * call.head_items() +
                             std::int64_t{call.k.heads} * call.dim;
  return launch_early(&rope_append_kernel,
                      dim3(blocks_for(items, kThreads), static_cast<unsigned>(call.rows.all)),
                      kThreads, 0, context, call);
}

}  // namespace volta::cuda
