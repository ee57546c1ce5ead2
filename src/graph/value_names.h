// What people read for a value: its own name, or %0, %1, ... for intermediates in the order in
// which they are made, so that a dump does not depend on how the graph came about.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace volta {

class ValueNames {
 public:
  explicit ValueNames(const Graph& graph);
  /// The name of a value of the graph.
  const std::string& operator()(ValueId id) const {
    return names_[static_cast<std::size_t>(id.index)];
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace volta
