// AttentionGrad: the gradients of q, k and v. The weights P = exp(scale q k^T - lse) are computed
// again, tile by tile (Dao et al. 2022, algorithm 4):
//   dV = P'^T dY,  dP = dY V^T,  dS = P (dP' - delta),  dQ = scale dS K,  dK = scale dS^T Q
// P' and dP' are P and dP times their dropout factors, and delta = rowsum(dY Y). With a soft cap dS
// is also multiplied by the cap's slope. Bound by flops.
//
// In 16 bits with a head_dim of 64 or 128 the tensor cores compute it (attention_grad.cuh). The
// plain kernels here take everything else. One owns tiles of keys and sums dK and dV over the heads
// of a group, then over rows. The other owns tiles of rows and sums dQ over keys. So every sum has
// one order and needs no atomics; the price is that the scores are computed twice.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_grad_mma.cuh"
#include "kernels/cuda/attention_plain.cuh"

namespace volta::cuda {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace): this file is a part of it.
using plain::kThreads;
using plain::kTile;

constexpr int kDims = 64;  // Of an output that a work item computes.

struct Launch {
  Backward call;
  bool fours = false;
  std::int64_t tiles = 0, chunks = 0;
};

// delta[b, h, t] = the sum of dy y over a head: one warp for each.
__global__ void __launch_bounds__(kThreads) delta_kernel(const Backward call) {
  const std::int64_t rows = call.batch * call.mask.time * call.heads;
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < rows; i += warps) {
    const std::int64_t head = i % call.heads, row = i / call.heads;
    const std::int64_t batch = row / call.mask.time, t = row % call.mask.time;
    const std::int64_t y = call.y.index(batch, t, head), dy = call.dy.index(batch, t, head);
    float sum = 0.0f;
    for (std::int64_t d = lane; d < call.y.dim; d += kWarp) {
      sum = fmaf(load_element(call.dy.data, call.dtype, dy + d),
                 load_element(call.y.data, call.dtype, y + d), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) call.delta[(batch * call.heads + head) * call.mask.time + t] = sum;
  }
}

// Where a tile of rows of one query head meets a tile of keys.
struct Meeting {
  std::int64_t batch;
  int head, t, key;
};

// Turns 4 x 4 products q k and dY V into weights times dropout, and dS. With kKeys a tile's rows
// are keys and its columns are rows of queries; otherwise it is the other way round.
template <bool kKeys>
__device__ void score_gradients(const Backward& call, const DropoutMask& dropout, const Meeting& at,
                                float (&weights)[4][4], float (&dscores)[4][4]) {
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
  const int t = at.t + (kKeys ? x : y), key = at.key + (kKeys ? y : x);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const bool exists = t + q < call.mask.time;
    const std::int64_t row = (at.batch * call.heads + at.head) * call.mask.time + t + q;
    const float lse = exists ? call.lse[row] : 0.0f, delta = exists ? call.delta[row] : 0.0f;
    const int begin = call.mask.begin(t + q), end = exists ? call.mask.end(t + q) : 0;
    float factors[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (dropout.on()) {
      dropout.factors(static_cast<std::uint64_t>(row * call.mask.time + key), factors);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& weight = kKeys ? weights[k][q] : weights[q][k];
      float& dscore = kKeys ? dscores[k][q] : dscores[q][k];
      float slope = 1.0f, score = weight * call.scale;
      if (call.softcap > 0.0f) score = cap_score(score, call.softcap, slope);
      const bool seen = key + k >= begin && key + k < end;
      const float p = seen ? expf(score - lse) : 0.0f;
      dscore = seen ? p * (dscore * factors[k] - delta) * slope : 0.0f;
      weight = p * factors[k];
    }
  }
}

__device__ void clear(float (&out)[4][4]) {
#pragma unroll
  for (auto& row : out) {
    for (float& each : row) each = 0.0f;
  }
}

// Dims [d, d + kDims) of dK and dV of the keys from `key` on.
__device__ void key_gradients(const Launch& launch, std::int64_t batch, int kv_head, int key,
                              std::int64_t d, plain::Shared& shared) {
  const Backward& call = launch.call;
  const DropoutMask dropout(call.dropout);
  const int group = call.heads / call.kv_heads;
  const plain::Rows k(call.in.k, call.dtype, launch.fours, batch, key, kv_head);
  const plain::Rows v(call.in.v, call.dtype, launch.fours, batch, key, kv_head);
  float dk[4][4], dv[4][4];
  clear(dk);
  clear(dv);
  const int end = call.mask.end_row(key + k.count - 1);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int t = call.mask.first_row(key); t < end; t += kTile) {
      const plain::Rows q(call.in.q, call.dtype, launch.fours, batch, t, head);
      const plain::Rows dy(call.dy, call.dtype, launch.fours, batch, t, head);
      float weights[4][4], dscores[4][4];
      plain::multiply_rows(k, q, shared, weights);
      plain::multiply_rows(v, dy, shared, dscores);
      score_gradients<true>(call, dropout, {batch, head, t, key}, weights, dscores);
      plain::keep_weights(weights, shared);
      plain::add_weighted_rows<1>(dy, d, shared, dv);
      __syncthreads();  // All threads have read the weights.
      plain::keep_weights(dscores, shared);
      plain::add_weighted_rows<1>(q, d, shared, dk);
    }
  }
  const float scale[4] = {call.scale, call.scale, call.scale, call.scale};
  const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  plain::store_rows<1>(call.out.k, call.dtype, batch, key, kv_head, d, scale, dk);
  plain::store_rows<1>(call.out.v, call.dtype, batch, key, kv_head, d, one, dv);
}

