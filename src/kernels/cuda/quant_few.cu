// The product of few rows with a quantised b, as in decoding. It is limited by the bytes of b. A
// thread block takes eight columns of b, a tile, and then others. Its warps take turns at pieces of
// some hundred bytes of each of these columns, and multiply them by up to 16 rows on the tensor
// cores. At the end of a tile the parts of its blocks are added up in order (quant_product.cuh),
// while other warps are already in the next tile.
//
// Every warp has a ring of pieces in shared memory, which it fills itself: while it multiplies one,
// the next ones are on their way, also those of its next tile. The ring is filled before the kernel
// waits for the earlier ones, if no kernel of the plan writes b. Products of the same rows share a
// launch.
//
// Rests are rare, and computed where the parts are added, one element of c per thread.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quant_few_blocks.cuh"
#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumns = 8;
constexpr int kLanesPerColumn = kWarp / kColumns;  // That copy it.
constexpr int kStages = 2;                         // Of a warp's ring.
/// Thread blocks on a multiprocessor, if they fit.
constexpr int kResident = 4;
/// Bytes of a column in a piece; about, and at most.
constexpr std::int64_t kPieceBytes = 540;
/// Times that a lane copies for a piece, at most. The largest block has fewer bytes than a piece.
constexpr int kMostSteps = static_cast<int>(ceil_div(
    std::int64_t{copied_pieces(static_cast<int>(kPieceBytes))}, std::int64_t{kLanesPerColumn}));
static_assert(kMaxBlock / kGroup * (kGroup + 2) <= kPieceBytes);
/// Bytes of rows that are copied to shared memory, at most. Others stay where they are.
constexpr std::int64_t kMostRowBytes = 20 * 1024;
/// Two thread blocks of this size fit on a multiprocessor with 227 KiB, one of it everywhere.
constexpr std::int64_t kMostShared = 96 * 1024;

/// How the product is cut.
struct Plan {
  int blocks = 0;         ///< Blocks of a per piece.
  int pieces = 0;         ///< Of a tile.
  int column_stride = 0;  ///< Bytes from column to column of a piece in shared memory.
  int rows = 0;           ///< Rows of a full tile.
  unsigned row_tiles = 0;
  int part_floats = 0;                               ///< Of all blocks of a tile.
  int row_bytes = 0, less_bytes = 0;                 ///< Of the rows in shared memory.
  unsigned tiles = 0;                                ///< Of all products.
  unsigned tiles_before[QuantProducts::kMost] = {};  ///< Of the products before this one.

  __host__ __device__ int stage_bytes() const { return kColumns * column_stride; }
  __host__ __device__ int rings_bytes() const { return kWarps * kStages * stage_bytes(); }
  /// The parts are there twice, for every other tile.
  __host__ __device__ int parts_bytes() const { return 2 * part_floats * 4; }
  std::size_t shared_bytes() const {
    return static_cast<std::size_t>(rings_bytes() + parts_bytes() + row_bytes + less_bytes);
  }
};

/// Eight columns of b of a product by the rows of a tile.
struct Tile {
  int product;
  std::int64_t column, row;
  int rows;
};

/// A thread's place in its block; g and t as in quant_mma.cuh.
struct Lane {
  int warp, lane, g, t;
  __device__ Lane()
      : warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp),
        g(lane / 4),
        t(lane % 4) {}
};

/// Tile `number` of all products.
__device__ Tile tile_at(const QuantProducts& products, const Plan& plan, unsigned number) {
  Tile tile;
  tile.product = 0;
  while (tile.product + 1 < products.count && number >= plan.tiles_before[tile.product + 1]) {
    ++tile.product;
  }
  number -= plan.tiles_before[tile.product];
  unsigned row_tile = 0;
  if (plan.row_tiles > 1) {
    row_tile = number % plan.row_tiles;
    number /= plan.row_tiles;
  }
  tile.column = static_cast<std::int64_t>(number) * kColumns;
  tile.row = static_cast<std::int64_t>(row_tile) * plan.rows;
  const std::int64_t left = products.each[0].a.m - tile.row;
  tile.rows = static_cast<int>(min(left, std::int64_t{plan.rows}));
  return tile;
}

