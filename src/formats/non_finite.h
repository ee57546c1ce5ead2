// Finds NaN and infinity in the weights of a file, at about memory bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "device/device.h"
#include "nn/transformer.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/tensor.h"

namespace volta {

/// The number of values of a tensor that are NaN or infinite.
struct NonFinite {
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  std::int64_t first = -1;  ///< The index of the first such element; -1: there is none.

  /// Adds the result for the part of the tensor that begins at element `begin`. The parts must come
  /// in order.
  void add(const NonFinite& part, std::int64_t begin);
};

/// Counts NaN and infinity in the elements of a float tensor, whose bytes need not be aligned. The
/// result is zero for types without NaN and infinity.
NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype, ThreadPool& pool);

/// Counts NaN and infinity in the scales of a quantised tensor that is stored as rows of blocks
/// (tensor/encoding.h). `first` is the index of a block.
NonFinite count_non_finite_scales(std::span<const std::byte> bytes, const Encoding& encoding);

/// Counts NaN and infinity in `count` values. `read` fills `values` with the values from index
/// `first` on, 4096 per call (fewer in the last one). Several threads call it at once.
NonFinite count_non_finite(std::int64_t count, ThreadPool& pool,
                           FunctionRef<void(std::int64_t first, std::span<float> values)> read);

/// Counts NaN and infinity in a tensor on a device, in any memory; quantised tensors are checked
/// after they are converted to plain values. kInterrupted soon after `interrupted` returned true.
Result<NonFinite> count_non_finite(Device& device, const Tensor& tensor, ThreadPool& pool,
                                   const Interruption& interrupted = {});

/// kNonFinite for the first of a model's weights that holds NaN or infinity, with its name and the
/// counts; kInterrupted when the model's device received a request to stop.
Status check_finite(const Transformer& model);

}  // namespace volta
