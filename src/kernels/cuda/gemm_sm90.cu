// Which products the kernels for Hopper take, and with which tiles; see gemm_sm90.cuh.
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {

namespace {

constexpr std::int64_t kTileRows = 128, kWideTile = 256, kNarrowTile = 128;
/// Steps of k that are read at once; pieces of K begin at multiples of it.
constexpr std::int64_t kDepth = 64;
constexpr std::int64_t kMostTiles = 0x7fffffff;

// The kernels have code for compute capability 9.x only, whatever architecture is asked for.
bool on_hopper() {
  int device = 0, major = 0;
  constexpr int kHopper = 9;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == kHopper;
}

std::int64_t tiles(const Gemm& gemm, std::int64_t columns) {
  return gemm.parts * ceil_div(gemm.m, kTileRows) * ceil_div(gemm.n, columns);
}

// Wide tiles read fewer bytes per product; narrow ones leave fewer multiprocessors idle at the end.
bool use_wide_tiles(const Gemm& gemm, const Context& context) {
  if (gemm.n <= kNarrowTile) return false;
  // The time of a wide tile, and that of a narrow one with what it loses, in the same unit.
  constexpr std::int64_t kWideTime = 20, kNarrowTime = 12;
  const std::int64_t wide_rounds = ceil_div(tiles(gemm, kWideTile), context.multiprocessors);
  const std::int64_t narrow_rounds = ceil_div(tiles(gemm, kNarrowTile), context.multiprocessors);
  return wide_rounds * kWideTime <= narrow_rounds * kNarrowTime;
}

}  // namespace

bool gemm_sm90_applies(const Gemm& gemm, const Context& context) {
  constexpr int kArchitecture = 90;
  if (context.architecture != kArchitecture) return false;
  if (gemm.m < kTileRows || gemm.n < 1 || gemm.k < 1 || gemm.parts < 1) return false;
  if (gemm.a.type != gemm.b.type) return false;
  if (gemm.pieces && (gemm.piece_k % kDepth != 0 || (gemm.parts - 1) * gemm.piece_k >= gemm.k)) {
    return false;
  }
  // With fewer tiles, smaller ones use more multiprocessors.
  const std::int64_t narrow = tiles(gemm, kNarrowTile);
  constexpr std::int64_t kFewTiles = 4;  // A tile for every fourth multiprocessor.
  if (narrow * kFewTiles < context.multiprocessors || narrow > kMostTiles) return false;
  return can_map(mapped_a(gemm)) && can_map(mapped_b(gemm)) && on_hopper();
}

cudaError_t gemm_sm90(const Gemm& gemm, const Context& context) {
  const bool wide = use_wide_tiles(gemm, context);
  if (gemm.a.type == DType::kBF16) {
    return wide ? gemm_sm90_bf16_256(gemm, context) : gemm_sm90_bf16_128(gemm, context);
  }
  return wide ? gemm_sm90_f16_256(gemm, context) : gemm_sm90_f16_128(gemm, context);
}

}  // namespace volta::cuda
