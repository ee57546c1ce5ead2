// Any bytes as an adapter_config.json, and as a config.json that is taken along.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/adapter.h"
#include "formats/carried_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto lora = volta::parse_adapter_config(text, "fuzz");
  if (lora) {
    const auto completed = volta::complete_lora(*lora, volta::tiny_lm_config());
    if (completed) {
      const std::string written =
          volta::adapter_config_json(volta::tiny_lm_config(), *completed, text);
      const auto again = volta::parse_adapter_config(written, "again");
      if (!again || *again != *completed) __builtin_trap();
    }
  }
  const auto config = volta::config_with_f32_weights(text, "fuzz");
  if (config) {
    const auto again = volta::config_with_f32_weights(*config, "again");
    if (!again || *again != *config) __builtin_trap();
  }
  return 0;
}
