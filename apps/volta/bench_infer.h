// The inference benchmark, for `volta bench infer` and for the demo.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "bench.h"
#include "command.h"

namespace volta::cli {

inline constexpr std::array<std::int64_t, 3> kBenchLengths = {16, 64, 256};

struct BenchInferOptions {
  std::string model;     ///< Empty: the default TinyLm with random weights.
  BenchRuns runs;        ///< Default lengths: kBenchLengths.
  std::string baseline;  ///< A stored report to compare with; empty: none.
  double limit = 10.0;   ///< By how many per cent a time may be above its stored one.
};

/// Measures and prints.
Status bench_infer(const Globals& globals, const BenchInferOptions& options);

}  // namespace volta::cli
