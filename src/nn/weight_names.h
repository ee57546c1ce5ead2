// How the files of a model family name its weights and arrange them: a table with one row per
// naming. What a model computes does not depend on its naming.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nn/transformer_config.h"

namespace volta {

/// One row. Names are parts of paths without ".weight" and ".bias". In a path, the names in a block
/// follow the block's number. An empty name means that files of this naming have no such weight.
struct WeightNames {
  WeightNaming naming{};
  std::string_view word{};  ///< Its name in Volta's own files.
  bool in_out = false;  ///< Matrices of blocks are [inputs, outputs]; otherwise [outputs, inputs].

  std::string_view embedding{}, positions{}, final_norm{}, output{};
  std::string_view blocks{};            ///< The path of block 0 is this, a dot and "0".
  std::string_view attention{}, mlp{};  ///< The two halves of a block.
  /// Before and after each half.
  std::string_view attention_norm{}, attention_norm_after{}, ffn_norm{}, ffn_norm_after{};

  /// In `attention`. `qkv` is q | k | v as one matrix; files have either it or the three.
  std::string_view qkv{}, q{}, k{}, v{}, q_norm{}, k_norm{}, attention_output{};
  /// In `mlp`. `gate_up` is gate | up as one matrix; files of gated units have either it or the
  /// two.
  std::string_view gate_up{}, gate{}, up{}, down{};

  /// The path of a block: "model.layers.3".
  std::string block(std::int64_t layer) const;
};

const WeightNames& weight_names(WeightNaming naming);
inline const WeightNames& weight_names(const TransformerConfig& config) {
  return weight_names(config.naming);
}
/// The naming that a word in a file stands for.
std::optional<WeightNaming> find_naming(std::string_view word);
/// The words of all namings, separated by commas.
std::string naming_words();

/// kInvalidArgument, naming what is missing, unless the naming has a name for every weight.
Status check_names(const TransformerConfig& config);

}  // namespace volta
