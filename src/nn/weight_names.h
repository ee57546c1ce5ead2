// How the files of a model family call its weights, and how these lie: one row of a table for each
// naming. What a model computes does not depend on it, nor does the naming on what it computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nn/transformer_config.h"

namespace volta {

/// One row. Names are parts of paths without ".weight" and ".bias"; those of a block follow its
/// number. An empty name means that files of this naming have no such weight.
struct WeightNames {
  WeightNaming naming{};
  std::string_view word{};  ///< In Volta's own files.
  bool in_out = false;  ///< Matrices of blocks are [inputs, outputs], otherwise [outputs, inputs].

  std::string_view embedding{}, positions{}, final_norm{}, output{};
  std::string_view blocks{};            ///< The path of block 0 is this, a dot and "0".
  std::string_view attention{}, mlp{};  ///< The two halves of a block.
  /// Before and after each half.
  std::string_view attention_norm{}, attention_norm_after{}, ffn_norm{}, ffn_norm_after{};

  /// In `attention`. `qkv` is q | k | v as one matrix; files have it or the three.
  std::string_view qkv{}, q{}, k{}, v{}, q_norm{}, k_norm{}, attention_output{};
  /// In `mlp`. `gate_up` is gate | up as one matrix; files of gated units have it or the two.
  std::string_view gate_up{}, gate{}, up{}, down{};

  /// The path of a block: "model.layers.3".
  std::string block(std::int64_t layer) const;
};

const WeightNames& weight_names(WeightNaming naming);
inline const WeightNames& weight_names(const TransformerConfig& config) {
  return weight_names(config.naming);
}
/// The naming that a file means by a word.
std::optional<WeightNaming> find_naming(std::string_view word);
/// The words of all namings, separated by commas.
std::string naming_words();

/// kInvalidArgument, saying what is missing, unless the naming has a name for every weight.
Status check_names(const TransformerConfig& config);

}  // namespace volta
