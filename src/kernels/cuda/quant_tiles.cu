// The product of many rows with a quantised b, as in reading a prompt. It is limited by the tensor
// cores and by the scaling of their sums. First b is unpacked (quant_unpack.cu): once for all rows,
// into a workspace that stays in the L2 cache. A thread block then computes a tile of c. It goes
// along K in chunks of whole blocks of a: while one chunk is multiplied, the next one of a and b is
// copied to shared memory. A warp computes 32 x 32 elements of c; quant_product.cuh says in which
// order.
#include "kernels/cuda/quant_product.cuh"
#include "kernels/cuda/quant_unpack.cuh"

namespace volta::cuda {
namespace {

constexpr int kColumns = kUnpackedColumns, kWarpsN = 2;
constexpr int kWarpRows = 32, kWarpColumns = 32;
/// Fragments of 16 x 8 that a warp's elements consist of, down and across.
constexpr int kDown = kWarpRows / 16, kAcross = kWarpColumns / 8;
/// Tiles of rows that are computed at about the same time, so that they share b in the L2 cache.
constexpr unsigned kTogether = 16;

/// A kernel: tiles of 32 kWarpsM rows, and chunks of at most kChunk steps of K.
/// kBlockGroups: the groups per block of b, or 0 if they are only known at run time. If it is more
/// than 1, blocks of a and b are the same.
template <Quant kQuant, int kWarpsM, int kChunk, int kBlockGroups>
struct Kernel {
  using Format = BlockFormat<kQuant>;
  static constexpr int kBlock = kBlockGroups;
  static constexpr int kRows = kWarpsM * kWarpRows;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarp;
  static constexpr int kGroups = kChunk / kGroup;
  /// Rows of factors of b per chunk: of its blocks, or of their sub-blocks.
  static constexpr int kFactors = Format::kSubs == 2 ? 2 * kGroups : kGroups;
  /// Bytes from row to row of integers. Eight rows lie in different banks of the shared memory.
  static constexpr int kStride = kChunk + 32;

