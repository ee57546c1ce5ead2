// Values as JSON text, the way Python's json.dumps writes them: what tojson gives.
#pragma once

#include <string>

#include "io/jinja/value.h"

namespace volta::jinja {

/// Options of tojson, those of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool indented = false;
  std::string indent;  ///< One level's.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Result<Value> to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace volta::jinja
