// The part of a config.json that says how positions rotate: theta and the kind of scaling, in the
// keys of the Hugging Face hub, old and new, and in Volta's own.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// What a family means by the keys of its rotary positions.
struct RopeKeys {
  double theta = 10000.0;     ///< When it is missing.
  double local_theta = 0.0;   ///< Likewise, of layers with a window; 0: the family has one base.
  std::int64_t original = 0;  ///< original_max_position_embeddings likewise; 0: the longest.
  bool partial = false;       ///< partial_rotary_factor counts.
  bool longrope = false;      ///< The only scaling, whatever its older names say (Phi-3).
  bool context_is_final = false;  ///< max_position_embeddings is the stretched length already.
};

/// Sets rope_theta, rope_scaling, rotary_dim and context from "rope_parameters" or the older
/// "rope_scaling" and "rope_theta" of a family's config; with keys.local_theta also
/// rope_local_theta, if config.window is set. `longest` is its max_position_embeddings; the context
/// is larger where the scaling says by how much it stretches that. config.head_dim is set.
/// kUnsupported for an unknown type.
Status parse_rope(const JsonRef& root, std::int64_t longest, const RopeKeys& keys,
                  TransformerConfig& config);
/// The same keys, old and new, and "max_position_embeddings".
void write_rope(JsonWriter& json, const TransformerConfig& config);

/// Volta's own object "rope_scaling" and its absence, which means none.
Result<RopeScaling> parse_rope_scaling_fields(const JsonRef& config);
void write_rope_scaling_fields(JsonWriter& json, const RopeScaling& scaling);

}  // namespace volta
