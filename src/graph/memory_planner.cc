#include "graph/memory_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "graph/plan.h"

namespace volta {
namespace {

std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, kArenaAlignment); }

bool overlap_in_time(const MemoryBlock& a, const MemoryBlock& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// The start of the smallest gap between the neighbours (sorted by offset) that holds `bytes`, or
/// the end of the last neighbour if there is no such gap.
std::int64_t best_offset(std::span<const MemoryBlock* const> neighbours, std::int64_t bytes) {
  std::int64_t end = 0;  // The largest end of the neighbours so far.
  std::int64_t best = -1;
  std::int64_t best_gap = std::numeric_limits<std::int64_t>::max();
  for (const MemoryBlock* neighbour : neighbours) {
    const std::int64_t gap = neighbour->offset - end;
    if (gap >= bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, neighbour->offset + aligned(neighbour->bytes));
  }
  return best >= 0 ? best : end;
}

}  // namespace

Status add_aligned(std::int64_t& total, std::int64_t bytes) {
  if (bytes < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a block of {} bytes cannot be placed", bytes));
  }
  if (bytes > std::numeric_limits<std::int64_t>::max() - kArenaAlignment - total) {
    return fail(ErrorCode::kInvalidArgument,
                "the intermediate values together exceed 2^63 bytes: use smaller shapes");
  }
  total += aligned(bytes);
  return {};
}

Result<std::int64_t> place_blocks(std::span<MemoryBlock> blocks) {
  return place_blocks(blocks, [&](std::size_t block, std::size_t other) {
    return overlap_in_time(blocks[block], blocks[other]);
  });
}

Result<std::int64_t> place_blocks(
    std::span<MemoryBlock> blocks,
    FunctionRef<bool(std::size_t block, std::size_t other)> together) {
  // The end of a block never exceeds the sum of all sizes, because each block starts at 0 or at the
  // end of another one. So if this sum does not overflow, nothing below does.
  std::int64_t total = 0;
  for (const MemoryBlock& block : blocks) VOLTA_TRY(add_aligned(total, block.bytes));

  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (blocks[a].result != blocks[b].result) return blocks[a].result;
    return blocks[a].bytes != blocks[b].bytes ? blocks[a].bytes > blocks[b].bytes : a < b;
  });

  std::int64_t arena_bytes = 0;
  std::int64_t results_end = 0;
  std::vector<std::size_t> placed;  // Sorted by offset.
  std::vector<const MemoryBlock*> neighbours;
  for (const std::size_t i : order) {
    MemoryBlock& block = blocks[i];
    block.offset = 0;
    if (block.bytes == 0) continue;  // Any offset is valid.
    if (block.result) {
      block.offset = std::exchange(results_end, results_end + aligned(block.bytes));
      placed.push_back(i);  // Results are placed first, so the list stays sorted.
      arena_bytes = results_end;
      continue;
    }
    neighbours.clear();
    for (const std::size_t other : placed) {
      if (together(i, other)) neighbours.push_back(&blocks[other]);
    }
    block.offset = best_offset(neighbours, aligned(block.bytes));
    const auto offset = [&](std::size_t other) { return blocks[other].offset; };
    placed.insert(std::ranges::upper_bound(placed, block.offset, {}, offset), i);
    arena_bytes = std::max(arena_bytes, block.offset + aligned(block.bytes));
  }
  return arena_bytes;
}

}  // namespace volta
