// Permission to use tiles, and their configuration.
#include "kernels/cpu/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace volta::cpu {
namespace {

/// What LDTILECFG reads (Intel's manual, volume 1, section 18.2).
struct alignas(64) TileConfigurationBytes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {};
  std::array<std::uint8_t, 16> rows = {};
};
static_assert(sizeof(TileConfigurationBytes) == 64);

bool ask_permission() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // Linux 5.16, arch/x86.
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & (kBf16 | kTiles | kInt8)) == (kBf16 | kTiles | kInt8);
}

bool amx_permitted() {
  static const bool permitted = has_amx() && ask_permission();
  return permitted;
}

void TileConfiguration::set(const TileSizes& sizes) {
  if (sizes == sizes_) return;
  sizes_ = sizes;
  TileConfigurationBytes bytes;
  const bool two = sizes.rows > kTileRows;
  const auto steps = static_cast<std::uint8_t>(sizes.steps);
  const auto first = static_cast<std::uint8_t>(two ? kTileRows : sizes.rows);
  const auto second = static_cast<std::uint8_t>(two ? sizes.rows - kTileRows : sizes.rows);
  bytes.rows = {first, first, second, second, first, two ? second : steps, steps, steps};
  std::fill_n(bytes.row_bytes.begin(), 8, std::uint16_t{64});
  const auto step_bytes = static_cast<std::uint16_t>(4 * sizes.steps);
  bytes.row_bytes[4] = step_bytes;
  if (two) bytes.row_bytes[5] = step_bytes;
  // SAFETY: the instruction reads the 64 bytes of `bytes`; the system has permitted tiles.
  asm volatile("ldtilecfg %0" ::"m"(bytes));
}

TileConfiguration::~TileConfiguration() {
  if (sizes_.rows != 0) asm volatile("tilerelease");
}

}  // namespace volta::cpu
