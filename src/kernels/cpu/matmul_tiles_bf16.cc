// Tiles of bf16 panels with an a of f32. Pairs of steps are widened when they are read, exactly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

const TileTable& bf16_table() {
  static constexpr TileTable table = make_tiles<BF16Panels>();
  return table;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& bf16_tiles(Simd simd) { return VOLTA_SIMD_CALL(simd, bf16_table); }

}  // namespace volta::cpu
#endif
