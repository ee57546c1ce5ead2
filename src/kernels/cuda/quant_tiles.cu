// The product of many rows with a quantised b, as in reading a prompt. It is limited by the tensor
// cores and by the scaling of their sums. A thread block computes a tile of c. It goes along K in
// chunks of whole blocks of a: while one chunk is multiplied, the next one of a and of b's stored
// blocks is copied to shared memory. Then the blocks are unpacked into bytes, once for all rows of
// the tile. A warp computes 32 x 32 elements of c; quant_product.cuh says in which order.
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

constexpr int kColumns = 64, kWarpsN = 2;
constexpr int kWarpRows = 32, kWarpColumns = 32;
/// Fragments of 16 x 8 that a warp's elements consist of, down and across.
constexpr int kDown = kWarpRows / 16, kAcross = kWarpColumns / 8;
/// Tiles of rows that are computed at about the same time, so that they share b in the L2 cache.
constexpr unsigned kTogether = 16;

/// A kernel: tiles of 32 kWarpsM rows, and chunks of at most kChunk steps of K.
template <Quant kQuant, int kWarpsM, int kChunk>
struct Kernel {
  using Format = BlockFormat<kQuant>;
  static constexpr int kRows = kWarpsM * kWarpRows;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarp;
  static constexpr int kGroups = kChunk / kGroup;
  /// Rows of factors of b per chunk: of its blocks, or of their sub-blocks.
  static constexpr int kFactors = Format::kSubs == 2 ? 2 * kGroups : kGroups;
  /// Bytes from row to row of integers. Eight rows lie in different banks of the shared memory.
  static constexpr int kStride = kChunk + 32;
  /// Bytes for the stored blocks of a column. The longest are blocks of 32 in q8.
  static constexpr int kRaw = (copied_pieces(kGroups * (kGroup + 2)) | 1) * kCopied;

  /// Two buffers each are for this chunk and for the next one.
  struct Memory {
    alignas(16) std::int8_t a[2][kRows][kStride];
    alignas(16) std::int8_t b[kColumns][kStride];
    alignas(16) std::uint8_t raw[kColumns][kRaw];
    float a_scale[2][kGroups][kRows];
    std::uint32_t rests[2][kGroups][kRows];
    float less[2][Format::kMinimums ? kGroups : 1][kRows];
    float scale[kFactors][kColumns];  ///< Of blocks, or the integer scales of sub-blocks.
    float minimum[Format::kMinimums ? kGroups : 1][kColumns];
    float factor[2][kColumns];  ///< The f16 scale and minimum of blocks with sub-blocks.
  };
};

/// The tile of a thread block, and the place of a thread in it.
struct Place {
  std::int64_t row, column;   ///< Of c, where the tile begins.
  int warp_row, warp_column;  ///< Of the tile, where the warp's elements begin.
  int lane, g, t;             ///< g = lane / 4, t = lane % 4, as in quant_mma.cuh.
};

/// Some blocks of a that are multiplied together.
struct Chunk {
  std::int64_t first;  ///< The first block of a.
  int blocks;          ///< Blocks of a.
};
__device__ Chunk chunk_at(const QuantProduct& p, int most, std::int64_t index) {
  const std::int64_t first = index * most;
  return {first, static_cast<int>(min(p.a.blocks - first, std::int64_t{most}))};
}

// Rows and columns behind the last are copies of the last one. Their results are not stored.
__device__ std::int64_t row_of(const QuantProduct& p, const Place& place, int row) {
  return min(place.row + row, p.a.m - 1);
}
__device__ std::int64_t column_of(const QuantProduct& p, const Place& place, int column) {
  return min(place.column + column, p.n - 1);
}

/// Copies `bytes` bytes of b from `from` on: the pieces `first`, `first` + `step`, and so on.
// SAFETY: the first piece may begin up to 15 bytes in front of b. These lie in the same allocation,
// because allocations begin at multiples of 256, and their values are not used. Behind b nothing is
// read. `to` is a multiple of 16 with place for copied_pieces(bytes).
__device__ void copy_blocks(std::uint8_t* to, const QuantProduct& p, const std::uint8_t* from,
                            int bytes, int first, int step) {
  const int skipped = skipped_bytes(from);
  const std::uint8_t* pieces = from - skipped;
  const std::int64_t left = p.b + p.bytes - pieces;
  const std::uint32_t target = shared_address(to);
  for (int at = first * kCopied; at < skipped + bytes; at += step * kCopied) {
    const std::int64_t here = left - at;
    if (here >= kCopied) {
      copy_async_16(target + static_cast<std::uint32_t>(at), pieces + at);
    } else {
      copy_end(target + static_cast<std::uint32_t>(at), pieces + at, static_cast<int>(here));
    }
  }
}

