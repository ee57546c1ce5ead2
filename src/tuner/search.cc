// The rounds, the refinement and the duel of search.h.
#include "tuner/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace volta::tuner {
namespace {

using cpu::MatMulParameters;

/// Shares of the budget: the rounds end at the first, the refinement at the second, and the duel
/// takes the rest.
constexpr double kRoundsShare = 0.2;
constexpr double kRefineShare = 0.85;
/// The share of the budget for the first measurements in one sweep of the refinement.
constexpr double kSweepShare = 0.15;
/// kHopeless: a variant that is slower than the best by this factor is not measured again. kStep: a
/// variant must take less than this part of the best one's time to replace it.
constexpr double kHopeless = 1.04;
constexpr double kStep = 0.998;
/// If the gain is smaller than this, the default is kept, because timings differ that much from day
/// to day.
constexpr double kSmallestGain = 0.005;
/// The duel may run until this share of the budget is used, and measure this many times `runs`.
constexpr double kDuelShare = 1.25;
constexpr int kMostExtensions = 8;
/// With fewer pairs there is no winner, because their spread means nothing.
constexpr std::size_t kFewestPairs = 3;
/// The number of finalists after the halving, and in the duel.
constexpr std::size_t kFinalists = 4;
constexpr std::size_t kDuellists = 3;

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

// A candidate that is being measured.
struct Trial {
  MatMulParameters parameters;
  std::size_t index = 0;  ///< Index in the grid; the grid's size for the default.
  std::vector<double> samples = {};
  double figure() const { return quantile(samples, 0.25); }
};

// The parameters that differ between two candidates, as bits.
constexpr unsigned kPrefetch = 1, kMBlock = 2, kTile = 4, kKBlock = 8, kNBlock = 16;
unsigned difference(const MatMulParameters& x, const MatMulParameters& y) {
  return (x.prefetch != y.prefetch || x.prefetch_bytes != y.prefetch_bytes ? kPrefetch : 0) |
         (x.m_block != y.m_block ? kMBlock : 0) | (x.tile != y.tile ? kTile : 0) |
         (x.k_block != y.k_block ? kKBlock : 0) | (x.n_block != y.n_block ? kNBlock : 0);
}
/// The parameters that refinement varies together. K and N blocks belong together because both
/// decide what fits a cache. Those that need few measurements come first.
constexpr std::array<unsigned, 4> kFirst = {kPrefetch, kTile, kMBlock, kKBlock | kNBlock};
/// Pairs to try once none of those helps, because they seldom depend on each other.
constexpr std::array<unsigned, 6> kThen = {kTile | kKBlock,   kTile | kNBlock,   kTile | kMBlock,
                                           kKBlock | kMBlock, kNBlock | kMBlock, kTile | kPrefetch};

class Search {
 public:
  Search(std::span<const Candidate> grid, const MatMulParameters& default_parameters,
         MeasureFunction measure, const SearchOptions& options, SearchProgressFunction progress)
      : grid_(grid),
        default_{default_parameters, grid.size()},
        measured_(grid.size(), false),
        measure_(measure),
        options_(options),
        progress_(progress),
        started_(options.now()) {}

  Result<SearchResult> run() {
    // The first product also pays for page faults and the clock frequency, so its time is
    // discarded.
    VOLTA_TRY(sample(default_));
    default_.samples.clear();
    const double before = options_.now();
    VOLTA_TRY(sample(default_));
    typical_ = std::max(options_.now() - before, 1e-9);
    VOLTA_TRY(halve());
    VOLTA_TRY(refine(finalists_.front()));
    // There may be another, better minimum near the default.
    if (finalists_.front().parameters != default_.parameters) VOLTA_TRY(refine(default_));
    return duel();
  }

 private:
  double elapsed() const { return options_.now() - started_; }
  bool time_left(double share) const { return elapsed() < share * options_.budget_seconds; }

  Status sample(Trial& trial) {
    VOLTA_TRY(const double seconds, measure_(trial.parameters));
    if (!(seconds > 0) || !std::isfinite(seconds)) {
      return fail(ErrorCode::kInternal, "the tuner measured a time that is none");
    }
    trial.samples.push_back(seconds);
    if (trial.index < measured_.size()) measured_[trial.index] = true;
    ++measurements_;
    const double best = best_ == nullptr ? 0 : best_->figure();
    const SearchProgress state = {.part = std::min(1.0, elapsed() / options_.budget_seconds),
                                  .measured = measurements_,
                                  .best_gain = best > 0 ? default_.figure() / best : 0};
    if (!progress_(state)) return fail(ErrorCode::kInterrupted, "interrupted");
    return {};
  }

