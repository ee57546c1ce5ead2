// GlobalNorm: one norm over any number of gradients. Bound by bytes. Squares are summed in f64 over
// fixed chunks of each gradient, and then one block sums the chunks in a fixed order. A sum of
// squares of finite f32 values is finite in f64, so the norm tells whether all values were finite
// and whether the norm fits f32.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFinalThreads = 1024;
constexpr int kGroup = 4;  // Elements that a thread loads at once.
constexpr std::int64_t kChunk = 8 * 1024;
// The chunks that one launch can sum, whose blocks are numbered by 31 bits.
constexpr std::int64_t kMostBlocks = 0x7fffffff;

// The gradients of one launch. They are parameters of the kernel, because their addresses would
// need device memory otherwise.
struct Table {
  static constexpr int kSize = 64;
  const float* data[kSize] = {};
  std::int64_t elements[kSize] = {};
  std::int64_t first_chunk[kSize] = {};  // Counted from the first gradient of the launch.
  int count = 0;
};

std::int64_t chunks_of(const View& gradient) { return ceil_div(gradient.shape.elements(), kChunk); }

// The sum of a block's values, valid in thread 0. `shared` has kCount / 32 elements.
template <int kCount>
__device__ double block_sum(double x, double* shared) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 1; i < kCount / kWarp; ++i) x += shared[i];
  }
  return x;
}

// partial[b] = the sum of squares of chunk b of the table.
__global__ void __launch_bounds__(kThreads) sum_chunks(const Table table, double* partial) {
  __shared__ double shared[kThreads / kWarp];
  const std::int64_t chunk = blockIdx.x;
  int low = 0, high = table.count - 1;  // The last gradient whose first chunk is not after this.
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const std::int64_t first = (chunk - table.first_chunk[low]) * kChunk;
  const std::int64_t left = table.elements[low] - first;
  const std::int64_t count = left < kChunk ? left : kChunk;
  const float* x = table.data[low] + first;
  const bool vectors = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  double sums[kGroup] = {};
  // SAFETY: groups begin before `count`, and a group that crosses it is read one by one.
#pragma unroll 4
  for (std::int64_t at = std::int64_t{threadIdx.x} * kGroup; at < count; at += kThreads * kGroup) {
    Vector<float, kGroup> values = {};
    if (vectors && at + kGroup <= count) {
      values = *reinterpret_cast<const Vector<float, kGroup>*>(x + at);
    } else {
      for (int i = 0; i < kGroup; ++i) values.at[i] = at + i < count ? x[at + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const double value = values.at[i];
      sums[i] = fma(value, value, sums[i]);
    }
  }
  const double sum = block_sum<kThreads>((sums[0] + sums[1]) + (sums[2] + sums[3]), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block: stats from the sums of all chunks.
__global__ void __launch_bounds__(kFinalThreads)
    finish(const double* partial, std::int64_t chunks, const float* loss, float max_norm,
           float* stats) {
  __shared__ double shared[kFinalThreads / kWarp];
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < chunks; i += kFinalThreads) sum += partial[i];
  sum = block_sum<kFinalThreads>(sum, shared);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum);
  const auto rounded = static_cast<float>(norm);
  float factor = 1.0f;
  if (max_norm > 0.0f) {
    const double ratio = static_cast<double>(max_norm) / (norm + 1e-6);
    if (ratio < 1.0) factor = static_cast<float>(ratio);  // With a NaN it stays 1, as on the CPU.
  }
  stats[0] = rounded;
  stats[1] = factor;
  // A norm beyond f32 is infinite; an update with such gradients would be useless.
  stats[2] = isfinite(rounded) && isfinite(*loss) ? 1.0f : 0.0f;
}

}  // namespace

std::int64_t workspace_bytes(const GlobalNorm&, const ArgShapes& shapes, const Context&) {
  std::int64_t chunks = 0;
  for (const View& gradient : shapes.inputs.subspan(1)) chunks += chunks_of(gradient);
  return chunks * std::int64_t{sizeof(double)};
}

bool supports(const GlobalNorm&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const GlobalNorm& op, const Args& args, const Context& context) noexcept {
  // SAFETY: workspace_bytes asked for a double a chunk, and workspaces are 256-byte aligned.
  auto* partial = reinterpret_cast<double*>(args.workspace.data());
  std::int64_t done = 0;  // Chunks of earlier launches.
  Table table;
  std::int64_t chunks = 0;  // Of the table.
  const auto launch = [&]() -> cudaError_t {
    if (chunks == 0) return cudaSuccess;
    if (chunks > kMostBlocks) return cudaErrorInvalidConfiguration;
    sum_chunks<<<static_cast<unsigned>(chunks), kThreads, 0, context.stream>>>(table,
                                                                               partial + done);
    done += chunks;
    chunks = 0;
    table.count = 0;
    return launch_error();
  };
  for (const View& gradient : args.inputs.subspan(1)) {
    if (gradient.shape.elements() == 0) continue;
    table.data[table.count] = gradient.as<const float>();
    table.elements[table.count] = gradient.shape.elements();
    table.first_chunk[table.count] = chunks;
    ++table.count;
    chunks += chunks_of(gradient);
    if (table.count < Table::kSize) continue;
    if (const cudaError_t error = launch(); error != cudaSuccess) return error;
  }
  if (const cudaError_t error = launch(); error != cudaSuccess) return error;
  finish<<<1, kFinalThreads, 0, context.stream>>>(partial, done, args.inputs[0].as<const float>(),
                                                  op.max_norm, args.outputs[0].as<float>());
  return launch_error();
}

}  // namespace volta::cuda
