// Attention in 16 bits for Hopper. Bound by flops: with a head_dim of 64 by the exponentials as
// much as by the tensor cores.
//
// One block runs on each multiprocessor and takes tile after tile of rows of one head. Its first
// four warps are the producer: one thread fills a ring of stages in shared memory with blocks of
// keys and of values through the copy engine, in the order in which they are used, and is ahead of
// the others by up to the whole ring and two tiles of queries. Two or three consumer groups of four
// warps own 64 rows each. Scores, weights and outputs stay in their registers: the weights, rounded
// to 16 bits, are the left operand of the product with the values. A group starts the scores of the
// next block, then the product of this block's weights with its values, and turns the next scores
// into weights while the latter runs. With a head_dim of 128 two groups take turns at starting
// products, so that one multiplies while the other one computes exponentials.
//
// Blocks of 128 keys, at multiples of 128, are taken from the last one that a row sees to the
// first. In blocks in which a row sees no key neither its maximum nor its sums change, so that its
// bits depend neither on its tile nor on the block of threads that takes it, and tiles can be given
// out as blocks of threads ask for them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/attention_sm90_narrow_ptx.cuh"
#include "kernels/cuda/attention_sm90_ptx.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::sm90 {

inline constexpr int kGroup = 128;     ///< Threads of four warps.
inline constexpr int kGroupRows = 64;  ///< Rows of a consumer group.
inline constexpr int kKeys = 128;      ///< Of a block.
inline constexpr int kBoxColumns = 64;
/// What the swizzle's pattern needs.
inline constexpr int kStageAlignment = 1024;

/// A tile as the producer tells it to the consumers.
inline constexpr int kTileBytes = 32;

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
  /// The barriers come first, then the tiles that the stages of queries belong to. The stages begin
  /// at the next multiple of their alignment.
  static constexpr int kHeadBytes = kBarrierBytes + kQueryStages * kTileBytes;
  static constexpr int kSharedBytes =
      kHeadBytes + kStageAlignment + kQueryStages * kQueryBytes + kStages * kStageBytes;
  static_assert(kSharedBytes <= 227 * 1024);
  static constexpr int kProducerRegisters = kConsumers <= 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers <= 2 ? 232 : 160;
};

/// A launch: the call and how it is cut.
struct Launch {
  Forward call;
  unsigned items = 0;    ///< Tiles of all heads.
  unsigned heads = 0;    ///< Of the whole batch.
  unsigned section = 1;  ///< Heads whose tiles are taken together.
  unsigned tiles = 1;    ///< Of a head.
  /// 0 at first; counts the tiles that were taken after the first one of every block of threads.
  unsigned* taken = nullptr;
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
        queries((barriers + S::kHeadBytes + kStageAlignment - 1) / kStageAlignment *
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
  __device__ std::uint32_t tile(int stage) const {
    return barriers + S::kBarrierBytes + static_cast<std::uint32_t>(stage * kTileBytes);
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

  __device__ void store(std::uint32_t to) const {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to), "r"(batch), "r"(head), "r"(kv_head), "r"(row)
                 : "memory");
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                 :
                 : "r"(to + 16), "r"(first), "r"(blocks)
                 : "memory");
  }
  __device__ void load(std::uint32_t from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(batch), "=r"(head), "=r"(kv_head), "=r"(row)
                 : "r"(from)
                 : "memory");
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(first), "=r"(blocks)
                 : "r"(from + 16)
                 : "memory");
  }
};

