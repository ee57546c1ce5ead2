// A thin wrapper around xxHash.
#include "base/hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY  // Allows the state to be a local variable.
#include <xxhash.h>

#include <algorithm>
#include <chrono>

#include "base/descriptor.h"
#include "base/memory.h"

namespace volta {

std::uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
std::uint64_t hash64(std::string_view text) { return hash64(as_bytes(text)); }
std::uint64_t hash64(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  // If the kernel has no random numbers yet, the seed is the clock alone, which the author of a
  // file cannot know.
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0) seed = 0;
  return seed ^
         static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::optional<std::uint64_t> hash64(std::span<const std::byte> bytes,
                                    FunctionRef<bool(std::int64_t done)> go_on) {
  constexpr std::size_t kPiece = std::size_t{32} << 20;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
    if (!go_on(static_cast<std::int64_t>(done))) return std::nullopt;
    const auto piece = bytes.subspan(done, std::min(kPiece, bytes.size() - done));
    XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return XXH3_64bits_digest(&state);
}

// The file is read, not taken from its mapping: a mapped hole of a file in memory (tmpfs) takes
// memory as soon as it is touched, so that a sparse file could fill it.
Result<std::uint64_t> hash_file(const MappedFile& file, FunctionRef<bool(std::int64_t done)> go_on,
                                FunctionRef<void(std::span<const std::byte> piece)> read) {
  constexpr std::int64_t kPiece = std::int64_t{4} << 20;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  if (file.size() > 0) {
    VOLTA_TRY(const Descriptor fd, open_file(file.path(), O_RDONLY | O_NONBLOCK, "open"));
    VOLTA_TRY(auto buffer, try_make_array<std::byte>(std::min(kPiece, file.size())));
    for (std::int64_t done = 0; done < file.size(); done += kPiece) {
      VOLTA_TRY(file.check_unchanged());
      if (!go_on(done)) {
        return fail(ErrorCode::kInterrupted, fmt::format("interrupted reading {}", file.path()));
      }
      const auto piece =
          buffer.span().first(static_cast<std::size_t>(std::min(kPiece, file.size() - done)));
      VOLTA_TRY(const std::int64_t size, read_up_to(fd.get(), piece, file.path()));
      if (size < std::ssize(piece)) {
        VOLTA_TRY(file.check_unchanged());
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("'{}' was changed while it was read", file.path()));
      }
      XXH3_64bits_update(&state, piece.data(), piece.size());
      read(piece);
    }
    VOLTA_TRY(file.check_unchanged());
  }
  return XXH3_64bits_digest(&state);
}

Result<std::uint64_t> hash_file(const MappedFile& file,
                                FunctionRef<bool(std::int64_t done)> go_on) {
  return hash_file(file, go_on, [](std::span<const std::byte>) {});
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace volta
