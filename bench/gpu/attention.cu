// The time of Volta's Attention on a GPU, on random data: one line of JSON for each case. A case is
// batch,heads,kv_heads,time,head_dim,causal of packed rows in bf16. bench/gpu/attention.py runs it
// beside PyTorch.
//   bench_gpu_attention ROUNDS ARCHITECTURE CASE...
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/cuda.h"
#include "ops/op.h"
#include "tensor/view.h"

namespace {

using namespace volta;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void fill(cuda::bf16* to, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    const auto uniform = static_cast<float>(bits >> 8) * 0x1p-24f;
    to[i] = cuda::from_f32<cuda::bf16>(2 * uniform - 1);
  }
}

struct Case {
  int batch, heads, kv_heads, time, dim, causal;
};

View allocate(DType dtype, const Shape& shape) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.shape = shape;
  void* data = nullptr;
  check(cudaMalloc(&data, static_cast<std::size_t>(spec.bytes())));
  return {data, spec};
}

/// The median of the rounds in microseconds.
double measure(const Case& c, int rounds, const cuda::Context& context) {
  Attention op;
  op.shape = {.heads = c.heads,
              .kv_heads = c.kv_heads,
              .head_dim = c.dim,
              .scale = 1.0f / std::sqrt(static_cast<float>(c.dim)),
              .packed = true,
              .causal = c.causal != 0};
  const std::vector<View> in = {
      allocate(DType::kBF16, {c.batch, c.time, (c.heads + 2 * c.kv_heads) * c.dim})};
  const std::vector<View> out = {allocate(DType::kBF16, {c.batch, c.time, c.heads * c.dim}),
                                 allocate(DType::kF32, {c.batch, c.heads, c.time})};
  fill<<<1024, 256, 0, context.stream>>>(in[0].as<cuda::bf16>(), in[0].shape.elements());
  const std::int64_t bytes = cuda::workspace_bytes(op, {in, out}, context);
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, static_cast<std::size_t>(bytes + 1)));
  const cuda::Args args = {
      in, out, {static_cast<std::byte*>(workspace), static_cast<std::size_t>(bytes)}};
  constexpr int kWarmUp = 5;
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(rounds) + 1);
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event));
  for (int i = 0; i < kWarmUp; ++i) check(cuda::run(op, args, context));
  check(cudaEventRecord(events[0], context.stream));
  for (std::size_t i = 1; i < events.size(); ++i) {
    check(cuda::run(op, args, context));
    check(cudaEventRecord(events[i], context.stream));
  }
  check(cudaStreamSynchronize(context.stream));
  std::vector<float> milliseconds(static_cast<std::size_t>(rounds));
  for (std::size_t i = 0; i < milliseconds.size(); ++i) {
    check(cudaEventElapsedTime(&milliseconds[i], events[i], events[i + 1]));
  }
  for (cudaEvent_t event : events) check(cudaEventDestroy(event));
  for (const View& view : {in[0], out[0], out[1]}) check(cudaFree(view.data));
  check(cudaFree(workspace));
  std::ranges::sort(milliseconds);
  return static_cast<double>(milliseconds[milliseconds.size() / 2]) * 1e3;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  cuda::Context context;
  check(cudaStreamCreate(&context.stream));
  check(cudaDeviceGetAttribute(&context.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  context.architecture = std::atoi(words[2]);
  for (int i = 3; i < count; ++i) {
    Case c = {};
    if (std::sscanf(words[i], "%d,%d,%d,%d,%d,%d", &c.batch, &c.heads, &c.kv_heads, &c.time, &c.dim,
                    &c.causal) != 6) {
      return 2;
    }
    std::printf("{\"case\": \"%s\", \"us\": %.2f}\n", words[i],
                measure(c, std::atoi(words[1]), context));
  }
  return 0;
}
