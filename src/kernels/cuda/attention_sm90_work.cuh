// The work of attention on Hopper, and its producer: how tiles are shared out, what lies where in
// shared memory, and who fills it. attention_sm90.cuh has the consumers and describes the scheme.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_sm90_ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::sm90 {

inline constexpr int kGroup = 128;     ///< Threads of four warps.
inline constexpr int kGroupRows = 64;  ///< Rows of a consumer group.
inline constexpr int kKeys = 128;      ///< Of a block.
inline constexpr int kBoxColumns = 64;
/// What the swizzle's pattern needs.
inline constexpr int kStageAlignment = 1024;

/// kExtras: with dropout, a soft cap or a scale that is not positive.
template <typename T, int kDim_, int kConsumers_, bool kExtras_>
struct Shape {
  using Type = T;
  static constexpr int kDim = kDim_, kConsumers = kConsumers_;
  static constexpr bool kExtras = kExtras_;
  static constexpr int kThreads = (1 + kConsumers) * kGroup;
  static constexpr int kRows = kConsumers * kGroupRows;
  static constexpr int kBoxes = kDim / kBoxColumns;  ///< Side by side in a row.
  static constexpr int kStages = kDim == 64 ? 8 : 4;
  static constexpr int kQueryStages = 2;
  static constexpr int kGroupBytes = kGroupRows * kDim * 2;
  static constexpr int kQueryBytes = kConsumers * kGroupBytes;
  static constexpr int kStageBytes = kKeys * kDim * 2;
  /// With more groups, or with longer products, waiting for a turn costs more than it brings.
  static constexpr bool kTurns = kDim == 128 && kConsumers == 2;
  static constexpr int kBarrierBytes = 2 * (kStages + kQueryStages) * 8;
  /// The barriers come first. The stages begin at the next multiple of their alignment.
  static constexpr int kSharedBytes =
      kBarrierBytes + kStageAlignment + kQueryStages * kQueryBytes + kStages * kStageBytes;
  static_assert(kSharedBytes <= 227 * 1024);
  static constexpr int kProducerRegisters = kConsumers <= 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers <= 2 ? 232 : 160;
};

/// A launch: the call and how it is cut.
struct Launch {
  Forward call;
  unsigned heads = 0;    ///< Of the whole batch.
  unsigned section = 1;  ///< Heads whose tiles are taken together.
  unsigned tiles = 1;    ///< Of a head.
  bool mapped = false;   ///< Whether the copy engine can read q, k and v.
  bool at_once = false;  ///< Whether y can be stored 16 bytes at a time.
};

#if VOLTA_HOPPER

/// Addresses in shared memory.
template <typename S>
struct Shared {
  std::uint32_t barriers, queries, stages;

  __device__ explicit Shared(const void* shared)
      : barriers(shared_address(shared)),
        queries((barriers + S::kBarrierBytes + kStageAlignment - 1) / kStageAlignment *
                kStageAlignment),
        stages(queries + S::kQueryStages * S::kQueryBytes) {}
  // `full` says that a stage's data are there, `empty` that all consumers have read them. Stages
  // [0, kStages) hold keys or values, the following ones queries.
  __device__ std::uint32_t full(int stage) const {
    return barriers + static_cast<std::uint32_t>(stage) * 8;
  }
  __device__ std::uint32_t empty(int stage) const {
    return full(S::kStages + S::kQueryStages + stage);
  }
  __device__ std::uint32_t block(int stage) const {
    return stages + static_cast<std::uint32_t>(stage * S::kStageBytes);
  }
  __device__ std::uint32_t query(int stage) const {
    return queries + static_cast<std::uint32_t>(stage * S::kQueryBytes);
  }
};

/// A place in the sequence of uses of kCount stages from kFirst on.
template <int kFirst, int kCount>
struct Position {
  int index = 0;
  unsigned parity = 0;  ///< Of the current round's phase of the stage's barriers.

