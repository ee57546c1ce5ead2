// Products of at most 16 rows of a with matrices of weights, on Hopper (gemm_stream.h). Bound by
// the bytes of the weights.
//
// A warp computes 8 columns, a unit, over all of K, because pieces of K would change the bits, and
// then its next unit. The weights of its units come through a ring in shared memory of its own, and
// a second warp does nothing but start the copies: half a kilobyte of each column with one
// instruction (tensor_map.h). So the warps that multiply never wait for each other, and a few of
// them keep enough bytes on their way. The rings are filled before the kernel waits for the earlier
// ones; then all threads copy the rows of a to shared memory.
//
// The tensor cores get the rows of a as 16 rows, most of which repeat the last one: their sums are
// not stored. The chain of products is that of gemm_rows.cu. Its latency, about 25 cycles for 16
// steps of k and 8 columns, is why two warps of a multiprocessor can be enough, and one is not.
#include "kernels/cuda/gemm_stream.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_sm90_ptx.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {
namespace {

constexpr int kUnit = kStripRows;      // Columns.
constexpr int kDepth = kStripColumns;  // Steps of k of a stage.
constexpr int kStep = 16;              // Steps of k of a product.
constexpr int kBlock = 64;             // Columns of a block in a stage; K is a multiple of it.
constexpr int kBlockBytes = kUnit * kBlock * 2;
constexpr int kPad = 16;  // Bytes between rows of a keep eight in different banks.
constexpr int kMostWarps = 4;
constexpr int kMostRows = 16;
constexpr std::int64_t kRingBytes = 112 * 1024;  // Of a block, about.
constexpr std::int64_t kMostShared = 220 * 1024;
// A block that begins early takes more than half of a multiprocessor's shared memory. Otherwise two
// of them could share one multiprocessor, while another one is still busy with the kernel before.
constexpr std::int64_t kLeastShared = 116 * 1024;
constexpr std::int64_t kMostStages = 24;  // Of a warp.
constexpr int kEveryStage = 0x7fffffff;

template <bool kGated>
constexpr int kStageBytes = (kGated ? 2 : 1) * kStripBytes;

struct Stream {
  CUtensorMap map;
  std::int64_t first_unit = 0;
  GemmOutput out;
};

struct StreamCall {
  const void* a = nullptr;
  int k = 0, m = 0;
  int count = 0;
  Stream streams[kMostStreams];
  GemmOutput gated;
  Activation activation = Activation::kNone;
  bool steady = false;
  std::int64_t units = 0;
  int stages = 0;                                  // Of a warp's ring.
  int a_offset = 0, a_pitch = 0, ring_offset = 0;  // In shared memory, in bytes.
};

#if VOLTA_HOPPER

// Starts the copy of a box as hopper::copy_box does. The bytes leave the L2 cache first, because
// they are read once, and the next kernels' code, activations and caches should stay.
__device__ inline void copy_box_once(std::uint32_t to, const CUtensorMap& map,
                                     std::uint32_t barrier, int row, int block,
                                     std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
      :
      : "r"(to), "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(0), "r"(row),
        "r"(block), "l"(policy)
      : "memory");
}
__device__ inline std::uint64_t evict_first() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The stream of a unit.
__device__ inline int stream_of(const StreamCall& call, std::int64_t unit) {
  int stream = 0;
  while (stream + 1 < call.count && unit >= call.streams[stream + 1].first_unit) ++stream;
  return stream;
}

// The slots of a ring in turn: a barrier that tells when a slot is full and one that tells when it
// is empty, and the number of times that all slots had their turn.
struct Slots {
  std::uint32_t
      barriers;  // [stages] of 8 bytes, first those of full slots, then those of empty ones.
  int stages;
  int slot = 0;
  unsigned parity = 0;

  __device__ void next() {
    if (++slot < stages) return;
    slot = 0;
    parity ^= 1;
  }
  __device__ std::uint32_t full() const { return barriers + slot * 8; }
  __device__ std::uint32_t empty() const { return barriers + (stages + slot) * 8; }
};

