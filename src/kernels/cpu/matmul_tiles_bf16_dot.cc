// Tiles of pairs of bf16 on both sides, two steps at a time, with the dot product of AVX512_BF16
// (VDPBF16PS: each product is exact, each of the two sums is rounded to even, subnormal numbers
// count as zero). One instruction does the work of two f32 multiply-adds. Whether it takes the time
// of one depends on the CPU: see best_simd().
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_bf16_dot.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
namespace {

/// A pair of bf16, as 32 bits; the vectors only carry it.
struct BF16Pairs {
  using Row = std::uint32_t;
  using Element = std::uint32_t;
  static constexpr bool kPackedA = false;
  static constexpr bool kInRows = false;
  static constexpr int kSteps = 1;
  static V32 column(const std::uint32_t* p, int) {
    return hn::BitCast(F32(), hn::LoadU(hn::RebindToUnsigned<F32>(), p));
  }
  static V32 broadcast(const std::uint32_t* p) {
    Row pair;  // A row with an odd number of pairs begins at any address.
    std::memcpy(&pair, p, sizeof(pair));
    return hn::BitCast(F32(), hn::Set(hn::RebindToUnsigned<F32>(), pair));
  }
  // An asm statement, because the compiler does not know the instruction in this file's AVX3
  // target.
  static V32 multiply_add(V32 x, V32 column, V32 sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "vm"(column.raw));
    return sum;
  }
};

struct PackedABF16Pairs : BF16Pairs {
  static constexpr bool kPackedA = true;
};

}  // namespace

const TileTable& bf16_dot_table() {
  static constexpr TileTable table = make_tiles<BF16Pairs>();
  return table;
}
const TileTable& bf16_dot_packed_a_table() {
  static constexpr TileTable table = make_tiles<PackedABF16Pairs>();
  return table;
}
#else
const TileTable& bf16_dot_table() {
  static constexpr TileTable table{};
  return table;
}
const TileTable& bf16_dot_packed_a_table() { return bf16_dot_table(); }
#endif

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& bf16_dot_tiles() { return VOLTA_SIMD_CALL(Simd::kAvx512Bf16, bf16_dot_table); }

const TileTable& bf16_dot_packed_a_tiles() {
  return VOLTA_SIMD_CALL(Simd::kAvx512Bf16, bf16_dot_packed_a_table);
}

}  // namespace volta::cpu
#endif