  // Takes candidates in the grid's order, but first the best one of every tile, because the model
  // is most often wrong about tiles.
  std::vector<Trial> entrants() const {
    const double affordable = kRoundsShare * options_.budget_seconds / typical_ / 3;
    const auto count = static_cast<std::size_t>(
        std::clamp(affordable, 4.0, static_cast<double>(std::max(options_.entrants, 4))));
    std::vector<Trial> chosen;
    std::vector<cpu::TileShape> tiles;
    std::vector<bool> taken(grid_.size(), false);
    const auto take = [&](std::size_t i) {
      taken[i] = true;
      if (grid_[i].parameters != default_.parameters) chosen.push_back({grid_[i].parameters, i});
    };
    for (std::size_t i = 0; i < grid_.size() && chosen.size() < (count + 1) / 2; ++i) {
      const cpu::TileShape& tile = grid_[i].parameters.tile;
      if (std::ranges::find(tiles, tile) != tiles.end()) continue;
      tiles.push_back(tile);
      take(i);
    }
    for (std::size_t i = 0; i < grid_.size() && chosen.size() < count; ++i) {
      if (!taken[i]) take(i);
    }
    return chosen;
  }

  // Each round measures all remaining candidates in turn, more often than the last round did, and
  // keeps the faster half.
  Status halve() {
    std::vector<Trial> left = entrants();
    for (int repeats = 1;; repeats *= 2) {
      for (int repeat = 0; repeat < repeats; ++repeat) {
        if (repeat > 0 && !time_left(kRoundsShare)) break;
        for (Trial& trial : left) VOLTA_TRY(sample(trial));
        VOLTA_TRY(sample(default_));
      }
      std::ranges::stable_sort(left, {}, &Trial::figure);
      if (left.size() <= kFinalists || !time_left(kRoundsShare)) break;
      left.resize(std::max(kFinalists, (left.size() + 1) / 2));
    }
    left.resize(std::min(left.size(), kFinalists));
    left.push_back(default_);
    std::ranges::stable_sort(left, {}, &Trial::figure);
    finalists_ = std::move(left);
    best_ = &finalists_.front();
    return {};
  }

  // Starts at the winner and tries all other values of one parameter (or two), then of the next. If
  // one is better it continues from there, until none is.
  Status refine(Trial best) {
    bool moved = true;
    while (moved && time_left(kRefineShare)) {
      moved = false;
      for (const unsigned axes : kFirst) {
        VOLTA_TRY(const bool better, sweep(best, axes));
        moved = moved || better;
      }
      for (std::size_t i = 0; i < kThen.size() && !moved; ++i) {
        VOLTA_TRY(moved, sweep(best, kThen[i]));
      }
    }
    std::erase_if(finalists_, [&](const Trial& r) { return r.parameters == best.parameters; });
    finalists_.insert(finalists_.begin(), std::move(best));
    best_ = &finalists_.front();
    return {};
  }

  // The candidate in the grid that is most like `parameters`; they are in the grid unless they are
  // a default.
  const MatMulParameters& nearest(const MatMulParameters& parameters) const {
    const auto apart = [&](const Candidate& candidate) {
      return std::popcount(difference(candidate.parameters, parameters));
    };
    return std::ranges::min_element(grid_, {}, apart)->parameters;
  }

  // Candidates in the grid that differ from `best` only in `axes`: all of them or, if time is
  // short, some that are evenly spread.
  std::vector<Trial> variants(const Trial& best, unsigned axes) const {
    std::vector<Trial> all;
    const MatMulParameters& from = nearest(best.parameters);
    for (std::size_t i = 0; i < grid_.size(); ++i) {
      const unsigned differs = difference(grid_[i].parameters, from);
      if (differs != 0 && (differs & ~axes) == 0) all.push_back({grid_[i].parameters, i});
    }
    const auto most = static_cast<std::size_t>(std::clamp(affordable_variants(), 4.0, 256.0));
    if (all.size() <= most) return all;
    std::vector<Trial> some;
    for (std::size_t i = 0; i < most; ++i) some.push_back(std::move(all[i * all.size() / most]));
    return some;
  }

  double affordable_variants() const { return kSweepShare * options_.budget_seconds / typical_; }

  // Measures the variants of `best` once or twice each, then the better ones repeatedly, in turn
  // with `best` itself. Returns whether one of them replaced it.
  Result<bool> sweep(Trial& best, unsigned axes) {
    std::vector<Trial> others = variants(best, axes);
    best.samples.clear();  // All are measured under the present conditions.
    std::size_t measured = 0;
    // Measures twice if there is time, because another program may have been busy during one of
    // them.
    const int looks = static_cast<double>(others.size()) < affordable_variants() / 2 ? 2 : 1;
    for (Trial& other : others) {
      if (!time_left(kRefineShare)) break;
      if (measured % 8 == 0) VOLTA_TRY(sample(best));
      for (int look = 0; look < looks; ++look) VOLTA_TRY(sample(other));
      ++measured;
    }
    others.resize(measured);
    // A lucky sample must not win alone, and a single bad sample must not lose.
    struct Round {
      std::size_t trials;
      int repeats;
    };
    for (const Round round : {Round{8, 2}, Round{4, 4}, Round{2, 8}}) {
      std::ranges::stable_sort(others, {}, &Trial::figure);
      others.resize(std::min(others.size(), round.trials));
      std::erase_if(others, [&](const Trial& r) { return r.figure() > kHopeless * best.figure(); });
      if (others.empty()) return false;
      for (int repeat = 0; repeat < round.repeats && time_left(kRefineShare); ++repeat) {
        VOLTA_TRY(sample(best));
        for (Trial& other : others) VOLTA_TRY(sample(other));
      }
    }
    std::ranges::stable_sort(others, {}, &Trial::figure);
    // A smaller gain is as likely luck, and the search would never end.
    if (others.front().figure() >= kStep * best.figure()) return false;
    best = std::move(others.front());
    return true;
  }

