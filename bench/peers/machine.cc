#include "machine.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/memory.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu.h"

namespace peers {
namespace {

// Chains of one instruction in registers, enough of them to hide its latency: `loops` steps of
// each. The empty assembly makes the compiler keep every chain.
#define PEERS_CHAINS(name, isa, chains, vector, start, step)             \
  __attribute__((target(isa), noinline)) void name(std::int64_t loops) { \
    vector sum[chains];                                                  \
    for (auto& s : sum) s = start;                                       \
    for (std::int64_t i = 0; i < loops; ++i) {                           \
      _Pragma("GCC unroll 16") for (auto& s : sum) s = step;             \
    }                                                                    \
    for (auto& s : sum) asm volatile("" : "+v"(s));                      \
  }
PEERS_CHAINS(fma256, "avx2,fma", 12, __m256, _mm256_set1_ps(1.0f),
             _mm256_fmadd_ps(s, _mm256_set1_ps(0.999999f), _mm256_set1_ps(1e-7f)))
PEERS_CHAINS(fma512, "avx512f", 16, __m512, _mm512_set1_ps(1.0f),
             _mm512_fmadd_ps(s, _mm512_set1_ps(0.999999f), _mm512_set1_ps(1e-7f)))
PEERS_CHAINS(bf16dot512, "avx512f,avx512bf16", 16, __m512, _mm512_setzero_ps(),
             _mm512_dpbf16_ps(s, (__m512bh)_mm512_set1_epi32(0x00010001),
                              (__m512bh)_mm512_set1_epi32(0x00010001)))
PEERS_CHAINS(vnni256, "avx2,avx512vl,avx512vnni", 12, __m256i, _mm256_setzero_si256(),
             _mm256_dpbusd_epi32(s, _mm256_set1_epi8(1), _mm256_set1_epi8(1)))
PEERS_CHAINS(vnni512, "avx512f,avx512vnni", 16, __m512i, _mm512_setzero_si512(),
             _mm512_dpbusd_epi32(s, _mm512_set1_epi8(1), _mm512_set1_epi8(1)))
#undef PEERS_CHAINS

// Four tiles of sums, as a product uses them.
void amx_bf16(std::int64_t loops) {
  volta::cpu::TileConfiguration tiles;
  tiles.set({.rows = 32, .steps = 16});
  for (std::int64_t i = 0; i < loops; ++i) {
    volta::cpu::multiply_bf16<0, 4, 6>();
    volta::cpu::multiply_bf16<1, 4, 7>();
    volta::cpu::multiply_bf16<2, 5, 6>();
    volta::cpu::multiply_bf16<3, 5, 7>();
  }
}
void amx_int8(std::int64_t loops) {
  volta::cpu::TileConfiguration tiles;
  tiles.set({.rows = 32, .steps = 16});
  for (std::int64_t i = 0; i < loops; ++i) {
    volta::cpu::multiply_int8<0, 4, 6>();
    volta::cpu::multiply_int8<1, 4, 7>();
    volta::cpu::multiply_int8<2, 5, 6>();
    volta::cpu::multiply_int8<3, 5, 7>();
  }
}

struct Instruction {
  Type type;
  const char* name;
  bool there;
  double ops_a_step;  // Of all chains: multiplications and additions.
  void (*run)(std::int64_t loops);
};

std::vector<Instruction> instructions() {
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool amx = volta::cpu::simd_available(volta::cpu::Simd::kAmx);
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  return {
      {Type::kF32, "vfmadd256", __builtin_cpu_supports("fma") != 0, 12 * 16.0, fma256},
      {Type::kF32, "vfmadd512", avx512, 16 * 32.0, fma512},
      {Type::kBf16, "vdpbf16ps512", avx512 && __builtin_cpu_supports("avx512bf16") != 0, 16 * 64.0,
       bf16dot512},
      {Type::kInt8, "vpdpbusd256", vnni && __builtin_cpu_supports("avx512vl") != 0, 12 * 64.0,
       vnni256},
      {Type::kInt8, "vpdpbusd512", vnni, 16 * 128.0, vnni512},
      {Type::kBf16, "tdpbf16ps", amx, 4 * 16384.0, amx_bf16},
      {Type::kInt8, "tdpbsud", amx, 4 * 32768.0, amx_int8},
  };
}

double gops_of(const Instruction& instruction, volta::ThreadPool& pool) {
  constexpr std::int64_t kLoops = 1'000'000;
  double best = 1e9;
  for (int i = 0; i < 6; ++i) {
    const double begin = seconds();
    volta::parallel_chunks(pool, pool.threads(), [&](std::int64_t) { instruction.run(kLoops); });
    best = std::min(best, seconds() - begin);
  }
  return pool.threads() * static_cast<double>(kLoops) * instruction.ops_a_step / best * 1e-9;
}

// 32 sums, so that loads and not additions are what it waits for.
__attribute__((target("avx2"))) float sum_of(const float* p, std::int64_t n) {
  __m256 sum[4] = {};
  for (std::int64_t i = 0; i + 32 <= n; i += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 1040), _MM_HINT_T0);
    for (int l = 0; l < 4; ++l) sum[l] = _mm256_add_ps(sum[l], _mm256_loadu_ps(p + i + 8 * l));
  }
  return _mm256_cvtss_f32(
      _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

double read_gbs(volta::ThreadPool& pool) {
  constexpr std::int64_t kFloats = std::int64_t{128} << 20;
  auto buffer = volta::try_allocate_zeroed(kFloats * 4);
  if (!buffer) return 0;
  const auto* floats = reinterpret_cast<const float*>(buffer->data());
  std::atomic<float> sink = 0;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = seconds();
    volta::parallel_for(
        pool, 0, kFloats, kFloats / pool.threads(),
        [&](std::int64_t from, std::int64_t to) { sink = sum_of(floats + from, to - from); });
    best = std::min(best, seconds() - begin);
  }
  return static_cast<double>(kFloats) * 4 / best * 1e-9;
}

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

// Two threads of their own, each kept on a CPU, count up one number in turns.
double round_trip_ns() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return 0;
  constexpr int kTrips = 50'000;
  std::vector<double> trips;
  for (int repeat = 0; repeat < 5; ++repeat) {
    alignas(128) std::atomic<int> turn = 0;
    double spent = 0;
    const auto play = [&](int side) {
      pin_to(cpus[static_cast<std::size_t>(side)]);
      const double begin = seconds();
      for (int trip = 0; trip < kTrips; ++trip) {
        while (turn.load(std::memory_order_acquire) != 2 * trip + side) {
        }
        turn.store(2 * trip + side + 1, std::memory_order_release);
      }
      if (side == 1) spent = seconds() - begin;
    };
    std::thread first(play, 0), second(play, 1);
    first.join();
    second.join();
    trips.push_back(spent / kTrips * 1e9);
  }
  return median(trips);
}

}  // namespace

