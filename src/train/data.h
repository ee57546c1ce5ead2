// Training data as token ids, and the batches that are drawn from it. A batch is a pure function of
// (seed, step, micro-batch, row), so reading ahead, resuming and evaluating need no state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Philox streams that the host draws from. Ops and parameters use small stream numbers.
inline constexpr std::uint32_t kBatchStream = 0xBA7C0001u;
inline constexpr std::uint32_t kEvaluationStream = 0xBA7C0002u;

/// A source of batches.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Fills ids and targets, both row-major [batch, time], for one micro-batch of an update.
  virtual Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                      std::span<std::int32_t> targets) const = 0;
};

/// Windows of `time` tokens at random positions of one long text. The targets are the next tokens.
class RandomWindows final : public BatchSource {
 public:
  /// kInvalidArgument when the text is shorter than time + 1 tokens.
  static Result<RandomWindows> create(std::shared_ptr<const std::vector<std::int32_t>> tokens,
                                      std::int64_t time, std::uint64_t seed,
                                      std::uint32_t stream = kBatchStream);
  Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
              std::span<std::int32_t> targets) const override;

 private:
  std::shared_ptr<const std::vector<std::int32_t>> tokens_;
  std::int64_t time_ = 0;
  std::uint64_t seed_ = 0;
  std::uint32_t stream_ = 0;
};

/// Ready-made examples: rows of time + 1 ids, taken in order, `batch` rows per micro-batch. After
/// the last row it starts again at the first. Inputs are row[:-1], targets row[1:].
class ExampleRows final : public BatchSource {
 public:
  /// `rows` holds count * (time + 1) ids. kInvalidArgument when it does not.
  static Result<ExampleRows> create(std::vector<std::int32_t> rows, std::int64_t count,
                                    std::int64_t time, std::int64_t accumulate);
  Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
              std::span<std::int32_t> targets) const override;

 private:
  std::vector<std::int32_t> rows_;
  std::int64_t count_ = 0;
  std::int64_t time_ = 0;
  std::int64_t accumulate_ = 1;
};

}  // namespace volta
