// Products of at most 16 rows of a with matrices of weights, on Hopper (gemm_stream.h). Bound by
// the bytes of the weights.
//
// A warp computes 8 columns, a unit, over all of K, because pieces of K would change the bits, and
// then its next unit. It streams the weights of its units through a ring in shared memory of its
// own: one instruction starts the copy of half a kilobyte of each column (tensor_map.h; copies of
// single lines would take the warp longer to start than to use). So warps never wait for each
// other, and a few of them keep enough bytes on their way. The ring is filled before the kernel
// waits for the earlier ones; then the rows of a are copied to shared memory as a whole.
//
// The tensor cores get the rows of a as 16 rows, most of which repeat the last one: their sums are
// not stored. The chain of products is that of gemm_rows.cu. Its latency, about 25 cycles for 16
// steps of k and 8 columns, is why two warps of a multiprocessor can be enough, and one is not.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_sm90_ptx.cuh"
#include "kernels/cuda/gemm_stream.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {
namespace {

constexpr int kUnit = kStripRows;      // Columns.
constexpr int kDepth = kStripColumns;  // Steps of k of a stage.
constexpr int kBlock = 64;             // Columns of a block in a stage; K is a multiple of it.
constexpr int kBlockBytes = kUnit * kBlock * 2;
constexpr int kPad = 16;  // Bytes between rows of a keep eight in different banks.
constexpr int kMostWarps = 4;
constexpr int kMostRows = 16;
// Bytes of the rings of a block, at most. Two such blocks do not fit on a multiprocessor: otherwise
// two could share one while another one is still busy with the kernel before. Small products take
// less, and begin beside the kernel before.
constexpr std::int64_t kRingBytes = 112 * 1024;
constexpr std::int64_t kMostShared = 220 * 1024;
constexpr std::int64_t kMostStages = 24;  // Of a warp.

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

constexpr int kStep = 16;  // Steps of k of a product.

// Starts the copy of `bytes` bytes, a multiple of 16, between addresses that are multiples of 16.
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
// The stream of a unit.
__device__ inline int stream_of(const StreamCall& call, std::int64_t unit) {
  int stream = 0;
  while (stream + 1 < call.count && unit >= call.streams[stream + 1].first_unit) ++stream;
  return stream;
}

// The units of a warp, and the ring through which their weights come. Only lane 0 has work.
template <bool kGated>
class Ring {
 public:
  __device__ Ring(const StreamCall& call, std::uint32_t barriers, std::uint32_t ring,
                  std::int64_t first_unit, std::int64_t step)
      : call_(call), barriers_(barriers), ring_(ring), unit_(first_unit), step_(step) {
    enter();
  }

  // Starts the copy of the next stage, which goes to this slot. What lies outside of the matrix
  // comes as zeros, so that all stages have the same size.
  __device__ void fill(int slot) {
    if (threadIdx.x % kWarp != 0 || unit_ >= call_.units) return;
    const std::uint32_t barrier = barriers_ + slot * 8;
    const std::uint32_t to = ring_ + slot * kStageBytes<kGated>;
    hopper::arrive_and_expect(barrier, kStageBytes<kGated>);
    hopper::copy_box(to, *map_, barrier, 0, column_, block_);
    if constexpr (kGated) {
      hopper::copy_box(to + kStripBytes, call_.streams[1].map, barrier, 0, column_, block_);
    }
    block_ += kDepth / kBlock;
    if (block_ * kBlock < call_.k) return;
    block_ = 0;
    unit_ += step_;
    enter();
  }

 private:
  __device__ void enter() {
    if (unit_ >= call_.units) return;
    const Stream& stream = call_.streams[kGated ? 0 : stream_of(call_, unit_)];
    map_ = &stream.map;
    column_ = static_cast<int>(unit_ - stream.first_unit) * kUnit;
  }

  const StreamCall& call_;
  std::uint32_t barriers_, ring_;
  std::int64_t unit_, step_;
  const CUtensorMap* map_ = nullptr;
  int column_ = 0, block_ = 0;
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

// The slots of a ring in turn.
struct Slots {
  std::uint32_t barriers, line;  // Of slot 0; `line` is this lane's address.
  int stages, stage_bytes;
  int slot = 0;
  unsigned parity = 0;