// Where a warp begins, and the distance to its next unit.
struct Share {
  std::int64_t first, step;
};

// Streams the weights of the units of a warp into its ring; one lane does it. What lies outside of
// a matrix comes as zeros, so that all stages have the same size.
template <bool kGated>
class Filler {
 public:
  __device__ Filler(const StreamCall& call, const Slots& slots, std::uint32_t ring,
                    const Share& share)
      : call_(call), slots_(slots), ring_(ring), share_(share), policy_(evict_first()) {}

  // Starts the copies of the next stages, at most `stages` of them.
  __device__ void fill(int stages) {
    for (; share_.first < call_.units && stages > 0; --stages) {
      const Stream& stream = call_.streams[kGated ? 0 : stream_of(call_, share_.first)];
      const int column = static_cast<int>(share_.first - stream.first_unit) * kUnit;
      hopper::wait_barrier(slots_.empty(), slots_.parity ^ 1);
      const std::uint32_t to = ring_ + slots_.slot * kStageBytes<kGated>;
      hopper::arrive_and_expect(slots_.full(), kStageBytes<kGated>);
      copy_box_once(to, stream.map, slots_.full(), column, k_ / kBlock, policy_);
      if constexpr (kGated) {
        copy_box_once(to + kStripBytes, call_.streams[1].map, slots_.full(), column, k_ / kBlock,
                      policy_);
      }
      slots_.next();
      k_ += kDepth;
      if (k_ < call_.k) continue;
      k_ = 0;
      share_.first += share_.step;
    }
  }

 private:
  const StreamCall& call_;
  Slots slots_;
  std::uint32_t ring_;
  Share share_;
  std::uint64_t policy_;
  int k_ = 0;
};

// The fragments of two steps of k.
template <int kRows, int kMatrices>
struct Fragments {
  std::uint32_t b[kMatrices][4], a[kRows / 8][4];

  // `line` and `row` are this lane's addresses in shared memory.
  __device__ void load(std::uint32_t line, std::uint32_t row) {
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) load_matrices(b[i], line + i * kStripBytes);
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) load_matrices(a[i], row + i * 32);
  }
  // Adds the products of step 0 or 1 to sums.
  template <typename T>
  __device__ void multiply(float (&sums)[kMatrices][4], int step) const {
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
      if constexpr (kRows == 8) {
        const std::uint32_t rows[4] = {a[0][2 * step], 0, a[0][2 * step + 1], 0};
        multiply_add<T>(sums[i], rows, b[i][2 * step], b[i][2 * step + 1]);
      } else {
        multiply_add<T>(sums[i], a[step], b[i][2 * step], b[i][2 * step + 1]);
      }
    }
  }
};

constexpr int kPair = 2 * kStep;       // Steps of k of Fragments.
constexpr int kPairBytes = kPair * 2;  // Of a row of a.

// This lane's address for pair `pair` of a stage: of two pairs, the second one has the other half
// of the lines of 128 bytes.
__device__ inline std::uint32_t line_of(std::uint32_t stage, int pair) {
  return (stage ^ pair % 2 * kPairBytes) + pair / 2 * kBlockBytes;
}

// Fragments that are loaded while those before them are multiplied; a stage has an even number of
// batches.
template <int kRows, int kMatrices>
constexpr int kBatch = kRows / 8 + kMatrices >= 4 ? 2 : 4;

template <int kRows, int kMatrices>
struct Batch {
  static constexpr int kPairs = kBatch<kRows, kMatrices>;
  Fragments<kRows, kMatrices> pairs[kPairs];

  // Pairs from `first` on of a stage.
  __device__ void load(std::uint32_t stage, int first, std::uint32_t row) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i].load(line_of(stage, first + i), row + i * kPairBytes);
    }
  }
  template <typename T>
  __device__ void multiply(float (&sums)[kMatrices][4]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i].template multiply<T>(sums, 0);
      pairs[i].template multiply<T>(sums, 1);
    }
  }
};

