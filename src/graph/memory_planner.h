// Where blocks of memory lie in one arena. Knows sizes and live ranges, nothing of graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"

namespace volta {

/// Memory that is needed from step `first` to step `last`, both included.
struct MemoryBlock {
  std::int64_t bytes = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t offset = 0;  ///< Set by place_blocks; a multiple of kArenaAlignment.
  bool result = false;      ///< It holds an output: all of those lie together.
};

/// Places every block so that no two that are needed at the same step overlap: results one behind
/// the other from the start, so that one copy brings them all, then the others, the largest first,
/// each into the smallest gap that holds it (best fit). The same blocks give the same places.
/// Returns the bytes of the arena, never more than the blocks take one after the other.
/// kInvalidArgument for a negative size or when the sizes overflow.
Result<std::int64_t> place_blocks(std::span<MemoryBlock> blocks);

/// The same, where `together` says whether two blocks, by their indices, may be needed at the same
/// time; `first` and `last` are not looked at.
Result<std::int64_t> place_blocks(std::span<MemoryBlock> blocks,
                                  FunctionRef<bool(std::size_t block, std::size_t other)> together);

/// Adds what a block of `bytes` takes of an arena (its size, rounded up to the alignment) to
/// `total`. Fails as place_blocks does.
Status add_aligned(std::int64_t& total, std::int64_t bytes);

}  // namespace volta
