// The tiles of Intel's AMX: permission to use them, and how they are configured. A tile is a
// register of up to 16 rows of 64 bytes. A thread has eight.
#pragma once

#include <cstdint>

namespace volta::cpu {

/// Whether CPUID reports tiles and their products of bf16 and int8.
bool has_amx();
/// Whether this process may use them. The first call asks the system, because it saves tiles only
/// for programs that asked.
bool amx_permitted();

/// The rows of one tile.
inline constexpr std::int64_t kTileRows = 16;

/// The sizes of the tiles of a product. Tiles 0 to 3 hold c, 4 and 5 rows of a, 5 to 7 columns of
/// b.
struct TileSizes {
  std::int64_t rows = 0;   ///< Of a and c: 1 to 32, in one or two tiles.
  std::int64_t steps = 0;  ///< Of K, each of four bytes: 1 to 16.
  bool operator==(const TileSizes&) const = default;
};

/// The configuration of the calling thread's tiles. Tiles are in use, and make every switch of
/// threads more expensive, until it is destroyed. A change takes about 70 ns.
class TileConfiguration {
 public:
  TileConfiguration() = default;
  TileConfiguration(const TileConfiguration&) = delete;
  TileConfiguration& operator=(const TileConfiguration&) = delete;
  ~TileConfiguration();

  /// With more than 16 rows, tiles 0, 1 and 4 have the first 16 of them, and tiles 2, 3 and 5 the
  /// others. With fewer, tiles 0 to 4 have all of them, and tile 5 holds columns of b.
  void set(const TileSizes& sizes);

 private:
  TileSizes sizes_;
};

// The instructions are asm statements, because the compiler knows them only in functions of an AMX
// target.
// SAFETY: a tile's rows are readable (writable) at `at`, `stride` bytes apart.
template <int Tile>
inline void load_tile(const void* at, std::int64_t stride) {
  asm volatile("tileloadd (%0, %1, 1), %%tmm%c2" ::"r"(at), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
inline void store_tile(void* at, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0, %1, 1)" ::"r"(at), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
}
/// Tile C += tile A times tile B, of bf16.
template <int C, int A, int B>
inline void multiply_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/// Tile C += tile A of int8 times tile B of unsigned bytes.
template <int C, int A, int B>
inline void multiply_int8() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

}  // namespace volta::cpu
