// The shared parts of the benchmarks: requests to time, prompt lengths, quantiles; and their
// registration under `volta bench`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "command.h"
#include "device/device.h"
#include "nn/generator.h"

namespace volta::cli {

void add_bench_infer(Command& bench, Globals& globals, Action& action);
void add_bench_model(Command& bench, Globals& globals, Action& action);
void add_bench_gaps(Command& bench, Globals& globals, Action& action);
void add_bench_history(Command& bench, Globals& globals, Action& action);

/// The quantile q of the values: a share q of them lies below it. 0 when there are none.
double quantile(std::vector<double> values, double q);

/// A prompt of `length` random ids, to be continued greedily for `tokens` tokens.
GenerationRequest random_request(const TransformerConfig& config, std::int64_t length,
                                 std::int64_t tokens, std::uint64_t seed);

/// The prompt lengths to measure: those in `asked`, or, when it is empty, those of `usual` that
/// fit. kInvalidArgument, naming the `flag`, for a length that leaves no room for two tokens: one
/// for the prompt, one to time.
Result<std::vector<std::int64_t>> prompt_lengths(const std::vector<std::int64_t>& asked,
                                                 std::span<const std::int64_t> usual,
                                                 std::int64_t context, std::string_view flag);

/// Prints a note for each length after which the context has no room for `tokens` tokens.
void note_clipped(std::span<const std::int64_t> lengths, std::int64_t tokens, std::int64_t context);

/// A JSON report with its first members: Volta's version, the device, its instruction set and its
/// threads. The caller adds the others and ends the object.
JsonWriter begin_report(const DeviceInfo& device);

/// --runs, --warmup, --tokens and a list of prompt lengths, whose option is `flag`.
struct BenchRuns {
  std::int64_t runs = 5;
  std::int64_t warmup = 1;
  std::int64_t tokens = 32;
  std::vector<std::int64_t> lengths = {};  ///< Empty: the usual ones that fit.
};
void add_bench_runs(Command& command, BenchRuns& runs, const std::string& flag,
                    std::span<const std::int64_t> usual);

}  // namespace volta::cli
