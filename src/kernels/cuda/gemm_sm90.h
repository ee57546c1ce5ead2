// Products of 16-bit matrices with Hopper's own instructions: asynchronous products of a group of
// four warps (wgmma), and copies by the bulk copy engine (TMA).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {

/// How a product is cut. It never changes a bit of c.
struct Sm90Choice {
  int columns = 256;  ///< Of a tile: 64, 128 or 256. All have 128 rows.
  int cluster = 1;    ///< Blocks, 1 or 2, that take tiles of one column together and share b.
};

/// Whether gemm_sm90 can compute this product and is worth it. Depends on sizes, types and
/// addresses. The answer never changes a bit of c: gemm_sm90 adds in the order that gemm.h
/// promises.
bool gemm_sm90_applies(const Gemm& gemm, const Context& context);

/// All that gemm.h describes: any transposition, a batch or pieces of K, every epilogue. Needs
/// gemm_sm90_applies(gemm, context).
cudaError_t gemm_sm90(const Gemm& gemm, const Context& context);

/// The fastest choice by what was measured, and a launch with another one, for measuring.
Sm90Choice gemm_sm90_choice(const Gemm& gemm, const Context& context);
cudaError_t gemm_sm90_with(const Gemm& gemm, const Sm90Choice& choice, const Context& context);

// The rest is for gemm_sm90 itself.

/// The maps of a, b and c; that of c only if the engine stores it.
struct Sm90Maps {
  CUtensorMap a, b, c;
};

/// How a launch is cut; the same for all blocks.
struct Sm90Work {
  unsigned tiles = 0;             ///< Of a whole cluster, in all parts.
  unsigned down = 0, across = 0;  ///< Tiles of a whole cluster in a part.
  int cluster = 1;
  bool engine_stores = false;  ///< The copy engine writes c; otherwise lanes do.
};

/// The kernels by type and columns of a tile.
using Sm90Launch = cudaError_t(const Gemm& gemm, const Sm90Maps& maps, const Sm90Work& work,
                               unsigned blocks, const Context& context);
Sm90Launch gemm_sm90_bf16_64, gemm_sm90_bf16_128, gemm_sm90_bf16_256;
Sm90Launch gemm_sm90_f16_64, gemm_sm90_f16_128, gemm_sm90_f16_256;

}  // namespace volta::cuda
