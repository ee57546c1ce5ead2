// Any bytes as a safetensors file: read without a fault, or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = volta::parse_safetensors_header(bytes, "fuzz");
  if (!header) return 0;
  // What is accepted lies inside the file and covers it.
  std::int64_t covered = header->data_begin;
  for (const volta::SafetensorsEntry& entry : header->entries) {
    if (entry.offset < 0 ||
        header->data_begin + entry.offset + entry.spec.bytes() > static_cast<std::int64_t>(size)) {
      __builtin_trap();
    }
    covered += entry.spec.bytes();
  }
  if (covered != static_cast<std::int64_t>(size)) __builtin_trap();
  return 0;
}