/// The tile of this number; one without blocks if there is none.
template <typename S>
__device__ Tile find_tile(const Launch& launch, unsigned item) {
  Tile tile = {};
  if (item >= launch.items) return tile;
  const Forward& call = launch.call;
  const unsigned per_section = launch.section * launch.tiles;
  const unsigned first_head = item / per_section * launch.section;
  const unsigned heads = min(launch.section, launch.heads - first_head);
  const unsigned rest = item % per_section;
  const unsigned head = first_head + rest % heads;
  tile.batch = static_cast<int>(head / static_cast<unsigned>(call.heads));
  tile.head = static_cast<int>(head % static_cast<unsigned>(call.heads));
  tile.kv_head = tile.head / (call.heads / call.kv_heads);
  // The later rows of a causal sequence see more keys, so their tiles are taken first, and tiles
  // are counted from the end: an incomplete one is then short.
  const int time = call.mask.time;
  tile.row =
      ceil_div(time, kGroupRows) * kGroupRows - static_cast<int>(rest / heads + 1) * S::kRows;
  tile.first = call.mask.begin(max(tile.row, 0)) / kKeys;
  tile.blocks = ceil_div(call.mask.end(min(tile.row + S::kRows, time) - 1), kKeys) - tile.first;
  return tile;
}

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
    unsigned item = blockIdx.x;
    while (true) {
      const Tile tile = find_tile<S>(launch_, item);
      fill_queries(tile);
      if (tile.blocks == 0) return;
      item = next_item();
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
  __device__ unsigned next_item() {
    if (launch_.taken == nullptr) return launch_.items;
    unsigned item = 0;
    if (threadIdx.x == 0) item = gridDim.x + atomicAdd(launch_.taken, 1);
    if (launch_.mapped) return item;
    // The tile that the consumers read is stored later, after these barriers.
    const std::uint32_t exchange = shared_.tile(query_.index) + kTileBytes - 4;
    if (threadIdx.x == 0) {
      asm volatile("st.shared.b32 [%0], %1;" : : "r"(exchange), "r"(item) : "memory");
    }
    hopper::wait_numbered_barrier(kExchangeBarrier, kGroup);
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(item) : "r"(exchange) : "memory");
    hopper::wait_numbered_barrier(kExchangeBarrier, kGroup);
    return item;
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
    hopper::wait_barrier(shared_.empty(stage), query_.parity ^ 1);
    if (threadIdx.x == 0) tile.store(shared_.tile(query_.index));
    if (tile.blocks == 0) {
      hopper::arrive(shared_.full(stage));
      return;
    }
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

  static constexpr int kExchangeBarrier = 1 + S::kConsumers;

  const Shared<S>& shared_;
  const Launch& launch_;
  const CUtensorMap& map_q_;
  const CUtensorMap& map_k_;
  const CUtensorMap& map_v_;
  BlockPosition<S> block_;
  QueryPosition<S> query_;
};

// ---- the consumers ------------------------------------------------------------------------------

// Registers of a thread. With lane l of warp w of a group, g = l / 4 and t = l % 4, element 4 j +
// 2 h + i of scores or outputs is row 16 w + g + 8 h, column 8 j + 2 t + i.
using Scores = float[kKeys / 2];
using Weights = std::uint32_t[kKeys / 16][4];

/// Starts scores = q k^T, of all keys of a block or of the first 64.
template <typename S, int kCount>
__device__ inline void start_scores(std::uint64_t q, std::uint64_t k, float (&scores)[kCount]) {
  using T = typename S::Type;
  constexpr int kSteps = S::kDim / 16, kBoxSteps = kBoxColumns / 16;
  hopper::fence_sums();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    // In units of 16 bytes: 16 columns are 32 bytes.
    const auto box = static_cast<std::uint64_t>(step / kBoxSteps);
    const auto within = static_cast<std::uint64_t>(step % kBoxSteps * 2);
    const std::uint64_t a = q + box * (kGroupRows * kBoxRowBytes / 16) + within;
    const std::uint64_t b = k + box * (kKeys * kBoxRowBytes / 16) + within;
    if constexpr (kCount == kKeys / 2) {
      hopper::multiply_async<T, false, false>(scores, a, b, step > 0);
    } else {
      hopper::multiply_narrow_async<T>(scores, a, b, step > 0);
    }
  }
  hopper::commit_products();
}

/// Starts out += weights v.
template <typename S>
__device__ inline void start_outputs(const Weights& weights, std::uint64_t v,
                                     float (&out)[S::kDim / 2]) {
  hopper::fence_sums();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    hopper::multiply_registers_async<typename S::Type>(
        out, weights[step], v + static_cast<std::uint64_t>(step * (16 * kBoxRowBytes / 16)));
  }
  hopper::commit_products();
}

/// Rounds weights to 16 bits.
template <typename T>
__device__ inline void round_weights(const Scores& scores, Weights& weights) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    weights[i / 4][i % 4] = mma::round_pair<T>(scores[2 * i], scores[2 * i + 1]);
  }
}

/// Of four registers in each lane of a quad, lane t gets register t of all lanes, in order.
__device__ inline void transpose_quad(std::uint32_t (&x)[4]) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x / 2 % 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, odd ? x[i] : x[i + 1], 1);
    (odd ? x[i] : x[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, high ? x[i] : x[i + 2], 2);
    (high ? x[i] : x[i + 2]) = other;
  }
}

/// A consumer group.
template <typename S>
class Consumer {
 public:
  using T = typename S::Type;

  __device__ Consumer(const Shared<S>& shared, const Launch& launch, int group)
      : shared_(shared), launch_(launch), dropout_(launch.call.dropout), group_(group) {}