// sums = the products of a unit. A batch of fragments is loaded before the one in front of it is
// multiplied, so that the products follow each other without a gap. `line` is this lane's address
// in slot 0.
template <typename T, int kRows, bool kGated, int kMatrices>
__device__ void multiply_unit(const StreamCall& call, Slots& slots, std::uint32_t line,
                              std::uint32_t row, float (&sums)[kMatrices][4]) {
  using OneBatch = Batch<kRows, kMatrices>;
  constexpr int kBatches = kDepth / (OneBatch::kPairs * kPair);
  constexpr int kBatchBytes = OneBatch::kPairs * kPairBytes;
  static_assert(kBatches % 2 == 0);
  const bool first_lane = threadIdx.x % kWarp == 0;
  const auto wait = [&] {
    hopper::wait_barrier(slots.full(), slots.parity);
    return line + slots.slot * kStageBytes<kGated>;
  };
  const int whole = call.k / kDepth, rest = call.k % kDepth;
  OneBatch batches[2];
  std::uint32_t stage_line = 0;
  if (whole > 0) {
    stage_line = wait();
    batches[0].load(stage_line, 0, row);
  }
#pragma unroll 1
  for (int stage = 0; stage < whole; ++stage) {
    const std::uint32_t empty = slots.empty();
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      row += kBatchBytes;
      if (i + 1 < kBatches) {
        batches[(i + 1) % 2].load(stage_line, (i + 1) * OneBatch::kPairs, row);
      } else {
        slots.next();
        if (stage + 1 < whole) {
          stage_line = wait();
          batches[0].load(stage_line, 0, row);
        }
      }
      batches[i % 2].template multiply<T>(sums);
    }
    // The products have read the stage.
    __syncwarp();
    if (first_lane) hopper::arrive(empty);
  }
  if (rest == 0) return;
  stage_line = wait();
#pragma unroll 1
  for (int pair = 0; pair * kPair < rest; ++pair, row += kPairBytes) {
    batches[0].pairs[0].load(line_of(stage_line, pair), row);
    batches[0].pairs[0].template multiply<T>(sums, 0);
    batches[0].pairs[0].template multiply<T>(sums, 1);
  }
  __syncwarp();
  if (first_lane) hopper::arrive(slots.empty());
  slots.next();
}

template <typename T>
__device__ inline float rounded(float x) {
  return to_f32(from_f32<T>(x));
}

// Stores columns [column, column + 4) of a row.
template <typename T, int kMatrices>
__device__ void store_group(const StreamCall& call, int stream, int row, std::int64_t column,
                            const float4 (&x)[kMatrices]) {
  if constexpr (kMatrices == 1) {
    write_output(call.streams[stream].out, row, column, x[0]);
  } else {
    write_output(call.streams[0].out, row, column, x[0]);
    write_output(call.streams[1].out, row, column, x[1]);
    const auto gate = [&](float value, float up) {
      return __fmul_rn(apply_unary(call.activation, 1.0f, rounded<T>(value)), rounded<T>(up));
    };
    write_output(call.gated, row, column,
                 make_float4(gate(x[0].x, x[1].x), gate(x[0].y, x[1].y), gate(x[0].z, x[1].z),
                             gate(x[0].w, x[1].w)));
  }
}

// Finishes and stores the sums of a unit. A lane has two columns of a row; a lane of even number
// takes those of the next one, too.
template <typename T, int kRows, int kMatrices>
__device__ void store_unit(const StreamCall& call, std::int64_t unit,
                           const float (&sums)[kMatrices][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int stream = kMatrices == 1 ? stream_of(call, unit) : 0;
  const std::int64_t column = (unit - call.streams[stream].first_unit) * kUnit + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    float4 x[kMatrices];
#pragma unroll
    for (int j = 0; j < kMatrices; ++j) {
      x[j].x = sums[j][2 * i];
      x[j].y = sums[j][2 * i + 1];
      x[j].z = __shfl_down_sync(kAllLanes, x[j].x, 1);
      x[j].w = __shfl_down_sync(kAllLanes, x[j].y, 1);
    }
    const int row = lane / 4 + i * 8;
    if (lane % 2 == 0 && row < call.m) store_group<T>(call, stream, row, column, x);
  }
}

