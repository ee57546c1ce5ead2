// Tiles of 16-bit operands in shared memory: their layout, the copies that fill them, and the
// loads of fragments for the tensor cores. Shared by the kernels for many rows and for few.
//
// A tile is stored in lines, as its operand lies in memory. A line of an operand along k holds
// neighbours in k of one row of a (or column of b). Otherwise it holds neighbours in M (or N) of
// one step of k, and fragments are transposed as they are loaded. A line consists of chunks of 8
// elements, 16 bytes. Their order is permuted by line, so that neither the copies nor the loads,
// which read one chunk from each of 8 lines, have bank conflicts.
#pragma once

#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda {

inline constexpr int kChunk = 8;  ///< Elements per chunk.
inline constexpr int kChunkBytes = 16;
inline constexpr int kMmaK = 16;  ///< Steps of k of one product on the tensor cores.

/// Where a line's chunk is in the line. Eight lines in a row that start at a multiple of 8 have
/// their chunks of one index in different groups of banks.
template <int kChunks>
__device__ constexpr int permuted_chunk(int line, int chunk) {
  static_assert(kChunks == 4 || kChunks % 8 == 0);
  return kChunks == 4 ? chunk ^ (line >> 1 & 3) : chunk ^ (line & 7);
}

/// The 8 elements at `from` of which `count` exist; the others are zero. Any alignment.
// SAFETY: reads nothing but the `count` elements, in words where these are aligned.
template <typename T>
__device__ inline uint4 load_unaligned_chunk(const T* from, int count) {
  static_assert(sizeof(T) == 2);
  const auto* halves = reinterpret_cast<const unsigned short*>(from);
  std::uint32_t word[4] = {};
  if (count < kChunk) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) word[i / 2] |= static_cast<std::uint32_t>(halves[i]) << (i % 2 * 16);
    }
  } else if (reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = words[i];
  } else {
    // The words from the second element on, each between two of the result.
    const auto* words = reinterpret_cast<const std::uint32_t*>(from + 1);
    const std::uint32_t a = words[0], b = words[1], c = words[2];
    word[0] = halves[0] | a << 16;
    word[1] = a >> 16 | b << 16;
    word[2] = b >> 16 | c << 16;
    word[3] = c >> 16 | static_cast<std::uint32_t>(halves[7]) << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// Fills stages with an operand's tile of kRows rows of a (columns of b) and kDepth steps of k. A
/// block of kThreads threads copies it together. Elements outside the operand become zero.
template <typename T, int kRows, int kDepth, int kThreads, bool kAlongK>
class TileCopy {
 public:
  static constexpr int kBytes = kRows * kDepth * 2;

  /// The tile of rows from `row` on, of which `rows` exist, beginning at step `k`.
  __device__ TileCopy(const GemmOperand& operand, std::int64_t part, std::int64_t row, int rows,
                      std::int64_t k, std::int64_t k_end)
      : rows_(rows), k_left_(k_end - k) {
    line_ = static_cast<int>(threadIdx.x) / kChunks;
    element_ = static_cast<int>(threadIdx.x) % kChunks * kChunk;
    const std::int64_t line = (kAlongK ? row : k) + line_;
    const std::int64_t element = (kAlongK ? k : row) + element_;
    base_ = static_cast<const T*>(operand.data);
    from_ = base_ + part * operand.batch_stride + line * operand.stride + element;
    step_ = kLineStep * operand.stride;
    advance_ = kAlongK ? kDepth : kDepth * operand.stride;
    to_ = (line_ * kChunks + permuted_chunk<kChunks>(line_, element_ / kChunk)) * kChunkBytes;
  }

  /// Starts the copy of the next kDepth steps of k into a stage. kAligned: the operand is aligned.
  /// Otherwise `aligned` says whether it is, and if it is not the copy is complete at the return.
  template <bool kAligned>
  __device__ void next(unsigned char* stage, bool aligned) {
    const int depth = k_left_ < kDepth ? static_cast<int>(k_left_) : kDepth;
    const int lines = (kAlongK ? rows_ : depth) - line_;
    const int count = min(max((kAlongK ? depth : rows_) - element_, 0), kChunk);
    const T* from = from_;
    unsigned char* to = stage + to_;
    if (kAligned || aligned) {
      const std::uint32_t address = shared_address(to);
#pragma unroll
      for (int i = 0; i < kPieces; ++i, from += step_) {
        const int n = i * kLineStep < lines ? count : 0;
        copy_async_16(address + i * kPieceBytes, n > 0 ? from : base_, n * 2);
      }
    } else {
#pragma unroll 2
      for (int i = 0; i < kPieces; ++i, from += step_) {
        const int n = i * kLineStep < lines ? count : 0;
        *reinterpret_cast<uint4*>(to + i * kPieceBytes) = load_unaligned_chunk(from, n);
      }
    }
    from_ += advance_;
    k_left_ -= kDepth;
  }

 private:
  static constexpr int kLines = kAlongK ? kRows : kDepth;
  static constexpr int kChunks = (kAlongK ? kDepth : kRows) / kChunk;
  static constexpr int kLineStep = kThreads / kChunks;
  static constexpr int kPieces = kLines / kLineStep;
  static constexpr int kPieceBytes = kLineStep * kChunks * kChunkBytes;
  static_assert(kThreads % kChunks == 0 && kLines % kLineStep == 0);
  static_assert(kLineStep % 8 == 0);  // So the permutation is the same for all of a thread's lines.

  const T* base_;
  const T* from_;
  std::int64_t step_, advance_;
  int rows_;
  std::int64_t k_left_;
  int line_, element_;
  int to_;
};

/// Loads a warp's fragments from a stage: kFragments of 16 rows of a (columns of b) each, for 16
/// steps of k. The registers of a fragment of a are those of multiply_add. A fragment of b is two
/// of multiply_add's: the first 8 columns, then the others.
template <int kRows, int kDepth, bool kAlongK, bool kIsA, int kFragments>
class FragmentLoad {
 public:
  /// The fragments begin at row `origin` of the tile, a multiple of 16 kFragments.
  __device__ explicit FragmentLoad(int origin) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int in_matrix = lane % 8;
    const int low = lane / 8 % 2, high = lane / 16;
    const int row_half = kIsA ? low : high, k_half = kIsA ? high : low;
    const int line = kAlongK ? origin + row_half * 8 + in_matrix : k_half * 8 + in_matrix;
    const int chunk = kAlongK ? k_half : origin / kChunk + row_half;
    offset_ = (line * kChunks + permuted_chunk<kChunks>(line, chunk)) * kChunkBytes;
  }

  /// Step `k16` of the stage at this address: the steps of k [16 k16, 16 k16 + 16).
  __device__ void load(std::uint32_t (&fragments)[kFragments][4], std::uint32_t stage,
                       int k16) const {
    // Both neighbouring fragments and neighbouring steps are two chunks or whole lines apart. Two
    // chunks apart is an exclusive or, because the first chunk's index is a multiple of as many.
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      if constexpr (kAlongK) {
        const std::uint32_t at = offset_ ^ (k16 * 2 * kChunkBytes);
        load_matrices(fragments[i], stage + at + i * 16 * kChunks * kChunkBytes);
      } else {
        const std::uint32_t at = offset_ ^ (i * 2 * kChunkBytes);
        load_matrices_transposed(fragments[i], stage + at + k16 * kMmaK * kChunks * kChunkBytes);
      }
    }
  }

 private:
  static constexpr int kChunks = (kAlongK ? kDepth : kRows) / kChunk;

  std::uint32_t offset_;
};

}  // namespace volta::cuda
