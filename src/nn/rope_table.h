// Rotary positions as numbers: the frequencies of a model, with any scaling, and the table of
// cosines and sines that the Rope op reads. Knows nothing about graphs and files.
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

/// The angle between two neighbouring tokens for every rotated pair (config.rotated() / 2 numbers),
/// in a sequence of `length` tokens. It rounds to f32 where the models' own implementations do, so
/// that results for long contexts agree with theirs. `config` must be valid and have rotary
/// positions.
std::vector<float> rope_frequencies(const TransformerConfig& config, std::int64_t length);

/// Whether frequencies depend on the length of the sequence.
inline bool rope_depends_on_length(const TransformerConfig& config) {
  return config.rotates() && (config.rope_scaling.kind == RopeKind::kDynamic ||
                              config.rope_scaling.kind == RopeKind::kLongrope);
}

/// The parameters of a model's graphs that hold its tables. If layers with a window have a base of
/// their own, the second table is for them and the first one for the other layers. Otherwise the
/// first one is for all layers.
inline constexpr std::string_view kRopeTable = "rope.table";
inline constexpr std::string_view kLocalRopeTable = "rope.local_table";
/// A config with the base of the layers with a window as its only one, and without scaling.
TransformerConfig local_rope_config(TransformerConfig config);

/// The sequence for which row t of a table (position t) is computed.
enum class RopeRows : std::uint8_t {
  kSequence,  ///< All rows are for one sequence, whose length is given to cover().
  kSteps,     ///< Row t is for a sequence of t + 1 tokens, which ends there.
};

/// f32[rows, rotated] in a device's memory: rotated / 2 cosines, then as many sines. Rows are
/// computed when they are first needed, because a model may have many more positions than a run
/// uses.
class RopeTable {
 public:
  RopeTable() = default;
  /// 1 <= rows <= config.context.
  static Result<RopeTable> create(const TransformerConfig& config, std::int64_t rows,
                                  Device& device, RopeRows kind = RopeRows::kSequence);
  /// Uses existing memory: `table` is f32[rows, config.rotated()].
  static Result<RopeTable> over(const TransformerConfig& config, Tensor table,
                                RopeRows kind = RopeRows::kSequence);

  /// The table. Rows that no call of cover() asked for hold no valid values.
  const Tensor& tensor() const { return table_; }
  /// Computes rows [0, length), for a sequence of `length` <= rows tokens.
  Status cover(std::int64_t length);

 private:
  void compute(std::int64_t row, std::span<float> out) const;

  TransformerConfig config_;
  RopeRows kind_ = RopeRows::kSequence;
  Tensor table_;
  std::vector<float> frequencies_;
  std::vector<float> block_;  // Rows before they are copied to the device.
  std::int64_t length_ = 0;   // The length of the sequence that frequencies_ are for.
  std::int64_t ready_ = 0;    // How many rows are computed.
};

}  // namespace volta
