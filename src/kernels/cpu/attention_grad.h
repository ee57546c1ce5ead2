// The part of AttentionGrad that is not vector code: a worker's scratch and how work is split. It
// must not know instruction sets.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/attention.h"

namespace volta::cpu::attention {

/// Rows of a block of queries; blocks are counted from position 0, as key blocks are.
inline constexpr std::int64_t kRowBlock = kKeyBlock;

/// Scratch of a worker: see GradScratch.
constexpr std::int64_t grad_floats(std::int64_t head_dim) {
  return 8 * kKeyBlock * padded(head_dim) + 2 * kRowBlock * kKeyBlock;
}

struct GradScratch {
  GradScratch(float* at, std::int64_t head_dim) {
    Scratch scratch(at);
    const std::int64_t block = kKeyBlock * padded(head_dim);
    for (float** piece : {&k, &k_columns, &v_columns, &dk, &dv, &q, &dy, &dq}) {
      *piece = scratch.take(block);
    }
    weights = scratch.take(kRowBlock * kKeyBlock);
    dscores = scratch.take(kRowBlock * kKeyBlock);
  }
  float *k, *k_columns, *v_columns, *dk, *dv;  ///< One key block; k is scaled; _columns are
                                               ///< transposed.
  float *q, *dy, *dq;                          ///< One row block: [kRowBlock, dim]; q is scaled.
  float *weights, *dscores;                    ///< [kRowBlock, kKeyBlock]
};

/// Whether to split each (batch entry, key/value head) into its key blocks (for dK and dV: four
/// products per pair of blocks) and its row blocks (for dQ: three), instead of computing all of it
/// at once (five). It is split only if whole ones would leave workers idle. The bits are the same.
constexpr bool should_split(std::int64_t pairs, std::int64_t workers) {
  return 7 * pairs < 5 * workers * ceil_div(pairs, workers);
}

}  // namespace volta::cpu::attention