  __device__ int stage() const { return kFirst + index; }
  __device__ void advance() {
    if (++index == kCount) {
      index = 0;
      parity ^= 1;
    }
  }
};
template <typename S>
using BlockPosition = Position<0, S::kStages>;
template <typename S>
using QueryPosition = Position<S::kStages, S::kQueryStages>;

/// A tile of rows of one head, and the blocks of keys that they see: [first, first + blocks).
struct Tile {
  int batch, head, kv_head;
  int row;  ///< Rows before 0 do not exist.
  int first, blocks;
};

/// The tiles that a block of threads takes: in a section of heads the longest first, dealt out like
/// cards in rounds of opposite directions, so that all blocks of threads get about the same work.
template <typename S>
class Tiles {
 public:
  __device__ explicit Tiles(const Launch& launch) : launch_(launch), own_(blockIdx.x) {}

  /// Finds the next tile; false at the end.
  __device__ bool next(Tile& tile) {
    while (first_head_ < launch_.heads) {
      const unsigned heads = min(launch_.section, launch_.heads - first_head_);
      const unsigned round = round_++;
      const unsigned first = round * gridDim.x;
      if (first >= heads * launch_.tiles) {
        // In the next section the last, incomplete round is for other blocks of threads.
        constexpr unsigned kStep = 29;
        first_head_ += launch_.section;
        round_ = 0;
        own_ = (own_ + kStep) % gridDim.x;
        continue;
      }
      const unsigned item = first + (round % 2 == 0 ? own_ : gridDim.x - 1 - own_);
      if (item >= heads * launch_.tiles) continue;
      fill(first_head_ + item % heads, static_cast<int>(item / heads), tile);
      return true;
    }
    return false;
  }

 private:
  __device__ void fill(unsigned head, int place, Tile& tile) const {
    const Forward& call = launch_.call;
    tile.batch = static_cast<int>(head / static_cast<unsigned>(call.heads));
    tile.head = static_cast<int>(head % static_cast<unsigned>(call.heads));
    tile.kv_head = tile.head / (call.heads / call.kv_heads);
    // The later rows of a causal sequence see more keys, so their tiles come first, and tiles are
    // counted from the end: an incomplete one is then short.
    const int time = call.mask.time;
    tile.row = ceil_div(time, kGroupRows) * kGroupRows - (place + 1) * S::kRows;
    tile.first = call.mask.begin(max(tile.row, 0)) / kKeys;
    tile.blocks = ceil_div(call.mask.end(min(tile.row + S::kRows, time) - 1), kKeys) - tile.first;
  }

  const Launch& launch_;
  unsigned first_head_ = 0, round_ = 0;  // Of the current section.
  unsigned own_;                         // The place of this block of threads in a round.
};

// ---- the producer -------------------------------------------------------------------------------

/// Copies kRows rows of a head to shared memory as boxes of 64 columns, swizzled as the copy engine
/// does it; for rows that it cannot read. Rows that do not exist become zeros. All threads of the
/// group call it.
template <typename S, int kRows>
__device__ void copy_rows(std::uint32_t to, const HeadRows& rows, const Tile& tile, int head,
                          int t) {
  constexpr int kChunk = 8, kChunks = S::kDim / kChunk, kBoxChunks = kBoxColumns / kChunk;
  const auto* const data = static_cast<const std::uint16_t*>(rows.data);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kGroup) {
    const int row = i / kChunks, chunk = i % kChunks;
    std::uint32_t words[kChunk / 2] = {};
    if (t + row >= 0 && t + row < rows.time) {
      const std::uint16_t* const from =
          data + rows.index(tile.batch, t + row, head) + chunk * kChunk;
#pragma unroll
      for (int j = 0; j < kChunk / 2; ++j) {
        words[j] = from[2 * j] | static_cast<std::uint32_t>(from[2 * j + 1]) << 16;
      }
    }
    const int place = chunk / kBoxChunks * kRows * kBoxRowBytes + row * kBoxRowBytes +
                      (chunk % kBoxChunks ^ row % kBoxChunks) * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to + static_cast<std::uint32_t>(place)), "r"(words[0]), "r"(words[1]),
                   "r"(words[2]), "r"(words[3])
                 : "memory");
  }
}

