// Attention over whole sequences. It is tiled, and [T, T] is never stored; attention.cuh describes
// the scheme. Bound by flops. In 16 bits with a head_dim of 64 or 128 the tensor cores compute it
// (attention_sm90.cuh on Hopper, attention_mma_forward.cuh elsewhere). The plain kernel here takes
// everything else.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_sm90.h"

namespace volta::cuda {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace): this file is a part of it.
using plain::kThreads;
using plain::kTile;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Launch {
  Forward call;
  bool fours = false;
  std::int64_t tiles = 0, chunks = 0;  // Of rows, and of an output row's dims.
};

// What a row carries from one block of keys to the next. Thread (y, x) holds rows 4y to 4y + 3, and
// the 16 threads of the same y hold the same maxima and sums.
template <int kGroups>
struct State {
  float max[4], sum[4], out[4][4 * kGroups];
};

// Turns the scores of 4 x 4 elements into weights, and updates the rows' state. A block in which a
// row sees no key does not change its state.
template <int kGroups>
__device__ void softmax_block(const Forward& call, int t, int key, float (&scores)[4][4],
                              State<kGroups>& state) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int begin = call.mask.begin(t + y + i), end = call.mask.end(t + y + i);
    float largest = kLowest;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& s = scores[i][j];
      float slope;
      s *= call.scale;
      if (call.softcap > 0.0f) s = cap_score(s, call.softcap, slope);
      if (key + x + j < begin || key + x + j >= end) s = kLowest;
      largest = fmaxf(largest, s);
    }
    const float now = fmaxf(state.max[i], plain::max_of_row(largest));
    const float shift = now == kLowest ? 0.0f : now;
    const float correction = expf(state.max[i] - shift);
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scores[i][j] = expf(scores[i][j] - shift);
      total += scores[i][j];
    }
    state.sum[i] = state.sum[i] * correction + plain::sum_of_row(total);
    state.max[i] = now;
#pragma unroll
    for (float& each : state.out[i]) each *= correction;
  }
}

__device__ void drop_weights(const Forward& call, const DropoutMask& mask, std::int64_t batch,
                             int head, int t, int key, float (&weights)[4][4]) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = (batch * call.heads + head) * call.mask.time + t + y + i;
    float factors[4];
    mask.factors(static_cast<std::uint64_t>(row * call.mask.time + key + x), factors);
#pragma unroll
    for (int j = 0; j < 4; ++j) weights[i][j] *= factors[j];
  }
}

// A work item is a tile of rows of one head and up to 64 * kGroups dims of its output. The scores
// are computed again for every such chunk of dims.
template <int kGroups>
__device__ void attend(const Launch& launch, std::int64_t batch, int head, int t, std::int64_t d,
                       plain::Shared& shared) {
  const Forward& call = launch.call;
  const int kv_head = head / (call.heads / call.kv_heads);
  const DropoutMask dropout(call.dropout);
  const plain::Rows q(call.in.q, call.dtype, launch.fours, batch, t, head);
  State<kGroups> state;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    state.max[i] = kLowest;
    state.sum[i] = 0.0f;
    for (float& each : state.out[i]) each = 0.0f;
  }
  const int end = call.mask.end(t + q.count - 1);
  for (int key = call.mask.begin(t) / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
    float weights[4][4];
    const plain::Rows k(call.in.k, call.dtype, launch.fours, batch, key, kv_head);
    const plain::Rows v(call.in.v, call.dtype, launch.fours, batch, key, kv_head);
    plain::multiply_rows(q, k, shared, weights);
    softmax_block(call, t, key, weights, state);
    if (dropout.on()) drop_weights(call, dropout, batch, head, t, key, weights);
    plain::keep_weights(weights, shared);
    plain::add_weighted_rows<kGroups>(v, d, shared, state.out);
  }
  float inverse[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) inverse[i] = 1.0f / state.sum[i];
  plain::store_rows<kGroups>(call.y, call.dtype, batch, t, head, d, inverse, state.out);
  if (d > 0 || threadIdx.x % 16 != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = t + static_cast<int>(threadIdx.x) / 16 * 4 + i;
    if (row >= call.mask.time) continue;
    call.lse[(batch * call.heads + head) * call.mask.time + row] =
        state.max[i] + logf(state.sum[i]);
  }
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads, 2) attention_kernel(const Launch launch) {
  __shared__ plain::Shared shared;
  const Forward& call = launch.call;
  const std::int64_t items = call.batch * call.heads * launch.tiles * launch.chunks;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t chunk = item % launch.chunks;
    // The later rows of a causal sequence see more keys, so they come first.
    const std::int64_t tile = launch.tiles - 1 - item / launch.chunks % launch.tiles;
    const std::int64_t pair = item / launch.chunks / launch.tiles;
    attend<kGroups>(launch, pair / call.heads, static_cast<int>(pair % call.heads),
                    static_cast<int>(tile * kTile), chunk * 64 * kGroups, shared);
  }
}

template <int kGroups>
cudaError_t launch_plain(const Forward& call, const Context& context) {
  Launch launch;
  launch.call = call;
  launch.fours = call.in.q.is_aligned_for(4, call.dtype) &&
                 call.in.k.is_aligned_for(4, call.dtype) && call.in.v.is_aligned_for(4, call.dtype);
  launch.tiles = ceil_div(call.y.time, std::int64_t{kTile});
  launch.chunks = ceil_div(call.y.dim, std::int64_t{64 * kGroups});
  const std::int64_t items = call.batch * call.heads * launch.tiles * launch.chunks;
  attention_kernel<kGroups><<<blocks_for(items, 1), kThreads, 0, context.stream>>>(launch);
  return launch_error();
}

}  // namespace

bool supports(const Attention&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const Attention& op, const ArgShapes& shapes, const Context& context) {
  const bool hopper = forward_sm90_applies(shapes.inputs[0].dtype, op.shape.head_dim, context);
  return hopper ? kForwardSm90Workspace : 0;
}

cudaError_t run(const Attention& op, const Args& args, const Context& context) noexcept {
  const AttentionShape& shape = op.shape;
  const View& y = args.outputs[0];
  if (y.shape.elements() == 0) return cudaSuccess;
  if (y.shape[1] > std::numeric_limits<int>::max() - kTile) return cudaErrorInvalidValue;
  Forward call;
  call.in = qkv_rows(shape, args.inputs);
  call.y = query_rows(shape, y);
  call.lse = args.outputs[1].as<float>();
  call.dtype = y.dtype;
  call.mask = {static_cast<int>(y.shape[1]), shape.window, shape.causal};
  call.dropout = DropoutRule(op.dropout, op.stream, args.inputs.back());
  call.batch = y.shape[0];
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.scale = shape.scale;
  call.softcap = shape.softcap;
  if (forward_sm90_applies(call.dtype, shape.head_dim, context)) {
    // SAFETY: the workspace is 256-byte aligned, and workspace_bytes() counts this word.
    return forward_sm90(call, reinterpret_cast<unsigned*>(args.workspace.data()), context);
  }
  if (has_tensor_core_kernel(call.dtype, shape.head_dim)) {
    return call.dtype == DType::kBF16 ? forward_bf16(call, context) : forward_f16(call, context);
  }
  return shape.head_dim <= 64 ? launch_plain<1>(call, context) : launch_plain<2>(call, context);
}

}  // namespace volta::cuda
