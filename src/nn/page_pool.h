// PagePool: which pages of a cache are free, and which ones each sequence has. It knows only the
// numbers of pages, not what they hold or where they are in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// The pages that a sequence has in a pool: one for each block [first, end) of its positions.
struct PageRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t pages() const { return end - first; }
  bool operator==(const PageRange&) const = default;
};

/// Pages [0, pages), and a table for each of `sequences` sequences of up to `blocks` blocks. A page
/// is either free or in one place of one table. Only create() allocates.
class PagePool {
 public:
  /// The entry of a table for a block without a page.
  static constexpr std::int32_t kNone = -1;

  PagePool() = default;
  /// kInvalidArgument unless all are at least 1, and the number of pages and that of all blocks
  /// together fit an i32.
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

  /// Gives a sequence pages up to block `end` (at most blocks()). A sequence without pages begins
  /// at block `first`. Returns false and changes nothing if too few pages are free.
  bool extend(std::int64_t sequence, std::int64_t first, std::int64_t end);
  /// Frees the pages of a sequence's blocks before `first`.
  void drop_before(std::int64_t sequence, std::int64_t first);
  /// Frees all pages of a sequence.
  void clear(std::int64_t sequence);
  /// Frees the pages of a sequence's blocks from `end` on.
  void drop_from(std::int64_t sequence, std::int64_t end);

 private:
  std::span<std::int32_t> row(std::int64_t sequence);
  void take_back(std::int32_t& entry);

  std::int64_t pages_ = 0;
  std::int64_t blocks_ = 0;
  std::vector<std::int32_t> free_;   ///< The page to give out next is the last one.
  std::vector<std::int32_t> table_;  ///< [sequences, blocks]
  std::vector<PageRange> ranges_;
};

}  // namespace volta
