// StepWork: what a step over a KV cache costs, predicted from the sizes of the model. It decides
// how much of a prompt runs beside sequences that are being decoded.
#pragma once

#include <cstdint>

#include "graph/backend.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// Predicts costs in floating-point operations. Time without computation counts as the operations
/// that would take as long, so that the costs of two steps compare as their times do.
class StepWork {
 public:
  StepWork() = default;
  /// Every step reads all weights and starts all ops, however few rows it has. `overhead_rows` says
  /// what that costs, as a number of rows that take as long to compute (see InferenceChoices). The
  /// default was measured on one core with AVX-512, in f32: 9 rows for a model of 1 million
  /// parameters, which fits the caches, and 12 to 15 for one of 25 million, which does not.
  explicit StepWork(const TransformerConfig& config,
                    std::int64_t overhead_rows = StepCosts{}.overhead_rows);

  /// The cost of a step without attention. It has `rows` rows, of which `logit_rows` get logits.
  double matrices(std::int64_t rows, std::int64_t logit_rows) const;
  /// The cost of attention for one row at `position` (from 0), to all positions that it sees,
  /// itself included.
  double attention(std::int64_t position) const;

  /// How much longer an operation of attention takes than one of a matrix product. Measured like
  /// the overhead, it was 2.0 and 1.1 times.
  static constexpr double kAttentionCost = 2;

 private:
  double overhead_rows_ = 0;
  double row_ = 0;        ///< One row of all matrix products but the last one.
  double logit_row_ = 0;  ///< One row of logits.
  double key_ = 0;        ///< One row of one layer's attention, for each key.
  std::int64_t full_layers_ = 0;
  std::int64_t window_layers_ = 0;
  std::int64_t window_ = 0;
};

}  // namespace volta