/// Starts copying a chunk: the rows and their factors into buffer `to`, and b's stored blocks.
template <typename K>
__device__ void start_chunk(const QuantProduct& p, const Place& place, const Chunk& chunk,
                            typename K::Memory& memory, int to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int bytes = chunk.blocks * p.a.block;
  constexpr int kPieces = K::kGroups * kGroup / kCopied;
  for (int i = thread; i < K::kRows * kPieces; i += K::kThreads) {
    const int row = i / kPieces, at = i % kPieces * kCopied;
    if (at >= bytes) continue;
    const std::int8_t* from =
        p.a.q + row_of(p, place, row) * p.a.stride + chunk.first * p.a.block + at;
    copy_async_16_cached(shared_address(&memory.a[to][row][at]), from, kCopied);
  }
  for (int i = thread; i < chunk.blocks * K::kRows; i += K::kThreads) {
    const int block = i / K::kRows, row = i % K::kRows;
    const std::int64_t at = (chunk.first + block) * p.a.m + row_of(p, place, row);
    copy_async_4(shared_address(&memory.a_scale[to][block][row]), p.a.scale + at, 4);
    copy_async_4(shared_address(&memory.rests[to][block][row]), p.a.rests + at, 4);
  }
  if constexpr (K::Format::kMinimums) {
    for (int i = thread; i < K::kGroups * K::kRows; i += K::kThreads) {
      const int group = i / K::kRows, row = i % K::kRows;
      const std::int64_t at = (chunk.first * K::kGroups + group) * p.a.m + row_of(p, place, row);
      copy_async_4(shared_address(&memory.less[to][group][row]), p.a.less + at, 4);
    }
  }
  constexpr int kStep = 8;  // Threads that copy neighbouring pieces of a column.
  for (int column = thread / kStep; column < kColumns; column += K::kThreads / kStep) {
    copy_blocks(memory.raw[column], p,
                block_of(p, column_of(p, place, column), chunk.first * p.b_per_a),
                chunk.blocks * p.b_per_a * p.block_bytes, thread % kStep, kStep);
  }
}

/// Unpacks the blocks of a chunk.
template <typename K, Quant kQuant>
__device__ void unpack_chunk(const QuantProduct& p, const Place& place, const Chunk& chunk,
                             typename K::Memory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks = chunk.blocks * p.b_per_a, groups = p.block / kGroup;
  const auto stored = [&](int column) {
    const std::uint8_t* from = block_of(p, column_of(p, place, column), chunk.first * p.b_per_a);
    return memory.raw[column] + skipped_bytes(from);
  };
  const int t = thread % kGroupThreads;
  for (int column = thread / kGroupThreads; column < kColumns;
       column += K::kThreads / kGroupThreads) {
    const std::uint8_t* from = stored(column);
    std::int8_t* to = memory.b[column] + 8 * t;
    for (int block = 0; block < blocks; ++block, from += p.block_bytes) {
      for (int group = 0; group < groups; ++group, to += kGroup) {
        const GroupWords words = group_words<kQuant>(from, group, t);
        // SAFETY: rows of the memory begin at multiples of 8, and so do the words of each thread.
        *reinterpret_cast<int2*>(to) = make_int2(words.low, words.high);
      }
    }
  }
  using Format = typename K::Format;
  if constexpr (!Format::kSubScales) {
    for (int i = thread; i < blocks * kColumns; i += K::kThreads) {
      const int block = i / kColumns, column = i % kColumns;
      memory.scale[block][column] = block_scale<kQuant>(stored(column) + block * p.block_bytes);
    }
  } else {  // A chunk is one block.
    for (int i = thread; i < K::kFactors * kColumns; i += K::kThreads) {
      const int sub = i / kColumns, column = i % kColumns;
      if constexpr (Format::kMinimums) {
        const SubScale both = six_bit_scale(stored(column), sub);
        memory.scale[sub][column] = static_cast<float>(both.scale);
        memory.minimum[sub][column] = static_cast<float>(both.minimum);
      } else {
        memory.scale[sub][column] = static_cast<float>(byte_scale(stored(column), sub));
      }
    }
    for (int column = thread; column < kColumns; column += K::kThreads) {
      memory.factor[0][column] = block_scale<kQuant>(stored(column));
      if constexpr (Format::kMinimums) memory.factor[1][column] = block_minimum(stored(column));
    }
  }
}

