// Epilogue fusion: a MatMul and the bias, activation and residual that follow it become one MatMul,
// if each result in between is used by the next node only. The fused node takes the place of the
// last of them, where all operands have been computed. The kernel computes the same functions and
// rounds to f32 at the same places, so the results keep their bits.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

/// A MatMul and the nodes that it absorbs.
struct Chain {
  MatMul op;
  std::vector<ValueId> inputs;     ///< a, b, then bias and residual if the op has them.
  ValueId result;                  ///< The output of the chain's last node.
  std::vector<std::size_t> nodes;  ///< The indices of all its nodes, ascending.
};

class Fuser {
 public:
  Fuser(const Graph& graph, const Backend& backend)
      : graph_(graph),
        backend_(backend),
        uses_(graph.values().size()),
        consumer_(graph.values().size()),
        absorbed_(graph.nodes().size()) {
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const ValueId id : graph.nodes()[i].inputs) {
        ++uses_[index(id)];
        consumer_[index(id)] = i;
      }
    }
    for (const GraphOutput& output : graph.outputs()) uses_[index(output.value)] += 2;
  }

  /// The longest chain that starts at this node; nothing if no node can be absorbed.
  std::optional<Chain> chain_at(std::size_t i) {
    const Node& node = graph_.nodes()[i];
    const MatMul* op = std::get_if<MatMul>(&node.op);
    if (op == nullptr || op->batched || absorbed_[i]) return std::nullopt;
    // Fusion would change the bits of a narrower result: it would be rounded once instead of twice.
    if (op->out != DType::kF32) return std::nullopt;
    Chain chain{*op, node.inputs, node.outputs[0], {i}};
    while (auto longer = extended(chain)) chain = *std::move(longer);
    if (chain.nodes.size() == 1) return std::nullopt;
    for (const std::size_t taken : chain.nodes) absorbed_[taken] = true;
    return chain;
  }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }

  /// The chain extended by the only node that uses its result; nothing if this is impossible.
  std::optional<Chain> extended(const Chain& chain) const {
    if (uses_[index(chain.result)] != 1 || chain.op.has_residual) return std::nullopt;
    const std::size_t next = consumer_[index(chain.result)];
    if (absorbed_[next] || written_between(chain, next)) return std::nullopt;
    const Node& node = graph_.nodes()[next];
    Chain longer = chain;
    const bool fits = take_activation(node, longer) || take_sum(node, longer);
    if (!fits) return std::nullopt;
    longer.result = node.outputs[0];
    longer.nodes.push_back(next);
    if (!supported(longer)) return std::nullopt;
    return longer;
  }

  static bool take_activation(const Node& node, Chain& chain) {
    const Unary* unary = std::get_if<Unary>(&node.op);
    if (unary == nullptr || unary->kind == UnaryKind::kNone || !is_activation(unary->kind) ||
        chain.op.activation != UnaryKind::kNone) {
      return false;
    }
    chain.op.activation = unary->kind;
    return true;
  }

  bool take_sum(const Node& node, Chain& chain) const {
    const Binary* binary = std::get_if<Binary>(&node.op);
    if (binary == nullptr || binary->kind != BinaryKind::kAdd) return false;
    const bool is_left = node.inputs[0] == chain.result;
    const ValueId other = node.inputs[is_left ? 1 : 0];
    const TensorSpec& result = graph_.spec(chain.result);
    if (graph_.spec(other) == result) {
      chain.op.has_residual = true;
    } else if (is_left && graph_.spec(other).shape == Shape(result.shape.columns()) &&
               !chain.op.has_bias && chain.op.activation == UnaryKind::kNone) {
      chain.op.has_bias = true;
    } else {
      return false;
    }
    chain.inputs.push_back(other);
    return true;
  }

  /// Whether moving the chain down to node `next` would move a read past a write to the same value.
  bool written_between(const Chain& chain, std::size_t next) const {
    for (std::size_t i = chain.nodes.back() + 1; i < next; ++i) {
      const Node& node = graph_.nodes()[i];
      const std::uint32_t written = writes(node.op, node.inputs.size());
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        if (writes_input(written, j) && std::ranges::count(chain.inputs, node.inputs[j]) != 0) {
          return true;
        }
      }
    }
    return false;
  }

  bool supported(const Chain& chain) const {
    std::vector<TensorSpec> specs;
    for (const ValueId id : chain.inputs) specs.push_back(graph_.spec(id));
    return backend_.supports(chain.op, specs);
  }

  const Graph& graph_;
  const Backend& backend_;
  std::vector<int> uses_;              ///< By value. A graph output counts as two uses.
  std::vector<std::size_t> consumer_;  ///< By value: the last node that reads it.
  std::vector<bool> absorbed_;         ///< By node: whether it is part of a chain.
};

}  // namespace

Result<Graph> fuse_epilogues(const Graph& graph, const Backend& backend) {
  Fuser fuser(graph, backend);
  const std::size_t count = graph.nodes().size();
  std::vector<std::optional<Chain>> chain_ending_at(count);
  std::vector<bool> in_chain(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto chain = fuser.chain_at(i);
    if (!chain) continue;
    for (const std::size_t taken : chain->nodes) in_chain[taken] = true;
    chain_ending_at[chain->nodes.back()] = std::move(chain);
  }

  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto& chain = chain_ending_at[i]) {
      // The fused node has the label of the MatMul, so that a profile shows it there.
      Node node = graph.nodes()[chain->nodes.front()];
      node.outputs = graph.nodes()[i].outputs;
      VOLTA_TRY(const auto inputs, rewriter.at(chain->inputs));
      VOLTA_TRY(rewriter.replace_node(node, chain->op, inputs));
    } else if (!in_chain[i]) {
      VOLTA_TRY(rewriter.copy(graph.nodes()[i]));
    }
  }
  return rewriter.finish();
}

}  // namespace volta
