// Tiles of f16 panels, which are widened when they are read.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_f16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

const TileTable& f16_table() {
  static constexpr TileTable table = make_tiles<F16Panels>();
  return table;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& f16_tiles(Simd simd) { return VOLTA_SIMD_CALL(simd, f16_table); }

}  // namespace volta::cpu
#endif