/// A warp's elements as its threads hold them: [down][across] fragments of 16 x 8.
template <typename T>
using Elements = T[kDown][kAcross][4];

/// Calls body(i, j, e, row, column) for each element that a thread holds; rows and columns are
/// those of the tile.
template <typename Body>
__device__ inline void for_each_element(const Place& place, const Body& body) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        body(i, j, e, place.warp_row + i * 16 + e / 2 * 8 + place.g,
             place.warp_column + j * 8 + 2 * place.t + e % 2);
      }
    }
  }
}

__device__ GroupWords words_at(const std::int8_t* row, int group, int t) {
  const int2 words = *reinterpret_cast<const int2*>(row + group * kGroup + 8 * t);
  return {words.x, words.y};
}

/// The words of a warp's rows of a group of the chunk in buffer `buffer`.
template <typename K>
__device__ void load_rows(const typename K::Memory& memory, const Place& place, int buffer,
                          int group, RowWords (&rows)[kDown]) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int row = place.warp_row + i * 16 + place.g;
    rows[i] = {words_at(memory.a[buffer][row], group, place.t),
               words_at(memory.a[buffer][row + 8], group, place.t)};
  }
}

/// sum += the products of a group of the chunk, for rows of a, or of their rests.
template <typename K>
__device__ void multiply(const typename K::Memory& memory, const Place& place, int group,
                         const RowWords (&rows)[kDown], Elements<int>& sum) {
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    const GroupWords b = words_at(memory.b[place.warp_column + j * 8 + place.g], group, place.t);
#pragma unroll
    for (int i = 0; i < kDown; ++i) multiply_group(sum[i][j], rows[i], b);
  }
}
/// The same for the first or the second half of the group.
template <typename K>
__device__ void multiply_half(const typename K::Memory& memory, const Place& place, int group,
                              bool second, const RowWords (&rows)[kDown], Elements<int>& sum) {
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    const GroupWords b = words_at(memory.b[place.warp_column + j * 8 + place.g], group, place.t);
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const RowWords& a = rows[i];
      multiply_half_group(sum[i][j], second ? a.first.high : a.first.low,
                          second ? a.second.high : a.second.low, second ? b.high : b.low);
    }
  }
}

/// part += sum * row `factor` of b's scales, and sum = 0.
template <typename K>
__device__ void scale_sums(const typename K::Memory& memory, const Place& place, int factor,
                           Elements<int>& sum, Elements<float>& part) {
  for_each_element(place, [&](int i, int j, int e, int, int column) {
    part[i][j][e] =
        fmaf(static_cast<float>(sum[i][j][e]), memory.scale[factor][column], part[i][j][e]);
    sum[i][j][e] = 0;
  });
}

/// part += the products of groups [begin, end) of block `block` of the chunk, which begin with
/// block `first_block` of b. For formats with sub-blocks without the block's own factors.
template <typename K, typename LoadRows>
__device__ void add_groups(const QuantProduct& p, const typename K::Memory& memory,
                           const Place& place, int begin, int end, const LoadRows& load,
                           Elements<float>& part) {
  using Format = typename K::Format;
  Elements<int> sum = {};
  RowWords rows[kDown];
  const int groups = p.block / kGroup;
  for (int group = begin; group < end; ++group) {
    load(group, rows);
    if constexpr (Format::kSubs == 2) {
      multiply_half<K>(memory, place, group, false, rows, sum);
      scale_sums<K>(memory, place, 2 * group, sum, part);
      multiply_half<K>(memory, place, group, true, rows, sum);
      scale_sums<K>(memory, place, 2 * group + 1, sum, part);
    } else {
      multiply<K>(memory, place, group, rows, sum);
      if constexpr (Format::kSubs == 1) {
        scale_sums<K>(memory, place, group, sum, part);
      } else if (group + 1 == end || (group + 1) % groups == 0) {
        scale_sums<K>(memory, place, group / groups, sum, part);
      }
    }
  }
}

