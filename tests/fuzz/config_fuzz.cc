// Any bytes as a config.json, and as a run's run.json.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/model_config.h"
#include "train/run_options.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto config = volta::parse_model_config(text, "fuzz");
  if (config) {
    if (!volta::validate(*config)) __builtin_trap();
    const auto again = volta::parse_model_config(volta::model_config_json(*config), "again");
    if (!again || *again != *config) __builtin_trap();
  }
  const auto run = volta::parse_run_options(text, "fuzz");
  if (run && !volta::parse_run_options(volta::to_json(*run), "again")) __builtin_trap();
  return 0;
}
