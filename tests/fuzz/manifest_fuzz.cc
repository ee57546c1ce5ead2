// Any bytes as a checkpoint's manifest.json.
#include <cstddef>
#include <cstdint>
#include <string>

#include "train/checkpoint_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const auto manifest = volta::parse_manifest(text, "fuzz");
  if (!manifest) return 0;
  for (const volta::CheckpointFile& file : manifest->files) {
    if (file.name.find('/') != std::string::npos || file.name == "..") __builtin_trap();
  }
  const std::string json = volta::to_json(*manifest);
  const auto again = volta::parse_manifest(json, "again");
  if (!again || volta::to_json(*again) != json) __builtin_trap();
  return 0;
}
