#include "nn/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/arithmetic.h"
#include "base/cpu.h"
#include "base/text.h"
#include "ops/op.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxSlots = 1 << 16;

std::int64_t capacity_of(const TransformerConfig& config, const KvCacheSizes& sizes) {
  return sizes.capacity == 0 ? config.context : sizes.capacity;
}

std::int64_t blocks_of(std::int64_t positions) { return ceil_div(positions, kAttentionKeyBlock); }

Status check_sizes(const TransformerConfig& config, const KvCacheSizes& sizes) {
  VOLTA_TRY(validate(config));
  if (sizes.slots < 1 || sizes.slots > kMaxSlots) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache for {} sequences; it must be between 1 and {}", sizes.slots,
                            kMaxSlots));
  }
  const std::int64_t capacity = capacity_of(config, sizes);
  if (capacity < 1 || capacity > config.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache of {} tokens; it must be between 1 and the model's context "
                            "of {}",
                            capacity, config.context));
  }
  if (!is_float(sizes.dtype)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a KV cache of {}; it must be f32, bf16 or f16", dtype_name(sizes.dtype)));
  }
  if (sizes.pages < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache of {} pages; it must be at least 1, or 0 for as many as "
                            "the sequences may need",
                            sizes.pages));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (blocks_of(capacity) > kMost / sizes.slots) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a KV cache for {} sequences of {} tokens has more than {} pages; take "
                            "fewer sequences or a smaller capacity",
                            sizes.slots, capacity, kMost));
  }
  return {};
}

// Before anything is allocated: the layers' caches may fit one by one, but not together.
Status check_fits(std::int64_t bytes, std::int64_t capacity, std::int64_t slots,
                  const Device& device) {
  const std::int64_t left =
      device.memory()->host_accessible() ? memory_left_bytes() : device.info().memory_bytes;
  if (bytes <= left) return {};
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("a KV cache of {} tokens{} takes {}, and {} is left; choose a shorter "
                          "context (--context) or a smaller type (--kv-cache-dtype)",
                          capacity, slots == 1 ? "" : fmt::format(" for {} sequences", slots),
                          format_bytes(bytes), format_bytes(left)));
}

}  // namespace

std::vector<CacheGroup> cache_groups(const TransformerConfig& config) {
  CacheGroup whole{.table = "table"};
  CacheGroup windowed{.table = "window_table", .window = config.window};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    ++(config.layer_window(layer) == 0 ? whole : windowed).layers;
  }
  std::vector<CacheGroup> groups;
  for (const CacheGroup& group : {whole, windowed}) {
    if (group.layers > 0) groups.push_back(group);
  }
  return groups;
}

std::size_t layer_group(const TransformerConfig& config, std::int64_t layer) {
  const bool both = cache_groups(config).size() > 1;
  return both && config.layer_window(layer) > 0 ? 1 : 0;
}

std::int64_t table_blocks(const TransformerConfig& config, const KvCacheSizes& sizes) {
  return blocks_of(capacity_of(config, sizes));
}

std::int64_t pages_per_sequence(const TransformerConfig& config, const KvCacheSizes& sizes,
                                const CacheGroup& group) {
  const std::int64_t all = table_blocks(config, sizes);
  if (group.window == 0) return all;
  // The rows of a step and the positions that its first row sees, wherever that range begins in a
  // block.
  const std::int64_t seen = std::int64_t{group.window} - 1 + sizes.step_rows;
  return std::min(all, blocks_of(seen - 1) + 1);
}

std::int64_t pool_pages(const TransformerConfig& config, const KvCacheSizes& sizes,
                        const CacheGroup& group) {
  const std::int64_t all = sizes.slots * pages_per_sequence(config, sizes, group);
  return sizes.pages == 0 ? all : std::min(all, sizes.pages);
}

AttentionKvSpecs cache_specs(const TransformerConfig& config, std::int64_t pages, DType dtype) {
  return {{dtype, key_cache_shape(pages, config.kv_heads, config.head_dim)},
          {dtype, value_cache_shape(pages, config.kv_heads, config.head_dim)}};
}

AttentionKvNames cache_names(std::int64_t layer) {
  return {fmt::format("cache.{}.k", layer), fmt::format("cache.{}.v", layer)};
}

Result<std::int64_t> TransformerKvCache::bytes_for(const TransformerConfig& config,
                                                   const KvCacheSizes& sizes) {
  VOLTA_TRY(check_sizes(config, sizes));
  std::int64_t bytes = 0;
  for (const CacheGroup& group : cache_groups(config)) {
    const AttentionKvSpecs specs =
        cache_specs(config, pool_pages(config, sizes, group), sizes.dtype);
    VOLTA_TRY(check_spec(specs.v));  // This checks both, because they have as many elements.
    // This cannot overflow, because validate() limits the number of layers.
    bytes += group.layers * (specs.k.bytes() + specs.v.bytes());
  }
  return bytes;
}

