#include "nn/step_work.h"

#include <algorithm>
#include <cstdint>

namespace volta {

StepWork::StepWork(const TransformerConfig& config, std::int64_t overhead_rows)
    : overhead_rows_(static_cast<double>(overhead_rows)), window_(config.window) {
  const auto size = [](std::int64_t n) { return static_cast<double>(n); };
  // A multiplication and an addition per weight.
  const double projections =
      2 * size(config.dim) * size(config.head_dim) * size(2 * config.heads + 2 * config.kv_heads);
  const double ffn_matrices = config.ffn_kind == FfnKind::kGated ? 3 : 2;
  const double ffn = 2 * ffn_matrices * size(config.dim) * size(config.ffn);
  row_ = size(config.layers) * (projections + ffn);
  logit_row_ = 2 * size(config.dim) * size(config.vocab_size);
  // The scores and the sum over values: each takes a multiplication and an addition per element.
  key_ = kAttentionCost * 4 * size(config.heads) * size(config.head_dim);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ++(config.layer_window(layer) == 0 ? full_layers_ : window_layers_);
  }
}

double StepWork::matrices(std::int64_t rows, std::int64_t logit_rows) const {
  return (static_cast<double>(rows) + overhead_rows_) * row_ +
         (static_cast<double>(logit_rows) + overhead_rows_) * logit_row_;
}

double StepWork::attention(std::int64_t position) const {
  const std::int64_t keys = position + 1;
  return key_ *
         (static_cast<double>(full_layers_) * static_cast<double>(keys) +
          static_cast<double>(window_layers_) * static_cast<double>(std::min(keys, window_)));
}

}  // namespace volta
