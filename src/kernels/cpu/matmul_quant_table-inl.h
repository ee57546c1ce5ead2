// The table of microkernels for matrix products whose b is quantised, indexed by format, rows of
// the tile and panels of the tile. Compiled once per instruction set (see simd.h).

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_QUANT_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_QUANT_TABLE_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_QUANT_TABLE_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_TABLE_INL_H_
#endif

#include <array>

#include "kernels/cpu/matmul_k_tile-inl.h"
#include "kernels/cpu/matmul_quant_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// The kernels by rows and panels; null if there are not enough registers.
using QuantTable = std::array<std::array<QuantFunction, kQuantPanels + 1>,
                              quant_sums(Quant::kInt8, true) / kPanelVectors + 1>;

/// The panels of the widest tile. Without VNNI, a wider tile with AVX-512 makes only 8 bits faster
/// (by 14% on a Zen 4, one to three rows in L2); the other formats take time to compile instead.
constexpr int most_quant_panels(Quant quant, bool vnni) {
  return HWY_TARGET == HWY_AVX3 && !vnni && quant != Quant::kInt8 ? 1 : kQuantPanels;
}

template <Quant Kind, bool Vnni, int Rows, int Panels>
constexpr void fill_quant(QuantTable& table) {
  if constexpr (Rows * Panels <= most_quant_rows(Kind, Vnni)) {
    if constexpr (format_info(Kind).scale_steps != 0) {
      table[Rows][Panels] = &k_tile<Kind, Vnni, Rows, Panels>;
    } else {
      table[Rows][Panels] = &quant_tile<Kind, Vnni, Rows, Panels>;
    }
  }
  if constexpr (Panels > 1) {
    fill_quant<Kind, Vnni, Rows, Panels / 2>(table);
  } else if constexpr (Rows > 1) {
    fill_quant<Kind, Vnni, Rows - 1, most_quant_panels(Kind, Vnni)>(table);
  }
}
template <Quant Kind, bool Vnni>
constexpr QuantTable make_quant_tiles() {
  QuantTable table{};
  fill_quant<Kind, Vnni, most_quant_rows(Kind, Vnni), most_quant_panels(Kind, Vnni)>(table);
  return table;
}

template <Quant Kind, bool Vnni>
constexpr QuantTable kQuantTiles = make_quant_tiles<Kind, Vnni>();

template <bool Vnni>
const QuantTable& quant_tiles_of(Quant quant) {
  switch (quant) {
    case Quant::kInt4:
      return kQuantTiles<Quant::kInt4, Vnni>;
    case Quant::kQ4K:
      return kQuantTiles<Quant::kQ4K, Vnni>;
    case Quant::kQ5K:
      return kQuantTiles<Quant::kQ5K, Vnni>;
    case Quant::kQ6K:
      return kQuantTiles<Quant::kQ6K, Vnni>;
    case Quant::kInt8:
    case Quant::kNone:  // Not a product of integers: never looked up.
      break;
  }
  return kQuantTiles<Quant::kInt8, Vnni>;
}

const QuantTable& quant_tiles(Quant quant, [[maybe_unused]] bool vnni) {
#if HWY_TARGET == HWY_AVX3
  if (vnni) return quant_tiles_of<true>(quant);
#endif
  return quant_tiles_of<false>(quant);
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_QUANT_TABLE_INL_H_