  __device__ void next() {
    if (++slot < stages) return;
    slot = 0;
    parity ^= 1;
  }
  // Waits until the slot's stage is there, and returns this lane's address in it.
  __device__ std::uint32_t wait() const {
    hopper::wait_barrier(barriers + slot * 8, parity);
    return line + slot * stage_bytes;
  }
};

// sums = the products of a unit. A batch of fragments is loaded before the one in front of it is
// multiplied, so that the products follow each other without a gap.
template <typename T, int kRows, bool kGated, int kMatrices>
__device__ void multiply_unit(const StreamCall& call, Slots& slots, Ring<kGated>& weights,
                              std::uint32_t row, float (&sums)[kMatrices][4]) {
  using OneBatch = Batch<kRows, kMatrices>;
  constexpr int kBatches = kDepth / (OneBatch::kPairs * kPair);
  constexpr int kBatchBytes = OneBatch::kPairs * kPairBytes;
  static_assert(kBatches % 2 == 0);
  const int whole = call.k / kDepth, rest = call.k % kDepth;
  OneBatch batches[2];
  std::uint32_t line = 0;
  if (whole > 0) {
    line = slots.wait();
    batches[0].load(line, 0, row);
  }
#pragma unroll 1
  for (int stage = 0; stage < whole; ++stage) {
    const int filled = slots.slot;
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      row += kBatchBytes;
      if (i + 1 < kBatches) {
        batches[(i + 1) % 2].load(line, (i + 1) * OneBatch::kPairs, row);
      } else {
        slots.next();
        if (stage + 1 < whole) {
          line = slots.wait();
          batches[0].load(line, 0, row);
        }
      }
      batches[i % 2].template multiply<T>(sums);
    }
    // The products have read the stage: its slot is filled again.
    __syncwarp();
    weights.fill(filled);
  }
  if (rest == 0) return;
  line = slots.wait();
#pragma unroll 1
  for (int pair = 0; pair * kPair < rest; ++pair, row += kPairBytes) {
    batches[0].pairs[0].load(line_of(line, pair), row);
    batches[0].pairs[0].template multiply<T>(sums, 0);
    batches[0].pairs[0].template multiply<T>(sums, 1);
  }
  __syncwarp();
  weights.fill(slots.slot);
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

// Copies the rows of a to shared memory. One thread calls it.
__device__ void copy_rows(const StreamCall& call, std::uint32_t base, std::uint32_t barrier) {
  const int bytes = call.k * 2;
  hopper::arrive_and_expect(barrier, call.m * bytes);
  for (int row = 0; row < call.m; ++row) {
    copy_bulk(base + call.a_offset + row * call.a_pitch,
              static_cast<const char*>(call.a) + std::int64_t{row} * bytes, bytes, barrier);
  }
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
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint32_t base = shared_address(shared);
  const std::uint32_t barriers = base + 8 + warp * call.stages * 8;
  const std::uint32_t ring = base + call.ring_offset + warp * call.stages * kStageBytes<kGated>;
  if (threadIdx.x == 0) hopper::init_barrier(base, 1);
  if (lane == 0) {
    for (int i = 0; i < call.stages; ++i) hopper::init_barrier(barriers + i * 8, 1);
    hopper::publish_barriers();
  }
  __syncthreads();
  let_next_begin();

  const std::int64_t step = std::int64_t{gridDim.x} * warps;
  std::int64_t unit = blockIdx.x + std::int64_t{warp} * gridDim.x;
  Ring<kGated> weights(call, barriers, ring, unit, step);
  if (!call.steady) wait_for_earlier();
  for (int i = 0; i < call.stages; ++i) weights.fill(i);
  if (call.steady) wait_for_earlier();
  if (threadIdx.x == 0) copy_rows(call, base, base);
  hopper::wait_barrier(base, 0);

  const std::uint32_t row = row_address<kRows>(call, base);
  Slots slots = {barriers, ring + lane % kUnit * kBlock * 2u + (lane / kUnit ^ lane % kUnit) * 16u,
                 call.stages, kStageBytes<kGated>};
  for (; unit < call.units; unit += step) {
    float sums[kMatrices][4] = {};
    multiply_unit<T, kRows>(call, slots, weights, row, sums);
    store_unit<T, kRows>(call, unit, sums);
  }
}
#endif  // VOLTA_HOPPER

template <typename T, int kRows, bool kGated>
__global__ void __launch_bounds__(kMostWarps* kWarp)
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
  constexpr std::int64_t kBarriers = 8 * (1 + kMostWarps * kMostStages);
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
  auto* const kernel =
      p.gated.c != nullptr ? &gemm_stream<T, kRows, true> : &gemm_stream<T, kRows, false>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared));
  if (error != cudaSuccess) return error;
  return launch_early(kernel, static_cast<unsigned>(cut.blocks),
                      static_cast<unsigned>(cut.warps * kWarp),
                      static_cast<std::size_t>(cut.shared), context, call);
}

}  // namespace

bool gemm_streams_apply(const GemmStreams& p, const Context& context) {
  constexpr int kArchitecture = 90;
  constexpr std::int64_t kMostK = 1 << 16;  // A barrier counts less than 2^20 bytes.
  if (context.architecture != kArchitecture || p.count < 1) return false;
  if (p.m < 1 || p.m > kMostRows || p.k < 1 || p.k > kMostK) return false;
  if (p.m * p.k * 2 >= 1 << 20 || !is_aligned(p.a.data, 16)) return false;
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