/// The pieces of a warp in turn, and their copies to its ring.
class Pieces {
 public:
  __device__ Pieces(const QuantProducts& products, const Plan& plan, std::uint32_t ring)
      : products_(products), plan_(plan), ring_(ring), number_(blockIdx.x), piece_(place_.warp) {
    if (piece_ >= plan.pieces) number_ = plan.tiles;  // More warps than pieces.
    enter();
  }

  /// Starts copying the next piece, if there is one, to this stage of the ring.
  __device__ void start(int stage) {
    if (number_ < plan_.tiles) {
      copy(ring_ + static_cast<std::uint32_t>(stage * plan_.stage_bytes()));
      piece_ += kWarps;
      if (piece_ >= plan_.pieces) {
        piece_ = place_.warp;
        number_ += gridDim.x;
        enter();
      }
    }
    commit_copies();
  }

 private:
  __device__ void enter() {
    if (number_ >= plan_.tiles) return;
    const Tile tile = tile_at(products_, plan_, number_);
    const QuantProduct& p = products_.each[tile.product];
    const std::int64_t column = tile.column + place_.lane / kLanesPerColumn;
    // A column behind the last one is not copied; what lies in its place is not used.
    column_ = column < p.n ? block_of(p, column, 0) : nullptr;
    end_ = p.b + p.bytes;
  }
  // SAFETY: the first 16 bytes may begin in front of b. They lie in the same allocation, because
  // allocations begin at multiples of 256, and their values are not used. Behind b nothing is read.
  __device__ void copy(std::uint32_t to) const {
    if (column_ == nullptr) return;
    const QuantProduct& p = products_.each[0];
    const int bytes = p.b_per_a * p.block_bytes, first = piece_ * plan_.blocks;
    const int count = min(static_cast<int>(p.a.blocks) - first, plan_.blocks);
    const std::uint8_t* const from = column_ + std::int64_t{first} * bytes;
    const int skipped = skipped_bytes(from), all = skipped + count * bytes;
    const std::uint8_t* const begin = from - skipped;
    const int lane_at = place_.lane % kLanesPerColumn * kCopied;
    to += static_cast<std::uint32_t>(place_.lane / kLanesPerColumn * plan_.column_stride + lane_at);
    constexpr int kStep = kLanesPerColumn * kCopied;
    if (end_ - begin >= all + kCopied) {
#pragma unroll
      for (int i = 0; i < kMostSteps; ++i) {
        const int at = i * kStep;
        if (at < all - lane_at) {
          copy_async_16(to + static_cast<std::uint32_t>(at), begin + lane_at + at);
        }
      }
      return;
    }
    const auto left = static_cast<int>(end_ - begin) - lane_at;
#pragma unroll 1
    for (int at = 0; at < all - lane_at; at += kStep) {
      const std::uint32_t target = to + static_cast<std::uint32_t>(at);
      if (left - at >= kCopied) {
        copy_async_16(target, begin + lane_at + at);
      } else {
        copy_end(target, begin + lane_at + at, left - at);
      }
    }
  }

  const QuantProducts& products_;
  const Plan& plan_;
  const Lane place_;
  std::uint32_t ring_;
  unsigned number_;
  int piece_;
  const std::uint8_t *column_ = nullptr, *end_ = nullptr;
};

