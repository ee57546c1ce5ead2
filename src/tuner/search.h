// Finds the parameters that make one product fastest by measuring a few of very many candidates. It
// runs successive halving over the best guesses, then varies one parameter at a time, starting from
// the winner, and ends with a duel between the best candidates and the default. The caller provides
// the function that measures a candidate, so that tests can simulate any CPU. The search knows no
// kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/cpu/matmul_parameters.h"
#include "tuner/candidates.h"

namespace volta::tuner {

/// Seconds that one product took with these parameters; must be above 0. An error ends the search.
using MeasureFunction = FunctionRef<Result<double>(const cpu::MatMulParameters& parameters)>;

/// The progress of a search.
struct SearchProgress {
  double part = 0;            ///< The part of the time budget that is used up; at most 1.
  std::int64_t measured = 0;  ///< Measurements so far.
  double best_gain = 0;       ///< The default's time divided by the best one's so far; 0 at first.
};
/// Called after every measurement. Return false to end the search.
using SearchProgressFunction = FunctionRef<bool(const SearchProgress& progress)>;

struct SearchOptions {
  /// After this many seconds the search begins nothing new. A duel that has begun ends at 1.25
  /// times this, or after three runs if those take longer. Slow products are tried with fewer
  /// candidates, and in each round at least once.
  double budget_seconds = 8.0;
  /// How often the duel measures the default and the winner, in turn. It measures up to eight times
  /// as often if the result is still open then and time is left.
  int runs = 15;
  /// The most candidates in the first round.
  int entrants = 96;
  /// Returns the seconds since some fixed moment. A simulated CPU has its own clock.
  std::function<double()> now = monotonic_seconds;
};

/// Several measurements of one thing. Other programs on the machine can only add time, so the lower
/// quartile stands for all measurements. The spread is the distance between the lower and the upper
/// quartile, relative to the lower one.
struct Timing {
  double seconds = 0;
  double spread = 0;
};
Timing timing_of(std::span<const double> seconds);

struct SearchResult {
  cpu::MatMulParameters chosen;
  Timing before;  ///< Of the default, in the duel.
  Timing after;   ///< Of the chosen one.
  /// How many times faster the chosen one is (median over the duel's pairs); 1 if the default is
  /// kept.
  double gain = 1;
  /// Whether the default was chosen, because it is within noise of the best that was found.
  bool default_kept = false;
  std::int64_t candidates = 0;    ///< The size of the grid.
  std::int64_t tried = 0;         ///< How many of them were measured.
  std::int64_t measurements = 0;  ///< The number of measurements.
  double seconds = 0;             ///< How long the search took.
};

/// `grid` is in the order in which to try it, as candidates() returns it. kInvalidArgument for an
/// empty grid or invalid options, kInterrupted if `progress` returns false, and the errors of
/// `measure`.
Result<SearchResult> search(std::span<const Candidate> grid,
                            const cpu::MatMulParameters& default_parameters,
                            MeasureFunction measure, const SearchOptions& options,
                            SearchProgressFunction progress);

}  // namespace volta::tuner
