#include "formats/json_value.h"

#include "base/text.h"

namespace volta {

void write_json_value(JsonWriter& json, const JsonValue& value) {
  if (const auto* flag = value.if_bool()) {
    json.value(*flag);
  } else if (const auto* integer = value.if_int()) {
    json.value(*integer);
  } else if (const auto* number = value.if_double()) {
    json.raw(format_real(*number));
  } else if (const auto* text = value.if_string()) {
    json.value(*text);
  } else if (const auto* list = value.if_array()) {
    json.begin_array();
    for (const JsonValue& element : *list) write_json_value(json, element);
    json.end_array();
  } else if (const auto* members = value.if_object()) {
    json.begin_object();
    for (const auto& [key, member] : *members) write_json_value(json.key(key), member);
    json.end_object();
  } else {
    json.null();
  }
}

}  // namespace volta