  /// The place of a chunk.
  struct Buffer {
    alignas(16) std::int8_t a[kRows][kStride];
    alignas(16) std::int8_t b[kColumns][kStride];
    alignas(16) float scale[kFactors][kColumns];  ///< Of blocks of b, or of their sub-blocks.
    float minimum[Format::kMinimums ? kGroups : 1][kColumns];
    float factor[2][kColumns];  ///< The f16 scale and minimum of blocks with sub-blocks.
    float a_scale[kGroups][kRows];
    std::uint32_t rests[kGroups][kRows];
    float less[Format::kMinimums ? kGroups : 1][kRows];
  };
  /// One is for the chunk that is multiplied, the other one for the next.
  using Memory = Buffer[2];
};

/// The tile of a thread block, and the place of a thread in it.
struct TilePosition {
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

// Rows behind the last have the factors of the last one. Their results are not stored.
__device__ std::int64_t row_of(const QuantProduct& p, const TilePosition& place, int row) {
  return min(place.row + row, p.a.m - 1);
}

/// Copies `rows` rows of the columns of a tile, of `columns` columns each, to shared memory.
template <int kThreads>
__device__ void copy_factors(float (*to)[kColumns], const float* from, std::int64_t columns,
                             int rows) {
  constexpr int kPieces = kColumns / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kPieces; i += kThreads) {
    const int row = i / kPieces, at = i % kPieces * 4;
    copy_async_16(shared_address(&to[row][at]), from + row * columns + at);
  }
}

/// Starts copying a chunk.
template <typename K>
__device__ void start_chunk(const QuantProduct& p, const UnpackedWeight& b,
                            const TilePosition& place, const Chunk& chunk, typename K::Buffer& to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int bytes = chunk.blocks * p.a.block;
  const std::int64_t k = chunk.first * p.a.block;
  constexpr int kPieces = K::kGroups * kGroup / kCopied, kStep = K::kThreads / kPieces;
  const int at = thread % kPieces * kCopied, first = thread / kPieces;
  if (at < bytes) {
    const std::int8_t* a = p.a.q + (place.row + first) * p.a.stride + k + at;
    const auto left = static_cast<int>(min(p.a.m - place.row, std::int64_t{K::kRows}));
    std::uint32_t target = shared_address(&to.a[first][at]);
#pragma unroll
    for (int row = 0; row < K::kRows; row += kStep) {
      const bool exists = row + first < left;
      copy_async_16(target, exists ? a : p.a.q, exists ? 16 : 0);
      a += kStep * p.a.stride;
      target += kStep * K::kStride;
    }
    const std::int8_t* from = b.q + (place.column + first) * p.a.stride + k + at;
    target = shared_address(&to.b[first][at]);
#pragma unroll
    for (int column = 0; column < kColumns; column += kStep) {
      copy_async_16(target, from);
      from += kStep * p.a.stride;
      target += kStep * K::kStride;
    }
  }
  for (int i = thread; i < chunk.blocks * K::kRows; i += K::kThreads) {
    const int block = i / K::kRows, row = i % K::kRows;
    const std::int64_t from = (chunk.first + block) * p.a.m + row_of(p, place, row);
    copy_async_4(shared_address(&to.a_scale[block][row]), p.a.scale + from, 4);
    copy_async_4(shared_address(&to.rests[block][row]), p.a.rests + from, 4);
  }
  using Format = typename K::Format;
  constexpr int kThreads = K::kThreads;
  const std::int64_t group = k / kGroup, block = chunk.first * p.b_per_a;
  if constexpr (!Format::kSubScales) {
    copy_factors<kThreads>(to.scale, b.scale + block * b.columns + place.column, b.columns,
                           chunk.blocks * p.b_per_a);
  } else {  // A chunk is one block.
    copy_factors<kThreads>(to.scale, b.scale + group * Format::kSubs * b.columns + place.column,
                           b.columns, K::kFactors);
    copy_factors<kThreads>(to.factor, b.factor + 2 * block * b.columns + place.column, b.columns,
                           2);
  }
  if constexpr (Format::kMinimums) {
    copy_factors<kThreads>(to.minimum, b.minimum + group * b.columns + place.column, b.columns,
                           K::kGroups);
    for (int i = thread; i < K::kGroups * K::kRows; i += K::kThreads) {
      const int of_chunk = i / K::kRows, row = i % K::kRows;
      const std::int64_t from = (group + of_chunk) * p.a.m + row_of(p, place, row);
      copy_async_4(shared_address(&to.less[of_chunk][row]), p.a.less + from, 4);
    }
  }
}

/// A warp's elements as its threads hold them: [down][across] fragments of 16 x 8.
template <typename T>
using Elements = T[kDown][kAcross][4];

/// Calls body(i, j, e, row, column) for each element that a thread holds; rows and columns are
/// those of the tile.
template <typename Body>
__device__ inline void for_each_element(const TilePosition& place, const Body& body) {
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

/// The words of a warp's rows of a group of the chunk.
template <typename K>
__device__ void load_rows(const typename K::Buffer& memory, const TilePosition& place, int group,
                          RowWords (&rows)[kDown]) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int row = place.warp_row + i * 16 + place.g;
    rows[i] = {words_at(memory.a[row], group, place.t),
               words_at(memory.a[row + 8], group, place.t)};
  }
}

/// sum += the products of a group of the chunk, for rows of a, or of their rests.
template <typename K>
__device__ void multiply(const typename K::Buffer& memory, const TilePosition& place, int group,
                         const RowWords (&rows)[kDown], Elements<int>& sum) {
  GroupWords b[kAcross];
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    b[j] = words_at(memory.b[place.warp_column + j * 8 + place.g], group, place.t);
  }
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) multiply_group(sum[i][j], rows[i], b[j]);
  }
}
/// The same for the first or the second half of the group.
template <typename K>
__device__ void multiply_half(const typename K::Buffer& memory, const TilePosition& place,
                              int group, bool second, const RowWords (&rows)[kDown],
                              Elements<int>& sum) {
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

/// part += sum * row `factor` of b's scales.
template <typename K>
__device__ void scale_sums(const typename K::Buffer& memory, const TilePosition& place, int factor,
                           const Elements<int>& sum, Elements<float>& part) {
  for_each_element(place, [&](int i, int j, int e, int, int column) {
    part[i][j][e] =
        fmaf(static_cast<float>(sum[i][j][e]), memory.scale[factor][column], part[i][j][e]);
  });
}

/// part += the products of groups [begin, end) of the chunk, which belong to one block of a. For
/// formats with sub-blocks without the block's own factors.
template <typename K, typename LoadRows>
__device__ void add_groups(const QuantProduct& p, const typename K::Buffer& memory,
                           const TilePosition& place, int begin, int end, const LoadRows& load,
                           Elements<float>& part) {
  using Format = typename K::Format;
  RowWords rows[kDown];
  if constexpr (Format::kSubs == 2) {
    for (int group = begin; group < end; ++group) {
      load(group, rows);
      Elements<int> sum = {};
      multiply_half<K>(memory, place, group, false, rows, sum);
      scale_sums<K>(memory, place, 2 * group, sum, part);
      Elements<int> second = {};
      multiply_half<K>(memory, place, group, true, rows, second);
      scale_sums<K>(memory, place, 2 * group + 1, second, part);
    }
  } else if constexpr (Format::kSubs == 1 || K::kBlock == 1) {
    for (int group = begin; group < end; ++group) {
      Elements<int> sum = {};
      load(group, rows);
      multiply<K>(memory, place, group, rows, sum);
      scale_sums<K>(memory, place, group, sum, part);
    }
  } else {
    const int groups = p.block / kGroup;
    // In each round, the groups of one block of b.
    for (int first = begin; first < end;) {
      const int block = first / groups, last = min(end, (block + 1) * groups);
      Elements<int> sum = {};
      for (; first < last; ++first) {
        load(first, rows);
        multiply<K>(memory, place, first, rows, sum);
      }
      scale_sums<K>(memory, place, block, sum, part);
    }
  }
}

/// Multiplies the parts of a block with sub-blocks by its factors. less(group, row) is minus the
/// sum of a row of a in a group.
template <typename K, typename Less>
__device__ void apply_factors(const typename K::Buffer& memory, const TilePosition& place,
                              int begin, int end, const Less& less, Elements<float>& part) {
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
__device__ void add_rest(const QuantProduct& p, const typename K::Buffer& memory,
                         const TilePosition& place, const Chunk& chunk, int group, int bit,
                         unsigned mask, Elements<float>& total) {
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

/// total += block `block` of the chunk, of K::kBlock groups, which is a block both of a and of b.
template <typename K>
__device__ void add_block(const typename K::Buffer& memory, const TilePosition& place, int block,
                          Elements<float>& total) {
  Elements<int> sum = {};
#pragma unroll
  for (int i = 0; i < K::kBlock; ++i) {
    RowWords rows[kDown];
    load_rows<K>(memory, place, block * K::kBlock + i, rows);
    multiply<K>(memory, place, block * K::kBlock + i, rows, sum);
  }
  for_each_element(place, [&](int i, int j, int e, int row, int column) {
    const float part = fmaf(static_cast<float>(sum[i][j][e]), memory.scale[block][column], 0.0f);
    total[i][j][e] = fmaf(part, memory.a_scale[block][row], total[i][j][e]);
  });
}

/// total += a chunk.
template <typename K>
__device__ void multiply_chunk(const QuantProduct& p, const typename K::Buffer& memory,
                               const TilePosition& place, const Chunk& chunk,
                               Elements<float>& total) {
  const int groups = p.a.block / kGroup;
  for (int block = 0; block < chunk.blocks; ++block) {
    const int begin = block * groups, end = begin + groups;
    if constexpr (K::kBlock > 1) {
      add_block<K>(memory, place, block, total);
    } else {
      Elements<float> part = {};
      const auto load = [&](int group, RowWords(&rows)[kDown]) {
        load_rows<K>(memory, place, group, rows);
      };
      add_groups<K>(p, memory, place, begin, end, load, part);
      const auto less = [&](int group, int row) { return memory.less[group][row]; };
      apply_factors<K>(memory, place, begin, end, less, part);
      for_each_element(place, [&](int i, int j, int e, int row, int) {
        total[i][j][e] = fmaf(part[i][j][e], memory.a_scale[block][row], total[i][j][e]);
      });
    }
    const unsigned mask = memory.rests[block][place.warp_row + place.lane];
    for (unsigned any = __reduce_or_sync(kAllLanes, mask); any != 0; any &= any - 1) {
      const int bit = __ffs(static_cast<int>(any)) - 1;
      add_rest<K>(p, memory, place, chunk, begin + bit, bit, mask, total);
    }
  }
}

/// The tile of thread block `index`; its columns are those of the unpacked part of b.
__device__ TilePosition tile_position(const QuantProduct& p, std::int64_t columns, unsigned index,
                                      int rows) {
  const auto down = static_cast<unsigned>(ceil_div(p.a.m, static_cast<std::int64_t>(rows)));
  const auto across = static_cast<unsigned>(columns / kColumns);
  const unsigned first = index / (kTogether * across) * kTogether;
  const unsigned height = min(down - first, kTogether);
  const unsigned in_group = index % (kTogether * across);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  TilePosition place;
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
template <Quant kQuant, int kWarpsM, int kChunk, int kBlockGroups>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarp, 2)
    multiply_tiles(QuantProduct p, UnpackedWeight b, int most) {
  using K = Kernel<kQuant, kWarpsM, kChunk, kBlockGroups>;
  extern __shared__ __align__(16) std::uint8_t bytes[];
  // SAFETY: the launcher gives the kernel this much shared memory, and it is aligned.
  auto& memory = *reinterpret_cast<typename K::Memory*>(bytes);
  const TilePosition place = tile_position(p, b.columns, blockIdx.x, K::kRows);
  const std::int64_t chunks = ceil_div(p.a.blocks, static_cast<std::int64_t>(most));
  Elements<float> total = {};
  if (chunks > 0) start_chunk<K>(p, b, place, chunk_at(p, most, 0), memory[0]);
  commit_copies();
  for (std::int64_t i = 0; i < chunks; ++i) {
    wait_for_copies<0>();
    __syncthreads();  // The chunk is here, and all have multiplied the one before it.
    if (i + 1 < chunks) {
      start_chunk<K>(p, b, place, chunk_at(p, most, i + 1), memory[(i + 1) % 2]);
    }
    commit_copies();
    multiply_chunk<K>(p, memory[i % 2], place, chunk_at(p, most, i), total);
  }
  for_each_element(place, [&](int i, int j, int e, int tile_row, int tile_column) {
    const std::int64_t row = place.row + tile_row, column = b.first + place.column + tile_column;
    if (row < p.a.m && column < p.n) finish(p, row, column, total[i][j][e]);
  });
}

constexpr std::size_t kMostShared = 99 * 1024;  // That all GPUs have.

template <Quant kQuant, int kWarpsM, int kChunk, int kBlockGroups>
cudaError_t launch(const QuantProduct& p, const UnpackedWeight& b, const Context& context) {
  using K = Kernel<kQuant, kWarpsM, kChunk, kBlockGroups>;
  static_assert(sizeof(typename K::Memory) <= kMostShared);
  const std::int64_t grid = ceil_div(p.a.m, std::int64_t{K::kRows}) * (b.columns / kColumns);
  return launch_with(&multiply_tiles<kQuant, kWarpsM, kChunk, kBlockGroups>, grid, K::kThreads,
                     sizeof(typename K::Memory), context, p, b, kChunk / p.a.block);
}

}  // namespace

cudaError_t launch_row_tiles(const QuantProduct& product, const UnpackedWeight& b,
                             const Context& context) {
  return with_format(product.quant, [&](auto format) {
    constexpr Quant kQuant = decltype(format)::value;
    if constexpr (!BlockFormat<kQuant>::kSubScales) {
      // Chunks of 128 steps leave space for twice as many rows.
      constexpr int kUsual = kQuant == Quant::kInt8 ? 128 : 32;  // Elements of a block.
      if (product.block == kUsual && product.a.block <= 128) {
        constexpr int kGroups = kUsual / kGroup;
        return product.a.m > 64 ? launch<kQuant, 4, 128, kGroups>(product, b, context)
                                : launch<kQuant, 2, 128, kGroups>(product, b, context);
      }
    }
    return launch<kQuant, 2, 256, 0>(product, b, context);
  });
}

}  // namespace volta::cuda