// Dims [d, d + kDims) of dQ of the rows from t on.
__device__ void query_gradients(const Launch& launch, std::int64_t batch, int head, int t,
                                std::int64_t d, plain::Shared& shared) {
  const Backward& call = launch.call;
  const DropoutMask dropout(call.dropout);
  const int kv_head = head / (call.heads / call.kv_heads);
  const plain::Rows q(call.in.q, call.dtype, launch.fours, batch, t, head);
  const plain::Rows dy(call.dy, call.dtype, launch.fours, batch, t, head);
  float dq[4][4];
  clear(dq);
  const int end = call.mask.end(t + q.count - 1);
  for (int key = call.mask.begin(t) / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
    const plain::Rows k(call.in.k, call.dtype, launch.fours, batch, key, kv_head);
    const plain::Rows v(call.in.v, call.dtype, launch.fours, batch, key, kv_head);
    float weights[4][4], dscores[4][4];
    plain::multiply_rows(q, k, shared, weights);
    plain::multiply_rows(dy, v, shared, dscores);
    score_gradients<false>(call, dropout, {batch, head, t, key}, weights, dscores);
    plain::keep_weights(dscores, shared);
    plain::add_weighted_rows<1>(k, d, shared, dq);
  }
  const float scale[4] = {call.scale, call.scale, call.scale, call.scale};
  plain::store_rows<1>(call.out.q, call.dtype, batch, t, head, d, scale, dq);
}

template <bool kKeys>
__global__ void __launch_bounds__(kThreads, 1) gradient_kernel(const Launch launch) {
  __shared__ plain::Shared shared;
  const std::int64_t heads = kKeys ? launch.call.kv_heads : launch.call.heads;
  const std::int64_t items = launch.call.batch * heads * launch.tiles * launch.chunks;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t d = item % launch.chunks * kDims;
    const std::int64_t tile = item / launch.chunks % launch.tiles;
    const std::int64_t pair = item / launch.chunks / launch.tiles;
    const int head = static_cast<int>(pair % heads);
    // In a causal sequence the first keys are seen by the most rows, and the last rows see the most
    // keys. These come first.
    if constexpr (kKeys) {
      key_gradients(launch, pair / heads, head, static_cast<int>(tile * kTile), d, shared);
    } else {
      query_gradients(launch, pair / heads, head,
                      static_cast<int>((launch.tiles - 1 - tile) * kTile), d, shared);
    }
  }
}

cudaError_t launch_plain(const Backward& call, const Context& context) {
  Launch launch;
  launch.call = call;
  launch.fours = true;
  for (const HeadRows& rows : {call.in.q, call.in.k, call.in.v, call.dy}) {
    launch.fours = launch.fours && rows.is_aligned_for(4, call.dtype);
  }
  launch.tiles = ceil_div(call.y.time, std::int64_t{kTile});
  launch.chunks = ceil_div(call.y.dim, std::int64_t{kDims});
  const std::int64_t rows = call.batch * call.y.time * call.heads;
  delta_kernel<<<blocks_for(rows, kThreads / kWarp), kThreads, 0, context.stream>>>(call);
  const std::int64_t items = call.batch * launch.tiles * launch.chunks;
  gradient_kernel<true>
      <<<blocks_for(items * call.kv_heads, 1), kThreads, 0, context.stream>>>(launch);
  gradient_kernel<false>
      <<<blocks_for(items * call.heads, 1), kThreads, 0, context.stream>>>(launch);
  return launch_error();
}

// The tiles of scores, 128 x 128, that a block of keys meets in one query head.
std::int64_t tiles_of(const Backward& call, std::int64_t block) {
  const std::int64_t time = call.mask.time, key = block * grad::kKeys;
  const std::int64_t last = std::min(key + grad::kKeys, time) - 1;
  const std::int64_t end = call.mask.window > 0 ? std::min(time, last + call.mask.window) : time;
  return ceil_div(end, std::int64_t{grad::kKeys}) - (call.mask.causal ? block : 0);
}

