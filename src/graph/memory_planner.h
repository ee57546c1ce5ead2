// Places blocks of memory in one arena. Knows sizes and live ranges, nothing of graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"

namespace volta {

/// Memory that is needed from step `first` to step `last`, inclusive.
struct MemoryBlock {
  std::int64_t bytes = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t offset = 0;  ///< Set by place_blocks; a multiple of kArenaAlignment.
  bool result = false;      ///< It holds an output; all outputs are placed together.
};

/// Places the blocks so that no two blocks that are needed at the same step overlap. Results come
/// first, one behind the other, so that one copy can read them all. The other blocks follow, the
/// largest first, each in the smallest gap that holds it (best fit). The same blocks always get the
/// same places. Returns the size of the arena in bytes, which is at most the sum of the aligned
/// sizes. kInvalidArgument for a negative size or when the sizes overflow.
Result<std::int64_t> place_blocks(std::span<MemoryBlock> blocks);

/// The same, but `together` decides whether two blocks, given by their indices, may be needed at
/// the same time. `first` and `last` are ignored.
Result<std::int64_t> place_blocks(std::span<MemoryBlock> blocks,
                                  FunctionRef<bool(std::size_t block, std::size_t other)> together);

/// Adds the size of a block of `bytes`, rounded up to kArenaAlignment, to `total`. The errors are
/// those of place_blocks.
Status add_aligned(std::int64_t& total, std::int64_t bytes);

}  // namespace volta
