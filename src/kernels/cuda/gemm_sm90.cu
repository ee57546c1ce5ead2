// Which products the kernels for Hopper take, with which tiles and maps; see gemm_sm90.cuh.
#include <algorithm>
#include <cstdint>
#include <optional>

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
constexpr int kMostStages = 6;
/// Elements in the 16 bytes of which rows of a map must consist.
constexpr std::int64_t kUnit = 8;

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

// Nothing if the engine cannot read the operands.
std::optional<Sm90Layout> layout_of(const Gemm& gemm) {
  const GemmOperand &a = gemm.a, &b = gemm.b;
  const bool batch = gemm.parts > 1 && !gemm.pieces;
  if (batch && (a.batch_stride % kUnit != 0 || b.batch_stride % kUnit != 0)) return std::nullopt;
  const bool odd_a = a.stride % kUnit != 0, odd_b = b.stride % kUnit != 0;
  // Rows of b may only be interleaved if they are steps of k, and then so must be those of a.
  const bool along_rows = !a.along_k && !b.along_k;
  if (odd_b && !along_rows) return std::nullopt;
  if (odd_a && !a.along_k && !along_rows) return std::nullopt;
  Sm90Layout layout;
  layout.k_interleaved = along_rows && (odd_a || odd_b);
  if (layout.k_interleaved && gemm.k < kInterleave) return std::nullopt;
  const bool odd_c = gemm.n % kUnit != 0;
  const bool can_interleave = a.along_k;
  layout.engine_stores = gemm.out.type == a.type && !gemm.pieces && (!odd_c || can_interleave) &&
                         (!batch || gemm.m * gemm.n % kUnit == 0);
  layout.rows_interleaved = can_interleave && (odd_a || (layout.engine_stores && odd_c));
  return layout;
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

bool can_map(const MappedMatrix& matrix, bool interleaved) {
  return can_map(interleaved ? every_eighth_row(matrix, 0) : matrix);
}

// `rows` are those of a box: of one map, or of each of eight.
cudaError_t make_maps(const MappedMatrix& matrix, bool interleaved, std::int64_t rows,
                      CUtensorMap (&maps)[kInterleave], unsigned char (&shifts)[kInterleave]) {
  for (int i = 0; i < (interleaved ? kInterleave : 1); ++i) {
    ShiftedMap map;
    const cudaError_t error = make_tensor_map(interleaved ? every_eighth_row(matrix, i) : matrix,
                                              static_cast<int>(rows), map);
    if (error != cudaSuccess) return error;
    maps[i] = map.map;
    shifts[i] = static_cast<unsigned char>(map.shift);
  }
  return cudaSuccess;
}

cudaError_t make_maps(const Gemm& gemm, const Sm90Choice& choice, Sm90Maps& maps, Sm90Work& work) {
  constexpr std::int64_t kStoredRows = 16;  // Of a warp.
  const Sm90Layout& layout = work.layout;
  const bool rows = layout.rows_interleaved, k = layout.k_interleaved;
  const std::int64_t a_rows = gemm.a.along_k ? (rows ? kTileRows / kInterleave : kTileRows)
                                             : (k ? kDepth / kInterleave : kDepth);
  const std::int64_t b_rows =
      gemm.b.along_k ? choice.columns / choice.cluster : (k ? kDepth / kInterleave : kDepth);
  cudaError_t error =
      make_maps(mapped_a(gemm), gemm.a.along_k ? rows : k, a_rows, maps.a, work.shift_a);
  if (error != cudaSuccess) return error;
  error = make_maps(mapped_b(gemm), !gemm.b.along_k && k, b_rows, maps.b, work.shift_b);
  if (error != cudaSuccess || !layout.engine_stores) return error;
  return make_maps(mapped_c(gemm), rows, kStoredRows, maps.c, work.shift_c);
}

Sm90Launch* kernel_for(DType type, int columns) {
  const bool is_bf16 = type == DType::kBF16;
  if (columns == 64) return is_bf16 ? gemm_sm90_bf16_64 : gemm_sm90_f16_64;
  if (columns == 128) return is_bf16 ? gemm_sm90_bf16_128 : gemm_sm90_f16_128;
  return is_bf16 ? gemm_sm90_bf16_256 : gemm_sm90_f16_256;
}

// The least steps of 64 that a tile has.
std::int64_t least_steps(const Gemm& gemm) {
  return (gemm.pieces ? gemm.k - (gemm.parts - 1) * gemm.piece_k : gemm.k) / kDepth;
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
  if (tiles(gemm, kTileRows, 64) > kMostTiles) return false;
  const std::optional<Sm90Layout> layout = layout_of(gemm);
  if (!layout) return false;
  if (layout->engine_stores && !can_map(mapped_c(gemm), layout->rows_interleaved)) return false;
  return can_map(mapped_a(gemm),
                 gemm.a.along_k ? layout->rows_interleaved : layout->k_interleaved) &&
         can_map(mapped_b(gemm), !gemm.b.along_k && layout->k_interleaved) && on_hopper();
}

Sm90Choice gemm_sm90_choice(const Gemm& gemm, const Context& context) {
  // The time of a step of 64 of a tile, and of a tile's end, in the same unit.
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
  const bool pairs = ceil_div(gemm.m, kTileRows) % 2 == 0 || gemm.m > 16 * kTileRows;
  best.cluster = best.columns > 64 && pairs && context.multiprocessors % 2 == 0 ? 2 : 1;
  best.lead = 2;
  return best;
}

cudaError_t gemm_sm90_with(const Gemm& gemm, const Sm90Choice& choice, const Context& context) {
  const std::optional<Sm90Layout> layout = layout_of(gemm);
  if (!layout) return cudaErrorInvalidValue;
  Sm90Work work;
  work.cluster = choice.cluster;
  work.layout = *layout;
  // The lead needs tiles that are longer than the ring of stages.
  work.lead = least_steps(gemm) > kMostStages ? choice.lead : 0;
  const std::int64_t count = tiles(gemm, kTileRows * choice.cluster, choice.columns);
  work.tiles = static_cast<unsigned>(count);
  Sm90Maps maps;
  const cudaError_t error = make_maps(gemm, choice, maps, work);
  if (error != cudaSuccess) return error;
  const unsigned clusters = blocks_for(count, 1, context.multiprocessors / choice.cluster);
  return kernel_for(gemm.a.type, choice.columns)(
      gemm, maps, work, clusters * static_cast<unsigned>(choice.cluster), context);
}

cudaError_t gemm_sm90(const Gemm& gemm, const Context& context) {
  return gemm_sm90_with(gemm, gemm_sm90_choice(gemm, context), context);
}

}  // namespace volta::cuda
