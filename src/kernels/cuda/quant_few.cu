// The product of few rows with a quantised b, as in decoding. It is limited by the bytes of b. A
// thread block takes eight columns of b. Its warps take turns at pieces of about half a kilobyte of
// each of these columns, which they copy to shared memory one round ahead, and multiply them by up
// to 16 rows on the tensor cores. After each round the parts of its blocks are added up in order
// (quant_product.cuh), while other warps are already in the next round.
//
// Rests are rare, and computed where the parts are added, one element of c per thread.
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumns = 8;
/// Bytes of a column in a piece, and blocks times rows; about, and at most.
constexpr std::int64_t kPieceBytes = 512, kPieceParts = 64;
/// Two thread blocks of this size fit on a multiprocessor with 227 KiB, one of it everywhere.
constexpr std::size_t kMostShared = 96 * 1024;

/// How the product is cut.
struct Plan {
  int blocks = 0;         ///< Blocks of a per piece.
  int column_stride = 0;  ///< Bytes from column to column of a piece in shared memory.
  int rows = 0;           ///< Rows of a full tile.
  unsigned row_tiles = 0;

  __host__ __device__ int round_blocks() const { return kWarps * blocks; }
  __host__ __device__ int stage_bytes() const { return kColumns * column_stride; }
  std::size_t shared_bytes() const {
    const int parts = round_blocks() * rows;
    return static_cast<std::size_t>(2 * kWarps * stage_bytes() + 2 * parts * (kColumns + 2) * 4);
  }
};

/// The places in shared memory; everything is there twice, for every other round.
struct Shared {
  std::uint8_t* pieces;  ///< [2][kWarps][kColumns][column_stride]
  float* parts;          ///< [2][round_blocks][rows][kColumns]
  float* scales;         ///< [2][round_blocks][rows]
  std::uint32_t* rests;  ///< [2][round_blocks][rows]
};

/// Eight columns of b by the rows of a tile, and the block's threads.
struct Tile {
  std::int64_t column, row;
  int rows;
  int warp, lane, g, t;  ///< g = lane / 4, t = lane % 4, as in quant_mma.cuh.
};

/// The rows of a block of a that a thread feeds to the tensor cores: g and g + 8 of the tile.
struct BlockRows {
  const std::int8_t *first, *second;  ///< At the thread's words of group 0; null behind the rows.
  const float *first_less, *second_less;
};

// SAFETY: words of a row are multiples of 8 bytes (quant_rows.cuh).
__device__ GroupWords load_words(const std::int8_t* row, int group) {
  if (row == nullptr) return {0, 0};
  const int2 words = *reinterpret_cast<const int2*>(row + group * kGroup);
  return {words.x, words.y};
}

/// The block of b of a thread's own column (g), and of the columns of its sums.
struct BlockPlaces {
  const std::uint8_t *own, *even, *odd;
  __device__ BlockPlaces moved(int bytes) const { return {own + bytes, even + bytes, odd + bytes}; }
};

/// part += the products of a block of a with the blocks of b in it; q8 and q4. With kSmall these
/// have one group each.
template <Quant kQuant, bool kSixteen, bool kSmall>
__device__ void add_blocks(const QuantProduct& p, const BlockRows& a, const BlockPlaces& b, int t,
                           float (&part)[4]) {
  const int groups = kSmall ? 1 : p.block / kGroup;
  const int blocks = BlockFormat<kQuant>::kJoined ? p.b_per_a : 1;
#pragma unroll 4
  for (int block = 0; block < blocks; ++block) {
    const BlockPlaces at = b.moved(block * p.block_bytes);
    int sum[4] = {};
#pragma unroll 4
    for (int group = 0; group < groups; ++group) {
      const int of_a = block * groups + group;
      RowWords words = {load_words(a.first, of_a), {0, 0}};
      if constexpr (kSixteen) words.second = load_words(a.second, of_a);
      multiply_group(sum, words, group_words<kQuant>(at.own, group, t));
    }
    const float even = block_scale<kQuant>(at.even), odd = block_scale<kQuant>(at.odd);
    part[0] = fmaf(static_cast<float>(sum[0]), even, part[0]);
    part[1] = fmaf(static_cast<float>(sum[1]), odd, part[1]);
    if constexpr (kSixteen) {
      part[2] = fmaf(static_cast<float>(sum[2]), even, part[2]);
      part[3] = fmaf(static_cast<float>(sum[3]), odd, part[3]);
    }
  }
}

