// StepWork: what a step over a KV cache costs, predicted from the sizes of the model. It decides
// how much of a prompt runs beside sequences that are being decoded.
#pragma once

#include <cstdint>

#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// Predicts costs in floating-point operations. What takes time without computing counts as the
/// operations that would take as long, so that two steps compare as their times do.
class StepWork {
 public:
  StepWork() = default;
  explicit StepWork(const TransformerConfig& config);

  /// Everything but attention, of a step with `rows` rows of which `logit_rows` get logits. A step
  /// costs as much as kOverheadRows further rows before it computes anything: it reads every
  /// weight, and each op has to start.
  double matrices(std::int64_t rows, std::int64_t logit_rows) const;
  /// Attention of one row at `position` (from 0) to itself and all positions before it that it
  /// sees.
  double attention(std::int64_t position) const;

  /// Measured on one core with AVX-512, in f32: 9 rows for a model of 1 million parameters, which
  /// lies in the caches, and 12 to 15 for one of 25 million, which does not.
  static constexpr double kOverheadRows = 8;
  /// How much longer an operation of attention takes than one of a matrix product. Measured in the
  /// same way: 2.0 and 1.1 times.
  static constexpr double kAttentionCost = 2;

 private:
  double row_ = 0;        ///< One row of all matrix products but the last one.
  double logit_row_ = 0;  ///< One row of logits.
  double key_ = 0;        ///< One row of one layer's attention, for each key.
  std::int64_t full_layers_ = 0;
  std::int64_t window_layers_ = 0;
  std::int64_t window_ = 0;
};

}  // namespace volta