  __device__ void run() {
    if (S::kTurns && group_ == 0) hopper::arrive_numbered_barrier(turn(0), kTurnThreads);
    while (true) {
      hopper::wait_barrier(shared_.full(query_.stage()), query_.parity);
      const Tile tile = load_tile();
      if (tile.blocks == 0) return;
      attend(tile.row + group_ * kGroupRows, tile.first * kKeys,
             (tile.first + tile.blocks - 1) * kKeys);
    }
  }

 private:
  static constexpr int kTurnThreads = 2 * kGroup;
  /// The barrier that a group waits at before it starts products.
  __device__ static int turn(int group) { return 1 + group; }
  __device__ void wait_for_turn() const {
    if (!S::kTurns) return;
    hopper::wait_numbered_barrier(turn(group_), kTurnThreads);
  }
  __device__ void pass_turn() const {
    if (!S::kTurns) return;
    hopper::arrive_numbered_barrier(turn((group_ + 1) % S::kConsumers), kTurnThreads);
  }

  __device__ std::uint64_t keys(int stage) const {
    return hopper::operand_descriptor<false>(shared_.block(stage), kKeys * kBoxRowBytes);
  }
  __device__ std::uint64_t values(int stage) const {
    return hopper::operand_descriptor<true>(shared_.block(stage), kKeys * kBoxRowBytes);
  }
  __device__ void release(int stage) const {
    if (threadIdx.x % kWarp == 0) hopper::arrive(shared_.empty(stage));
  }

  /// Passes over a stage of the ring.
  __device__ void skip_block() {
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    release(block_.stage());
    block_.advance();
  }
  /// The tile of the current queries. From the first lane, so that the compiler knows that a warp
  /// does not diverge because of it.
  __device__ Tile load_tile() const {
    Tile tile;
    tile.load(shared_.tile(query_.index));
    for (int* const each : {&tile.batch, &tile.head, &tile.row, &tile.first, &tile.blocks}) {
      *each = __shfl_sync(kAllLanes, *each, 0);
    }
    return tile;
  }
  /// A warp's first row, if `row` is that of the group.
  __device__ static int warp_row(int row) {
    return row + static_cast<int>(threadIdx.x) / kWarp % 4 * 16;
  }

  /// Scores of the group's rows, from `row` on, and keys from `key` on to weights.
  template <int kCount>
  __device__ void weigh_keys(int row, int key, RowState& state, float (&correction)[2],
                             float (&scores)[kCount]) const {
    const Forward& call = launch_.call;
    if constexpr (S::kExtras) scale_scores(call, scores);
    const bool all = key + 2 * kCount <= (call.mask.causal ? row + 1 : call.mask.time) &&
                     (call.mask.window == 0 || key > row + kGroupRows - 1 - call.mask.window);
    if (!all) hide_scores(call.mask, warp_row(row), key, scores);
    weigh<T>(S::kExtras ? 1.0f : call.scale * kLog2E, scores, state, correction);
    if constexpr (S::kExtras) {
      if (!dropout_.on()) return;
      const Tile tile = load_tile();
      drop_weights(call, dropout_, tile.batch, tile.head, warp_row(row), key, scores);
    }
  }