/// Multiplies a piece of a warp, which lies at `from`, and stores the parts of its blocks.
template <Quant kQuant, bool kSixteen, int kGroups, int kBlocks>
__device__ void multiply_piece(const QuantProduct& p, const Plan& plan, const Tile& tile,
                               const Lane& place, int piece, const std::uint8_t* from,
                               float* parts) {
  const int bytes = p.b_per_a * p.block_bytes, first = piece * plan.blocks;
  const int g = place.g, t = place.t, groups = p.a.block / kGroup, m = static_cast<int>(p.a.m);
  // The lower bits of the address of a column's first byte are enough to know how many were
  // skipped.
  const auto low = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p.b)) +
                   static_cast<unsigned>(first * bytes);
  const auto column = [&](int c) {
    const unsigned at =
        low + static_cast<unsigned>(tile.column + c) * static_cast<unsigned>(p.column_bytes);
    return from + c * plan.column_stride + at % kCopied;
  };
  BlockPlaces b = {column(g), column(2 * t), column(2 * t + 1)};
  const auto row = static_cast<int>(tile.row), last = tile.rows - 1;
  const int row_first = row + min(g, last), row_second = row + min(g + 8, last);
  const std::int8_t* const q = p.a.q + std::int64_t{first} * p.a.block + 8 * t;
  const float* const less = p.a.less + first * groups * m;
  BlockRows a = {q + row_first * p.a.stride, q + row_second * p.a.stride, less + row_first,
                 less + row_second};
  const int blocks = min(static_cast<int>(p.a.blocks) - first, plan.blocks);
  parts += first * plan.rows * kColumns + 2 * t;
  const auto multiply = [&](int ahead, float(&part)[4]) {
    const BlockRows rows = {a.first + ahead * p.a.block, a.second + ahead * p.a.block,
                            a.first_less + ahead * groups * m, a.second_less + ahead * groups * m};
    const BlockPlaces places = b.moved(ahead * bytes);
    if constexpr (!BlockFormat<kQuant>::kSubScales) {
      add_blocks<kQuant, kSixteen, kGroups, kBlocks>(p, rows, places, t, part);
    } else if constexpr (BlockFormat<kQuant>::kMinimums) {
      add_block_with_minimums<kQuant, kSixteen>(p, rows, places, t, part);
    } else {
      add_six_bit_block<kSixteen>(rows, places, t, part);
    }
  };
  const auto store = [&](int ahead, const float(&part)[4]) {
    float* const to = parts + ahead * plan.rows * kColumns;
    if (g <= last) {
      *reinterpret_cast<float2*>(to + g * kColumns) = make_float2(part[0], part[1]);
    }
    if (kSixteen && g + 8 <= last) {
      *reinterpret_cast<float2*>(to + (g + 8) * kColumns) = make_float2(part[2], part[3]);
    }
  };
  // Short blocks are multiplied in pairs: the loads for the second one then start before the parts
  // of the first one are stored.
  constexpr int kTogether = kGroups > 0 && kBlocks == 1 ? 2 : 1;
  int block = 0;
  for (; block + kTogether <= blocks; block += kTogether) {
    float part[kTogether][4] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i) multiply(block + i, part[i]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) store(block + i, part[i]);
  }
  if constexpr (kTogether == 2) {
    if (block == blocks) return;
    float part[4] = {};
    multiply(block, part);
    store(block, part);
  }
}

/// Adds the parts of all blocks of a thread's element (row, column) of the tile.
template <Quant kQuant>
__device__ float add_parts(const QuantProduct& p, const Plan& plan, const Tile& tile, int row,
                           int column, const float* parts, bool rests) {
  const auto of_a = static_cast<int>(tile.row) + row, m = static_cast<int>(p.a.m);
  const auto count = static_cast<int>(p.a.blocks);
  const float* const scales = p.a.scale + of_a;
  const int stride = plan.rows * kColumns;
  parts += row * kColumns + column;
  float total = 0.0f;
  if (!rests) {
#pragma unroll 8
    for (int i = 0; i < count; ++i) total = fmaf(parts[i * stride], scales[i * m], total);
    return total;
  }
  for (int i = 0; i < count; ++i) {
    total = fmaf(parts[i * stride], scales[i * m], total);
    for (unsigned bits = p.a.rests[i * m + of_a]; bits != 0; bits &= bits - 1) {
      const int group = __ffs(static_cast<int>(bits)) - 1;
      const float part = rest_part<kQuant>(p, of_a, tile.column + column, i, group);
      const std::int64_t of_row = std::int64_t{i} * (p.a.block / kGroup) + group;
      total = fmaf(part, p.a.rest_scale[of_row * m + of_a], total);
    }
  }
  return total;
}

