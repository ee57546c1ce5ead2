// Finds the parameters that make one product fastest, by measuring few of very many candidates:
// successive halving over the best guesses, then one parameter at a time from the winner on, then a
// duel with the default. How a candidate is measured is the caller's business, so that tests can
// put any CPU behind it; it knows no kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/cpu/matmul_parameters.h"
#include "tuner/candidates.h"

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// Seconds that one product took with these parameters; above 0. An error ends the search.
using MeasureFunction = FunctionRef<Result<double>(const cpu::MatMulParameters& parameters)>;

/// Where a search stands.
struct SearchProgress {
  double part = 0;            ///< Of the time budget that is used up; at most 1.
  std::int64_t measured = 0;  ///< Measurements so far.
  double best_gain = 0;       ///< Default's time over the best one's so far; 0 at first.
};
/// Hears of it after every measurement. Return false to end the search.
using SearchProgressFunction = FunctionRef<bool(const SearchProgress& progress)>;

struct SearchOptions {
  /// The search begins nothing new after so many seconds; what is under way (the duel) may take
  /// half as much again. Slow products are tried with fewer candidates, and each round at least
  /// once.
  double budget_seconds = 8.0;
  /// Times that default and winner are measured in the duel, in turn; up to eight times as often
  /// where that leaves it open and time is left.
  int runs = 15;
  /// Candidates of the first round, at most.
  int entrants = 96;
  /// Seconds since some moment; a simulated CPU brings its own clock.
  std::function<double()> now = monotonic_seconds;
};

/// Several measurements of one thing. Others on the machine only ever add time, so the lower
/// quartile stands for all; the spread is from there to the upper one, relative.
struct Timing {
  double seconds = 0;
  double spread = 0;
};
Timing timing_of(std::span<const double> seconds);

struct SearchResult {
  cpu::MatMulParameters chosen;
  Timing before;  ///< The default's, in the duel.
  Timing after;   ///< The chosen one's.
  /// How many times faster the chosen one is (median over the duel's pairs); 1 when the default is
  /// kept.
  double gain = 1;
  /// The default is within noise of the best that was found, and is what was chosen.
  bool default_kept = false;
  std::int64_t candidates = 0;    ///< In the grid.
  std::int64_t tried = 0;         ///< Of them, measured.
  std::int64_t measurements = 0;  ///< In all.
  double seconds = 0;             ///< That the search took.
};

/// `grid` in the order in which to try it, as candidates() gives it. kInvalidArgument for an empty
/// grid or options that cannot work, kInterrupted when `progress` says so, and what `measure`
/// fails with.
Result<SearchResult> search(std::span<const Candidate> grid,
                            const cpu::MatMulParameters& default_parameters,
                            MeasureFunction measure, const SearchOptions& options,
                            SearchProgressFunction progress);

}  // namespace tuner
}  // namespace volta
