// Writes a parsed JSON value again. Internal to formats.
#pragma once

#include "base/json.h"

namespace volta {

/// Writes the value as it was parsed. The parser's depth limit bounds the recursion.
void write_json_value(JsonWriter& json, const JsonValue& value);

}  // namespace volta