/// Starts copying `bytes` bytes, a multiple of 16, between addresses that are multiples of 16, to
/// shared memory: the whole thread block.
__device__ void copy_all(std::uint32_t to, const void* from, int bytes) {
  for (int at = static_cast<int>(threadIdx.x) * kCopied; at < bytes; at += kThreads * kCopied) {
    copy_async_16(to + static_cast<std::uint32_t>(at), static_cast<const std::uint8_t*>(from) + at);
  }
}

template <Quant kQuant, bool kSixteen, int kGroups, int kBlocks>
__global__ void __launch_bounds__(kThreads, kResident)
    multiply_few_rows(const __grid_constant__ QuantProducts products,
                      const __grid_constant__ Plan plan) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  const Lane place;
  const int stage_bytes = plan.stage_bytes();
  std::uint8_t* const ring = memory + place.warp * kStages * stage_bytes;
  auto* const all_parts = reinterpret_cast<float*>(memory + plan.rings_bytes());
  let_next_begin();
  if (!products.steady) wait_for_earlier();
  Pieces ahead(products, plan, shared_address(ring));
#pragma unroll
  for (int i = 0; i < kStages; ++i) ahead.start(i);
  if (products.steady) wait_for_earlier();

  QuantRows a = products.each[0].a;
  if (plan.row_bytes > 0) {
    // SAFETY: q, scale and rests lie one after the other, beginning with q (quant_rows.cu).
    std::uint8_t* const rows = memory + plan.rings_bytes() + plan.parts_bytes();
    const auto* const q = reinterpret_cast<const std::uint8_t*>(a.q);
    const std::uint32_t to = shared_address(rows);
    copy_all(to, q, plan.row_bytes);
    copy_all(to + static_cast<std::uint32_t>(plan.row_bytes), a.less, plan.less_bytes);
    commit_copies();
    a.scale = reinterpret_cast<float*>(rows + (reinterpret_cast<std::uint8_t*>(a.scale) - q));
    a.rests =
        reinterpret_cast<std::uint32_t*>(rows + (reinterpret_cast<std::uint8_t*>(a.rests) - q));
    a.q = reinterpret_cast<std::int8_t*>(rows);
    if constexpr (BlockFormat<kQuant>::kMinimums) {
      a.less = reinterpret_cast<float*>(rows + plan.row_bytes);
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  unsigned any = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.m * a.blocks; i += kThreads) any |= a.rests[i];
  const bool rests = __syncthreads_or(static_cast<int>(any)) != 0;

  const int row = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  int stage = 0;
  float* parts = all_parts;
  float* other_parts = all_parts + plan.part_floats;
  for (unsigned number = blockIdx.x; number < plan.tiles; number += gridDim.x) {
    const Tile tile = tile_at(products, plan, number);
    QuantProduct p = products.each[tile.product];
    p.a = a;
    for (int piece = place.warp; piece < plan.pieces; piece += kWarps) {
      wait_for_copies<kStages - 1>();
      __syncwarp();
      multiply_piece<kQuant, kSixteen, kGroups, kBlocks>(p, plan, tile, place, piece,
                                                         ring + stage * stage_bytes, parts);
      __syncwarp();
      ahead.start(stage);
      stage = stage + 1 < kStages ? stage + 1 : 0;
    }
    // One barrier per tile is enough: what is read below is overwritten two tiles later, behind the
    // next barrier.
    __syncthreads();
    if (row < tile.rows && tile.column + column < p.n) {
      const float total = add_parts<kQuant>(p, plan, tile, row, column, parts, rests);
      finish(p, tile.row + row, tile.column + column, total);
    }
    float* const next = other_parts;
    other_parts = parts;
    parts = next;
  }
}