// Copies the rows of a to shared memory. All threads of a block call it.
__device__ void copy_rows(const StreamCall& call, unsigned char* to) {
  const int chunks = call.k / 8, all = call.m * chunks;
  const auto* from = static_cast<const uint4*>(call.a);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < all; i += static_cast<int>(blockDim.x)) {
    const uint4 chunk = from[i];
    *reinterpret_cast<uint4*>(to + i / chunks * call.a_pitch + i % chunks * 16) = chunk;
  }
}

// Brings the residuals of a unit into the L2 cache before the unit is computed.
template <int kRows>
__device__ void prefetch_residual(const StreamCall& call, std::int64_t unit) {
  const Stream& stream = call.streams[stream_of(call, unit)];
  const int row = static_cast<int>(threadIdx.x) % kWarp;
  if (stream.out.residual == nullptr || row >= call.m || row >= kRows) return;
  const std::int64_t at = row * stream.out.n + (unit - stream.first_unit) * kUnit;
  prefetch_to_l2(static_cast<const char*>(stream.out.residual) + at * dtype_size(stream.out.type));
}

// This lane's address for the fragments of a: those of two steps if the rows are at most 8.
template <int kRows>
__device__ std::uint32_t row_address(const StreamCall& call, std::uint32_t base) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return base + call.a_offset + min(lane % kRows, call.m - 1) * call.a_pitch + lane / kRows * 16;
}

template <typename T, int kRows, bool kGated>
__device__ void stream_units(const StreamCall& call) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kMatrices = kGated ? 2 : 1;
  // The first half of the warps multiplies, the second half fills their rings.
  const int warps = static_cast<int>(blockDim.x) / (2 * kWarp);
  const int warp = static_cast<int>(threadIdx.x) / kWarp % warps;
  const bool fills = static_cast<int>(threadIdx.x) / kWarp >= warps;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint32_t base = shared_address(shared);
  Slots slots = {base + warp * call.stages * 16, call.stages};
  const std::uint32_t ring = base + call.ring_offset + warp * call.stages * kStageBytes<kGated>;
  const Share share = {blockIdx.x + std::int64_t{warp} * gridDim.x,
                       std::int64_t{gridDim.x} * warps};
  if (fills && lane == 0) {
    for (int i = 0; i < 2 * call.stages; ++i) hopper::init_barrier(slots.barriers + i * 8, 1);
    hopper::publish_barriers();
  }
  let_next_begin();
  if (!call.steady) wait_for_earlier();
  // The lane that made the barriers may begin; the others wait below.
  Filler<kGated> filler(call, slots, ring, share);
  if (fills && lane == 0) filler.fill(call.stages);
  if (call.steady) wait_for_earlier();
  copy_rows(call, shared + call.a_offset);
  __syncthreads();
  if (fills) {
    if (lane == 0) filler.fill(kEveryStage);
    return;
  }

  const std::uint32_t row = row_address<kRows>(call, base);
  const std::uint32_t line =
      ring + lane % kUnit * kBlock * 2u + (lane / kUnit ^ lane % kUnit) * 16u;
  for (std::int64_t unit = share.first; unit < call.units; unit += share.step) {
    float sums[kMatrices][4] = {};
    if constexpr (!kGated) prefetch_residual<kRows>(call, unit);
    multiply_unit<T, kRows, kGated>(call, slots, line, row, sums);
    store_unit<T, kRows>(call, unit, sums);
  }
}
#endif  // VOLTA_HOPPER

template <typename T, int kRows, bool kGated>
__global__ void __launch_bounds__(2 * kMostWarps * kWarp)
    gemm_stream(const __grid_constant__ StreamCall call) {
#if VOLTA_HOPPER
  stream_units<T, kRows, kGated>(call);
#endif
}

// How a launch is cut: one block per multiprocessor, whose warps take turns at the units.
struct Cut {
  std::int64_t blocks = 1, warps = 1, stages = 0, a_offset = 0, ring_offset = 0, shared = 0;
};

std::int64_t units_of(const GemmOutput& out) { return ceil_div(out.n, std::int64_t{kUnit}); }

