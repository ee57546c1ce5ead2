// Matrix products for decoding on Hopper, where the left operand a has only a few rows, so that
// reading the weights takes most of the time. Each weight is read from memory once. One launch
// multiplies a by up to three weight matrices, such as those of queries, keys and values, or the
// two of a gated MLP. See gemm_stream.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/gemm.h"

namespace volta::cuda {

inline constexpr int kMostStreams = 3;

/// c = a b for each of the matrices b, all [N, K] in rows, of one type of 16 bits.
struct GemmStreams {
  GemmOperand a;
  std::int64_t m = 0, k = 0;
  int count = 0;
  const void* b[kMostStreams] = {};
  GemmOutput out[kMostStreams];
  /// If given, there are two matrices of the same size, and this is activation(c0) * c1 besides,
  /// of c as they are stored. It may be the memory of c0 or c1, whose outputs are plain then.
  GemmOutput gated;
  Activation activation = Activation::kNone;
  /// No kernel of the plan writes any b: they may be read before earlier kernels have ended.
  bool steady = false;
};

/// Adds the product of a MatMul. False, and no change, if it does not fit to those that are there.
bool add_stream(const MatMul& op, const Args& args, bool steady, GemmStreams& streams);

/// Whether gemm_streams() takes these products.
bool gemm_streams_apply(const GemmStreams& products, const Context& context);
/// The bits are those of gemm_rows_16bit().
cudaError_t gemm_streams(const GemmStreams& products, const Context& context);

}  // namespace volta::cuda
