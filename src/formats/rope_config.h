// The rotary positions in a config.json: theta and the kind of scaling, in the old and new keys of
// the Hugging Face hub and in Volta's own.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// A family's defaults and rules for the keys of its rotary positions.
struct RopeKeys {
  double theta = 10000.0;         ///< The base when the key is missing.
  double local_theta = 0.0;       ///< The base in layers with a window; 0: one base for all layers.
  std::int64_t original = 0;      ///< The usual original length; 0: max_position_embeddings.
  bool partial = false;           ///< partial_rotary_factor has an effect.
  bool longrope = false;          ///< All scaling is longrope, also under its older names (Phi-3).
  bool context_is_final = false;  ///< max_position_embeddings is the length after stretching.
};

/// The name of a kind on the hub.
std::string_view rope_kind_name(RopeKind kind);

/// Sets rope_theta, rope_scaling, rotary_dim and context from "rope_parameters" or the older
/// "rope_scaling" and "rope_theta" of a family's config. With keys.local_theta, also sets
/// rope_local_theta if config.window is set. `longest` is the config's max_position_embeddings; the
/// context is larger if the scaling stretches that length by a given factor. config.head_dim must
/// be set. kUnsupported for an unknown type, kInvalidFile for two places of the config that give
/// different bases or types.
Status parse_rope(const JsonRef& root, std::int64_t longest, const RopeKeys& keys,
                  TransformerConfig& config);
/// Writes the same keys, old and new, and "max_position_embeddings".
void write_rope(JsonWriter& json, const TransformerConfig& config);

/// The default factor by which yarn scales attention (Peng et al. 2023, section 3.4). ggml scales
/// attention by it as well, with weight 1.
double yarn_sharpening(double factor, double weight = 1.0);

/// Reads and writes Volta's own object "rope_scaling". A missing object means no scaling.
Result<RopeScaling> parse_rope_scaling_fields(const JsonRef& config);
void write_rope_scaling_fields(JsonWriter& json, const RopeScaling& scaling);

}  // namespace volta
