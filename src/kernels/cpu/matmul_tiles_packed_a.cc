// Tiles of f32 panels for a packed transposed a: the gradients of weights.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_packed_a.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

const TileTable& packed_a_table() {
  static constexpr TileTable table = make_tiles<PackedAPanels>();
  return table;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& packed_a_tiles(Simd simd) { return VOLTA_SIMD_CALL(simd, packed_a_table); }

}  // namespace volta::cpu
#endif
