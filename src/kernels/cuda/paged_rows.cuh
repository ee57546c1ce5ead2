// The new rows of a step and the pages of their sequences, as KvAppend and CachedAttention see
// them. Positions, sequences and pages are values made on the device, so they are checked here: a
// bad one is reported and never used as an index.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention.cuh"

namespace volta::cuda::attention {

/// The inputs of both ops that follow the caches.
struct PagedRows {
  const std::int32_t* positions;
  const std::int32_t* sequences;
  const std::int32_t* rows;   ///< How many rows count: one number.
  const std::int32_t* table;  ///< [tables, blocks]
  std::int64_t all;           ///< The number of rows.
  std::int64_t tables, blocks, pages;

  /// `views` are cache_k, cache_v, positions, sequences, rows and table.
  explicit PagedRows(std::span<const View> views)
      : positions(views[2].as<const std::int32_t>()),
        sequences(views[3].as<const std::int32_t>()),
        rows(views[4].as<const std::int32_t>()),
        table(views[5].as<const std::int32_t>()),
        all(views[2].shape[0]),
        tables(views[5].shape[0]),
        blocks(views[5].shape[1]),
        pages(views[0].shape[0]) {}

  /// How many rows count: they are the first ones.
  __device__ std::int64_t count() const {
    return min(max(std::int64_t{*rows}, std::int64_t{0}), all);
  }
  /// Reports a number of rows that is out of range. One thread of a launch does it.
  __device__ void check_count(const Fault& fault) const {
    if (*rows < 0 || *rows > all) fault.report(0);
  }
  /// Whether a row's sequence has a table, and its position is in the table.
  __device__ bool placed(std::int64_t row) const {
    return sequences[row] >= 0 && sequences[row] < tables && positions[row] >= 0 &&
           positions[row] < blocks * kKeyBlock;
  }
  /// The page of block `block` of a placed row's sequence, or -1.
  __device__ std::int64_t page(std::int64_t row, std::int64_t block) const {
    const std::int64_t at = table[sequences[row] * blocks + block];
    return at >= 0 && at < pages ? at : -1;
  }
};

}  // namespace volta::cuda::attention
