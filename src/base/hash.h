// XXH3 checksums (xxHash): fast, stable across machines, not cryptographic. For telling a damaged
// file from a whole one and for cache keys. Against an adversary only with a seed that he does not
// know, as hash tables of strangers' data have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace volta {

uint64_t hash64(std::span<const std::byte> bytes);
uint64_t hash64(std::string_view text);
/// Another function for every seed.
uint64_t hash64(std::string_view text, uint64_t seed);

/// A number that nobody can guess, another one at every call: the seed of a hash table.
uint64_t random_seed();

/// The same of much data: before each piece `go_on` is told how many bytes are done. Nothing when
/// it says no.
std::optional<uint64_t> hash64(std::span<const std::byte> bytes,
                               FunctionRef<bool(int64_t done)> go_on);

/// 16 lower-case hexadecimal digits, most significant first, as xxhsum prints them.
std::string hex(uint64_t hash);

}  // namespace volta
