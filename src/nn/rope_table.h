// Rotary positions as numbers: the frequencies of a model, however they are stretched, and the
// table of cosines and sines that the Rope op reads. Knows nothing of graphs and files.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// The angle from one token to the next of every rotated pair, config.rotated() / 2 of them, in a
/// sequence of `length` tokens. With the f32 roundings of the models' own implementations, so that
/// long contexts agree with them. `config` is valid and has rotary positions.
std::vector<float> rope_frequencies(const TransformerConfig& config, std::int64_t length);

/// Whether frequencies depend on the length of the sequence.
inline bool rope_depends_on_length(const TransformerConfig& config) {
  return config.position == PositionKind::kRotary &&
         (config.rope_scaling.kind == RopeKind::kDynamic ||
          config.rope_scaling.kind == RopeKind::kLongrope);
}

/// The parameters of a model's graphs that hold its tables: of every layer, or where layers with a
/// window have a base of their own, of the others and of those.
inline constexpr std::string_view kRopeTable = "rope.table";
inline constexpr std::string_view kLocalRopeTable = "rope.local_table";
/// The config whose only base is that of the layers with a window.
TransformerConfig local_rope_config(TransformerConfig config);

/// Row t of a table, for position t.
enum class RopeRows : std::uint8_t {
  kSequence,  ///< All rows are for one sequence, whose length cover() says.
  kSteps,     ///< Row t is for a sequence that ends with it: t + 1 tokens.
};

/// f32[rows, rotated] in a device's memory: rotated / 2 cosines, then as many sines. Rows are
/// computed when they are first needed: a model may have many more places than a run uses.
class RopeTable {
 public:
  RopeTable() = default;
  /// 1 <= rows <= config.context.
  static Result<RopeTable> create(const TransformerConfig& config, std::int64_t rows,
                                  Device& device, RopeRows kind = RopeRows::kSequence);
  /// In memory that is there: `table` is f32[rows, config.rotated()].
  static Result<RopeTable> over(const TransformerConfig& config, Tensor table,
                                RopeRows kind = RopeRows::kSequence);

  /// The table; rows that no cover() asked for hold nothing of use.
  const Tensor& tensor() const { return table_; }
  /// Makes rows [0, length) right, for a sequence of `length` <= rows tokens.
  Status cover(std::int64_t length);

 private:
  void compute(std::int64_t row, std::span<float> out) const;

  TransformerConfig config_;
  RopeRows kind_ = RopeRows::kSequence;
  Tensor table_;
  std::vector<float> frequencies_;
  std::vector<float> block_;  // Rows on their way to the device.
  std::int64_t length_ = 0;   // Of the sequence that frequencies_ are for.
  std::int64_t ready_ = 0;    // Rows that are right.
};

}  // namespace volta
