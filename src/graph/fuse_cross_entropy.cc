// Loss fusion: the cross entropy of a training graph and its gradient read the same logits, which
// are its largest tensor. One op reads them once. It takes the place of the CrossEntropy; what
// computes the gradient of the loss (a constant, in training) moves up before it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

/// A pair of nodes, and the nodes between them that the second one needs, all by index.
struct Pair {
  std::size_t forward = 0, backward = 0;
  std::vector<std::size_t> moved;  ///< Ascending.
};

class Finder {
 public:
  Finder(const Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), uses_(graph.values().size()) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId id : node.inputs) ++uses_[index(id)];
    }
    for (const GraphOutput& output : graph.outputs()) ++uses_[index(output.value)];
  }

  /// The first pair, if there is one. A training graph has one loss.
  std::optional<Pair> find() const {
    const auto& nodes = graph_.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!std::holds_alternative<CrossEntropy>(nodes[i].op)) continue;
      for (std::size_t j = i + 1; j < nodes.size(); ++j) {
        if (auto pair = pair_of(i, j)) return pair;
      }
    }
    return std::nullopt;
  }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }

  std::optional<Pair> pair_of(std::size_t forward, std::size_t backward) const {
    const Node& first = graph_.nodes()[forward];
    const Node& second = graph_.nodes()[backward];
    const auto* grad = std::get_if<CrossEntropyGrad>(&second.op);
    if (grad == nullptr || grad->with_loss || second.inputs[0] != first.inputs[0] ||
        second.inputs[1] != first.inputs[1] || second.inputs[2] != first.outputs[1] ||
        uses_[index(first.outputs[1])] != 1) {
      return std::nullopt;
    }
    const std::vector<TensorSpec> specs = {
        graph_.spec(first.inputs[0]), graph_.spec(first.inputs[1]), graph_.spec(second.inputs[3])};
    if (!backend_.supports(CrossEntropyGrad{.with_loss = true}, specs)) return std::nullopt;
    return with_moved(forward, backward);
  }

  /// The pair, if the loss's gradient can be computed before it.
  std::optional<Pair> with_moved(std::size_t forward, std::size_t backward) const {
    const auto& nodes = graph_.nodes();
    Pair pair{forward, backward, {}};
    std::vector<ValueId> needed = {nodes[backward].inputs[3]};
    for (std::size_t i = backward; i-- > forward;) {
      const Node& node = nodes[i];
      // With a write in between, an op that moves could read another value.
      if (writes(node.op, node.inputs.size()) != 0) return std::nullopt;
      const bool is_needed = std::ranges::any_of(
          node.outputs, [&](ValueId output) { return std::ranges::count(needed, output) != 0; });
      if (!is_needed) continue;
      if (i == forward) return std::nullopt;
      pair.moved.push_back(i);
      needed.insert(needed.end(), node.inputs.begin(), node.inputs.end());
    }
    std::ranges::reverse(pair.moved);
    return pair;
  }

  const Graph& graph_;
  const Backend& backend_;
  std::vector<int> uses_;  ///< By value.
};

}  // namespace

Result<Graph> fuse_cross_entropy(const Graph& graph, const Backend& backend) {
  const auto pair = Finder(graph, backend).find();
  if (!pair) return graph;
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  const auto& nodes = graph.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i == pair->backward || std::ranges::count(pair->moved, i) != 0) continue;
    if (i != pair->forward) {
      VOLTA_TRY(rewriter.copy(nodes[i]));
      continue;
    }
    for (const std::size_t moved : pair->moved) VOLTA_TRY(rewriter.copy(nodes[moved]));
    const Node& backward = nodes[pair->backward];
    Node node = nodes[i];
    node.outputs = {backward.outputs[0], nodes[i].outputs[0]};
    VOLTA_TRY(const auto inputs,
              rewriter.at(std::vector{backward.inputs[0], backward.inputs[1], backward.inputs[3]}));
    VOLTA_TRY(rewriter.replace_node(node, CrossEntropyGrad{.with_loss = true}, inputs));
  }
  return rewriter.finish();
}

}  // namespace volta