  /// The group's rows, from `row` on, against the blocks of keys from `key` down to `first_key`.
  __device__ void attend(int row, int first_key, int key) {
    RowState state;
    float out[S::kDim / 2], correction[2];
    Scores scores;
    Weights weights;
#pragma unroll
    for (float& each : out) each = 0.0f;
    const std::uint64_t query = hopper::operand_descriptor<false>(
        shared_.query(query_.index) + static_cast<std::uint32_t>(group_ * S::kGroupBytes),
        kGroupRows * kBoxRowBytes);
    // No row of the group sees the last block if it begins behind them.
    const bool skips = key > first_key && launch_.call.mask.causal && key >= row + kGroupRows;
    if (skips) {
      skip_block();
      key -= kKeys;
      wait_for_turn();
      pass_turn();
    }
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    // No row sees the second half of its last block if that begins behind it.
    if (launch_.call.mask.causal && key >= row) {
      // SAFETY: the scores of the first half of a block are the first half of the registers.
      auto& first_half = reinterpret_cast<float(&)[kKeys / 4]>(scores);
      start_scores<S>(query, keys(block_.stage()), first_half);
      hopper::wait_for_products<0>();
      hopper::use_sums(first_half);
      release(block_.stage());
      weigh_keys(row, key, state, correction, first_half);
#pragma unroll
      for (int i = kKeys / 4; i < kKeys / 2; ++i) scores[i] = 0.0f;
    } else {
      start_scores<S>(query, keys(block_.stage()), scores);
      hopper::wait_for_products<0>();
      hopper::use_sums(scores);
      release(block_.stage());
      weigh_keys(row, key, state, correction, scores);
    }
    block_.advance();
    if (skips) skip_block();
    round_weights<T>(scores, weights);
#pragma unroll 1
    while (key > first_key) {
      key -= kKeys;
      const int key_stage = block_.stage();
      hopper::wait_barrier(shared_.full(key_stage), block_.parity);
      block_.advance();
      wait_for_turn();
      use_weights(weights);
      start_scores<S>(query, keys(key_stage), scores);
      correct(correction, out);  // While the products run.
      const int value_stage = block_.stage();
      hopper::wait_barrier(shared_.full(value_stage), block_.parity);
      block_.advance();
      hopper::use_sums(out);
      start_outputs<S>(weights, values(value_stage), out);
      pass_turn();
      hopper::wait_for_products<1>();
      hopper::use_sums(scores);
      release(key_stage);
      weigh_keys(row, key, state, correction, scores);
      hopper::wait_for_products<0>();
      hopper::use_sums(out);
      release(value_stage);
      round_weights<T>(scores, weights);
    }
    correct(correction, out);
    hopper::wait_barrier(shared_.full(block_.stage()), block_.parity);
    hopper::use_sums(out);
    use_weights(weights);
    start_outputs<S>(weights, values(block_.stage()), out);
    const Tile tile = load_tile();
    release(query_.stage());
    query_.advance();
    finish_sums(state);
    hopper::wait_for_products<0>();
    hopper::use_sums(out);
    release(block_.stage());
    block_.advance();
    store(tile, state, out);
  }

  __device__ static void correct(const float (&correction)[2], float (&out)[S::kDim / 2]) {
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] *= correction[i / 2 % 2];
  }
  /// Keeps the compiler from computing weights later than here.
  __device__ static void use_weights(Weights& weights) {
#pragma unroll
    for (auto& four : weights) {
#pragma unroll
      for (std::uint32_t& each : four) asm volatile("" : "+r"(each) : : "memory");
    }
  }

  __device__ void store(const Tile& tile, const RowState& state, const float (&out)[S::kDim / 2]) {
    const Forward& call = launch_.call;
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const int row =
        warp_row(tile.row + group_ * kGroupRows) + static_cast<int>(threadIdx.x) % kWarp / 4;
    const float kept = dropout_.on() ? call.dropout.kept_scale : 1.0f;
    const float to_log = S::kExtras ? kLn2 : call.scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = row + 8 * half;
      const float factor = kept / state.sum[half];
      const bool exists = t >= 0 && t < call.mask.time;
      if (quad == 0 && exists) {
        call.lse[(std::int64_t{tile.batch} * call.heads + tile.head) * call.mask.time + t] =
            fmaf(state.max[half], to_log, (log2f(state.sum[half]) - mma::kWeightExponent<T>)*kLn2);
      }
      T* const to = static_cast<T*>(call.y.data) + call.y.index(tile.batch, t, tile.head);
#pragma unroll
      for (int j = 0; j < S::kDim / 8; j += 4) {
        std::uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = mma::round_pair<T>(out[4 * (j + i) + 2 * half] * factor,
                                    out[4 * (j + i) + 2 * half + 1] * factor);
        }
        transpose_quad(x);
        if (!exists) continue;
        store_chunk(to + (j + quad) * 8, x);
      }
    }
  }
  /// Stores 8 neighbouring elements.
  __device__ void store_chunk(T* to, const std::uint32_t (&x)[4]) const {
    if (launch_.at_once) {
      *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
      return;
    }
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      halves[2 * i] = static_cast<std::uint16_t>(x[i]);
      halves[2 * i + 1] = static_cast<std::uint16_t>(x[i] >> 16);
    }
  }

  const Shared<S>& shared_;
  const Launch& launch_;
  DropoutMask dropout_;
  int group_;
  BlockPosition<S> block_;
  QueryPosition<S> query_;
};

#endif  // VOLTA_HOPPER

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap map_q,
                   const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v,
                   const __grid_constant__ Launch launch) {
#if VOLTA_HOPPER
  extern __shared__ __align__(16) unsigned char storage[];
  const Shared<S> shared(storage);
  // From the first lane, so that the compiler knows that a warp does not diverge here.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroup, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::kStages + S::kQueryStages; ++stage) {
      hopper::init_barrier(shared.full(stage), launch.mapped ? 1 : kGroup);
      hopper::init_barrier(shared.empty(stage), S::kConsumers * kGroup / kWarp);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    hopper::give_registers<S::kProducerRegisters>();
    Producer<S>(shared, launch, map_q, map_k, map_v).run();
  } else {
    hopper::take_registers<S::kConsumerRegisters>();
    Consumer<S>(shared, launch, group - 1).run();
  }
