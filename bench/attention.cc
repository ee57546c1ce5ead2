// Speed of the attention kernels: training (forward, backward, with dropout), prefill and decode.
// FLOP/s count only what a causal mask leaves; decode counts the bytes of the caches it reads.
//   bench_attention --benchmark_format=json
// VOLTA_NUM_THREADS sets the threads.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/cpu/cpu.h"

namespace volta {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

std::vector<float> random_values(std::int64_t count) {
  RandomSequence random({.seed = 1, .stream = 2, .step = 3});
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = random.next_float() - 0.5f;
  return values;
}

ThreadPool& pool() {
  static ThreadPool instance = ThreadPool::create().value();
  return instance;
}

template <typename AnyOp>
class Call {
 public:
  Call(const AnyOp& op, std::vector<View> inputs, std::vector<View> outputs, cpu::Simd simd)
      : op_(op), inputs_(std::move(inputs)), outputs_(std::move(outputs)), context_{simd, &pool()} {
    const std::int64_t bytes = cpu::workspace_bytes(op_, {inputs_, outputs_}, context_);
    workspace_.resize(static_cast<std::size_t>((bytes + 63) / 64));
  }
  void operator()() {
    cpu::run(op_, {inputs_, outputs_, std::as_writable_bytes(std::span(workspace_))}, context_);
  }