/// The plan of one product, or of several with its rows; `tiles` are missing. Without rows if the
/// parts of so many blocks take too much shared memory.
Plan make_plan(const QuantProduct& p) {
  Plan plan;
  const std::int64_t bytes = std::int64_t{p.b_per_a} * p.block_bytes;
  const std::int64_t most = std::max<std::int64_t>(kPieceBytes / bytes, 1);
  // Every warp has the same number of pieces, if possible.
  const std::int64_t turns = ceil_div(p.a.blocks, most * kWarps);
  const std::int64_t blocks = ceil_div(p.a.blocks, turns * kWarps);
  plan.blocks = static_cast<int>(blocks);
  // An odd number of 16 bytes keeps eight columns in different banks of the shared memory.
  plan.column_stride = (copied_pieces(static_cast<int>(blocks * bytes)) | 1) * kCopied;
  plan.pieces = static_cast<int>(ceil_div(p.a.blocks, blocks));
  const std::int64_t room = kMostShared - plan.rings_bytes();
  constexpr std::int64_t kPartBytes = 2 * kColumns * 4;  // Of a block and a row.
  std::int64_t rows = kFewRows;
  while (rows > 0 && p.a.blocks * std::min(p.a.m, rows) > room / kPartBytes) rows /= 2;
  rows = std::min(p.a.m, rows);
  const std::int64_t passes = rows > 0 ? ceil_div(p.a.m, rows) : 0;
  const std::int64_t fewest = ceil_div(p.a.m, std::int64_t{kFewRows});
  if (passes == 0 || passes > 2 * fewest) return plan;
  plan.rows = static_cast<int>(rows);
  plan.row_tiles = static_cast<unsigned>(passes);
  plan.part_floats = static_cast<int>(p.a.blocks * rows * kColumns);
  const std::int64_t less = format_info(p.quant).minimums
                                ? round_up(p.a.m * (p.a.stride / kGroup) * 4, std::int64_t{16})
                                : 0;
  const std::int64_t copied = quant_rows_front_bytes(p.a);
  const std::int64_t left = kMostShared - plan.rings_bytes() - plan.parts_bytes();
  if (copied + less <= std::min(kMostRowBytes, left)) {
    plan.row_bytes = static_cast<int>(copied);
    plan.less_bytes = static_cast<int>(less);
  }
  return plan;
}

template <Quant kQuant, int kGroups, int kBlocks>
auto* kernel_of_rows(int rows) {
  return rows > 8 ? &multiply_few_rows<kQuant, true, kGroups, kBlocks>
                  : &multiply_few_rows<kQuant, false, kGroups, kBlocks>;
}
/// The kernel for a product, one of its own for the usual blocks.
template <Quant kQuant>
auto* kernel_of(const QuantProduct& p, int rows) {
  const int groups = p.block / kGroup;
  if constexpr (kQuant == Quant::kInt8) {
    if (groups == 4) return kernel_of_rows<kQuant, 4, 1>(rows);
    if (groups == 1) return kernel_of_rows<kQuant, 1, 1>(rows);
    return kernel_of_rows<kQuant, 0, 1>(rows);
  } else if constexpr (kQuant == Quant::kInt4) {
    if (groups == 1 && p.b_per_a == 4) return kernel_of_rows<kQuant, 1, 4>(rows);
    return kernel_of_rows<kQuant, 0, 0>(rows);
  } else {
    return kernel_of_rows<kQuant, 0, 1>(rows);
  }
}

}  // namespace

bool few_rows_apply(const QuantProduct& product) { return make_plan(product).rows > 0; }

cudaError_t launch_few_rows(const QuantProducts& products, const Context& context) {
  const QuantProduct& product = products.each[0];
  Plan plan = make_plan(product);
  std::int64_t tiles = 0;
  for (int i = 0; i < products.count; ++i) {
    plan.tiles_before[i] = static_cast<unsigned>(tiles);
    tiles += ceil_div(products.each[i].n, std::int64_t{kColumns}) * plan.row_tiles;
  }
  if (plan.rows == 0 || tiles > std::numeric_limits<int>::max()) {
    return cudaErrorInvalidConfiguration;
  }
  plan.tiles = static_cast<unsigned>(tiles);
  const unsigned most = static_cast<unsigned>(kResident * context.multiprocessors);
  const unsigned grid = std::min(plan.tiles, std::max(most, 1u));
  const std::size_t shared = plan.shared_bytes();
  return with_format(product.quant, [&](auto format) {
    auto* const kernel = kernel_of<decltype(format)::value>(product, plan.rows);
    const cudaError_t error = allow_shared(kernel, shared);
    if (error != cudaSuccess) return error;
    return launch_early(kernel, grid, kThreads, shared, context, products, plan);
  });
}

}  // namespace volta::cuda
