// KV caches: the keys and values of every layer for several sequences at once. They are in pages of
// kAttentionKeyBlock positions, which come from pools of fixed size. A sequence has a table of its
// pages, which is an input of the plans that read and append. Layers with a sliding window have a
// pool of their own. There a sequence gives back the pages that no later token sees, so that it
// does not grow.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "device/device.h"
#include "graph/backend.h"
#include "nn/page_pool.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// How many sequences a cache serves, and how many tokens.
struct KvCacheSizes {
  std::int64_t slots = 1;     ///< Sequences at once.
  std::int64_t capacity = 0;  ///< The most tokens of a sequence; 0: the context.
  /// The most pages of a pool; 0: enough for every slot to reach the capacity.
  std::int64_t pages = 0;
  DType dtype = DType::kF32;
  /// The most rows of one sequence in a step: see InferenceChoices.
  std::int64_t step_rows = InferenceChoices{}.step_rows;
};

/// Layers whose sequences keep the same positions and therefore share a pool and tables. One group
/// has the layers that see everything, the other those with the model's window.
struct CacheGroup {
  std::string_view table;   ///< The plan input that holds the group's tables.
  std::int32_t window = 0;  ///< 0: everything is kept.
  std::int64_t layers = 0;
};
/// The groups that have any layers. layer_group() returns an index into them.
std::vector<CacheGroup> cache_groups(const TransformerConfig& config);
std::size_t layer_group(const TransformerConfig& config, std::int64_t layer);
/// The number of blocks in a table, and the most pages that a sequence has in a group.
std::int64_t table_blocks(const TransformerConfig& config, const KvCacheSizes& sizes);
std::int64_t pages_per_sequence(const TransformerConfig& config, const KvCacheSizes& sizes,
                                const CacheGroup& group);
/// The number of pages in a group's pool.
std::int64_t pool_pages(const TransformerConfig& config, const KvCacheSizes& sizes,
                        const CacheGroup& group);

/// The specs of one layer's cache: see key_cache_shape(), value_cache_shape().
struct AttentionKvSpecs {
  TensorSpec k;
  TensorSpec v;
};
AttentionKvSpecs cache_specs(const TransformerConfig& config, std::int64_t pages, DType dtype);

/// One layer's cache.
struct AttentionKvCache {
  Tensor k;
  Tensor v;
};
/// The names of its tensors as states of a graph.
struct AttentionKvNames {
  std::string k;
  std::string v;
};
AttentionKvNames cache_names(std::int64_t layer);

class TransformerKvCache {
 public:
  /// 0 < capacity <= config.context. Memory is zeroed.
  static Result<TransformerKvCache> create(const TransformerConfig& config,
                                           const KvCacheSizes& sizes, Device& device);
  /// The bytes that create() would allocate. Allocates nothing. Fails for absurd sizes.
  static Result<std::int64_t> bytes_for(const TransformerConfig& config, const KvCacheSizes& sizes);

  std::int64_t slots() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t bytes() const;
  std::span<const AttentionKvCache> layers() const { return layers_; }
  /// The pools, in the order of cache_groups().
  std::size_t groups() const { return groups_.size(); }
  const PagePool& pool(std::size_t group) const { return groups_[group].pool; }

  /// Tokens cached in a slot.
  std::int64_t length(std::int64_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  /// The number of tokens of the longest sequence that fits if it has the whole cache.
  std::int64_t longest() const;
  /// Whether reserve() would succeed for a slot, whatever it holds now, if all other slots for
  /// which `given_up` returns true were emptied first.
  bool could_reserve(std::int64_t slot, std::int64_t length,
                     FunctionRef<bool(std::int64_t slot)> given_up) const;
  /// Gives a slot pages for its tokens up to `length` (at most capacity()). In a group with a
  /// window it gives pages for as many of the next tokens as a sequence may have at once. Returns
  /// false if too few pages are free.
  bool reserve(std::int64_t slot, std::int64_t length);
  /// Call this after a plan appended `tokens` tokens to `slot`, which must have pages for them.
  Status advance(std::int64_t slot, std::int64_t tokens);
  /// Removes a slot's tokens from `length` on, and frees the pages that hold nothing else.
  Status rewind(std::int64_t slot, std::int64_t length);
  /// Whether the slot still holds everything that the tokens after the first `length` will read.
  bool can_rewind(std::int64_t slot, std::int64_t length) const;
  /// Finds "cache.N.k" and "cache.N.v" for a plan.
  Result<Tensor> bind(const PlanBinding& binding) const;

 private:
  struct Group {
    std::int32_t window = 0;
    std::int64_t per_sequence = 0;  ///< The most pages that a sequence has.
    PagePool pool;
    /// The first block of which a token at `position` sees anything.
    std::int64_t first_block(std::int64_t position) const;
    bool reserve(std::int64_t slot, std::int64_t from, std::int64_t to);
  };
  std::vector<AttentionKvCache> layers_;
  std::map<std::string, Tensor, std::less<>> by_name_;  ///< The tensors of all layers.
  std::vector<Group> groups_;
  std::vector<std::int64_t> lengths_;
  std::int64_t capacity_ = 0;
};

}  // namespace volta
