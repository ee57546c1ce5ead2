// StepPlans: the plans of a step over a KV cache, one for each number of rows out of a short list,
// and the memory where the host writes their inputs and reads their results. Knows rows of tokens,
// not sequences (see Decoder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/executable.h"
#include "nn/kv_cache.h"
#include "nn/transformer.h"
#include "nn/transformer_graph.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {

/// The row counts that a step may have, smallest first: those of a device end at its step_rows. A
/// step may also have as many rows as there are slots, which may be more than the last of them.
std::span<const std::int64_t> step_sizes();
/// The most rows of any step. The capacity must be given (not 0).
std::int64_t most_step_rows(const KvCacheSizes& sizes);
/// The smallest step that holds `rows` rows, at most max(step_rows, slots).
std::int64_t step_size(std::int64_t rows, const KvCacheSizes& sizes);

/// What a plan is made for: a number of rows of tokens and of rows of logits.
struct StepSize {
  std::int64_t rows = 1;
  std::int64_t logit_rows = 1;
  auto operator<=>(const StepSize&) const = default;
};
/// The size of a step with `rows` rows that draws `draws` tokens. It has logits for one row, or for
/// all rows that its slots may need. So there are at most two plans for each number of rows.
StepSize size_for(std::int64_t rows, std::int64_t draws, const KvCacheSizes& sizes);
/// The size whose plan needs the largest arena of all plans. The capacity must be given (not 0).
StepSize largest_size(const KvCacheSizes& sizes);

/// A loaded plan, and the host's copies of its inputs and results: see build_cached_graph(). The
/// inputs are copied to the device as one block, and the results are copied back as one block.
struct StepRunner {
  Executable executable;
  StepSize size;
  std::span<std::int32_t> ids{}, positions{}, sequences{};   // [rows]
  std::span<std::int32_t> rotations{};                       // [rows], or empty
  std::span<std::int32_t> rows{};                            // [1]
  std::vector<std::span<std::int32_t>> tables{};             // by group: [slots, blocks]
  std::span<std::int32_t> logit_rows{}, sample_sequences{};  // [logit_rows]
  std::span<float> sampling{};                               // [logit_rows, kSampleParams]
  std::span<std::int64_t> rng{};                             // [logit_rows, 2]
  std::span<const std::int32_t> token{};                     // [logit_rows]
  std::span<const float> logprob{};                          // [logit_rows]
  std::span<const std::int32_t> top_tokens{};                // [logit_rows, top]
  std::span<const float> top_logprobs{};                     // [logit_rows, top]
};

/// Row `index` of `values`, which has `columns` values per row.
template <typename T>
std::span<T> row_of(std::span<T> values, std::size_t index, std::size_t columns) {
  return values.subspan(index * columns, columns);
}

/// All plans share one arena, which is as large as the plan of the largest size needs. The next
/// step overwrites the results of a step, whichever plan it uses.
class StepPlans {
 public:
  StepPlans() = default;
  /// `options` define everything but the size. Their capacity must be given (not 0).
  StepPlans(const CachedGraphOptions& options, DType compute_dtype)
      : options_(options), compute_dtype_(compute_dtype) {}

  /// Makes the plan of a size, if there is none yet, and that of the largest size.
  Status prepare(const Transformer& model, const StepSize& size);
  /// The loaded plan of a size. `state` finds what the model does not have: caches, counts, the
  /// rope table.
  Result<StepRunner*> runner(const Transformer& model, const StepSize& size,
                             const TensorLookup& state);

  /// The cache that the plans read and append to.
  const KvCacheSizes& sizes() const { return options_.cache; }
  /// Bytes of the arena for all plans, known after the first prepare() or runner(). A plan that
  /// needs more has an arena of its own, which is added; no backend has been seen to need this.
  std::int64_t activation_bytes() const;
  /// The plans made so far.
  std::int64_t count() const { return static_cast<std::int64_t>(plans_.size()); }

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    std::optional<StepRunner> runner{};
  };
  Result<Entry*> entry(const Transformer& model, const StepSize& size);
  Status make_arena(const Transformer& model);
  Result<StepRunner> load(const Transformer& model, const StepSize& size,
                          const std::shared_ptr<const Plan>& plan, const TensorLookup& state) const;

  CachedGraphOptions options_;
  DType compute_dtype_ = DType::kF32;
  std::map<StepSize, Entry> plans_;
  std::int64_t arena_bytes_ = 0;         ///< What the largest plan needs; 0: not known yet.
  std::shared_ptr<DeviceBuffer> arena_;  ///< Null until a plan is loaded.
};

}  // namespace volta