/// Multiplies the parts of a block with sub-blocks by its factors. less(group, i, e) is minus the
/// sum of a row of a in a group.
template <typename K, typename Less>
__device__ void apply_factors(const typename K::Memory& memory, const Place& place, int begin,
                              int end, const Less& less, Elements<float>& part) {
  if constexpr (K::Format::kSubScales) {
    for_each_element(place, [&](int i, int j, int e, int, int column) {
      part[i][j][e] = __fmul_rn(part[i][j][e], memory.factor[0][column]);
    });
  }
  if constexpr (K::Format::kMinimums) {
    Elements<float> least = {};
    for (int group = begin; group < end; ++group) {
      for_each_element(place, [&](int i, int j, int e, int row, int column) {
        least[i][j][e] = fmaf(memory.minimum[group][column], less(group, row), least[i][j][e]);
      });
    }
    for_each_element(place, [&](int i, int j, int e, int, int column) {
      part[i][j][e] = fmaf(least[i][j][e], memory.factor[1][column], part[i][j][e]);
    });
  }
}

/// total += the rests of group `group` of the chunk, which is group `bit` of its block, for rows
/// with that bit in `mask`; lane r has the mask of row r of the warp.
template <typename K>
__device__ void add_rest(const QuantProduct& p, const typename K::Memory& memory,
                         const Place& place, const Chunk& chunk, int group, int bit, unsigned mask,
                         Elements<float>& total) {
  const std::int64_t of_row = chunk.first * (p.a.block / kGroup) + group;
  bool has[kDown][2];
  std::int64_t row[kDown][2];
  RowWords words[kDown];
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    GroupWords both[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int of_warp = i * 16 + h * 8 + place.g;
      has[i][h] = (__shfl_sync(kAllLanes, mask, of_warp) >> bit & 1u) != 0;
      row[i][h] = row_of(p, place, place.warp_row + of_warp);
      both[h] = {0, 0};
      if (has[i][h]) {
        both[h] = words_at(p.a.rest_q + row[i][h] * p.a.stride + of_row * kGroup, 0, place.t);
      }
    }
    words[i] = {both[0], both[1]};
  }
  Elements<float> part = {};
  const auto load = [&](int, RowWords(&rows)[kDown]) {
#pragma unroll
    for (int i = 0; i < kDown; ++i) rows[i] = words[i];
  };
  add_groups<K>(p, memory, place, group, group + 1, load, part);
  const auto less = [&](int, int of_tile) {
    return p.a.rest_less[of_row * p.a.m + row_of(p, place, of_tile)];
  };
  apply_factors<K>(memory, place, group, group + 1, less, part);
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!has[i][h]) continue;
      const float scale = p.a.rest_scale[of_row * p.a.m + row[i][h]];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        total[i][j][2 * h] = fmaf(part[i][j][2 * h], scale, total[i][j][2 * h]);
        total[i][j][2 * h + 1] = fmaf(part[i][j][2 * h + 1], scale, total[i][j][2 * h + 1]);
      }
    }
  }
}

/// total += a chunk, whose rows are in buffer `buffer`.
template <typename K>
__device__ void multiply_chunk(const QuantProduct& p, const typename K::Memory& memory,
                               const Place& place, const Chunk& chunk, int buffer,
                               Elements<float>& total) {
  const int groups = p.a.block / kGroup;
  for (int block = 0; block < chunk.blocks; ++block) {
    const int begin = block * groups, end = begin + groups;
    {
      Elements<float> part = {};
      const auto load = [&](int group, RowWords(&rows)[kDown]) {
        load_rows<K>(memory, place, buffer, group, rows);
      };
      add_groups<K>(p, memory, place, begin, end, load, part);
      const auto less = [&](int group, int row) { return memory.less[buffer][group][row]; };
      apply_factors<K>(memory, place, begin, end, less, part);
      for_each_element(place, [&](int i, int j, int e, int row, int) {
        total[i][j][e] = fmaf(part[i][j][e], memory.a_scale[buffer][block][row], total[i][j][e]);
      });
    }
    const unsigned mask = memory.rests[buffer][block][place.warp_row + place.lane];
    for (unsigned any = __reduce_or_sync(kAllLanes, mask); any != 0; any &= any - 1) {
      const int bit = __ffs(static_cast<int>(any)) - 1;
      add_rest<K>(p, memory, place, chunk, begin + bit, bit, mask, total);
    }
  }
}