/// The same for Q4_K and Q5_K. The lanes of a column unpack two of its scales and minimums each.
template <Quant kQuant, bool kSixteen>
__device__ void add_block_with_minimums(const QuantProduct& p, const BlockRows& a,
                                        const BlockPlaces& b, int t, float (&part)[4]) {
  const SubScale two[2] = {six_bit_scale(b.own, 2 * t), six_bit_scale(b.own, 2 * t + 1)};
  const int packed =
      two[0].scale | (two[0].minimum << 8) | (two[1].scale << 16) | (two[1].minimum << 24);
  float least[4] = {};
#pragma unroll
  for (int group = 0; group < kMaxBlock / kGroup; ++group) {
    int sum[4] = {};
    RowWords words = {load_words(a.first, group), {0, 0}};
    if constexpr (kSixteen) words.second = load_words(a.second, group);
    multiply_group(sum, words, group_words<kQuant>(b.own, group, t));
    const int from = 2 * t * kGroupThreads + group / 2, shift = group % 2 * 16;
    const int even = __shfl_sync(kAllLanes, packed, from) >> shift;
    const int odd = __shfl_sync(kAllLanes, packed, from + kGroupThreads) >> shift;
    const auto even_scale = static_cast<float>(even & 63), odd_scale = static_cast<float>(odd & 63);
    const auto even_least = static_cast<float>((even >> 8) & 63);
    const auto odd_least = static_cast<float>((odd >> 8) & 63);
    const float less = a.first == nullptr ? 0.0f : a.first_less[group * p.a.m];
    part[0] = fmaf(static_cast<float>(sum[0]), even_scale, part[0]);
    part[1] = fmaf(static_cast<float>(sum[1]), odd_scale, part[1]);
    least[0] = fmaf(even_least, less, least[0]);
    least[1] = fmaf(odd_least, less, least[1]);
    if constexpr (kSixteen) {
      const float second_less = a.second == nullptr ? 0.0f : a.second_less[group * p.a.m];
      part[2] = fmaf(static_cast<float>(sum[2]), even_scale, part[2]);
      part[3] = fmaf(static_cast<float>(sum[3]), odd_scale, part[3]);
      least[2] = fmaf(even_least, second_less, least[2]);
      least[3] = fmaf(odd_least, second_less, least[3]);
    }
  }
  const float scales[2] = {block_scale<kQuant>(b.even), block_scale<kQuant>(b.odd)};
  const float minimums[2] = {block_minimum(b.even), block_minimum(b.odd)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    part[i] = fmaf(least[i], minimums[i % 2], __fmul_rn(part[i], scales[i % 2]));
  }
}

/// The same for Q6_K, whose sub-blocks are half groups.
template <bool kSixteen>
__device__ void add_six_bit_block(const BlockRows& a, const BlockPlaces& b, int t,
                                  float (&part)[4]) {
#pragma unroll 4
  for (int group = 0; group < kMaxBlock / kGroup; ++group) {
    int low[4] = {}, high[4] = {};
    RowWords words = {load_words(a.first, group), {0, 0}};
    if constexpr (kSixteen) words.second = load_words(a.second, group);
    const GroupWords own = group_words<Quant::kQ6K>(b.own, group, t);
    multiply_half_group(low, words.first.low, words.second.low, own.low);
    multiply_half_group(high, words.first.high, words.second.high, own.high);
    const unsigned even = load_u16(b.even + 192 + 2 * group);
    const unsigned odd = load_u16(b.odd + 192 + 2 * group);
#pragma unroll
    for (int i = 0; i < (kSixteen ? 4 : 2); ++i) {
      const unsigned scales = i % 2 == 0 ? even : odd;
      const auto first = static_cast<float>(static_cast<std::int8_t>(scales & 0xFF));
      const auto second = static_cast<float>(static_cast<std::int8_t>(scales >> 8));
      part[i] = fmaf(static_cast<float>(low[i]), first, part[i]);
      part[i] = fmaf(static_cast<float>(high[i]), second, part[i]);
    }
  }
  const float scales[2] = {block_scale<Quant::kQ6K>(b.even), block_scale<Quant::kQ6K>(b.odd)};
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = __fmul_rn(part[i], scales[i % 2]);
}

