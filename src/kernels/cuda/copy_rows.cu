// See copy_rows.h. Bound by the memory.
//
// A thread writes 16 bytes at a time. They begin at any element in the source, so it reads the two
// aligned groups of 16 bytes that they are part of, and shifts.
#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/copy_rows.h"

namespace volta::cuda {

namespace {

constexpr int kGroup = 8;          // Elements of 16 bytes.
constexpr int kThreads = 256;      // Along a row.
constexpr int kRowsPerThread = 4;  // Read before any is written.

struct TwoGroups {
  std::uint32_t word[8];
};

// The 16 bytes from element `shift` of the groups on.
template <int kWord>
__device__ inline uint4 shifted(const TwoGroups& groups, unsigned bits) {
  const std::uint32_t* word = groups.word + kWord;
  // word[4] is read for its low bits, so if bits is 0 it does not change the result.
  return make_uint4(
      __funnelshift_r(word[0], word[1], bits), __funnelshift_r(word[1], word[2], bits),
      __funnelshift_r(word[2], word[3], bits), __funnelshift_r(word[3], word[4], bits));
}

__device__ inline uint4 shifted(const TwoGroups& groups, unsigned shift) {
  const unsigned bits = shift % 2 * 16;
  switch (shift / 2) {
    case 0:
      return shifted<0>(groups, bits);
    case 1:
      return shifted<1>(groups, bits);
    case 2:
      return shifted<2>(groups, bits);
    default:
      return shifted<3>(groups, bits);
  }
}

// SAFETY: reads elements [from, from + count), and besides only what is in [begin, end).
__device__ inline uint4 read_group(const unsigned short* from, std::int64_t count,
                                   std::uintptr_t begin, std::uintptr_t end) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t first = address / 16 * 16;
  TwoGroups groups = {};
  if (first >= begin && first + 32 <= end) {
    const uint4 a = *reinterpret_cast<const uint4*>(first);
    const uint4 b = *reinterpret_cast<const uint4*>(first + 16);
    groups = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    return shifted(groups, static_cast<unsigned>(address - first) / 2);
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i < count) groups.word[i / 2] |= static_cast<std::uint32_t>(from[i]) << (i % 2 * 16);
  }
  return make_uint4(groups.word[0], groups.word[1], groups.word[2], groups.word[3]);
}

__global__ void __launch_bounds__(kThreads)
    copy_rows(const unsigned short* from, uint4* to, std::int64_t rows, std::int64_t columns) {
  const std::int64_t group = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t column = group * kGroup;
  if (column >= columns) return;
  const std::int64_t stride = round_up(columns, kCopyStride) / kGroup;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const auto end = begin + static_cast<std::uintptr_t>(rows * columns * 2);
  const std::int64_t step = std::int64_t{gridDim.y} * kRowsPerThread;
  for (std::int64_t row = std::int64_t{blockIdx.y} * kRowsPerThread; row < rows; row += step) {
    uint4 value[kRowsPerThread];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      if (row + i < rows) {
        value[i] = read_group(from + (row + i) * columns + column, columns - column, begin, end);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      if (row + i < rows) to[(row + i) * stride + group] = value[i];
    }
  }
}

}  // namespace

cudaError_t copy_rows_apart(const void* from, void* to, std::int64_t rows, std::int64_t columns,
                            const Context& context) {
  constexpr std::int64_t kMostRowGroups = 65535;  // Of a grid.
  const dim3 grid(blocks_for(columns, kThreads * kGroup),
                  blocks_for(rows, kRowsPerThread, kMostRowGroups));
  copy_rows<<<grid, kThreads, 0, context.stream>>>(static_cast<const unsigned short*>(from),
                                                   static_cast<uint4*>(to), rows, columns);
  return launch_error();
}

}  // namespace volta::cuda
