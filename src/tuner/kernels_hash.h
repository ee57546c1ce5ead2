// Identifies the kernels of this library, because results that were measured with others are stale.
#pragma once

#include <string_view>

namespace volta::tuner {

/// A hash of the sources of the matrix product's kernels (src/kernels/cpu/matmul*), in hexadecimal.
std::string_view kernels_hash();

}  // namespace volta::tuner
