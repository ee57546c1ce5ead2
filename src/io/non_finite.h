// Finds what is no number among the weights of a file, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "base/result.h"
#include "nn/transformer.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"

namespace volta {

/// How many values of a tensor are no numbers.
struct NonFinite {
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
  std::int64_t first = -1;  ///< The element where the first one is; -1: there is none.
};

/// Counts them in the elements of a float tensor as they lie in a file, at any address. Types that
/// have none give zeros.
NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype, ThreadPool& pool);

/// The same of the scales of a tensor of integers, in rows of blocks (tensor/encoding.h); `first`
/// is a block.
NonFinite count_non_finite_scales(std::span<const std::byte> bytes, const Encoding& encoding);

/// kNonFinite, naming it and how many, for the first of a model's weights that holds any.
Status check_finite(const Transformer& model);

}  // namespace volta