 private:
  AnyOp op_;
  std::vector<View> inputs_, outputs_;
  cpu::Context context_;
  std::vector<Line> workspace_;
};

View view(std::vector<float>& values, const Shape& shape) {
  return {values.data(), {DType::kF32, shape}};
}

AttentionShape attention_shape(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim) {
  return {.heads = static_cast<std::int32_t>(heads),
          .kv_heads = static_cast<std::int32_t>(kv_heads),
          .head_dim = static_cast<std::int32_t>(dim),
          .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
          .packed = true};
}

void set_rates(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// Args: batch, heads, time, head_dim, dropout in percent, backward, instruction set.
void training(benchmark::State& state) {
  const std::int64_t b = state.range(0), h = state.range(1), t = state.range(2), d = state.range(3);
  const float dropout = static_cast<float>(state.range(4)) / 100;
  const bool backward = state.range(5) != 0;
  const auto simd = static_cast<cpu::Simd>(state.range(6));
  if (!cpu::simd_available(simd)) return state.SkipWithError("not on this machine");
  const AttentionShape shape = attention_shape(h, h, d);
  std::vector<float> qkv = random_values(b * t * 3 * h * d), y = random_values(b * t * h * d),
                     lse = random_values(b * h * t), dy = random_values(b * t * h * d),
                     dqkv(qkv.size());
  std::vector<std::int64_t> rng = {1, 2};
  const View qkv_view = view(qkv, Shape(b, t, 3 * h * d)), y_view = view(y, Shape(b, t, h * d)),
             lse_view = view(lse, Shape(b, h, t)), rng_view(rng.data(), {DType::kI64, Shape(2)});
  std::vector<View> inputs = {qkv_view};
  if (dropout > 0) inputs.push_back(rng_view);
  Call forward(Attention{shape, dropout, 1}, inputs, {y_view, lse_view}, simd);
  forward();
  inputs = {qkv_view, y_view, lse_view, view(dy, y_view.shape)};
  if (dropout > 0) inputs.push_back(rng_view);
  Call grad(AttentionGrad{shape, dropout, 1}, inputs, {view(dqkv, qkv_view.shape)}, simd);
  for (auto _ : state) backward ? grad() : forward();
  set_rates(state, (backward ? 5.0 : 2.0) * static_cast<double>(b * h * t * (t + 1) * d));
  state.SetLabel(cpu::simd_name(simd));
}

// Args: sequences, heads, kv_heads, head_dim, rows a step, start, dtype, instruction set.
void cached(benchmark::State& state) {
  const std::int64_t s = state.range(0), h = state.range(1), kv = state.range(2),
                     d = state.range(3), rows = state.range(4), start = state.range(5);
  const auto dtype = static_cast<DType>(state.range(6));
  const auto simd = static_cast<cpu::Simd>(state.range(7));
  if (!cpu::simd_available(simd)) return state.SkipWithError("not on this machine");
  const std::int64_t blocks = whole_key_blocks(start + rows) / kAttentionKeyBlock, n = s * rows;
  const Shape values_shape = value_cache_shape(s * blocks, kv, d);
  std::vector<float> qkv = random_values(s * rows * (h + 2 * kv) * d), y(qkv.size());
  // Zeros: what the values are has no influence on the speed.
  const auto lines = static_cast<std::size_t>(values_shape.elements() * dtype_size(dtype) / 64 + 1);
  std::vector<Line> k(lines), v(lines);
  std::vector<std::int32_t> positions, sequences, table, count = {static_cast<std::int32_t>(n)};
  for (std::int64_t i = 0; i < n; ++i) {
    positions.push_back(static_cast<std::int32_t>(start + i % rows));
    sequences.push_back(static_cast<std::int32_t>(i / rows));
  }
  // As sequences that grow together get them.
  for (std::int64_t i = 0; i < s * blocks; ++i) {
    table.push_back(static_cast<std::int32_t>(i % blocks * s + i / blocks));
  }
  Call call(
      CachedAttention{attention_shape(h, kv, d)},
      {view(qkv, Shape(n, (h + 2 * kv) * d)),
       View(k.data(), {dtype, key_cache_shape(s * blocks, kv, d)}),
       View(v.data(), {dtype, values_shape}), View(positions.data(), {DType::kI32, Shape(n)}),
       View(sequences.data(), {DType::kI32, Shape(n)}), View(count.data(), {DType::kI32, Shape(1)}),
       View(table.data(), {DType::kI32, Shape(s, blocks)})},
      {view(y, Shape(n, h * d))}, simd);
  for (auto _ : state) call();
  set_rates(state, 2.0 * static_cast<double>(s * h * rows * (2 * start + rows + 1) * d));
  state.counters["cache_GB/s"] = benchmark::Counter(
      static_cast<double>(2 * s * kv * (start + rows) * d * dtype_size(dtype)) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(cpu::simd_name(simd)) + " " + std::string(dtype_name(dtype)));
}

// What decode is measured against: one pass over as many bytes. Args: bytes.
void read_memory(benchmark::State& state) {
  const std::vector<std::uint64_t> words(static_cast<std::size_t>(state.range(0) / 8), 1);
  for (auto _ : state) {
    parallel_for(pool(), 0, static_cast<std::int64_t>(words.size()), 1 << 14,
                 [&](std::int64_t begin, std::int64_t end) {
                   std::uint64_t sum = 0;
                   for (std::int64_t i = begin; i < end; ++i) {
                     sum |= words[static_cast<std::size_t>(i)];
                   }
                   benchmark::DoNotOptimize(sum);
                 });
  }
  state.counters["cache_GB/s"] = benchmark::Counter(static_cast<double>(state.range(0)) * 1e-9,
                                                    benchmark::Counter::kIsIterationInvariantRate);
}

constexpr auto kAvx512 = static_cast<std::int64_t>(cpu::Simd::kAvx512);
constexpr auto kAvx2 = static_cast<std::int64_t>(cpu::Simd::kAvx2);
constexpr auto kSse4 = static_cast<std::int64_t>(cpu::Simd::kSse4);
constexpr std::int64_t kF32 = static_cast<std::int64_t>(DType::kF32);
constexpr std::int64_t kBF16 = static_cast<std::int64_t>(DType::kBF16);

BENCHMARK(training)
    ->ArgNames({"B", "H", "T", "D", "dropout%", "backward", "simd"})
    ->ArgsProduct({{2, 12}, {4}, {64}, {32}, {0}, {0, 1}, {kSse4, kAvx2, kAvx512}})
    ->ArgsProduct({{64}, {6}, {256}, {64}, {0, 20}, {0, 1}, {kAvx512}})
    ->ArgsProduct({{64}, {6}, {256}, {64}, {0}, {0, 1}, {kSse4, kAvx2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cached)
    ->Name("decode")
    ->ArgNames({"S", "H", "KV", "D", "rows", "start", "dtype", "simd"})
    ->ArgsProduct({{1}, {4}, {4}, {32}, {1}, {255}, {kF32}, {kAvx2, kAvx512}})
    ->ArgsProduct({{8}, {8}, {8}, {32, 64, 128}, {1}, {4095}, {kF32}, {kAvx2, kAvx512}})
    ->ArgsProduct({{8}, {8}, {8}, {64}, {1}, {4095}, {kBF16}, {kAvx2, kAvx512}})
    ->ArgsProduct({{8}, {32}, {8}, {64}, {1}, {4095}, {kF32}, {kAvx512}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cached)
    ->Name("prefill")
    ->ArgNames({"S", "H", "KV", "D", "rows", "start", "dtype", "simd"})
    ->ArgsProduct({{1}, {8}, {8}, {64}, {64, 256}, {0, 1024}, {kF32}, {kAvx2, kAvx512}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(read_memory)->Arg(256 << 10)->Arg(128 << 20)->UseRealTime();

}  // namespace
}  // namespace volta

BENCHMARK_MAIN();