Result<TransformerKvCache> TransformerKvCache::create(const TransformerConfig& config,
                                                      const KvCacheSizes& sizes, Device& device) {
  VOLTA_TRY(const std::int64_t bytes, bytes_for(config, sizes));
  VOLTA_TRY(check_fits(bytes, capacity_of(config, sizes), sizes.slots, device));
  TransformerKvCache cache;
  cache.capacity_ = capacity_of(config, sizes);
  cache.lengths_.assign(static_cast<std::size_t>(sizes.slots), 0);
  for (const CacheGroup& group : cache_groups(config)) {
    Group added{.window = group.window,
                .per_sequence = pages_per_sequence(config, sizes, group),
                .pool = {}};
    VOLTA_TRY(added.pool, PagePool::create(pool_pages(config, sizes, group), sizes.slots,
                                           table_blocks(config, sizes)));
    cache.groups_.push_back(std::move(added));
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const PagePool& pool = cache.groups_[layer_group(config, layer)].pool;
    const AttentionKvSpecs specs = cache_specs(config, pool.pages(), sizes.dtype);
    AttentionKvCache one;
    VOLTA_TRY(one.k, Tensor::zeros(specs.k, device.memory()));
    VOLTA_TRY(one.v, Tensor::zeros(specs.v, device.memory()));
    AttentionKvNames names = cache_names(layer);
    cache.by_name_.emplace(std::move(names.k), one.k);
    cache.by_name_.emplace(std::move(names.v), one.v);
    cache.layers_.push_back(std::move(one));
  }
  return cache;
}

std::int64_t TransformerKvCache::bytes() const {
  std::int64_t total = 0;
  for (const AttentionKvCache& layer : layers_) total += layer.k.bytes() + layer.v.bytes();
  return total;
}

std::int64_t TransformerKvCache::longest() const {
  std::int64_t tokens = capacity_;
  for (const Group& group : groups_) {
    if (group.per_sequence <= group.pool.pages()) continue;
    tokens = std::min(tokens, group.pool.pages() * kAttentionKeyBlock);
  }
  return tokens;
}

std::int64_t TransformerKvCache::Group::first_block(std::int64_t position) const {
  if (window == 0) return 0;
  return std::max<std::int64_t>(0, position - window + 1) / kAttentionKeyBlock;
}

// Gives pages for tokens [from, to), beginning with the first block that token `from` sees, and at
// most per_sequence pages. Pages that are not seen any more are kept as long as no page is needed,
// because a sequence may go back.
bool TransformerKvCache::Group::reserve(std::int64_t slot, std::int64_t from, std::int64_t to) {
  const std::int64_t first = first_block(from);
  const std::int64_t end = std::min(blocks_of(to), first + per_sequence);
  const PageRange held = pool.held(slot);
  if (held.pages() > 0 && end <= held.end) return true;
  pool.drop_before(slot, std::min(first, end - per_sequence));
  if (pool.extend(slot, first, end)) return true;
  pool.drop_before(slot, first);
  return pool.extend(slot, first, end);
}

bool TransformerKvCache::reserve(std::int64_t slot, std::int64_t length) {
  const std::int64_t from = this->length(slot);
  return length <= capacity_ && std::ranges::all_of(groups_, [&](Group& group) {
           return group.reserve(slot, from, length);
         });
}

bool TransformerKvCache::could_reserve(std::int64_t slot, std::int64_t length,
                                       FunctionRef<bool(std::int64_t slot)> given_up) const {
  if (length > capacity_) return false;
  for (const Group& group : groups_) {
    std::int64_t available = group.pool.free();
    for (std::int64_t other = 0; other < slots(); ++other) {
      if (other == slot || given_up(other)) available += group.pool.held(other).pages();
    }
    // The pages that a sequence needs from its start; a later part behind a window may need fewer.
    if (std::min(blocks_of(length), group.per_sequence) > available) return false;
  }
  return true;
}

Status TransformerKvCache::advance(std::int64_t slot, std::int64_t tokens) {
  if (slot < 0 || slot >= slots() || tokens < 0 || tokens > capacity_ - length(slot)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} more tokens do not fit slot {} of a KV cache with {} slots of {} "
                            "tokens",
                            tokens, slot, slots(), capacity_));
  }
  const std::int64_t now = length(slot) + tokens;
  for (const Group& group : groups_) {
    if (now == 0 || blocks_of(now) <= group.pool.held(slot).end) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("slot {} of a KV cache has no pages for {} tokens", slot, now));
  }
  lengths_[static_cast<std::size_t>(slot)] = now;
  return {};
}

Status TransformerKvCache::rewind(std::int64_t slot, std::int64_t length) {
  if (slot < 0 || slot >= slots()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no slot {} in a KV cache with {} slots", slot, slots()));
  }
  if (!can_rewind(slot, length)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("slot {} of a KV cache holds {} tokens; it cannot go back to {}", slot,
                            this->length(slot), length));
  }
  for (Group& group : groups_) {
    if (length == 0) {
      group.pool.clear(slot);
    } else {
      group.pool.drop_from(slot, blocks_of(length));
    }
  }
  lengths_[static_cast<std::size_t>(slot)] = length;
  return {};
}

bool TransformerKvCache::can_rewind(std::int64_t slot, std::int64_t length) const {
  if (slot < 0 || slot >= slots() || length < 0) return false;
  if (length == 0) return true;
  const auto keeps = [&](const Group& group) {
    return group.pool.held(slot).first <= group.first_block(length);
  };
  return length <= this->length(slot) && std::ranges::all_of(groups_, keeps);
}

Result<Tensor> TransformerKvCache::bind(const PlanBinding& binding) const {
  const auto found = by_name_.find(binding.name);
  if (found != by_name_.end()) return found->second;
  return fail(ErrorCode::kNotFound, fmt::format("the KV cache has no tensor '{}'", binding.name));
}

}  // namespace volta