/// What an element's rest of group `group` of a's block `block` adds, without its scale.
template <Quant kQuant>
__device__ float rest_part(const QuantProduct& p, std::int64_t row, std::int64_t column,
                           std::int64_t block, int group) {
  const std::int64_t of_row = block * (p.a.block / kGroup) + group;
  const int groups = p.block / kGroup;
  const std::uint8_t* at = block_of(p, column, of_row / groups);
  const std::int8_t* q = p.a.rest_q + row * p.a.stride + of_row * kGroup;
  const auto in_block = static_cast<int>(of_row % groups);
  int low = 0, high = 0;
#pragma unroll
  for (int t = 0; t < kGroupThreads; ++t) {
    const GroupWords b = group_words<kQuant>(at, in_block, t);
    const int2 a = *reinterpret_cast<const int2*>(q + 8 * t);
    low = __dp4a(a.x, b.low, low);
    high = __dp4a(a.y, b.high, high);
  }
  const int sums[2] = {BlockFormat<kQuant>::kSubs == 2 ? low : low + high, high};
  const float less = BlockFormat<kQuant>::kMinimums ? p.a.rest_less[of_row * p.a.m + row] : 0.0f;
  return group_part<kQuant>(at, in_block, sums, less);
}

/// Starts copying this warp's piece, if it exists.
__device__ void start_piece(const QuantProduct& p, const Plan& plan, const Tile& tile,
                            std::int64_t piece, std::uint8_t* to) {
  constexpr int kTogether = 8;  // Lanes that copy neighbouring pieces of a column.
  const std::int64_t first = piece * plan.blocks;
  if (first >= p.a.blocks) return;
  const auto blocks = static_cast<int>(min(p.a.blocks - first, std::int64_t{plan.blocks}));
  for (int c = tile.lane / kTogether; c < kColumns; c += kWarp / kTogether) {
    if (tile.column + c >= p.n) break;
    copy_blocks(to + c * plan.column_stride, p, block_of(p, tile.column + c, first * p.b_per_a),
                blocks * p.b_per_a * p.block_bytes, tile.lane % kTogether, kTogether);
  }
}

