#include "comparison.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace peers {
namespace {

/// Long enough for the kernel to put a pool's threads on CPUs of their own after the pause: in
/// turns of 10 ms two threads often run on one.
constexpr double kTurnSeconds = 0.05;
/// OpenMP's threads spin for a while after their work (libgomp's 300,000 times, about 15 ms), on
/// the cores of whoever comes next.
constexpr unsigned kPauseMicroseconds = 30'000;

// One contender's turns.
class Player {
 public:
  Player(const Contender& contender, std::int64_t copies)
      : contender_(&contender), copies_(copies) {}

  /// Warms up, checks the result, and finds how many products fill a turn.
  bool prepare() {
    run(1);
    const double once = run(1);
    const bool right = contender_->right();
    calls_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(kTurnSeconds / once), 1, 1 << 20);
    run(calls_);
    return right;
  }
  /// Seconds a product.
  double turn() {
    usleep(kPauseMicroseconds);
    run(1);
    return run(calls_) / static_cast<double>(calls_);
  }

 private:
  double run(std::int64_t calls) {
    const double begin = seconds();
    for (std::int64_t call = 0; call < calls; ++call) contender_->run(next_++ % copies_);
    return std::max(seconds() - begin, 1e-9);
  }

  const Contender* contender_;
  std::int64_t copies_;
  std::int64_t calls_ = 1;
  std::int64_t next_ = 0;
};

}  // namespace

std::vector<Timing> measure(const Problem& problem, const std::vector<Contender>& contenders,
                            int rounds) {
  std::vector<Player> players;
  std::vector<Timing> timings;
  for (const Contender& contender : contenders) {
    Player& player = players.emplace_back(contender, problem.copies());
    timings.push_back(
        {contender.name, contender.prepared, {}, contender.weight_bytes, player.prepare()});
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < players.size(); ++i) {
      timings[i].gops.push_back(problem.sizes().ops() / players[i].turn() * 1e-9);
    }
  }
  return timings;
}

Ratio Comparison::against(const Timing& ours, bool plain_only) const {
  const Timing* best = nullptr;
  for (std::size_t i = own; i < timings.size(); ++i) {
    if (plain_only && timings[i].prepared) continue;
    if (best == nullptr || timings[i].rate() > best->rate()) best = &timings[i];
  }
  if (best == nullptr) return {};
  std::vector<double> ratios;
  for (std::size_t round = 0; round < ours.gops.size(); ++round) {
    ratios.push_back(ours.gops[round] / best->gops[round]);
  }
  return {ours.rate() / best->rate(), quantile(ratios, 0.1), quantile(ratios, 0.9), best->name};
}

Ratio Comparison::packed() const { return against(best(), false); }

Ratio Comparison::plain() const {
  for (std::size_t i = 0; i < own; ++i) {
    if (!timings[i].prepared) return against(timings[i], true);
  }
  return {};
}

double Comparison::weight_gbs() const {
  return static_cast<double>(best().weight_bytes) * best().rate() / sizes.ops();
}

void Mean::add(const Ratio& ratio, const Case& at) {
  if (ratio.value <= 0) return;
  if (count_ == 0 || ratio.value < worst_) {
    worst_ = ratio.value;
    worst_at_ = at;
  }
  logs_ += std::log(ratio.value);
  ++count_;
}

double Mean::geometric() const { return count_ == 0 ? 0 : std::exp(logs_ / count_); }

}  // namespace peers
