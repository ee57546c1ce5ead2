#include "nn/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxSlots = 1 << 16;

Status check_sizes(const TransformerConfig& config, std::int64_t slots, std::int64_t capacity,
                   DType dtype) {
  VOLTA_TRY(validate(config));
  if (slots < 1 || slots > kMaxSlots) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a KV cache for {} sequences; it must be between 1 and {}", slots, kMaxSlots));
  }
  if (capacity < 1 || capacity > config.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache of {} tokens; it must be between 1 and the model's context "
                            "of {}",
                            capacity, config.context));
  }
  if (!is_float(dtype)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache of {}; it must be f32, bf16 or f16", dtype_name(dtype)));
  }
  return {};
}

}  // namespace

CacheLayout cache_layout(const TransformerConfig& config, std::int64_t layer,
                         std::int64_t capacity) {
  const std::int64_t window = config.layer_window(layer);
  const CacheLayout whole = {whole_key_blocks(capacity), false};
  if (window == 0 || window >= capacity) return whole;
  const std::int64_t ring = whole_key_blocks(window - 1 + kLargestChunk);
  return ring < whole.rows ? CacheLayout{ring, true} : whole;
}

AttentionKvSpecs cache_specs(const TransformerConfig& config, const CacheLayout& layout,
                             std::int64_t slots, DType dtype) {
  return {{dtype, key_cache_shape(slots, config.kv_heads, layout.rows, config.head_dim)},
          {dtype, value_cache_shape(slots, config.kv_heads, layout.rows, config.head_dim)}};
}

Result<std::int64_t> TransformerKvCache::bytes_for(const TransformerConfig& config,
                                                   std::int64_t slots, std::int64_t capacity,
                                                   DType dtype) {
  VOLTA_TRY(check_sizes(config, slots, capacity, dtype));
  std::int64_t bytes = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const CacheLayout layout = cache_layout(config, layer, capacity);
    const AttentionKvSpecs specs = cache_specs(config, layout, slots, dtype);
    VOLTA_TRY(check_spec(specs.v));              // It bounds both, which have as many elements.
    bytes += specs.k.bytes() + specs.v.bytes();  // Far from overflowing: validate() bounds layers.
  }
  return bytes;
}

Result<TransformerKvCache> TransformerKvCache::create(const TransformerConfig& config,
                                                      std::int64_t slots, std::int64_t capacity,
                                                      DType dtype, Device& device) {
  VOLTA_TRY(bytes_for(config, slots, capacity, dtype));
  TransformerKvCache cache;
  cache.capacity_ = capacity;
  cache.lengths_.assign(static_cast<std::size_t>(slots), 0);
  cache.reached_.assign(static_cast<std::size_t>(slots), 0);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const CacheLayout layout = cache_layout(config, layer, capacity);
    const AttentionKvSpecs specs = cache_specs(config, layout, slots, dtype);
    if (layout.ring) cache.rings_.push_back({config.layer_window(layer), layout.rows});
    AttentionKvCache one;
    VOLTA_TRY(one.k, Tensor::zeros(specs.k, device.memory()));
    VOLTA_TRY(one.v, Tensor::zeros(specs.v, device.memory()));
    cache.layers_.push_back(std::move(one));
  }
  return cache;
}

std::int64_t TransformerKvCache::bytes() const {
  std::int64_t total = 0;
  for (const AttentionKvCache& layer : layers_) total += layer.k.bytes() + layer.v.bytes();
  return total;
}

Status TransformerKvCache::advance(std::int64_t slot, std::int64_t tokens) {
  if (slot < 0 || slot >= slots() || tokens < 0 || tokens > capacity_ - length(slot)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} more tokens do not fit slot {} of a KV cache with {} slots of {} "
                            "tokens",
                            tokens, slot, slots(), capacity_));
  }
  std::int64_t& length = lengths_[static_cast<std::size_t>(slot)];
  std::int64_t& reached = reached_[static_cast<std::size_t>(slot)];
  length += tokens;
  reached = std::max(reached, length);
  return {};
}

Status TransformerKvCache::rewind(std::int64_t slot, std::int64_t length) {
  if (slot < 0 || slot >= slots()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no slot {} in a KV cache with {} slots", slot, slots()));
  }
  if (length != 0 && !can_rewind(slot, length)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("slot {} of a KV cache holds {} tokens; it cannot go back to {}", slot,
                            this->length(slot), length));
  }
  lengths_[static_cast<std::size_t>(slot)] = length;
  if (length == 0) reached_[static_cast<std::size_t>(slot)] = 0;
  return {};
}

bool TransformerKvCache::can_rewind(std::int64_t slot, std::int64_t length) const {
  if (slot < 0 || slot >= slots() || length < 0) return false;
  const std::int64_t now = this->length(slot);
  // What came after the tokens that are held now has overwritten rows, too, though it was forgotten
  // since. A step that failed may have written one row more than it counted.
  const std::int64_t reached = reached_[static_cast<std::size_t>(slot)];
  const auto keeps = [&](const Ring& ring) {
    return reached < ring.rows || length - ring.window + 1 > reached - ring.rows;
  };
  return length == now || (length < now && std::ranges::all_of(rings_, keeps));
}

Result<Tensor> TransformerKvCache::bind(const PlanBinding& binding) const {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (binding.name == fmt::format("cache.{}.k", layer)) return layers_[layer].k;
    if (binding.name == fmt::format("cache.{}.v", layer)) return layers_[layer].v;
  }
  return fail(ErrorCode::kNotFound, fmt::format("the KV cache has no tensor '{}'", binding.name));
}

}  // namespace volta
