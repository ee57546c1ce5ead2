// Parts of a layer that whole graphs need, too: the embedding and the head have a norm, dropout and
// factors as blocks do. transformer_layers.cc also has MultiHeadSelfAttentionLayer and
// TransformerBlock, which nn/transformer_graph.h declares.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "graph/graph.h"
#include "nn/transformer_graph.h"

namespace volta::layers {

/// The config's norm of x [.., D], with the weights `name`.weight and, if it has one, `name`.bias.
Result<ValueId> norm(const LayerContext& c, ValueId x, const std::string& name);
/// Dropout from this Philox stream; x itself when the graph has none.
Result<ValueId> dropout(const LayerContext& c, ValueId x, std::uint32_t stream);
/// x times a factor; x itself for 1.
Result<ValueId> scale(Graph& graph, ValueId x, float factor);

}  // namespace volta::layers
