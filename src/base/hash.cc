// A thin face on xxHash.
#include "base/hash.h"

#include <fmt/format.h>

#define XXH_STATIC_LINKING_ONLY  // The state's definition, so that it can be a member.
#include <xxhash.h>

#include "base/memory.h"

namespace volta {

uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t hash64(std::string_view text) { return hash64(as_bytes(text)); }

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}
Hash128 hash128(std::string_view text) { return hash128(as_bytes(text)); }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }
std::string hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

// XXH3 feeds both digests from one state when it is reset for 128 bits: the two modes differ only
// in how a digest is drawn from it.
struct StreamHasher::State {
  XXH3_state_t xxh;
};

StreamHasher::StreamHasher() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}
StreamHasher::~StreamHasher() = default;
StreamHasher::StreamHasher(StreamHasher&&) noexcept = default;
StreamHasher& StreamHasher::operator=(StreamHasher&&) noexcept = default;

void StreamHasher::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}
void StreamHasher::update(std::string_view text) { update(as_bytes(text)); }

uint64_t StreamHasher::digest64() const { return XXH3_64bits_digest(&state_->xxh); }

Hash128 StreamHasher::digest128() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.high64, hash.low64};
}

}  // namespace volta
