// TensorSpec with its text form, and the checks for untrusted sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/shape.h"
#include "tensor/tensor_spec.h"

namespace [[gnu::visibility("default")]] volta {

/// The maximum size of a tensor in bytes: 2^46 (64 TiB). Larger sizes are rejected before anything
/// is computed from them, so that no later product can overflow.
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 46;

/// "[2, 3, 4]"
std::string to_string(const Shape& shape);
/// "f32[2, 3, 4]", "f32[768, 3072] in panels of 32", "bf16[768, 3072] in panels of 32 by 2"
std::string to_string(const TensorSpec& spec);

/// A shape from untrusted dimensions. kInvalidArgument for a rank over kMaxRank or a negative
/// dimension.
Result<Shape> make_shape(std::span<const std::int64_t> dims);

/// Checks that no dimension is negative, that the size is at most kMaxTensorBytes (without
/// overflow), and that only a matrix is encoded.
Status check_spec(const TensorSpec& spec);

}  // namespace volta
