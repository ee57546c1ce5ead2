// Finds NaN and infinity among the weights of a file, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/parallel.h"
#include "base/result.h"
#include "nn/transformer.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"

namespace volta {

/// How many values of a tensor are NaN or infinite.
struct NonFinite {
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  std::int64_t first = -1;  ///< The element where the first one is; -1: there is none.

  /// Adds what was found in a part of the tensor that begins at element `begin`; parts in order.
  void add(const NonFinite& part, std::int64_t begin);
};

/// Counts them in the elements of a float tensor as they lie in a file, at any address. Types that
/// have none give zeros.
NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype, ThreadPool& pool);

/// The same of the scales of a tensor of integers, in rows of blocks (tensor/encoding.h); `first`
/// is a block.
NonFinite count_non_finite_scales(std::span<const std::byte> bytes, const Encoding& encoding);

/// The same of `count` values that `read` gives: those from `first` on, 4096 at a time (the last
/// time fewer). Called by several threads at once.
NonFinite count_non_finite(std::int64_t count, ThreadPool& pool,
                           FunctionRef<void(std::int64_t first, std::span<float> values)> read);

/// kNonFinite, naming it and how many, for the first of a model's weights that holds any;
/// kInterrupted when the model's device was told to stop.
Status check_finite(const Transformer& model);

}  // namespace volta
