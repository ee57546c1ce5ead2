// KV caches: the keys and values of every layer for a number of sequences at once. Fixed capacity;
// the lengths are inputs of the plans that read and append. A layer with a sliding window keeps a
// ring of what later rows still see, so that its memory does not grow with the sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace volta {

/// The most rows that a plan over a cache feeds a slot at once.
inline constexpr std::int64_t kLargestChunk = 256;

/// How the positions of a sequence lie in one layer's cache.
struct CacheLayout {
  std::int64_t rows = 0;  ///< A multiple of kAttentionKeyBlock.
  bool ring = false;      ///< Position p lies in row p % rows; otherwise in row p.
};
/// The layout for sequences of up to `capacity` tokens, in whole key blocks: a ring of the layer's
/// window and a chunk where that is smaller.
CacheLayout cache_layout(const TransformerConfig& config, std::int64_t layer,
                         std::int64_t capacity);

/// What one layer's cache consists of: see key_cache_shape(), value_cache_shape().
struct AttentionKvSpecs {
  TensorSpec k;
  TensorSpec v;
};
AttentionKvSpecs cache_specs(const TransformerConfig& config, const CacheLayout& layout,
                             std::int64_t slots, DType dtype);

/// One layer's cache.
struct AttentionKvCache {
  Tensor k;
  Tensor v;
};

class TransformerKvCache {
 public:
  /// Capacity in tokens a slot; 0 < capacity <= config.context. Memory is zeroed.
  static Result<TransformerKvCache> create(const TransformerConfig& config, std::int64_t slots,
                                           std::int64_t capacity, DType dtype, Device& device);
  /// The bytes create() would allocate; no allocation. Errors on absurd sizes.
  static Result<std::int64_t> bytes_for(const TransformerConfig& config, std::int64_t slots,
                                        std::int64_t capacity, DType dtype);

  std::int64_t slots() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t bytes() const;
  std::span<const AttentionKvCache> layers() const { return layers_; }
  /// Tokens cached in a slot.
  std::int64_t length(std::int64_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  /// Called after a plan appended `tokens` to `slot`.
  Status advance(std::int64_t slot, std::int64_t tokens);
  /// Forgets a slot's tokens from `length` on (its memory stays).
  Status rewind(std::int64_t slot, std::int64_t length);
  /// Whether the slot still holds all that tokens after the first `length` will read.
  bool can_rewind(std::int64_t slot, std::int64_t length) const;
  /// Finds "cache.N.k" and "cache.N.v" for a plan.
  Result<Tensor> bind(const PlanBinding& binding) const;

 private:
  // A layer that is a ring.
  struct Ring {
    std::int64_t window = 0;
    std::int64_t rows = 0;
  };
  std::vector<AttentionKvCache> layers_;
  std::vector<Ring> rings_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> reached_;  ///< The longest a slot was since it was last empty.
  std::int64_t capacity_ = 0;
};

}  // namespace volta
