// What share of the memory's speed the ops reach that should be bound by it. Every operand is far
// larger than the caches. Beside each op, in turn with it, runs a plain loop over as many streams
// of the same length and kind (read, written, both), which is what the memory allows; shares are
// ratios of medians.
//   bench_memory --benchmark_filter='Gelu.*threads:1'
// Bytes are those an op must read and those it must write, each once. That a store first reads the
// line that it writes is left out for both; the loop's stores do so, too.
#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // As the library is built: SSE4, AVX2 and AVX3.
#endif
#include "base/memory.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/cpu.h"

// The streams of a loop: so many arrays that are read, written, and updated in place.
#ifndef VOLTA_BENCH_MEMORY_STREAMS
#define VOLTA_BENCH_MEMORY_STREAMS
namespace volta {
struct Streams {
  int reads = 0, writes = 0, updates = 0;
  std::int64_t floats = 0;            // The length of each, a multiple of 64.
  std::array<float*, 6> arrays = {};  // Those read, then those written, then those updated.

  double bytes() const {
    return 4.0 * static_cast<double>(reads + writes + 2 * updates) * static_cast<double>(floats);
  }
};
}  // namespace volta
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/memory.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

template <int kReads, int kWrites, int kUpdates>
float pass(const Streams& streams, std::int64_t begin, std::int64_t end) {
  const F32 d;
  constexpr int kUnroll = 4;
  V32 sums[kUnroll];
  for (V32& sum : sums) sum = hn::Zero(d);
  const auto arrays = streams.arrays;
  for (std::int64_t i = begin; i < end; i += kUnroll * lanes(d)) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = i + u * lanes(d);
      V32 v = hn::Set(d, 1.0f);
      for (int s = 0; s < kReads; ++s) v = hn::Add(v, load(d, arrays[s] + at));
      for (int s = 0; s < kWrites; ++s) store(d, v, arrays[kReads + s] + at);
      for (int s = 0; s < kUpdates; ++s) {
        float* const to = arrays[kReads + kWrites + s] + at;
        store(d, hn::Sub(v, load(d, to)), to);
      }
      if (kWrites + kUpdates == 0) sums[u] = hn::Add(sums[u], v);
    }
  }
  return hn::GetLane(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

}  // namespace

// One pass over elements [begin, end) of all streams; both are multiples of four vectors.
float pass_over(const Streams& s, std::int64_t begin, std::int64_t end) {
  switch (s.reads * 100 + s.writes * 10 + s.updates) {
    case 100:
      return pass<1, 0, 0>(s, begin, end);
    case 200:
      return pass<2, 0, 0>(s, begin, end);
    case 10:
      return pass<0, 1, 0>(s, begin, end);
    case 110:
      return pass<1, 1, 0>(s, begin, end);
    case 210:
      return pass<2, 1, 0>(s, begin, end);
    case 120:
      return pass<1, 2, 0>(s, begin, end);
    case 320:
      return pass<3, 2, 0>(s, begin, end);
    case 220:
      return pass<2, 2, 0>(s, begin, end);
    case 420:
      return pass<4, 2, 0>(s, begin, end);
    case 101:
      return pass<1, 0, 1>(s, begin, end);
    case 102:
      return pass<1, 0, 2>(s, begin, end);
    case 103:
      return pass<1, 0, 3>(s, begin, end);
    default:
      return 0.0f;
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

float pass_over(Simd simd, const Streams& streams, std::int64_t begin, std::int64_t end) {
  return VOLTA_SIMD_CALL(simd, pass_over, streams, begin, end);
}

}  // namespace
}  // namespace volta::cpu

