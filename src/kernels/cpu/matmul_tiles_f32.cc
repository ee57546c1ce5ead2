// Tiles of f32 panels, with rows of a read in place or packed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

const TileTable& f32_table() {
  static constexpr TileTable table = make_tiles<F32Panels>();
  return table;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& f32_tiles(Simd simd) { return VOLTA_SIMD_CALL(simd, f32_table); }

}  // namespace volta::cpu
#endif
