// Times the contenders of one problem in turn, and says how Volta compares.
#pragma once

#include <string>
#include <vector>

#include "problem.h"

namespace peers {

/// What one contender did: 1e9 operations a second, one value a round.
struct Timing {
  std::string name;
  bool prepared = false;
  std::vector<double> gops;
  std::int64_t weight_bytes = 0;
  bool right = true;

  double rate() const { return median(gops); }
};

/// Round by round, each contender for about 10 ms.
std::vector<Timing> measure(const Problem& problem, const std::vector<Contender>& contenders,
                            int rounds);

/// One of Volta's ways against the best of the others (by median), round by round.
struct Ratio {
  double value = 0;  ///< Of the medians; 0: nobody to compare with.
  double low = 0;    ///< Of the rounds' ratios, the 10th and the 90th percentile.
  double high = 0;
  std::string peer;
};

/// The problem's timings; the first `own` of them are Volta's.
struct Comparison {
  Case sizes;
  std::vector<Timing> timings;
  std::size_t own = 0;

  const Timing& best() const { return timings.front(); }
  /// Volta's first way against all of the others.
  Ratio packed() const;
  /// Volta's way with plain weights, if any, against the others' with plain weights.
  Ratio plain() const;
  /// Bytes of weights that Volta's first way reads, in GB/s.
  double weight_gbs() const;

 private:
  Ratio against(const Timing& ours, bool plain_only) const;
};

/// Ratios of a group, put together.
class Mean {
 public:
  void add(const Ratio& ratio, const Case& at);
  bool empty() const { return count_ == 0; }
  int count() const { return count_; }
  double geometric() const;
  double worst() const { return worst_; }
  const Case& worst_at() const { return worst_at_; }

 private:
  double logs_ = 0;
  int count_ = 0;
  double worst_ = 0;
  Case worst_at_;
};

}  // namespace peers
