#include "graph/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace volta {

Schedule::Schedule(std::int32_t streams, std::size_t places)
    : streams_(static_cast<std::size_t>(std::max(streams, 1))),
      accesses_(places),
      newest_(streams_, kNone) {}

std::int64_t& Schedule::ended(std::size_t step, std::size_t stream) {
  return ended_[step * streams_ + stream];
}

bool Schedule::before(std::size_t a, std::size_t b) const {
  const auto stream = static_cast<std::size_t>(streams_of_[a]);
  return ended_[b * streams_ + stream] >= static_cast<std::int64_t>(a);
}

void Schedule::find_dependencies(std::span<const std::size_t> reads,
                                 std::span<const std::size_t> writes) {
  dependencies_.clear();
  const auto add_writer = [&](const Accesses& accesses) {
    if (accesses.writer != kNone)
      dependencies_.push_back(static_cast<std::size_t>(accesses.writer));
  };
  for (const std::size_t read : reads) add_writer(accesses_[read]);
  for (const std::size_t write : writes) {
    const Accesses& accesses = accesses_[write];
    add_writer(accesses);
    dependencies_.insert(dependencies_.end(), accesses.readers.begin(), accesses.readers.end());
  }
  std::ranges::sort(dependencies_, std::greater<>());
  const auto repeated = std::ranges::unique(dependencies_);
  dependencies_.erase(repeated.begin(), repeated.end());
}

std::int32_t Schedule::choose_stream() const {
  for (const std::size_t dependency : dependencies_) {
    const std::int32_t stream = streams_of_[dependency];
    const std::int64_t newest = newest_[static_cast<std::size_t>(stream)];
    if (newest == static_cast<std::int64_t>(dependency)) return stream;
  }
  return static_cast<std::int32_t>(std::ranges::min_element(newest_) - newest_.begin());
}

void Schedule::add(std::span<const std::size_t> reads, std::span<const std::size_t> writes) {
  find_dependencies(reads, writes);
  const std::size_t step = streams_of_.size();
  const std::int32_t chosen = choose_stream();
  const auto stream = static_cast<std::size_t>(chosen);
  streams_of_.push_back(chosen);
  waits_.emplace_back();
  ended_.resize(ended_.size() + streams_, kNone);

  const auto put_after = [&](std::size_t earlier) {
    for (std::size_t i = 0; i < streams_; ++i) {
      ended(step, i) = std::max(ended(step, i), ended(earlier, i));
    }
    std::int64_t& own = ended(step, static_cast<std::size_t>(streams_of_[earlier]));
    own = std::max(own, static_cast<std::int64_t>(earlier));
  };
  if (newest_[stream] != kNone) put_after(static_cast<std::size_t>(newest_[stream]));
  for (const std::size_t dependency : dependencies_) {
    if (before(dependency, step)) continue;
    waits_[step].push_back(dependency);
    put_after(dependency);
  }
  newest_[stream] = static_cast<std::int64_t>(step);
  for (const std::size_t read : reads) accesses_[read].readers.push_back(step);
  for (const std::size_t write : writes) {
    accesses_[write] = {.writer = static_cast<std::int64_t>(step), .readers = {}};
  }
}

}  // namespace volta