namespace volta {
namespace {

constexpr std::int64_t kColumns = 768;
constexpr std::int64_t kRows = 98304;
constexpr std::int64_t kFloats = kRows * kColumns;  // Of one large stream: 288 MiB.
constexpr std::int64_t kVocabulary = 50257;
constexpr int kLarge = 6;

struct Case {
  std::string name;
  Op op;
  std::vector<View> inputs, outputs;
  Streams streams;  // As many as the op has; what is small beside them is not counted.
};

/// All cases, on the same six large streams; small operands have memory of their own.
class Cases {
 public:
  static Result<Cases> make() {
    Cases cases;
    for (int i = 0; i < kLarge; ++i) {
      VOLTA_TRY(const View stream, cases.allocate(DType::kF32, Shape(kFloats)));
      for (std::int64_t j = 0; j < kFloats; ++j) {
        const float uniform = static_cast<float>(j * 7919 % 4093) / 4093.0f;
        // The last one is positive: AdamW's v.
        stream.as<float>()[j] = i == kLarge - 1 ? uniform + 0.1f : 2.0f * uniform - 1.0f;
      }
      cases.large_.push_back(stream.as<float>());
    }
    VOLTA_TRY(cases.add_pointwise());
    VOLTA_TRY(cases.add_rows());
    VOLTA_TRY(cases.add_losses());
    VOLTA_TRY(cases.add_updates());
    VOLTA_TRY(cases.add_embeddings());
    VOLTA_TRY(cases.add_caches());
    return cases;
  }
  const std::vector<Case>& all() const { return cases_; }

 private:
  Result<View> allocate(DType dtype, const Shape& shape) {
    VOLTA_TRY(AlignedBytes block, try_allocate(shape.elements() * dtype_size(dtype)));
    const View view(block.data(), {dtype, shape});
    blocks_.push_back(std::move(block));
    return view;
  }
  // Floats near 1, or indices below `limit` in no order.
  Result<View> small(DType dtype, const Shape& shape, std::int64_t limit = 1) {
    VOLTA_TRY(const View view, allocate(dtype, shape));
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      if (dtype == DType::kF32) view.as<float>()[i] = 1.0f + static_cast<float>(i % 7) / 16.0f;
      if (dtype == DType::kI32) {
        view.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 2654435761 % limit);
      }
      if (dtype == DType::kI64) view.as<std::int64_t>()[i] = i + 1;
    }
    return view;
  }
  // Large stream i in a shape of its own.
  View large(int i, const Shape& shape, DType dtype = DType::kF32) const {
    return {large_[static_cast<std::size_t>(i)], {dtype, shape}};
  }
  void add(const std::string& name, const Op& op, std::vector<View> inputs,
           std::vector<View> outputs, Streams streams) {
    if (streams.floats == 0) streams.floats = kFloats;
    std::copy_n(large_.begin(), streams.arrays.size(), streams.arrays.begin());
    cases_.push_back({name, op, std::move(inputs), std::move(outputs), streams});
  }

  Status add_pointwise() {
    const Shape shape(kRows, kColumns);
    const View x = large(0, shape), dy = large(1, shape), up = large(2, shape);
    const View y = large(3, shape), z = large(4, shape);
    const Streams map = {.reads = 1, .writes = 1}, zip = {.reads = 2, .writes = 1};
    add("Add", Binary{}, {x, dy}, {y}, zip);
    const std::pair<const char*, UnaryKind> kinds[] = {{"Relu", UnaryKind::kRelu},
                                                       {"Gelu", UnaryKind::kGelu},
                                                       {"GeluTanh", UnaryKind::kGeluTanh},
                                                       {"Silu", UnaryKind::kSilu}};
    for (const auto& [name, kind] : kinds) {
      add(name, Unary{kind}, {x}, {y}, map);
      add(std::string(name) + "Grad", UnaryGrad{kind}, {x, dy}, {y}, zip);
    }
    add("SiluGate", GatedUnit{}, {x, up}, {y}, zip);
    add("SiluGateGrad", GatedUnitGrad{}, {x, up, dy}, {y, z}, {.reads = 3, .writes = 2});
    VOLTA_TRY(const View rng, small(DType::kI64, Shape(2)));
    add("Dropout", Dropout{0.1f, 1}, {x, rng}, {y}, map);
    // Half a stream is as many bf16 as a stream is floats.
    const View half = large(3, shape, DType::kBF16);
    add("CastToBf16", Cast{DType::kBF16}, {x}, {half},
        {.reads = 2, .writes = 1, .floats = kFloats / 2});
    add("CastFromBf16", Cast{DType::kF32}, {half}, {x},
        {.reads = 1, .writes = 2, .floats = kFloats / 2});
    return {};
  }