/// The tile of thread block `index`.
__device__ Place place_of(const QuantProduct& p, unsigned index, int rows) {
  const auto down = static_cast<unsigned>(ceil_div(p.a.m, static_cast<std::int64_t>(rows)));
  const auto across = static_cast<unsigned>(ceil_div(p.n, std::int64_t{kColumns}));
  const unsigned first = index / (kTogether * across) * kTogether;
  const unsigned height = min(down - first, kTogether);
  const unsigned in_group = index % (kTogether * across);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Place place;
  place.row = static_cast<std::int64_t>(first + in_group % height) * rows;
  place.column = static_cast<std::int64_t>(in_group / height) * kColumns;
  place.warp_row = warp / kWarpsN * kWarpRows;
  place.warp_column = warp % kWarpsN * kWarpColumns;
  place.lane = static_cast<int>(threadIdx.x) % kWarp;
  place.g = place.lane / 4;
  place.t = place.lane % 4;
  return place;
}

/// `most` blocks of a make a chunk.
template <Quant kQuant, int kWarpsM, int kChunk>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarp)
    multiply_tiles(QuantProduct p, int most) {
  using K = Kernel<kQuant, kWarpsM, kChunk>;
  extern __shared__ __align__(16) std::uint8_t bytes[];
  // SAFETY: the launcher gives the kernel this much shared memory, and it is aligned.
  auto& memory = *reinterpret_cast<typename K::Memory*>(bytes);
  const Place place = place_of(p, blockIdx.x, K::kRows);
  const std::int64_t chunks = ceil_div(p.a.blocks, static_cast<std::int64_t>(most));
  Elements<float> total = {};
  if (chunks > 0) start_chunk<K>(p, place, chunk_at(p, most, 0), memory, 0);
  commit_copies();
  for (std::int64_t i = 0; i < chunks; ++i) {
    const Chunk chunk = chunk_at(p, most, i);
    const auto buffer = static_cast<int>(i % 2);
    wait_for_copies<0>();
    __syncthreads();  // The chunk is here, and the one before it has been multiplied by all.
    unpack_chunk<K, kQuant>(p, place, chunk, memory);
    __syncthreads();  // The stored blocks may be replaced.
    if (i + 1 < chunks) start_chunk<K>(p, place, chunk_at(p, most, i + 1), memory, 1 - buffer);
    commit_copies();
    multiply_chunk<K>(p, memory, place, chunk, buffer, total);
  }
  for_each_element(place, [&](int i, int j, int e, int of_tile, int column) {
    const std::int64_t row = place.row + of_tile, at = place.column + column;
    if (row < p.a.m && at < p.n) finish(p, row, at, total[i][j][e]);
  });
}

template <Quant kQuant, int kWarpsM, int kChunk>
cudaError_t launch(const QuantProduct& p, const Context& context) {
  using K = Kernel<kQuant, kWarpsM, kChunk>;
  const std::int64_t grid =
      ceil_div(p.a.m, std::int64_t{K::kRows}) * ceil_div(p.n, std::int64_t{kColumns});
  return launch_with(&multiply_tiles<kQuant, kWarpsM, kChunk>, grid, K::kThreads,
                     sizeof(typename K::Memory), context, p, kChunk / p.a.block);
}

}  // namespace

cudaError_t launch_row_tiles(const QuantProduct& product, const Context& context) {
  return with_format(product.quant, [&](auto format) {
    constexpr Quant kQuant = decltype(format)::value;
    // Chunks of 128 steps leave space for twice as many rows in the 99 KiB that all GPUs have.
    if constexpr (!BlockFormat<kQuant>::kSubScales) {
      if (product.a.m > 64 && product.a.block <= 128) {
        return launch<kQuant, 4, 128>(product, context);
      }
    }
    return launch<kQuant, 2, 256>(product, context);
  });
}

}  // namespace volta::cuda