Cut cut_units(const GemmStreams& p, const Context& context) {
  const bool gated = p.gated.c != nullptr;
  std::int64_t units = 0;
  for (int i = 0; i < (gated ? 1 : p.count); ++i) units += units_of(p.out[i]);
  Cut cut;
  cut.blocks =
      std::clamp<std::int64_t>(context.multiprocessors, 1, std::max<std::int64_t>(units, 1));
  cut.warps = std::clamp<std::int64_t>(ceil_div(units, cut.blocks), 1, kMostWarps);
  const std::int64_t rows = p.m * (p.k * 2 + kPad);
  constexpr std::int64_t kBarriers = 2 * 8 * kMostWarps * kMostStages;
  cut.a_offset = round_up(kBarriers, std::int64_t{128});
  cut.ring_offset = round_up(cut.a_offset + rows, std::int64_t{kBlockBytes});
  const std::int64_t bytes = cut.warps * (gated ? kStageBytes<true> : kStageBytes<false>);
  const std::int64_t turns = ceil_div(units, cut.blocks * cut.warps);
  cut.stages = std::min({std::min(kRingBytes, kMostShared - cut.ring_offset) / bytes,
                         turns * ceil_div(p.k, std::int64_t{kDepth}), kMostStages});
  cut.shared = cut.ring_offset + cut.stages * bytes;
  return cut;
}

template <typename T, int kRows>
cudaError_t launch(const GemmStreams& p, const Context& context) {
  const Cut cut = cut_units(p, context);
  StreamCall call;
  call.a = p.a.data;
  call.k = static_cast<int>(p.k);
  call.m = static_cast<int>(p.m);
  call.count = p.count;
  for (int i = 0; i < p.count; ++i) {
    const bool side_by_side = p.gated.c == nullptr;
    Stream& stream = call.streams[i];
    stream.first_unit = side_by_side ? call.units : 0;
    stream.out = p.out[i];
    const cudaError_t error = make_strip_map(p.b[i], p.a.type, p.out[i].n, p.k, stream.map);
    if (error != cudaSuccess) return error;
    if (side_by_side || i == 0) call.units += units_of(p.out[i]);
  }
  call.gated = p.gated;
  call.activation = p.activation;
  call.steady = p.steady;
  call.stages = static_cast<int>(cut.stages);
  call.a_offset = static_cast<int>(cut.a_offset);
  call.a_pitch = call.k * 2 + kPad;
  call.ring_offset = static_cast<int>(cut.ring_offset);
  const std::int64_t shared =
      context.begins_early ? std::max(cut.shared, kLeastShared) : cut.shared;
  auto* const kernel =
      p.gated.c != nullptr ? &gemm_stream<T, kRows, true> : &gemm_stream<T, kRows, false>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared));
  if (error != cudaSuccess) return error;
  return launch_early(kernel, static_cast<unsigned>(cut.blocks),
                      static_cast<unsigned>(2 * cut.warps * kWarp),
                      static_cast<std::size_t>(shared), context, call);
}

}  // namespace

bool gemm_streams_apply(const GemmStreams& p, const Context& context) {
  constexpr int kArchitecture = 90;
  constexpr std::int64_t kMostK = 1 << 20;
  if (context.architecture != kArchitecture || p.count < 1) return false;
  if (p.m < 1 || p.m > kMostRows || p.k < 1 || p.k > kMostK) return false;
  if (!is_aligned(p.a.data, 16)) return false;
  for (int i = 0; i < p.count; ++i) {
    if (!can_map_strips(p.b[i], p.a.type, p.out[i].n, p.k)) return false;
  }
  return cut_units(p, context).stages >= 2 || p.k <= kDepth;
}

cudaError_t gemm_streams(const GemmStreams& p, const Context& context) {
  if (p.a.type == DType::kBF16) {
    return p.m <= 8 ? launch<bf16, 8>(p, context) : launch<bf16, 16>(p, context);
  }
  return p.m <= 8 ? launch<f16, 8>(p, context) : launch<f16, 16>(p, context);
}

}  // namespace volta::cuda
