// The part of a config.json that says how positions rotate: theta and the kind of scaling, in the
// keys of the Hugging Face hub, old and new, and in Volta's own.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// Sets rope_theta, rope_scaling and context from "rope_parameters" or the older "rope_scaling" and
/// "rope_theta" of a family's config. `longest` is its max_position_embeddings; the context is
/// larger where the scaling says by how much it stretches that. kUnsupported for an unknown type.
Status parse_rope(const JsonRef& root, std::int64_t longest, TransformerConfig& config);
/// The same keys, old and new, and "max_position_embeddings".
void write_rope(JsonWriter& json, const TransformerConfig& config);

/// Volta's own object "rope_scaling" and its absence, which means none.
Result<RopeScaling> parse_rope_scaling_fields(const JsonRef& config);
void write_rope_scaling_fields(JsonWriter& json, const RopeScaling& scaling);

}  // namespace volta
