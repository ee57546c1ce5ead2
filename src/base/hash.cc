// A thin face on xxHash.
#include "base/hash.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <xxhash.h>

#include <chrono>

#include "base/memory.h"

namespace volta {

uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t hash64(std::string_view text) { return hash64(as_bytes(text)); }
uint64_t hash64(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

uint64_t random_seed() {
  uint64_t seed = 0;
  // A kernel that has no random numbers yet leaves the clock, which a file's author cannot know.
  static_cast<void>(getrandom(&seed, sizeof(seed), GRND_NONBLOCK));
  return seed ^ static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace volta
