// Any bytes as a generation_config.json.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto config = volta::parse_generation_config(text, "fuzz");
  if (!config) return 0;
  if (!volta::validate(config->sampling({}))) __builtin_trap();
  if (config->new_tokens(10, 5) < 0) __builtin_trap();
  for (const std::int32_t id : config->end_tokens) {
    if (id < 0) __builtin_trap();
  }
  return 0;
}