// Whether single blocks of keys, in turns, take less time than whole heads: with few heads, or a
// number of them that leaves many multiprocessors idle at the end.
bool better_in_turns(const Backward& call, int blocks, const Context& context) {
  std::int64_t all = 0, largest = 0;
  for (int block = 0; block < blocks; ++block) {
    const std::int64_t tiles = tiles_of(call, block);
    all += tiles;
    largest = std::max(largest, tiles);
  }
  const std::int64_t heads = call.batch * call.kv_heads;
  const std::int64_t owned = ceil_div(heads, std::int64_t{context.multiprocessors}) * all;
  const std::int64_t in_turns =
      ceil_div(heads * all, std::int64_t{context.multiprocessors}) + largest;
  return in_turns < owned;
}

// Whether tensor cores take the call: those of some GPUs have too little shared memory beside them.
bool on_tensor_cores(const Backward& call) {
  if (!has_tensor_core_kernel(call.dtype, call.y.dim)) return false;
  const std::size_t needed =
      call.y.dim == 64 ? sizeof(grad::MmaShared<bf16, 64>) : sizeof(grad::MmaShared<bf16, 128>);
  int device = 0, most = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         needed <= static_cast<std::size_t>(most);
}

cudaError_t launch_tensor_cores(const Backward& call, std::byte* workspace,
                                const Context& context) {
  grad::Work work;
  work.call = call;
  const grad::Workspace parts(call.batch, call.heads, call.y.time, call.y.dim);
  // SAFETY: the workspace is 256-byte aligned, and workspace_bytes() counts these parts, which
  // begin at multiples of 4 floats.
  work.stats = reinterpret_cast<grad::RowStats*>(workspace);
  work.dq = reinterpret_cast<float*>(workspace + parts.dq);
  work.turns = reinterpret_cast<unsigned*>(workspace + parts.turns);
  work.ticket = reinterpret_cast<unsigned*>(workspace + parts.ticket);
  work.padded = static_cast<int>(round_up(call.y.time, std::int64_t{grad::kKeys}));
  work.at_once = true;
  constexpr int kChunk = 8;
  for (const HeadRows& rows :
       {call.in.q, call.in.k, call.in.v, call.out.q, call.out.k, call.out.v, call.y, call.dy}) {
    work.at_once = work.at_once && rows.is_aligned_for(kChunk, call.dtype);
  }
  work.in_turns = better_in_turns(call, work.blocks(), context);
  cudaError_t error = grad::prepare(work, context);
  if (error != cudaSuccess) return error;
  const bool is_bf16 = call.dtype == DType::kBF16;
  if (grad::sm90_applies(work, context)) {
    error = is_bf16 ? grad::launch_sm90_bf16(work, context) : grad::launch_sm90_f16(work, context);
  } else {
    error = is_bf16 ? grad::launch_mma_bf16(work, context) : grad::launch_mma_f16(work, context);
  }
  return error != cudaSuccess ? error : grad::finish(work, context);
}

}  // namespace

bool supports(const AttentionGrad&, std::span<const TensorSpec>) { return true; }

std::int64_t workspace_bytes(const AttentionGrad& op, const ArgShapes& shapes, const Context&) {
  const View& first = shapes.inputs[0];
  const std::int64_t batch = first.shape[0], time = first.shape[1];
  if (has_tensor_core_kernel(first.dtype, op.shape.head_dim)) {
    return grad::Workspace(batch, op.shape.heads, time, op.shape.head_dim).bytes;
  }
  return batch * time * op.shape.heads * static_cast<std::int64_t>(sizeof(float));
}

cudaError_t run(const AttentionGrad& op, const Args& args, const Context& context) noexcept {
  const AttentionShape& shape = op.shape;
  const auto rest = args.inputs.subspan(qkv_views(shape));  // y, lse, dy, rng.
  const View& y = rest[0];
  if (y.shape.elements() == 0) return cudaSuccess;
  if (y.shape[1] > std::numeric_limits<int>::max() - grad::kKeys) return cudaErrorInvalidValue;
  Backward call;
  call.in = qkv_rows(shape, args.inputs);
  call.out = qkv_rows(shape, args.outputs);
  call.y = query_rows(shape, y);
  call.dy = query_rows(shape, rest[2]);
  call.lse = rest[1].as<const float>();
  call.dtype = y.dtype;
  call.mask = {static_cast<int>(y.shape[1]), shape.window, shape.causal};
  call.dropout = DropoutRule(op.dropout, op.stream, args.inputs.back());
  call.batch = y.shape[0];
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.scale = shape.scale;
  call.softcap = shape.softcap;
  if (on_tensor_cores(call)) {
    return launch_tensor_cores(call, args.workspace.data(), context);
  }
  // SAFETY: the workspace is 256-byte aligned, and workspace_bytes() counts these floats.
  call.delta = reinterpret_cast<float*>(args.workspace.data());
  return launch_plain(call, context);
}

}  // namespace volta::cuda
