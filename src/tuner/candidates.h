// The ways in which one matrix product may be cut, best guess first. An analytic model of a core
// and its caches gives the order; what is really fastest, only measuring tells (search.h).
#pragma once

#include <vector>

#include "kernels/cpu/matmul_parameters.h"
#include "tuner/cpu_signature.h"

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// One way, and the nanoseconds that the model expects one thread to take. Only their order means
/// anything.
struct Candidate {
  cpu::MatMulParameters parameters;
  double cost = 0;
};

/// What the model expects of `parameters`: multiply-adds by the shape of the tile (its sums must
/// hide the latency, its loads and edges cost), and what b, a and c move through the caches, each
/// at the level that its block fits.
double expected_cost(const cpu::MatMulParameters& parameters, const cpu::MatMulShape& shape,
                     cpu::Simd simd, const CacheSizes& caches);

/// The grid over blocks of K, M and N, tiles and prefetching, without those that the kernels run
/// alike for a product of this shape (cpu::cut_of()) and without tiles that use less than half of
/// the registers which another one uses. The cheapest first; each is valid_parameters(). The
/// shape's sizes must be positive.
std::vector<Candidate> candidates(const cpu::MatMulShape& shape, cpu::Simd simd,
                                  const CacheSizes& caches);

}  // namespace tuner
}  // namespace volta
