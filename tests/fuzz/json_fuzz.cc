// Any bytes as JSON: parsed within its limits, or refused.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"

namespace {

void write(volta::JsonWriter& json, const volta::JsonValue& value) {
  if (const auto* flag = value.if_bool()) {
    json.value(*flag);
  } else if (const auto* integer = value.if_int()) {
    json.value(*integer);
  } else if (const auto* number = value.if_double()) {
    json.value(*number);
  } else if (const auto* text = value.if_string()) {
    json.value(*text);
  } else if (const auto* array = value.if_array()) {
    json.begin_array();
    for (const volta::JsonValue& element : *array) write(json, element);
    json.end_array();
  } else if (const auto* object = value.if_object()) {
    json.begin_object();
    for (const auto& [key, member] : *object) write(json.key(key), member);
    json.end_object();
  } else {
    json.null();
  }
}

std::string rewritten(const volta::JsonValue& value) {
  volta::JsonWriter json;
  write(json, value);
  return json.text();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto value = volta::parse_json(text, "fuzz", {.max_bytes = 1 << 20, .max_depth = 32});
  if (!value) return 0;
  // What the writer says of it is read back, and from then on nothing changes. (The first time -0.0
  // becomes the integer 0.)
  const std::string once = rewritten(*value);
  const auto again = volta::parse_json(once, "again");
  if (!again) __builtin_trap();
  const std::string twice = rewritten(*again);
  const auto third = volta::parse_json(twice, "third");
  if (!third || rewritten(*third) != twice) __builtin_trap();
  return 0;
}
