// What ProfilingDevice costs: decode steps of the default TinyLm with and without it, in turns.
// `overhead` is the ratio of the medians, less one; its limit is 0.03.
//   bench_profiler
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "device/cpu_device.h"
#include "device/profiling_device.h"
#include "nn/generator.h"
#include "nn/transformer.h"
#include "tuner/open_device.h"

namespace volta {
namespace {

constexpr std::int64_t kTokens = 64;  // A turn: long beside a call, short beside foreign load.

// The median decode step of one turn, in seconds; 0 when it failed.
double turn(Generator& generator) {
  const GenerationRequest request{.prompt = std::vector<std::int32_t>(16, 1),
                                  .max_new_tokens = kTokens,
                                  .sampling = {.temperature = 0.0f},
                                  .stop_tokens = {}};
  if (!generator.generate(std::span(&request, 1))) return 0.0;
  std::vector<double> seconds = generator.timing().token_seconds;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

Result<Generator> make_generator(const std::shared_ptr<Device>& device) {
  VOLTA_TRY(const Transformer model, Transformer::random(tiny_lm_config(), 1, device));
  return Generator::create(model, {});
}

Result<std::shared_ptr<Device>> make_device(int threads, bool profiled) {
  VOLTA_TRY(const DeviceHandle handle, open_device({.threads = threads}));
  const std::shared_ptr<Device>& device = handle.shared();
  if (!profiled) return device;
  VOLTA_TRY(const auto profiler, ProfilingDevice::create(device));
  return std::shared_ptr<Device>(profiler);
}

void decode_step(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const auto make = [&](bool profiled) -> Result<Generator> {
    VOLTA_TRY(const std::shared_ptr<Device> device, make_device(threads, profiled));
    return make_generator(device);
  };
  auto plain = make(false), profiled = make(true);
  if (!plain || !profiled) return state.SkipWithError("the model cannot be made");
  std::vector<double> without, with;
  for (auto _ : state) {
    without.push_back(turn(*plain));
    with.push_back(turn(*profiled));
    if (without.back() == 0.0 || with.back() == 0.0) return state.SkipWithError("a turn failed");
  }
  state.counters["plain_us"] = median(without) * 1e6;
  state.counters["profiled_us"] = median(with) * 1e6;
  state.counters["overhead"] = median(with) / median(without) - 1;
}
BENCHMARK(decode_step)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace volta

BENCHMARK_MAIN();