  // Measures the default and the finalists in turn, with fresh samples, so that a candidate that
  // won by luck loses here. The slower finalists drop out during the duel. If the machine is too
  // busy to decide, the duel takes longer.
  Result<SearchResult> duel() {
    const MatMulParameters fallback = default_.parameters;
    std::erase_if(finalists_, [&](const Trial& r) { return r.parameters == fallback; });
    finalists_.resize(std::min(finalists_.size(), kDuellists));
    default_.samples.clear();
    for (Trial& trial : finalists_) trial.samples.clear();
    best_ = nullptr;
    for (int run = 0; run < kMostExtensions * options_.runs; ++run) {
      if (run >= 3 && !time_left(kDuelShare)) break;
      if (run >= options_.runs && (!time_left(1.0) || decided())) break;
      const std::size_t most = run >= options_.runs || !time_left(1.0) ? 1
                               : 3 * run >= options_.runs              ? 2
                                                                       : kDuellists;
      finalists_.resize(std::min(finalists_.size(), most));
      VOLTA_TRY(sample(default_));
      for (Trial& trial : finalists_) VOLTA_TRY(sample(trial));
      std::ranges::stable_sort(finalists_, {}, &Trial::figure);
    }
    return verdict();
  }

  // How many times faster the first finalist is than the default, and how far off that may be. Both
  // samples of a pair were measured under the same conditions, so this is the median of their
  // ratios.
  struct Gain {
    double value = 1;
    double noise = 0;
  };
  Gain gain() const {
    const Trial& winner = finalists_.front();
    std::vector<double> ratios;
    for (std::size_t i = 0; i < winner.samples.size(); ++i) {
      ratios.push_back(default_.samples[i] / winner.samples[i]);
    }
    const double spread = quantile(ratios, 0.75) - quantile(ratios, 0.25);
    return {quantile(ratios, 0.5), 2 * spread / std::sqrt(static_cast<double>(ratios.size()))};
  }
  bool decided() const {
    if (finalists_.empty()) return true;
    if (finalists_.front().samples.size() < kFewestPairs) return false;
    const Gain now = gain();
    return now.noise < std::max(kSmallestGain, 0.25 * (now.value - 1));
  }

  SearchResult verdict() const {
    SearchResult result;
    result.chosen = default_.parameters;
    result.before = result.after = timing_of(default_.samples);
    result.default_kept = true;
    result.candidates = static_cast<std::int64_t>(grid_.size());
    result.tried = std::ranges::count(measured_, true);
    result.measurements = measurements_;
    result.seconds = elapsed();
    if (finalists_.empty() || finalists_.front().samples.size() < kFewestPairs) return result;
    const Gain won = gain();
    if (won.value - 1 < std::max(kSmallestGain, won.noise)) return result;
    result.chosen = finalists_.front().parameters;
    result.after = timing_of(finalists_.front().samples);
    result.gain = won.value;
    result.default_kept = false;
    return result;
  }

  std::span<const Candidate> grid_;
  Trial default_;
  std::vector<bool> measured_;  ///< Which of the grid are measured.
  MeasureFunction measure_;
  const SearchOptions& options_;
  SearchProgressFunction progress_;
  double started_;
  double typical_ = 0;  ///< Seconds that one measurement takes.
  std::vector<Trial> finalists_;
  const Trial* best_ = nullptr;
  std::int64_t measurements_ = 0;
};

}  // namespace

Timing timing_of(std::span<const double> seconds) {
  const std::vector<double> all(seconds.begin(), seconds.end());
  const double low = quantile(all, 0.25);
  return {low, low > 0 ? (quantile(all, 0.75) - low) / low : 0};
}

Result<SearchResult> search(std::span<const Candidate> grid,
                            const MatMulParameters& default_parameters, MeasureFunction measure,
                            const SearchOptions& options, SearchProgressFunction progress) {
  if (grid.empty()) return fail(ErrorCode::kInvalidArgument, "nothing to choose from");
  if (options.runs < 1 || options.entrants < 1 || !(options.budget_seconds > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                "a search needs runs, candidates and seconds of more than zero");
  }
  return Search(grid, default_parameters, measure, options, progress).run();
}

}  // namespace volta::tuner
