// Which products the kernels for Hopper take, with which tiles and maps; see gemm_sm90.cuh.
#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {

namespace {

constexpr std::int64_t kTileRows = 128;
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

std::int64_t tiles(const Gemm& gemm, std::int64_t rows, std::int64_t columns) {
  return gemm.parts * ceil_div(gemm.m, rows) * ceil_div(gemm.n, columns);
}

MappedMatrix mapped_operand(const GemmOperand& operand, std::int64_t width, const Gemm& gemm) {
  return {.data = operand.data,
          .type = operand.type,
          .columns = operand.along_k ? gemm.k : width,
          .rows = operand.along_k ? width : gemm.k,
          .layers = gemm.pieces ? 1 : gemm.parts,
          .stride = operand.stride,
          .layer_stride = operand.batch_stride};
}
MappedMatrix mapped_a(const Gemm& gemm) { return mapped_operand(gemm.a, gemm.m, gemm); }
MappedMatrix mapped_b(const Gemm& gemm) { return mapped_operand(gemm.b, gemm.n, gemm); }
MappedMatrix mapped_c(const Gemm& gemm) {
  return {.data = gemm.out.c,
          .type = gemm.out.type,
          .columns = gemm.n,
          .rows = gemm.m,
          .layers = gemm.parts,
          .stride = gemm.n,
          .layer_stride = gemm.m * gemm.n};
}

// Other results are stored by the lanes.
bool engine_stores(const Gemm& gemm) {
  return gemm.out.type == gemm.a.type && !gemm.pieces && can_map(mapped_c(gemm));
}

cudaError_t make_maps(const Gemm& gemm, const Sm90Choice& choice, bool with_c, Sm90Maps& maps) {
  constexpr int kStoredRows = 16;  // Of a warp.
  const auto depth = static_cast<int>(kDepth);
  cudaError_t error =
      make_tensor_map(mapped_a(gemm), gemm.a.along_k ? static_cast<int>(kTileRows) : depth, maps.a);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(mapped_b(gemm), gemm.b.along_k ? choice.columns / choice.cluster : depth,
                          maps.b);
  if (error != cudaSuccess || !with_c) return error;
  return make_tensor_map(mapped_c(gemm), kStoredRows, maps.c);
}

Sm90Launch* kernel_for(DType type, int columns) {
  const bool is_bf16 = type == DType::kBF16;
  if (columns == 64) return is_bf16 ? gemm_sm90_bf16_64 : gemm_sm90_f16_64;
  if (columns == 128) return is_bf16 ? gemm_sm90_bf16_128 : gemm_sm90_f16_128;
  return is_bf16 ? gemm_sm90_bf16_256 : gemm_sm90_f16_256;
}

}  // namespace

bool gemm_sm90_applies(const Gemm& gemm, const Context& context) {
  constexpr int kArchitecture = 90;
  if (context.architecture != kArchitecture) return false;
  if (gemm.m < kTileRows || gemm.n < 1 || gemm.k < 1 || gemm.parts < 1) return false;
  if (gemm.a.type != gemm.b.type) return false;
  if (gemm.out.type != gemm.a.type && gemm.out.type != DType::kF32) return false;
  if (gemm.pieces && (gemm.piece_k % kDepth != 0 || (gemm.parts - 1) * gemm.piece_k >= gemm.k)) {
    return false;
  }
  if (tiles(gemm, kTileRows, 64) > kMostTiles) return false;
  return can_map(mapped_a(gemm)) && can_map(mapped_b(gemm)) && on_hopper();
}

Sm90Choice gemm_sm90_choice(const Gemm& gemm, const Context& context) {
  // The time of a step of 64 of a tile, and of a tile's end, in the same unit, from measurements on
  // an H100.
  struct Cost {
    int columns;
    std::int64_t step, end;
  };
  constexpr Cost kCosts[] = {{256, 100, 150}, {128, 57, 100}, {64, 40, 80}};
  Sm90Choice best;
  std::int64_t best_cost = 0;
  for (const Cost& cost : kCosts) {
    const std::int64_t rounds =
        ceil_div(tiles(gemm, kTileRows, cost.columns), std::int64_t{context.multiprocessors});
    const std::int64_t k = gemm.pieces ? gemm.piece_k : gemm.k;
    const std::int64_t time = rounds * (ceil_div(k, kDepth) * cost.step + cost.end);
    if (best_cost != 0 && time >= best_cost) continue;
    best_cost = time;
    best.columns = cost.columns;
  }
  // A cluster reads less, but takes its tiles in pairs: in a single round that costs more than it
  // gains (measured: 5% at 2,048 square).
  const bool rounds = tiles(gemm, kTileRows, best.columns) > context.multiprocessors;
  const bool pairs = ceil_div(gemm.m, kTileRows) % 2 == 0 || gemm.m > 16 * kTileRows;
  const bool clusters = best.columns > 64 && rounds && pairs && context.multiprocessors % 2 == 0;
  best.cluster = clusters ? 2 : 1;
  return best;
}

cudaError_t gemm_sm90_with(const Gemm& gemm, const Sm90Choice& choice, const Context& context) {
  const std::int64_t rows = kTileRows * choice.cluster;
  const std::int64_t count = tiles(gemm, rows, choice.columns);
  Sm90Work work;
  work.tiles = static_cast<unsigned>(count);
  work.down = static_cast<unsigned>(ceil_div(gemm.m, rows));
  work.across = static_cast<unsigned>(ceil_div(gemm.n, std::int64_t{choice.columns}));
  work.cluster = choice.cluster;
  work.engine_stores = engine_stores(gemm);
  Sm90Maps maps;
  const cudaError_t error = make_maps(gemm, choice, work.engine_stores, maps);
  if (error != cudaSuccess) return error;
  const unsigned clusters = blocks_for(count, 1, context.multiprocessors / choice.cluster);
  return kernel_for(gemm.a.type, choice.columns)(
      gemm, maps, work, clusters * static_cast<unsigned>(choice.cluster), context);
}

cudaError_t gemm_sm90(const Gemm& gemm, const Context& context) {
  return gemm_sm90_with(gemm, gemm_sm90_choice(gemm, context), context);
}

}  // namespace volta::cuda