  Status add_rows() {
    const Shape shape(kRows, kColumns), row(kColumns);
    const View x = large(0, shape), dy = large(1, shape), y = large(3, shape);
    const Streams map = {.reads = 1, .writes = 1}, zip = {.reads = 2, .writes = 1};
    VOLTA_TRY(const View weight, small(DType::kF32, row));
    VOLTA_TRY(const View bias, small(DType::kF32, row));
    VOLTA_TRY(const View dweight, small(DType::kF32, row));
    VOLTA_TRY(const View dbias, small(DType::kF32, row));
    VOLTA_TRY(const View stats, small(DType::kF32, Shape(kRows, 2)));
    add("LayerNorm", Norm{NormKind::kLayer, true}, {x, weight, bias}, {y, stats}, map);
    add("LayerNormGrad", NormGrad{NormKind::kLayer, true}, {x, weight, stats, dy},
        {y, dweight, dbias}, zip);
    add("RmsNorm", Norm{NormKind::kRms}, {x, weight}, {y, stats}, map);
    add("RmsNormGrad", NormGrad{NormKind::kRms}, {x, weight, stats, dy}, {y, dweight}, zip);
    add("Softmax", Softmax{}, {x}, {y}, map);
    add("SoftmaxGrad", SoftmaxGrad{}, {x, dy}, {y}, zip);
    add("SumRows", Reduce{ReduceKind::kSum, 0, 1}, {x}, {dweight}, {.reads = 1});
    const Shape sequences(kRows / 1024, 1024, kColumns);
    VOLTA_TRY(const View positions, small(DType::kI32, Shape(1024), 1024));
    VOLTA_TRY(const View table, small(DType::kF32, Shape(1024, 64)));
    std::iota(positions.as<std::int32_t>(), positions.as<std::int32_t>() + 1024, 0);
    add("Rope", Rope{12, 64}, {large(0, sequences), positions, table}, {large(3, sequences)}, map);
    return {};
  }

  Status add_losses() {
    for (const std::int64_t classes : {kVocabulary, std::int64_t{65}}) {
      const std::int64_t rows = kFloats / classes / 64 * 64;
      const Shape shape(rows, classes), each(rows);
      VOLTA_TRY(const View targets, small(DType::kI32, each, classes));
      VOLTA_TRY(const View loss, small(DType::kF32, each));
      VOLTA_TRY(const View lse, small(DType::kF32, each));
      const std::string name = "CrossEntropy" + std::to_string(classes);
      const std::int64_t floats = shape.elements();
      add(name, CrossEntropy{}, {large(0, shape), targets}, {loss, lse},
          {.reads = 1, .floats = floats});
      add(name + "Grad", CrossEntropyGrad{}, {large(0, shape), targets, lse, loss},
          {large(3, shape)}, {.reads = 1, .writes = 1, .floats = floats});
    }
    return {};
  }

  Status add_updates() {
    const Shape shape(kFloats);
    const View param = large(0, shape), grad = large(1, shape);
    const View m = large(2, shape), v = large(kLarge - 1, shape);
    VOLTA_TRY(const View schedule, allocate(DType::kF32, Shape(3)));
    VOLTA_TRY(const View stats, allocate(DType::kF32, Shape(3)));
    std::fill_n(schedule.as<float>(), 3, 1e-3f);
    std::fill_n(stats.as<float>(), 3, 1.0f);
    add("AdamW", AdamW{}, {param, grad, m, v, schedule, stats}, {}, {.reads = 1, .updates = 3});
    add("Sgd", Sgd{.momentum = 0.9f}, {param, grad, m, schedule, stats}, {},
        {.reads = 1, .updates = 2});
    add("Accumulate", Accumulate{0.5f}, {param, grad}, {}, {.reads = 1, .updates = 1});
    VOLTA_TRY(const View loss, small(DType::kF32, Shape(1)));
    add("GlobalNorm", GlobalNorm{1.0f}, {loss, grad}, {stats}, {.reads = 1});
    return {};
  }

