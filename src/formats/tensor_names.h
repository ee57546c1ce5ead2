// Maps the names of tensors in a file to parameters. Translates the names of known exporters to
// those of parameters(), and knows the tensors that are not weights: attention masks, rotary
// tables, a copy of a tied output, zero biases that save_model added. Reads no data.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "nn/transformer_config.h"

namespace volta {

/// The biases that files of this architecture's family always have and that the model lacks. They
/// are written as zeros.
std::vector<ParameterInfo> missing_biases(const TransformerConfig& config);

class TensorNames {
 public:
  explicit TensorNames(const TransformerConfig& config);
  /// The name with the prefix that some exporters omit.
  std::string full(const std::string& name) const;
  /// Whether the tensor is not loaded, whatever it contains.
  bool ignored(const std::string& full) const;
  /// Whether the tensor is a bias, in its right shape, that the model lacks. It must be zero;
  /// otherwise the file belongs to another model.
  bool filler(const std::string& full, const Shape& shape) const;
  /// Whether the tensor is a parameter.
  bool wanted(const std::string& full) const { return wanted_.contains(full); }

 private:
  bool tied_;
  std::set<std::string> wanted_;
  std::map<std::string, Shape> fillers_;
};

}  // namespace volta
