// What goes before and after the tensor-core kernels of AttentionGrad, row by row: the statistics
// of rows, and dQ from f32 to 16 bits. Bound by memory bandwidth.
#include "kernels/cuda/attention_grad.cuh"

namespace volta::cuda::attention::grad {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 8;  // Elements of 16 bytes.
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
__device__ Vector<T, kChunk> load_chunk(const T* from, bool at_once) {
  // SAFETY: `at_once` says that the address is a multiple of 16.
  if (at_once) return *reinterpret_cast<const Vector<T, kChunk>*>(from);
  Vector<T, kChunk> chunk;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) chunk.at[i] = from[i];
  return chunk;
}
template <typename T>
__device__ void store_chunk(T* to, const Vector<T, kChunk>& chunk, bool at_once) {
  // SAFETY: see load_chunk.
  if (at_once) {
    *reinterpret_cast<Vector<T, kChunk>*>(to) = chunk;
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) to[i] = chunk.at[i];
}

// kDim / 8 lanes sum the products of one row of a head.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ Work work) {
  constexpr int kLanes = kDim / kChunk;
  constexpr int kRows = kWarp / kLanes;  // Of a warp.
  const Backward& call = work.call;
  const std::int64_t rows = call.batch * work.padded * call.heads;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  // The ticket follows the turns.
  const std::int64_t turns = rows / kSharedRows * 2 + 1;
  for (std::int64_t i = thread; i < turns; i += threads) work.turns[i] = 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t first = thread / kWarp * kRows; first < rows; first += threads / kLanes) {
    const std::int64_t row = first + lane / kLanes;
    const int head = static_cast<int>(row % call.heads);
    const std::int64_t batch = row / call.heads / work.padded;
    const int t = static_cast<int>(row / call.heads % work.padded);
    const bool exists = row < rows && t < call.mask.time;
    float sum = 0.0f;
    if (exists) {
      const int column = lane % kLanes * kChunk;
      const auto y = load_chunk(
          static_cast<const T*>(call.y.data) + call.y.index(batch, t, head) + column, work.at_once);
      const auto dy =
          load_chunk(static_cast<const T*>(call.dy.data) + call.dy.index(batch, t, head) + column,
                     work.at_once);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum = fmaf(to_f32(dy.at[i]), to_f32(y.at[i]), sum);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (lane % kLanes != 0 || row >= rows) continue;
    const std::int64_t pair = batch * call.heads + head;
    work.stats[pair * work.padded + t] =
        exists ? RowStats{call.lse[pair * call.mask.time + t] * kLog2E, sum}
               : RowStats{kInfinity, 0.0f};
  }
}

// A thread takes 8 columns of rows g and g + 8 of 16: four neighbouring lanes' sums.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ Work work) {
  constexpr int kGroups = kDim / kChunk;
  const Backward& call = work.call;
  const int tiles = work.padded / kSharedRows;
  const std::int64_t items = call.batch * call.heads * tiles * (kSharedRows / 2) * kGroups;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < items;
       i += threads) {
    const int group = static_cast<int>(i % kGroups);
    const int g = static_cast<int>(i / kGroups % (kSharedRows / 2));
    const std::int64_t tile = i / kGroups / (kSharedRows / 2);
    const int t = static_cast<int>(tile % tiles) * kSharedRows + g;
    const std::int64_t pair = tile / tiles;
    if (t >= call.mask.time) continue;
    const auto* const from = reinterpret_cast<const float4*>(
        work.dq + (tile * kDim + group * kChunk) * kSharedRows + g * 16);
    Vector<T, kChunk> upper, lower;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const float4 four = from[quarter];
      upper.at[2 * quarter] = from_f32<T>(four.x * call.scale);
      upper.at[2 * quarter + 1] = from_f32<T>(four.y * call.scale);
      lower.at[2 * quarter] = from_f32<T>(four.z * call.scale);
      lower.at[2 * quarter + 1] = from_f32<T>(four.w * call.scale);
    }
    const std::int64_t batch = pair / call.heads, head = pair % call.heads;
    T* const to = static_cast<T*>(call.out.q.data) + group * kChunk;
    store_chunk(to + call.out.q.index(batch, t, head), upper, work.at_once);
    if (t + kSharedRows / 2 >= call.mask.time) continue;
    store_chunk(to + call.out.q.index(batch, t + kSharedRows / 2, head), lower, work.at_once);
  }
}

template <typename T, int kDim>
cudaError_t launch_prepare(const Work& work, const Context& context) {
  const std::int64_t threads = work.call.batch * work.call.heads * work.padded * (kDim / kChunk);
  prepare_kernel<T, kDim><<<blocks_for(threads, kThreads), kThreads, 0, context.stream>>>(work);
  return launch_error();
}
template <typename T, int kDim>
cudaError_t launch_finish(const Work& work, const Context& context) {
  const std::int64_t threads =
      work.call.batch * work.call.heads * work.padded / 2 * (kDim / kChunk);
  finish_kernel<T, kDim><<<blocks_for(threads, kThreads), kThreads, 0, context.stream>>>(work);
  return launch_error();
}

}  // namespace

cudaError_t prepare(const Work& work, const Context& context) {
  const bool narrow = work.call.y.dim == 64;
  if (work.call.dtype == DType::kBF16) {
    return narrow ? launch_prepare<bf16, 64>(work, context)
                  : launch_prepare<bf16, 128>(work, context);
  }
  return narrow ? launch_prepare<f16, 64>(work, context) : launch_prepare<f16, 128>(work, context);
}

cudaError_t finish(const Work& work, const Context& context) {
  const bool narrow = work.call.y.dim == 64;
  if (work.call.dtype == DType::kBF16) {
    return narrow ? launch_finish<bf16, 64>(work, context)
                  : launch_finish<bf16, 128>(work, context);
  }
  return narrow ? launch_finish<f16, 64>(work, context) : launch_finish<f16, 128>(work, context);
}

}  // namespace volta::cuda::attention::grad