const char* type_name(Type type) {
  return type == Type::kF32 ? "f32" : type == Type::kBf16 ? "bf16" : "int8";
}

double seconds() { return volta::monotonic_seconds(); }

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::vector<Peak> measure_peaks(volta::ThreadPool& pool) {
  std::vector<Peak> peaks;
  for (const Type type : kTypes) peaks.push_back({type, "", 0});
  for (const Instruction& instruction : instructions()) {
    if (!instruction.there) continue;
    Peak& peak = peaks[static_cast<std::size_t>(instruction.type)];
    const double gops = gops_of(instruction, pool);
    if (gops > peak.gops) peak = {instruction.type, instruction.name, gops};
  }
  return peaks;
}

Memory measure_memory(volta::ThreadPool& pool) { return {read_gbs(pool), round_trip_ns()}; }

std::string to_text(const Memory& memory) {
  std::string text = fmt::format("read {:.1f} GB/s", memory.read_gbs);
  if (memory.round_trip_ns > 0) {
    text += fmt::format(", round trip between two CPUs {:.0f} ns", memory.round_trip_ns);
  }
  return text;
}

void to_json(volta::JsonWriter& json, const Memory& memory) {
  json.begin_object().field("read_gb_per_s", memory.read_gbs);
  json.field("round_trip_ns", memory.round_trip_ns).end_object();
}

}  // namespace peers
