// PagePool: which pages of a cache are free, and which ones each sequence has. Numbers only: what a
// page holds and where it lies, nobody here knows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// What a sequence has of a pool: a page for each block [first, end) of its positions.
struct PageRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t pages() const { return end - first; }
  bool operator==(const PageRange&) const = default;
};

/// Pages [0, pages) and the tables of `sequences` sequences of up to `blocks` blocks each. A page
/// is free or in one place of one table. Only create() allocates.
class PagePool {
 public:
  /// In a table: a block that has no page.
  static constexpr std::int32_t kNone = -1;

  PagePool() = default;
  /// kInvalidArgument unless all are at least 1 and a page's number fits an i32.
  static Result<PagePool> create(std::int64_t pages, std::int64_t sequences, std::int64_t blocks);

  std::int64_t pages() const { return pages_; }
  std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(ranges_.size()); }
  std::int64_t blocks() const { return blocks_; }
  /// A sequence's pages, block by block; kNone outside held().
  std::span<const std::int32_t> table(std::int64_t sequence) const;
  PageRange held(std::int64_t sequence) const {
    return ranges_[static_cast<std::size_t>(sequence)];
  }

  /// Gives a sequence pages up to block `end` (at most blocks()); a sequence without any begins at
  /// block `first`. False, and nothing changes, when too few are free.
  bool extend(std::int64_t sequence, std::int64_t first, std::int64_t end);
  /// Takes back the pages of blocks before `first`, from the front.
  void drop_before(std::int64_t sequence, std::int64_t first);
  /// Takes back all pages of a sequence.
  void clear(std::int64_t sequence);
  /// Takes back the pages of blocks from `end` on.
  void drop_from(std::int64_t sequence, std::int64_t end);

 private:
  std::span<std::int32_t> row(std::int64_t sequence);
  void take_back(std::int32_t& entry);

  std::int64_t pages_ = 0;
  std::int64_t blocks_ = 0;
  std::vector<std::int32_t> free_;   ///< The next one to give last.
  std::vector<std::int32_t> table_;  ///< [sequences, blocks]
  std::vector<PageRange> ranges_;
};

}  // namespace volta