  Status add_embeddings() {
    const Shape rows(kRows, kColumns);
    VOLTA_TRY(const View ids, small(DType::kI32, Shape(kRows), kRows));
    add("Embedding", Embedding{}, {large(0, rows), ids}, {large(3, rows)},
        {.reads = 1, .writes = 1});
    // Characters: all of dy is summed into few rows. A large vocabulary: most rows are zeros.
    VOLTA_TRY(const View characters, small(DType::kI32, Shape(kRows), 65));
    add("EmbeddingGrad65", EmbeddingGrad{65}, {characters, large(0, rows)},
        {large(3, Shape(65, kColumns))}, {.reads = 1});
    VOLTA_TRY(const View words, small(DType::kI32, Shape(1024), kRows));
    add("EmbeddingGradLarge", EmbeddingGrad{kRows}, {words, large(0, Shape(1024, kColumns))},
        {large(3, rows)}, {.writes = 1});
    return {};
  }

  // What tells the rows of a step apart: `each` rows of every sequence, which end at `end`; their
  // pages lie as those of sequences that grew together.
  Result<std::vector<View>> paged_rows(std::int64_t sequences, std::int64_t each,
                                       std::int64_t end) {
    const std::int64_t rows = sequences * each, blocks = end / kAttentionKeyBlock;
    VOLTA_TRY(const View positions, allocate(DType::kI32, Shape(rows)));
    VOLTA_TRY(const View owners, allocate(DType::kI32, Shape(rows)));
    VOLTA_TRY(const View count, allocate(DType::kI32, Shape(1)));
    VOLTA_TRY(const View table, allocate(DType::kI32, Shape(sequences, blocks)));
    for (std::int64_t i = 0; i < rows; ++i) {
      positions.as<std::int32_t>()[i] = static_cast<std::int32_t>(end - each + i % each);
      owners.as<std::int32_t>()[i] = static_cast<std::int32_t>(i / each);
    }
    count.as<std::int32_t>()[0] = static_cast<std::int32_t>(rows);
    for (std::int64_t i = 0; i < sequences * blocks; ++i) {
      table.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % blocks * sequences + i / blocks);
    }
    return std::vector{positions, owners, count, table};
  }

  // What decoding does with the caches of many sequences, or of many layers.
  Status add_caches() {
    const std::int64_t sequences = 64, time = kRows / sequences;
    const Shape rows(kRows, kColumns);
    const std::int64_t pages = kRows / kAttentionKeyBlock;
    const Shape keys = key_cache_shape(pages, 12, 64), values = value_cache_shape(pages, 12, 64);
    VOLTA_TRY(const auto paged, paged_rows(sequences, time, time));
    const auto operands = [&](std::vector<View> views) {
      views.insert(views.end(), paged.begin(), paged.end());
      return views;
    };
    const KvAppend append{{.heads = 12, .kv_heads = 12, .head_dim = 64}};
    add("KvAppend", append,
        operands({large(0, rows), large(1, rows), large(3, keys), large(4, values)}), {},
        {.reads = 2, .writes = 2});
    add("KvAppendBf16", append,
        operands({large(0, rows), large(1, rows), large(3, keys, DType::kBF16),
                  large(4, values, DType::kBF16)}),
        {}, {.reads = 4, .writes = 2, .floats = kFloats / 2});
    VOLTA_TRY(add_decode(12, 12));
    VOLTA_TRY(add_decode(32, 4));
    return {};
  }

  // One row a sequence against 4096 positions. Zeros: values have no influence on the speed.
  Status add_decode(std::int64_t heads, std::int64_t kv_heads) {
    const std::int64_t positions = 4096, dim = 64;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::int64_t one = kv_heads * positions * dim;
      const std::int64_t sequences = kFloats / 2 / one;
      const std::int64_t pages = sequences * positions / kAttentionKeyBlock;
      VOLTA_TRY(const View q, small(DType::kF32, Shape(sequences, heads * dim)));
      VOLTA_TRY(const View y, small(DType::kF32, q.shape));
      VOLTA_TRY(const auto paged, paged_rows(sequences, 1, positions));
      // The streams that only the outputs of other cases use: finite, as floats and as bf16.
      AttentionShape shape{.heads = static_cast<std::int32_t>(heads),
                           .kv_heads = static_cast<std::int32_t>(kv_heads),
                           .head_dim = static_cast<std::int32_t>(dim),
                           .scale = 0.125f};
      std::vector<View> inputs = {q, large(1, key_cache_shape(pages, kv_heads, dim), dtype),
                                  large(2, value_cache_shape(pages, kv_heads, dim), dtype)};
      inputs.insert(inputs.end(), paged.begin(), paged.end());
      add("Decode" + std::to_string(heads) + "/" + std::to_string(kv_heads) + "/" +
              std::string(dtype_name(dtype)),
          CachedAttention{shape}, inputs, {y},
          {.reads = 2, .floats = sequences * one * dtype_size(dtype) / 4});
    }
    return {};
  }

  std::vector<AlignedBytes> blocks_;
  std::vector<float*> large_;
  std::vector<Case> cases_;
};

