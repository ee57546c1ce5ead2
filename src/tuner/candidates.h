// The ways in which one matrix product may be cut into blocks and tiles, best guess first. An
// analytic model of a core and its caches gives the order. Only measuring tells which one is really
// the fastest (search.h).
#pragma once

#include <vector>

#include "kernels/cpu/matmul_parameters.h"
#include "tuner/cpu_signature.h"

namespace volta::tuner {

/// One way, and the nanoseconds that the model predicts for one thread. Only the order of these
/// predictions means anything.
struct Candidate {
  cpu::MatMulParameters parameters;
  double cost = 0;
};

/// The cost that the model predicts for `parameters`. It counts the multiply-adds for the shape of
/// the tile (its sums must hide the latency, its loads and edges cost time), and the bytes of b, a
/// and c that move through the caches, each at the speed of the level that its block fits.
double expected_cost(const cpu::MatMulParameters& parameters, const cpu::MatMulShape& shape,
                     cpu::Simd simd, const CacheSizes& caches);

/// The grid over blocks of K, M and N, tiles and prefetching. It leaves out parameters that the
/// kernels run alike for a product of this shape (cpu::cut_of()), and tiles that use less than half
/// of the registers that another one uses. The cheapest comes first; each is valid_parameters().
/// The shape's sizes must be positive.
std::vector<Candidate> candidates(const cpu::MatMulShape& shape, cpu::Simd simd,
                                  const CacheSizes& caches);

}  // namespace volta::tuner
