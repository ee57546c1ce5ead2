// Schedule: spreads the steps of a plan over streams, and finds what each step must wait for. Knows
// which memory a step reads and writes, by number; nothing of graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace volta {

/// Steps are numbered in the order in which they are added, which is an order in which they could
/// run one by one. Two steps that touch the same memory, at least one of them writing it, keep that
/// order; all others may run at the same time or in any order if they are in different streams.
class Schedule {
 public:
  /// For `streams` streams (at least 1) and memory numbered [0, places).
  Schedule(std::int32_t streams, std::size_t places);

  /// Adds the next step and chooses its stream: the one whose newest step it continues, or else the
  /// one that has been left alone longest.
  void add(std::span<const std::size_t> reads, std::span<const std::size_t> writes);

  std::int32_t stream(std::size_t step) const { return streams_of_[step]; }
  /// The steps of other streams that a step waits for: those that nothing else puts before it.
  const std::vector<std::size_t>& waits(std::size_t step) const { return waits_[step]; }
  /// Whether step `a` has always ended when step `b` begins.
  bool before(std::size_t a, std::size_t b) const;

 private:
  /// What was done to a place, as far as later steps must know.
  struct Place {
    std::int64_t writer = kNone;
    std::vector<std::size_t> readers;  ///< Since the writer.
  };
  static constexpr std::int64_t kNone = -1;

  void find_dependencies(std::span<const std::size_t> reads, std::span<const std::size_t> writes);
  std::int32_t choose_stream() const;
  std::int64_t& ended(std::size_t step, std::size_t stream);

  std::size_t streams_;
  std::vector<Place> places_;
  std::vector<std::int64_t> newest_;      ///< By stream: its newest step.
  std::vector<std::int32_t> streams_of_;  ///< By step.
  std::vector<std::vector<std::size_t>> waits_;
  /// [steps, streams]: the latest step of each stream that has ended when a step begins. All
  /// earlier ones of that stream have, too.
  std::vector<std::int64_t> ended_;
  std::vector<std::size_t> dependencies_;  ///< Of the step that is being added, the latest first.
};

}  // namespace volta
