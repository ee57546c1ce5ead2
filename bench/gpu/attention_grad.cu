// The time of Volta's AttentionGrad on a GPU, on random data: one line of JSON for each case. A
// case is batch,heads,kv_heads,time,head_dim,causal of packed rows in bf16.
// bench/gpu/attention_grad.py builds and runs this beside PyTorch.
//   attention_grad ROUNDS ARCHITECTURE CASE...
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/rng.h"
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

__global__ void fill(cuda::bf16* to, std::int64_t count, std::uint32_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    const Random4 random = random_bits(seed, 0, 0, static_cast<std::uint64_t>(i));
    to[i] = cuda::from_f32<cuda::bf16>(2 * uniform_float(random.x) - 1);
  }
}

struct Case {
  int batch, heads, kv_heads, time, dim, causal;
};

// A tensor in the GPU's memory, until the program ends.
View allocate(DType dtype, const Shape& shape) {
  TensorSpec spec;
  spec.dtype = dtype;
  spec.shape = shape;
  void* data = nullptr;
  check(cudaMalloc(&data, static_cast<std::size_t>(spec.bytes())));
  return {data, spec};
}

template <typename AnyOp>
cuda::Args with_workspace(const AnyOp& op, const std::vector<View>& in,
                          const std::vector<View>& out, const cuda::Context& context) {
  const std::int64_t bytes = cuda::workspace_bytes(op, {in, out}, context);
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, static_cast<std::size_t>(bytes + 1)));
  return {in, out, {static_cast<std::byte*>(workspace), static_cast<std::size_t>(bytes)}};
}

/// The median of the rounds in microseconds.
double measure(const Case& c, int rounds, const cuda::Context& context) {
  AttentionShape shape;
  shape.heads = c.heads;
  shape.kv_heads = c.kv_heads;
  shape.head_dim = c.dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  shape.packed = true;
  shape.causal = c.causal != 0;
  const Shape packed(c.batch, c.time, (c.heads + 2 * c.kv_heads) * c.dim);
  const Shape rows(c.batch, c.time, c.heads * c.dim);
  const View qkv = allocate(DType::kBF16, packed), dqkv = allocate(DType::kBF16, packed);
  const View y = allocate(DType::kBF16, rows), dy = allocate(DType::kBF16, rows);
  const View lse = allocate(DType::kF32, Shape(c.batch, c.heads, c.time));
  fill<<<1024, 256, 0, context.stream>>>(qkv.as<cuda::bf16>(), qkv.shape.elements(), 1);
  fill<<<1024, 256, 0, context.stream>>>(dy.as<cuda::bf16>(), dy.shape.elements(), 2);
  Attention forward;
  forward.shape = shape;
  const std::vector<View> forward_in = {qkv}, forward_out = {y, lse};
  check(cuda::run(forward, with_workspace(forward, forward_in, forward_out, context), context));
  AttentionGrad op;
  op.shape = shape;
  const std::vector<View> in = {qkv, y, lse, dy}, out = {dqkv};
  const cuda::Args args = with_workspace(op, in, out, context);
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
  std::ranges::sort(milliseconds);
  return static_cast<double>(milliseconds[milliseconds.size() / 2]) * 1e3;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const int rounds = std::atoi(words[1]);
  if (rounds < 1) return 2;
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
    std::printf("{\"case\": \"%s\", \"us\": %.2f}\n", words[i], measure(c, rounds, context));
    std::fflush(stdout);
  }
  return 0;
}