/// Fills stages: one thread with the copy engine, otherwise the whole group.
template <typename S>
class Producer {
 public:
  __device__ Producer(const Shared<S>& shared, const Launch& launch, const CUtensorMap& map_q,
                      const CUtensorMap& map_k, const CUtensorMap& map_v)
      : shared_(shared), launch_(launch), map_q_(map_q), map_k_(map_k), map_v_(map_v) {}

  __device__ void run() {
    if (launch_.mapped) {
      if (threadIdx.x != 0) return;
      hopper::prefetch_map(map_q_);
      hopper::prefetch_map(map_k_);
      hopper::prefetch_map(map_v_);
    }
    Tiles<S> tiles(launch_);
    for (Tile tile; tiles.next(tile);) {
      fill_queries(tile);
      // The order of use: the scores of a block are computed before the values of the last one.
      for (int i = 0; i < tile.blocks; ++i) {
        const int key = (tile.first + tile.blocks - 1 - i) * kKeys;
        fill_block(launch_.call.in.k, map_k_, tile, key);
        if (i > 0) fill_block(launch_.call.in.v, map_v_, tile, key + kKeys);
      }
      fill_block(launch_.call.in.v, map_v_, tile, tile.first * kKeys);
    }
  }

 private:
  template <int kRows>
  __device__ void copy(std::uint32_t to, std::uint32_t barrier, const HeadRows& rows,
                       const CUtensorMap& map, const Tile& tile, int head, int t) {
    if (!launch_.mapped) return copy_rows<S, kRows>(to, rows, tile, head, t);
    const int column = static_cast<int>(rows.first) + head * S::kDim;
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      hopper::copy_box(to + static_cast<std::uint32_t>(box * kRows * kBoxRowBytes), map, barrier,
                       column + box * kBoxColumns, t, tile.batch);
    }
  }
  __device__ void begin(int stage, unsigned parity, int bytes) {
    hopper::wait_barrier(shared_.empty(stage), parity ^ 1);
    if (launch_.mapped) hopper::arrive_and_expect(shared_.full(stage), bytes);
  }
  __device__ void end(int stage) {
    if (launch_.mapped) return;
    hopper::publish_stores();
    hopper::arrive(shared_.full(stage));
  }
  __device__ void fill_queries(const Tile& tile) {
    const int stage = query_.stage();
    begin(stage, query_.parity, S::kQueryBytes);
#pragma unroll 1
    for (int group = 0; group < S::kConsumers; ++group) {
      copy<kGroupRows>(
          shared_.query(query_.index) + static_cast<std::uint32_t>(group * S::kGroupBytes),
          shared_.full(stage), launch_.call.in.q, map_q_, tile, tile.head,
          tile.row + group * kGroupRows);
    }
    end(stage);
    query_.advance();
  }
  __device__ void fill_block(const HeadRows& rows, const CUtensorMap& map, const Tile& tile,
                             int key) {
    const int stage = block_.stage();
    begin(stage, block_.parity, S::kStageBytes);
    copy<kKeys>(shared_.block(stage), shared_.full(stage), rows, map, tile, tile.kv_head, key);
    end(stage);
    block_.advance();
  }

  const Shared<S>& shared_;
  const Launch& launch_;
  const CUtensorMap& map_q_;
  const CUtensorMap& map_k_;
  const CUtensorMap& map_v_;
  BlockPosition<S> block_;
  QueryPosition<S> query_;
};

#endif  // VOLTA_HOPPER

}  // namespace volta::cuda::attention::sm90
