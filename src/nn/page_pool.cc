#include "nn/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"

namespace volta {

Result<PagePool> PagePool::create(std::int64_t pages, std::int64_t sequences, std::int64_t blocks) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (pages < 1 || sequences < 1 || blocks < 1 || pages > kMost || sequences > kMost / blocks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a pool of {} pages for {} sequences of {} blocks; each must be at "
                            "least 1, and pages and all blocks together at most {}",
                            pages, sequences, blocks, kMost));
  }
  PagePool pool;
  pool.pages_ = pages;
  pool.blocks_ = blocks;
  pool.free_.resize(static_cast<std::size_t>(pages));
  auto next = static_cast<std::int32_t>(pages);
  for (std::int32_t& page : pool.free_) page = --next;
  pool.table_.assign(static_cast<std::size_t>(sequences * blocks), kNone);
  pool.ranges_.resize(static_cast<std::size_t>(sequences));
  return pool;
}

std::span<const std::int32_t> PagePool::table(std::int64_t sequence) const {
  return std::span(table_).subspan(static_cast<std::size_t>(sequence * blocks_),
                                   static_cast<std::size_t>(blocks_));
}

std::span<std::int32_t> PagePool::row(std::int64_t sequence) {
  return std::span(table_).subspan(static_cast<std::size_t>(sequence * blocks_),
                                   static_cast<std::size_t>(blocks_));
}

void PagePool::take_back(std::int32_t& entry) {
  free_.push_back(entry);  // Within its capacity, because it has had all pages before.
  entry = kNone;
}

bool PagePool::extend(std::int64_t sequence, std::int64_t first, std::int64_t end) {
  PageRange range = held(sequence);
  if (range.pages() == 0) range = {first, first};
  if (end <= range.end) return true;
  if (end > blocks_ || end - range.end > free()) return false;
  const std::span<std::int32_t> entries = row(sequence);
  for (; range.end < end; ++range.end) {
    entries[static_cast<std::size_t>(range.end)] = free_.back();
    free_.pop_back();
  }
  ranges_[static_cast<std::size_t>(sequence)] = range;
  return true;
}

void PagePool::drop_before(std::int64_t sequence, std::int64_t first) {
  PageRange& range = ranges_[static_cast<std::size_t>(sequence)];
  const std::span<std::int32_t> entries = row(sequence);
  const std::int64_t end = std::min(first, range.end);
  for (; range.first < end; ++range.first) {
    take_back(entries[static_cast<std::size_t>(range.first)]);
  }
}

void PagePool::clear(std::int64_t sequence) {
  drop_before(sequence, blocks_);
  ranges_[static_cast<std::size_t>(sequence)] = {};
}

void PagePool::drop_from(std::int64_t sequence, std::int64_t end) {
  PageRange& range = ranges_[static_cast<std::size_t>(sequence)];
  const std::span<std::int32_t> entries = row(sequence);
  const std::int64_t last = std::max(end, range.first);
  while (range.end > last) take_back(entries[static_cast<std::size_t>(--range.end)]);
}

}  // namespace volta
