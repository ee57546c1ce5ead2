// Which tensor of a file is which parameter. Brings the names of known exporters to the ones that
// parameters() lists, and knows what is no weight: attention masks, rotary tables, a copy of a tied
// output, zero biases that save_model added. Knows names only, no data.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "nn/transformer_config.h"

namespace volta {

/// The biases that the files of this architecture's family always have and that it lacks; they are
/// written as zeros.
std::vector<ParameterInfo> missing_biases(const TransformerConfig& config);

class TensorNames {
 public:
  explicit TensorNames(const TransformerConfig& config);
  /// With the prefix that some exporters leave out.
  std::string full(const std::string& name) const;
  /// Something that is not loaded, whatever it holds.
  bool ignored(const std::string& full) const;
  /// A bias that the model lacks, in its shape: zero, or the file is another model's.
  bool filler(const std::string& full, const Shape& shape) const;
  /// A parameter.
  bool wanted(const std::string& full) const { return wanted_.contains(full); }

 private:
  bool tied_;
  std::set<std::string> wanted_;
  std::map<std::string, Shape> fillers_;
};

}  // namespace volta
