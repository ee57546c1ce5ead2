// Speed of the matrix product on the CPU at the shapes of small transformers: training steps
// (forward, input gradient, weight gradient), prefill and decoding, by threads and instruction set.
//   bench_matmul --benchmark_filter='/avx512/threads:1' --benchmark_out=x.json
// Everything is hot: the same operands every time. FLOP/s count 2 M N K; B/s the weight's bytes.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/parallel.h"
#include "kernels/cpu/cpu.h"
#include "tensor/float16.h"

namespace volta {
namespace {

struct Case {
  const char* name;
  std::int64_t m, k, n;
  bool transpose_a = false, transpose_b = false;
  DType weight = DType::kF32;
  Activation activation = Activation::kNone;
};

// nanoGPT's character models: 12 x 64 tokens by 128 columns, and 384 columns.
const Case kCases[] = {
    {"qkv", 768, 128, 384},
    {"proj", 768, 128, 128},
    {"up", 768, 128, 512},
    {"up_gelu", 768, 128, 512, false, false, DType::kF32, Activation::kGelu},
    {"down", 768, 512, 128},
    {"logits", 768, 128, 65},
    {"logits_tied", 768, 128, 65, false, true},
    {"logits_bytes", 768, 128, 256},
    {"qkv_dx", 768, 384, 128, false, true},
    {"up_dx", 768, 512, 128, false, true},
    {"down_dx", 768, 128, 512, false, true},
    {"qkv_dw", 128, 768, 384, true},
    {"proj_dw", 128, 768, 128, true},
    {"up_dw", 128, 768, 512, true},
    {"down_dw", 512, 768, 128, true},
    {"logits_dw", 65, 768, 128, true},
    {"wide_qkv", 768, 384, 1152},
    {"wide_up", 768, 384, 1536},
    {"wide_down", 768, 1536, 384},
    {"wide_up_dx", 768, 1536, 384, false, true},
    {"wide_up_dw", 384, 768, 1536, true},
    {"square_1024", 1024, 1024, 1024},
    {"decode_qkv", 1, 128, 384},
    {"decode_up", 1, 128, 512},
    {"decode_down", 1, 512, 128},
    {"decode_head", 1, 128, 256, false, true},
    {"decode_768", 1, 768, 3072},
    {"decode_768_nt", 1, 768, 3072, false, true},
    {"decode_4096", 1, 4096, 4096},
    {"decode_4096_nt", 1, 4096, 4096, false, true},
    {"rows4_768", 4, 768, 3072},
    {"rows4_768_nt", 4, 768, 3072, false, true},
    {"rows8_768", 8, 768, 3072},
    {"rows8_768_nt", 8, 768, 3072, false, true},
    {"rows32_768", 32, 768, 3072},
    {"rows32_768_nt", 32, 768, 3072, false, true},
};

/// `elements` of `dtype`: small numbers of both signs, so that no activation saturates.
AlignedBytes operand(std::int64_t elements, DType dtype) {
  auto bytes = try_allocate(elements * dtype_size(dtype));
  if (!bytes) return {};
  std::int64_t i = 0;
  const auto next = [&i] { return static_cast<float>((i++ * 37) % 101 - 50) / 256; };
  if (dtype == DType::kF32) {
    const auto values = as_span<float>(bytes->span());
    for (float& x : *values) x = next();
  } else {
    const auto values = as_span<std::uint16_t>(bytes->span());
    for (std::uint16_t& x : *values) x = bf16_from_f32(next());
  }
  return *std::move(bytes);
}

void run_case(benchmark::State& state, const Case& c, cpu::Simd simd, int threads) {
  auto pool = ThreadPool::create(threads);
  if (!pool) return state.SkipWithError(pool.error().message().c_str());
  AlignedBytes a = operand(c.m * c.k, DType::kF32);
  AlignedBytes b = operand(c.k * c.n, c.weight);
  AlignedBytes out = operand(c.m * c.n, DType::kF32);
  const Shape a_shape = c.transpose_a ? Shape(c.k, c.m) : Shape(c.m, c.k);
  const Shape b_shape = c.transpose_b ? Shape(c.n, c.k) : Shape(c.k, c.n);
  const std::array<View, 2> inputs = {View{a.data(), {DType::kF32, a_shape}},
                                      View{b.data(), {c.weight, b_shape}}};
  const std::array<View, 1> outputs = {View{out.data(), {DType::kF32, Shape(c.m, c.n)}}};
  MatMul op;
  op.transpose_a = c.transpose_a;
  op.transpose_b = c.transpose_b;
  op.activation = c.activation;
  cpu::Context context;
  context.simd = simd;
  context.pool = &*pool;
  auto workspace = try_allocate(cpu::workspace_bytes(op, {inputs, outputs}, context));
  if (!workspace) return state.SkipWithError(workspace.error().message().c_str());
  for (auto _ : state) {
    cpu::run(op, {inputs, outputs, workspace->span()}, context);
    benchmark::ClobberMemory();
  }
  const double products = static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(
      2.0 * static_cast<double>(c.m * c.n * c.k) * products, benchmark::Counter::kIsRate);
  state.counters["B/s"] =
      benchmark::Counter(static_cast<double>(c.k * c.n * dtype_size(c.weight)) * products,
                         benchmark::Counter::kIsRate);
}

void register_cases() {
  for (const Case& c : kCases) {
    for (const cpu::Simd simd : cpu::kAllSimd) {
      if (!cpu::simd_available(simd)) continue;
      for (const int threads : {1, 2}) {
        const std::string name = std::string(c.name) + "/" + std::to_string(c.m) + "x" +
                                 std::to_string(c.k) + "x" + std::to_string(c.n) + "/" +
                                 cpu::simd_name(simd) + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), [c, simd, threads](benchmark::State& state) {
          run_case(state, c, simd, threads);
        })->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace volta

int main(int argc, char** argv) {
  volta::register_cases();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
