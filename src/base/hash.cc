// A thin face on xxHash.
#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/memory.h"

namespace volta {

uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t hash64(std::string_view text) { return hash64(as_bytes(text)); }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace volta
