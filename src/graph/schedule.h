// Schedule: distributes the steps of a plan over streams, and finds the steps that each step must
// wait for. It knows which memory a step reads and writes, by number, and nothing of graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace volta {

/// Steps are numbered in the order in which they are added; they could run one by one in this
/// order. Two steps that use the same memory, of which at least one writes it, keep this order. All
/// other pairs of steps in different streams may run at the same time or in any order.
class Schedule {
 public:
  /// For `streams` streams (at least 1) and places in memory with the numbers [0, places).
  Schedule(std::int32_t streams, std::size_t places);

  /// Adds the next step and chooses its stream. This is a stream whose newest step it depends on,
  /// or else the stream whose newest step is the oldest.
  void add(std::span<const std::size_t> reads, std::span<const std::size_t> writes);

  std::int32_t stream(std::size_t step) const { return streams_of_[step]; }
  /// The steps of other streams that a step must wait for, without those that have ended anyway
  /// because of its other dependencies.
  const std::vector<std::size_t>& waits(std::size_t step) const { return waits_[step]; }
  /// Whether step `a` has always ended when step `b` begins.
  bool before(std::size_t a, std::size_t b) const;

 private:
  /// The latest accesses to a place in memory, on which later steps can depend.
  struct Accesses {
    std::int64_t writer = kNone;
    std::vector<std::size_t> readers;  ///< The steps that have read it since.
  };
  static constexpr std::int64_t kNone = -1;

  void find_dependencies(std::span<const std::size_t> reads, std::span<const std::size_t> writes);
  std::int32_t choose_stream() const;
  std::int64_t& ended(std::size_t step, std::size_t stream);

  std::size_t streams_;
  std::vector<Accesses> accesses_;
  std::vector<std::int64_t> newest_;      ///< The newest step of each stream.
  std::vector<std::int32_t> streams_of_;  ///< By step.
  std::vector<std::vector<std::size_t>> waits_;
  /// [steps, streams]: the latest step of each stream that has always ended when a step begins. All
  /// earlier steps of that stream have ended, too.
  std::vector<std::int64_t> ended_;
  std::vector<std::size_t> dependencies_;  ///< Of the step being added, the latest first.
};

}  // namespace volta