/// Multiplies this warp's piece, which lies at `from`, and stores the parts of its blocks.
template <Quant kQuant, bool kSixteen, bool kSmall>
__device__ void multiply_piece(const QuantProduct& p, const Plan& plan, const Tile& tile,
                               std::int64_t piece, const std::uint8_t* from, float* parts) {
  const std::int64_t first = piece * plan.blocks;
  const int g = tile.g, t = tile.t, groups = p.a.block / kGroup;
  // SAFETY: columns behind the last are not copied; what lies in their place is not used. Their
  // addresses only give the place of the first byte.
  const auto column = [&](int c) {
    const int skipped = skipped_bytes(block_of(p, tile.column + c, first * p.b_per_a));
    return from + c * plan.column_stride + skipped;
  };
  BlockPlaces b = {column(g), column(2 * t), column(2 * t + 1)};
  BlockRows a = {};
  const std::int64_t row = tile.row + g, at = first * p.a.block + 8 * t;
  if (g < tile.rows) {
    a.first = p.a.q + row * p.a.stride + at;
    a.first_less = p.a.less + first * groups * p.a.m + row;
  }
  if (kSixteen && g + 8 < tile.rows) {
    a.second = p.a.q + (row + 8) * p.a.stride + at;
    a.second_less = p.a.less + first * groups * p.a.m + row + 8;
  }
  const auto blocks = static_cast<int>(min(p.a.blocks - first, std::int64_t{plan.blocks}));
  for (int block = 0; block < blocks; ++block) {
    float part[4] = {};
    if constexpr (!BlockFormat<kQuant>::kSubScales) {
      add_blocks<kQuant, kSixteen, kSmall>(p, a, b, t, part);
    } else if constexpr (BlockFormat<kQuant>::kMinimums) {
      add_block_with_minimums<kQuant, kSixteen>(p, a, b, t, part);
    } else {
      add_six_bit_block<kSixteen>(a, b, t, part);
    }
    float* to = parts + block * plan.rows * kColumns + 2 * t;
    if (a.first != nullptr) {
      *reinterpret_cast<float2*>(to + g * kColumns) = make_float2(part[0], part[1]);
      a.first += p.a.block;
      a.first_less += groups * p.a.m;
    }
    if (kSixteen && a.second != nullptr) {
      *reinterpret_cast<float2*>(to + (g + 8) * kColumns) = make_float2(part[2], part[3]);
      a.second += p.a.block;
      a.second_less += groups * p.a.m;
    }
    b = b.moved(p.b_per_a * p.block_bytes);
  }
}

/// Adds the parts of `count` blocks from `first` on to a thread's element (row, column) of the
/// tile.
template <Quant kQuant>
__device__ float add_parts(const QuantProduct& p, const Plan& plan, const Tile& tile, int row,
                           int column, std::int64_t first, int count, const Shared& from,
                           bool rests, float total) {
  const float* parts = from.parts + row * kColumns + column;
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    total = fmaf(parts[i * plan.rows * kColumns], from.scales[i * plan.rows + row], total);
    if (!rests) continue;
    const std::int64_t of_a = tile.row + row;
    for (unsigned bits = from.rests[i * plan.rows + row]; bits != 0; bits &= bits - 1) {
      const int group = __ffs(static_cast<int>(bits)) - 1;
      const float part = rest_part<kQuant>(p, of_a, tile.column + column, first + i, group);
      const std::int64_t of_row = (first + i) * (p.a.block / kGroup) + group;
      total = fmaf(part, p.a.rest_scale[of_row * p.a.m + of_a], total);
    }
  }
  return total;
}