double seconds_of(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.empty() ? 1.0 : *middle;
}

void measure(benchmark::State& state, const Case& c, cpu::Simd simd, ThreadPool& pool) {
  const cpu::Context context{simd, &pool, nullptr};
  const auto bytes = std::visit(
      [&](const auto& op) { return cpu::workspace_bytes(op, {c.inputs, c.outputs}, context); },
      c.op);
  auto workspace = try_allocate(bytes);
  if (!workspace) return state.SkipWithError("not enough memory");
  const cpu::Args args = {c.inputs, c.outputs, workspace->span()};
  std::vector<double> op_seconds, loop_seconds;
  for (auto _ : state) {
    op_seconds.push_back(seconds_of(
        [&] { std::visit([&](const auto& op) { cpu::run(op, args, context); }, c.op); }));
    loop_seconds.push_back(seconds_of([&] {
      parallel_for(pool, 0, c.streams.floats, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
        benchmark::DoNotOptimize(cpu::pass_over(simd, c.streams, begin, end));
      });
    }));
    state.SetIterationTime(op_seconds.back());
  }
  const double op = median(op_seconds), loop = median(loop_seconds);
  state.counters["GB/s"] = c.streams.bytes() * 1e-9 / op;
  state.counters["loop_GB/s"] = c.streams.bytes() * 1e-9 / loop;
  state.counters["share%"] = 100.0 * loop / op;
}

int run_all(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Result<Cases> cases = Cases::make();
  std::vector<ThreadPool> pools;
  for (const int threads : {1, 0}) {
    auto pool = ThreadPool::create(threads);
    if (!pool || !cases) {
      std::fprintf(stderr, "%s\n", (!pool ? pool.error() : cases.error()).message().c_str());
      return 1;
    }
    if (pools.empty() || pool->threads() > 1) pools.push_back(std::move(*pool));
  }
  for (const Case& c : cases->all()) {
    for (const cpu::Simd simd : {cpu::Simd::kAvx2, cpu::Simd::kAvx512}) {
      if (!cpu::simd_available(simd)) continue;
      for (ThreadPool& pool : pools) {
        const std::string name =
            c.name + "/" + cpu::simd_name(simd) + "/threads:" + std::to_string(pool.threads());
        benchmark::RegisterBenchmark(
            name.c_str(), [&, simd](benchmark::State& state) { measure(state, c, simd, pool); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace volta

int main(int argc, char** argv) { return volta::run_all(argc, argv); }
#endif
