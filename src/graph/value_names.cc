#include "graph/value_names.h"

#include <fmt/format.h>

namespace volta {

ValueNames::ValueNames(const Graph& graph) : names_(graph.values().size()) {
  for (std::size_t i = 0; i < names_.size(); ++i) names_[i] = graph.values()[i].name;
  int made = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) {
      names_[static_cast<std::size_t>(id.index)] = fmt::format("%{}", made++);
    }
  }
}

}  // namespace volta
