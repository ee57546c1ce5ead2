// Any bytes as the JSON of a plan. What is accepted must be written and read again as the same
// plan.
#include <cstddef>
#include <cstdint>
#include <string>

#include "graph/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto plan = volta::plan_from_json(text, "fuzz");
  if (!plan) return 0;
  const std::string json = volta::to_json(*plan);
  const auto again = volta::plan_from_json(json, "again");
  if (!again || volta::to_json(*again) != json || volta::to_text(*again) != volta::to_text(*plan)) {
    __builtin_trap();
  }
  return 0;
}
