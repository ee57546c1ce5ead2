// Speed of the CPU kernels that are bound by memory or by exp: bytes moved (inputs and outputs
// once) a second, by size, threads and instruction set. The small size is one training step of a
// model 128 wide (12 x 64 tokens, in cache), the large one does not fit the cache.
//   bench_pointwise --benchmark_filter='Gelu/.*/avx512/threads:1' --benchmark_out=x.json
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/cpu.h"

namespace volta {
namespace {

// An operand with memory of its own, filled with values in (-1, 1), small indices or a Philox key.
struct Operand {
  Operand(const Shape& shape, DType dtype, float shift)
      : memory(static_cast<std::size_t>(shape.elements() * dtype_size(dtype) + 63) / 64),
        view(memory.data(), {dtype, shape}) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::int64_t hash = i * 7919 % 4093;
      if (dtype == DType::kF32) {
        view.as<float>()[i] = static_cast<float>(hash) / 2047.0f - 1.0f + shift;
      } else if (dtype == DType::kI32) {
        view.as<std::int32_t>()[i] = static_cast<std::int32_t>(hash % 60);
      } else if (dtype == DType::kI64) {
        view.as<std::int64_t>()[i] = i + 1;
      }
    }
  }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory;
  View view;
};

struct Case {
  std::string name;
  Op op;
  std::vector<View> inputs, outputs;
};

// All cases of one size, on shared memory.
class Cases {
 public:
  Cases(std::int64_t rows, std::int64_t columns) {
    const Shape row(columns), each(rows), three(3);
    const View x = floats(Shape(rows, columns)), x2 = floats(x.shape), y = floats(x.shape);
    const View weight = floats(row), dweight = floats(row), ids = make(each, DType::kI32);
    const View stats = floats(Shape(rows, 2)), loss = floats(each), lse = floats(each, 3.0f);
    const View rng = make(Shape(2), DType::kI64), table = floats(Shape(64, columns));
    const View dtable = floats(Shape(65, columns)), scalar = floats(Shape(1));
    const View norm_stats = floats(three);
    const View param = floats(x.shape), m = floats(x.shape), v = floats(x.shape, 1.0f);
    const View schedule = floats(three, 2.0f), finite = floats(three, 2.0f);
    const auto head_dim = static_cast<std::int32_t>(columns);
    cases = {
        {"Add", Binary{}, {x, x2}, {y}},
        {"Gelu", Unary{UnaryKind::kGelu}, {x}, {y}},
        {"GeluTanh", Unary{UnaryKind::kGeluTanh}, {x}, {y}},
        {"GeluGrad", UnaryGrad{UnaryKind::kGelu}, {x, x2}, {y}},
        {"SiluGate", GatedUnit{}, {x, x2}, {y}},
        {"LayerNorm", Norm{NormKind::kLayer}, {x, weight}, {y, stats}},
        {"LayerNormGrad", NormGrad{NormKind::kLayer}, {x, weight, stats, x2}, {y, dweight}},
        {"Softmax", Softmax{}, {x}, {y}},
        {"SumRows", Reduce{ReduceKind::kSum, 0, 1}, {x}, {dweight}},
        {"CrossEntropy", CrossEntropy{}, {x, ids}, {loss, lse}},
        {"CrossEntropyGrad", CrossEntropyGrad{}, {x, ids, lse, loss}, {y}},
        {"Dropout", Dropout{0.2f, 1}, {x, rng}, {y}},
        {"Rope", Rope{1, head_dim}, {x, ids, table}, {y}},
        {"AdamW", AdamW{}, {param, x, m, v, schedule, finite}, {}},
        {"GlobalNorm", GlobalNorm{1.0f}, {scalar, x}, {norm_stats}},
        {"EmbeddingGrad", EmbeddingGrad{65}, {ids, x}, {dtable}},
    };
    for (Case& c : cases) {
      c.name += "/" + std::to_string(rows) + "x" + std::to_string(columns);
    }
  }

  std::vector<Case> cases;

 private:
  View make(const Shape& shape, DType dtype, float shift = 0.0f) {
    return operands_.emplace_back(shape, dtype, shift).view;
  }
  View floats(const Shape& shape, float shift = 0.0f) { return make(shape, DType::kF32, shift); }

  std::deque<Operand> operands_;
};

void measure(benchmark::State& state, const Case& c, cpu::Simd simd, ThreadPool& pool) {
  const cpu::Context context{simd, &pool, nullptr};
  const auto bytes = std::visit(
      [&](const auto& op) { return cpu::workspace_bytes(op, {c.inputs, c.outputs}, context); },
      c.op);
  std::vector<Operand::Line> lines(static_cast<std::size_t>(bytes + 63) / 64);
  const cpu::Args args = {c.inputs, c.outputs, std::as_writable_bytes(std::span(lines))};
  std::int64_t moved = 0;
  for (const auto* views : {&c.inputs, &c.outputs}) {
    for (const View& view : *views) moved += view.shape.elements() * dtype_size(view.dtype);
  }
  for (auto _ : state) {
    std::visit([&](const auto& op) { cpu::run(op, args, context); }, c.op);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * moved);
}

int run_all(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Cases small(768, 128), large(16384, 384);
  std::vector<Case> cases = std::move(small.cases);
  cases.insert(cases.end(), large.cases.begin(), large.cases.end());
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (const int threads : {1, 0}) {
    auto pool = ThreadPool::create(threads);
    if (!pool) {
      std::fprintf(stderr, "%s\n", pool.error().message().c_str());
      return 1;
    }
    pools.push_back(std::make_unique<ThreadPool>(std::move(*pool)));
  }
  for (const Case& c : cases) {
    for (const cpu::Simd simd : {cpu::Simd::kSse4, cpu::Simd::kAvx2, cpu::Simd::kAvx512}) {
      if (!cpu::simd_available(simd)) continue;
      for (const auto& pool : pools) {
        const std::string name =
            c.name + "/" + cpu::simd_name(simd) + "/threads:" + std::to_string(pool->threads());
        benchmark::RegisterBenchmark(name.c_str(), [&, simd](benchmark::State& state) {
          measure(state, c, simd, *pool);
        })->UseRealTime();
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