#else
  // Code for other GPUs is never launched. If it were, an error is better than an unwritten y.
  __trap();
#endif
}

/// Heads whose tiles are taken together: as many as have their keys and values in the L2 cache with
/// room for the rest, so that every block of keys comes from there but once.
inline std::int64_t heads_of_section(const Forward& call) {
  constexpr std::int64_t kCacheBytes = std::int64_t{16} << 20;
  const std::int64_t group = call.heads / call.kv_heads;
  const std::int64_t bytes = call.y.time * call.y.dim * 2 * dtype_size(call.dtype);
  return std::max<std::int64_t>(kCacheBytes / bytes, 1) * group;
}

inline MappedMatrix mapped_rows(const HeadRows& rows, const Forward& call) {
  return {.data = rows.data,
          .type = call.dtype,
          .columns = rows.stride,
          .rows = rows.time,
          .layers = call.batch,
          .stride = rows.stride,
          .layer_stride = rows.time * rows.stride};
}

template <typename S>
cudaError_t launch_forward(const Forward& call, unsigned* taken, const Context& context) {
  Launch launch;
  launch.call = call;
  const std::int64_t tiles = ceil_div(call.y.time, std::int64_t{S::kRows});
  const std::int64_t heads = call.batch * call.heads;
  // More rounds than that have no number.
  if (heads * tiles > std::numeric_limits<int>::max()) return cudaErrorInvalidValue;
  launch.items = static_cast<unsigned>(heads * tiles);
  launch.heads = static_cast<unsigned>(heads);
  launch.tiles = static_cast<unsigned>(tiles);
  launch.section = static_cast<unsigned>(std::min(heads_of_section(call), heads));
  launch.at_once = call.y.is_aligned_for(8, call.dtype);
  const MappedMatrix q = mapped_rows(call.in.q, call), k = mapped_rows(call.in.k, call),
                     v = mapped_rows(call.in.v, call);
  launch.mapped = can_map(q) && can_map(k) && can_map(v);
  CUtensorMap maps[3] = {};
  if (launch.mapped) {
    cudaError_t error = make_tensor_map(q, kGroupRows, maps[0]);
    if (error == cudaSuccess) error = make_tensor_map(k, kKeys, maps[1]);
    if (error == cudaSuccess) error = make_tensor_map(v, kKeys, maps[2]);
    if (error != cudaSuccess) return error;
  }
  const auto kernel = forward_kernel<S>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes);
  if (error != cudaSuccess) return error;
  const unsigned blocks = blocks_for(launch.items, 1, context.multiprocessors);
  if (launch.items > blocks) {
    launch.taken = taken;
    const cudaError_t cleared = cudaMemsetAsync(taken, 0, sizeof(*taken), context.stream);
    if (cleared != cudaSuccess) return cleared;
  }
  kernel<<<blocks, S::kThreads, S::kSharedBytes, context.stream>>>(maps[0], maps[1], maps[2],
                                                                   launch);
  return launch_error();
}

/// Whether three groups take less time than two. They use the multiprocessor better, but their
/// tiles of 192 rows have more rows that wait for the others, or do not exist.
inline bool use_three_groups(const Forward& call) {
  constexpr std::int64_t kTwoCost = 2 * 32, kThreeCost = 3 * 27;  // Of a block of keys.
  const auto blocks = [&](std::int64_t rows) {
    const std::int64_t top = round_up(call.y.time, std::int64_t{kGroupRows});
    if (!call.mask.causal) return ceil_div(top, rows) * ceil_div(top, std::int64_t{kKeys});
    std::int64_t sum = 0;
    for (std::int64_t row = top; row > 0; row -= rows) sum += ceil_div(row, std::int64_t{kKeys});
    return sum;
  };
  return blocks(3 * kGroupRows) * kThreeCost < blocks(2 * kGroupRows) * kTwoCost;
}

template <typename T, int kDim>
cudaError_t forward(const Forward& call, unsigned* taken, const Context& context) {
  if (needs_extras(call)) return launch_forward<Shape<T, kDim, 2, true>>(call, taken, context);
  if constexpr (kDim == 64) {
    if (use_three_groups(call)) {
      return launch_forward<Shape<T, kDim, 3, false>>(call, taken, context);
    }
  }
  return launch_forward<Shape<T, kDim, 2, false>>(call, taken, context);
}

}  // namespace volta::cuda::attention::sm90
