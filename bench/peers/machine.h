// What this machine can do at most, measured: arithmetic, reading memory, one core talking to
// another. Measured in the run that uses it, because machines and their clocks differ from run to
// run. Knows nothing of matrix products, nor of Volta beyond
// its thread pool, its memory and its instructions for tiles.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/parallel.h"

namespace [[gnu::visibility("default")]] peers {

/// What is multiplied: f32 pairs, bf16 pairs or bytes, all summed in 32 bits.
enum class Type { kF32, kBf16, kInt8 };
inline constexpr Type kTypes[] = {Type::kF32, Type::kBf16, Type::kInt8};
const char* type_name(Type type);

/// The fastest instruction of one type, with all threads at work and operands in registers.
struct Peak {
  Type type = Type::kF32;
  const char* instruction = "";  ///< Empty: the CPU has none for this type.
  double gops = 0;               ///< 1e9 multiplications and additions a second; 0 without one.
};
std::vector<Peak> measure_peaks(volta::ThreadPool& pool);

/// The state of the memory and of the way between cores. It may change while a program runs: a
/// virtual machine's cores can be moved apart.
struct Memory {
  double read_gbs = 0;       ///< Large pages, 512 MiB, all threads.
  double round_trip_ns = 0;  ///< A cache line to the second CPU and back; 0 with one CPU.
};
Memory measure_memory(volta::ThreadPool& pool);

std::string to_text(const Memory& memory);
void to_json(volta::JsonWriter& json, const Memory& memory);

/// Seconds since some fixed moment.
double seconds();
/// The value below which a share q of the values lies; 0 for none.
double quantile(std::vector<double> values, double q);
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace peers