template <Quant kQuant, bool kSixteen, bool kSmall>
__global__ void __launch_bounds__(kThreads, 2) multiply_few_rows(QuantProduct p, Plan plan) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  const int thread = static_cast<int>(threadIdx.x);
  Tile tile;
  tile.column = static_cast<std::int64_t>(blockIdx.x / plan.row_tiles) * kColumns;
  tile.row = static_cast<std::int64_t>(blockIdx.x % plan.row_tiles) * kFewRows;
  tile.rows = static_cast<int>(min(p.a.m - tile.row, std::int64_t{kFewRows}));
  tile.warp = thread / kWarp;
  tile.lane = thread % kWarp;
  tile.g = tile.lane / 4;
  tile.t = tile.lane % 4;
  const int stage = plan.stage_bytes(), round_blocks = plan.round_blocks();
  const int round_rows = round_blocks * plan.rows;
  float* floats = reinterpret_cast<float*>(memory + 2 * kWarps * stage);
  const auto shared = [&](std::int64_t round) {
    const auto odd = static_cast<int>(round % 2);
    float* scales = floats + 2 * round_rows * kColumns;
    return Shared{memory + (odd * kWarps + tile.warp) * stage, floats + odd * round_rows * kColumns,
                  scales + odd * round_rows,
                  reinterpret_cast<std::uint32_t*>(scales + (2 + odd) * round_rows)};
  };
  const int row = thread / kColumns, column = thread % kColumns;
  const bool adds = row < tile.rows && tile.column + column < p.n;
  float total = 0.0f;
  start_piece(p, plan, tile, tile.warp, shared(0).pieces);
  commit_copies();
  for (std::int64_t round = 0, first = 0; first < p.a.blocks; ++round, first += round_blocks) {
    const Shared here = shared(round);
    const std::int64_t piece = round * kWarps + tile.warp;
    start_piece(p, plan, tile, piece + kWarps, shared(round + 1).pieces);
    commit_copies();
    // The factors of the rows are loaded early, and stored when they have arrived.
    const auto count = static_cast<int>(min(p.a.blocks - first, std::int64_t{round_blocks}));
    constexpr int kLoads = kWarps * static_cast<int>(kPieceParts) / kThreads;
    float scales[kLoads] = {};
    std::uint32_t rests[kLoads] = {}, any = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int block = (thread + i * kThreads) / plan.rows;
      const int of_tile = (thread + i * kThreads) % plan.rows;
      if (block >= count || of_tile >= tile.rows) continue;
      const std::int64_t at = (first + block) * p.a.m + tile.row + of_tile;
      scales[i] = p.a.scale[at];
      rests[i] = p.a.rests[at];
      any |= rests[i];
    }
    wait_for_copies<1>();
    __syncwarp();
    if (piece * plan.blocks < p.a.blocks) {
      float* parts = here.parts + tile.warp * plan.blocks * plan.rows * kColumns;
      multiply_piece<kQuant, kSixteen, kSmall>(p, plan, tile, piece, here.pieces, parts);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = thread + i * kThreads;
      if (at >= round_rows) continue;
      here.scales[at] = scales[i];
      here.rests[at] = rests[i];
    }
    // One barrier per round is enough: what is read below is overwritten two rounds later, behind
    // the next barrier.
    const bool some_rests = __syncthreads_or(static_cast<int>(any != 0)) != 0;
    if (adds) {
      total = add_parts<kQuant>(p, plan, tile, row, column, first, count, here, some_rests, total);
    }
  }
  if (adds) finish(p, tile.row + row, tile.column + column, total);
}

Plan make_plan(const QuantProduct& p) {
  Plan plan;
  const std::int64_t bytes = std::int64_t{p.b_per_a} * p.block_bytes;
  plan.rows = static_cast<int>(std::min<std::int64_t>(p.a.m, kFewRows));
  plan.row_tiles = static_cast<unsigned>(ceil_div(p.a.m, std::int64_t{kFewRows}));
  // A piece for every warp, if the rows are short.
  std::int64_t blocks = std::min(ceil_div(p.a.blocks, std::int64_t{kWarps}),
                                 std::min(kPieceBytes / bytes, kPieceParts / plan.rows));
  for (blocks = std::max<std::int64_t>(blocks, 1);; --blocks) {
    plan.blocks = static_cast<int>(blocks);
    // An odd number of pieces keeps eight columns in different banks of the shared memory.
    plan.column_stride = (copied_pieces(static_cast<int>(blocks * bytes)) | 1) * kCopied;
    if (blocks == 1 || plan.shared_bytes() <= kMostShared) return plan;
  }
}

}  // namespace

cudaError_t launch_few_rows(const QuantProduct& product, const Context& context) {
  const Plan plan = make_plan(product);
  const std::int64_t grid = ceil_div(product.n, std::int64_t{kColumns}) * plan.row_tiles;
  const std::size_t shared = plan.shared_bytes();
  const bool sixteen = product.a.m > 8, small = product.block == kGroup;
  return with_format(product.quant, [&](auto format) {
    constexpr Quant kQuant = decltype(format)::value;
    auto* kernel = sixteen ? &multiply_few_rows<kQuant, true, false>
                           : &multiply_few_rows<kQuant, false, false>;
    if constexpr (!BlockFormat<kQuant>::kSubScales) {
      if (small) {
        kernel = sixteen ? &multiply_few_rows<kQuant, true, true>
                         : &multiply_few_rows<kQuant, false, true>;
      }
    }
    return launch_with(kernel, grid, kThreads, shared, context, product, plan);
  });
}

}  // namespace volta::cuda
