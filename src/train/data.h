// Training data as token ids, and the batches that are drawn from it. A batch is a pure function of
// (seed, step, micro-batch, row), so reading ahead, resuming and evaluating need no state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Philox streams that the host draws from. Ops and parameters use small stream numbers.
inline constexpr std::uint32_t kBatchStream = 0xBA7C0001u;
inline constexpr std::uint32_t kEvaluationStream = 0xBA7C0002u;
inline constexpr std::uint32_t kShuffleStream = 0xBA7C0003u;

/// A source of batches.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Fills ids and targets, both row-major [batch, time], for one micro-batch of an update.
  virtual Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
                      std::span<std::int32_t> targets) const = 0;
};

/// Rows of inputs and their targets. A target below 0 is none: the model is not trained on it.
struct LabelledRows {
  std::vector<std::int32_t> ids;      ///< Row-major [count, time].
  std::vector<std::int32_t> targets;  ///< The same.
  std::int64_t count = 0;
  std::int64_t time = 0;
};

/// `rows` holds count * (time + 1) ids. Inputs are row[:-1], targets row[1:].
std::shared_ptr<const LabelledRows> label_rows(std::span<const std::int32_t> rows,
                                               std::int64_t count, std::int64_t time);

/// The size of a token id in a file of unsigned little-endian numbers.
enum class IdWidth : std::uint8_t { kOneByte = 1, kTwoBytes = 2, kFourBytes = 4 };

/// Token ids in a file. The file is mapped, so it may be larger than memory.
class MappedTokens {
 public:
  /// nanoGPT's train.bin has two bytes an id; a text is a file of one byte an id to a tokenizer of
  /// bytes. kInvalidFile for an empty file and for a part of an id at its end; the errors of
  /// MappedFile::open().
  static Result<MappedTokens> open(const std::string& path, IdWidth width = IdWidth::kTwoBytes);
  std::size_t size() const;
  /// Copies the ids from `begin` on; there must be as many as `ids` holds.
  void copy(std::size_t begin, std::span<std::int32_t> ids) const;
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  IdWidth width_ = IdWidth::kTwoBytes;
};

/// Windows of `time` tokens at random positions of one long text. The targets are the next tokens.
class RandomWindows final : public BatchSource {
 public:
  /// kInvalidArgument when the text is shorter than time + 1 tokens.
  static Result<RandomWindows> create(std::shared_ptr<const std::vector<std::int32_t>> tokens,
                                      std::int64_t time, std::uint64_t seed,
                                      std::uint32_t stream = kBatchStream);
  /// The same of the first `count` tokens of a file. fill() then also fails with kInvalidFile when
  /// the file has changed.
  static Result<RandomWindows> create(std::shared_ptr<const MappedTokens> tokens,
                                      std::int64_t count, std::int64_t time, std::uint64_t seed);
  Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
              std::span<std::int32_t> targets) const override;

 private:
  std::shared_ptr<const std::vector<std::int32_t>> tokens_;  // Or mapped_.
  std::shared_ptr<const MappedTokens> mapped_;
  std::int64_t count_ = 0;
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

/// The numbers 0 to count - 1 in a random order, which depends on the seed and on `epoch` only.
std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed, std::uint32_t epoch);

/// Labelled rows in a new random order for every pass over them. Batches follow each other without
/// gaps, also from one pass to the next.
class ShuffledRows final : public BatchSource {
 public:
  /// kInvalidArgument without rows, for more than 2^32 of them, and when the sizes do not agree.
  static Result<ShuffledRows> create(std::shared_ptr<const LabelledRows> rows, std::uint64_t seed,
                                     std::int64_t accumulate);
  /// Not for several threads at once: it remembers the order of the last pass.
  Status fill(std::int64_t step, std::int64_t micro, std::span<std::int32_t> ids,
              std::span<std::int32_t> targets) const override;

 private:
  std::shared_ptr<const LabelledRows> rows_;
  std::uint64_t seed_ = 0;
  std::int64_t accumulate_ = 1;
  mutable std::optional<std::uint64_t> pass_;
  mutable std::vector<std::uint32_t> order_;
};

}  // namespace volta
