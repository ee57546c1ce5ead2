// Merges common subexpressions: a node is replaced by an earlier node with the same op and the same
// inputs, if no input was written in between.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/fields.h"

namespace volta {
namespace {

/// Two nodes are equal if these are equal: the op, the inputs, and how often each input had been
/// written.
using Key = std::tuple<OpKey, std::vector<std::int32_t>, std::vector<int>>;

class Merger {
 public:
  Merger(const Graph& graph, Rewriter& rewriter)
      : rewriter_(rewriter), write_count_(graph.values().size()) {}

  Status visit(const Node& node) {
    VOLTA_TRY(const auto inputs, rewriter_.at(node.inputs));
    if (count_writes(node)) return rewriter_.copy(node);
    Key key{key_of(node.op), {}, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::get<1>(key).push_back(inputs[i].index);
      std::get<2>(key).push_back(write_count_[static_cast<std::size_t>(node.inputs[i].index)]);
    }
    const auto [first, is_new] = seen_.try_emplace(std::move(key), &node);
    return is_new ? rewriter_.copy(node) : merge(*first->second, node);
  }

 private:
  /// Counts the writes of the node; returns whether there are any.
  bool count_writes(const Node& node) {
    const std::uint32_t written = writes(node.op, node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (writes_input(written, i)) ++write_count_[static_cast<std::size_t>(node.inputs[i].index)];
    }
    return written != 0;
  }

  Status merge(const Node& first, const Node& node) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      VOLTA_TRY(const ValueId rewritten, rewriter_.at(first.outputs[i]));
      rewriter_.replace(node.outputs[i], rewritten);
    }
    return {};
  }

  Rewriter& rewriter_;
  std::vector<int> write_count_;
  std::map<Key, const Node*> seen_;
};

}  // namespace

Result<Graph> merge_common_subexpressions(const Graph& graph) {
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  Merger merger(graph, rewriter);
  for (const Node& node : graph.nodes()) VOLTA_TRY(merger.visit(node));
  return rewriter.finish();
}

}  // namespace volta
