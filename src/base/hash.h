// XXH3 checksums (xxHash): fast, stable across machines, not cryptographic. For telling a damaged
// file from a whole one and for cache keys; never against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace volta {

/// A 128-bit hash.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
};

uint64_t hash64(std::span<const std::byte> bytes);
uint64_t hash64(std::string_view text);
Hash128 hash128(std::span<const std::byte> bytes);
Hash128 hash128(std::string_view text);

/// 16 or 32 lower-case hexadecimal digits, most significant first, as xxhsum prints them.
std::string hex(uint64_t hash);
std::string hex(const Hash128& hash);

/// The hash of bytes that arrive in pieces: equal to that of all of them at once.
class StreamHasher {
 public:
  StreamHasher();
  ~StreamHasher();
  StreamHasher(StreamHasher&&) noexcept;
  StreamHasher& operator=(StreamHasher&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// The hash of everything so far; more may follow.
  uint64_t digest64() const;
  Hash128 digest128() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace volta
