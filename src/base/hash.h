// XXH3 checksums (xxHash): fast, stable across machines, not cryptographic. They detect damaged
// files and serve as cache keys. They resist an adversary only with a seed that is unknown to him;
// hash tables of untrusted data use such a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"

namespace volta {

class MappedFile;

std::uint64_t hash64(std::span<const std::byte> bytes);
std::uint64_t hash64(std::string_view text);
/// A different hash function for every seed.
std::uint64_t hash64(std::string_view text, std::uint64_t seed);

/// A number that an author of files cannot guess, different at every call, as the seed of a hash
/// table.
std::uint64_t random_seed();

/// hash64() of much data, in pieces. Before each piece it calls `go_on` with the number of bytes
/// hashed so far. If `go_on` returns false, it stops and returns nothing.
std::optional<std::uint64_t> hash64(std::span<const std::byte> bytes,
                                    FunctionRef<bool(std::int64_t done)> go_on);

/// hash64() of a file of any size, with a few MiB of memory; `go_on` as above. kInterrupted if
/// `go_on` returned false, kIo where it cannot be read, and the errors of
/// MappedFile::check_unchanged().
Result<std::uint64_t> hash_file(const MappedFile& file, FunctionRef<bool(std::int64_t done)> go_on);
/// The same; `read` is given every piece of the file, in order. All but the last have the same
/// size, a multiple of 4096 bytes.
Result<std::uint64_t> hash_file(const MappedFile& file, FunctionRef<bool(std::int64_t done)> go_on,
                                FunctionRef<void(std::span<const std::byte> piece)> read);

/// 16 lower-case hexadecimal digits, most significant first, as xxhsum prints them.
std::string hex(std::uint64_t hash);

}  // namespace volta
